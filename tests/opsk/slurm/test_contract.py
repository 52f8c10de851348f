"""Every adapter passes the contract, on clusters that are drawn and on real ones as four releases showed them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from opsk.slurm.client import SlurmClient
from opsk.slurm.commands.command import CommandClient
from opsk.slurm.pyslurm.client import PyslurmClient
from tests.fakes import slurm_captures, slurm_cluster
from tests.opsk.slurm.contract import SlurmContract, plain

CAPTURES = ("22.05", "24.11", "25.11", "26.05")


def pair(folder: Path, told: slurm_cluster.Told, tables: slurm_cluster.Told) -> tuple[CommandClient, PyslurmClient]:
    """Return both adapters on one cluster; pyslurm's has the commands to ask for what pyslurm cannot tell."""
    commands = slurm_cluster.install_commands(folder / "bin", tables)
    both = slurm_cluster.install_pyslurm(folder / "pyslurm", told) | commands
    return CommandClient(environment=commands), PyslurmClient(environment=both)


class TestCommandsOnADrawnCluster(SlurmContract):
    @pytest.fixture(params=[1, 2])
    def client(self, request: pytest.FixtureRequest, tmp_path: Path) -> SlurmClient:
        told = slurm_cluster.cluster(request.param)
        return pair(tmp_path, told, slurm_cluster.tables(told))[0]


class TestPyslurmOnADrawnCluster(SlurmContract):
    @pytest.fixture(params=[1, 2])
    def client(self, request: pytest.FixtureRequest, tmp_path: Path) -> SlurmClient:
        told = slurm_cluster.cluster(request.param)
        return pair(tmp_path, told, slurm_cluster.tables(told))[1]


@pytest.mark.shared
class TestCommandsOnACapture(SlurmContract):
    @pytest.fixture(params=CAPTURES)
    def client(self, request: pytest.FixtureRequest, shared: Path, tmp_path: Path) -> SlurmClient:
        tables = slurm_captures.tables(shared / "data/real/slurm-json" / request.param)
        return CommandClient(environment=slurm_cluster.install_commands(tmp_path / "bin", tables))


@pytest.mark.shared
class TestPyslurmOnACapture(SlurmContract):
    @pytest.fixture
    def client(self, shared: Path, tmp_path: Path) -> SlurmClient:
        folder = shared / "data/real/slurm-json/25.11"
        return pair(tmp_path, slurm_captures.slurmctld(folder), slurm_captures.tables(folder))[1]


@pytest.mark.parametrize("seed", range(8))
def test_both_adapters_answer_the_same_of_any_cluster(seed: int, tmp_path: Path) -> None:
    told = slurm_cluster.cluster(seed)
    commands, pyslurm = pair(tmp_path, told, slurm_cluster.tables(told))
    assert_same(commands, pyslurm)


@pytest.mark.shared
def test_both_adapters_answer_the_same_of_a_real_cluster(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What pyslurm is given comes from the JSON of slurmctld, what the commands print from their text.

    The capture's account is none of this machine, and its text was written in UTC, at another second than its JSON.
    """
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    folder = shared / "data/real/slurm-json/25.11"
    clients = pair(tmp_path, slurm_captures.slurmctld(folder), slurm_captures.tables(folder))
    assert_same(*clients, without=("run_time_s", "user"))
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("seed", range(4))
def test_without_commands_only_doubtful_exit_codes_are_unknown(seed: int, tmp_path: Path) -> None:
    """Exit 3 may have been 131: pyslurm takes 128 off. It tells all else by itself."""
    told = slurm_cluster.cluster(seed)
    commands, _ = pair(tmp_path, told, slurm_cluster.tables(told))
    alone = PyslurmClient(environment=slurm_cluster.install_pyslurm(tmp_path / "alone", told) | {"PATH": "/nowhere"})
    assert_same(commands, alone, without=("run_time_s", "exit_code"))
    codes = {job.id: job.exit_code for job in commands.jobs(finished=True)}
    said = {job.id: job.exit_code for job in alone.jobs(finished=True)}
    assert {number for number in codes if codes[number] != said[number]} == {14, 15, 16}
    assert [alone.job(number).exit_code for number in ("14", "15", "16", "17")] == [None, None, None, 0]


def assert_same(commands: SlurmClient, pyslurm: SlurmClient, *, without: Sequence[str] = ("run_time_s",)) -> None:
    """Compare all that both say."""
    for finished in (False, True):
        told = {job.id: plain(job, without=without) for job in commands.jobs(details=True, finished=finished)}
        said = {job.id: plain(job, without=without) for job in pyslurm.jobs(details=True, finished=finished)}
        assert said == told
    assert {node.name: plain(node) for node in pyslurm.nodes()} == {node.name: plain(node) for node in commands.nodes()}
