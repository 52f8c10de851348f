"""Every adapter passes the contract on real daemons: commands on each release, pyslurm where it serves that release."""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opsk.errors import SlurmError
from opsk.slurm.client import SlurmClient
from opsk.slurm.commands.command import CommandClient
from opsk.slurm.pyslurm.client import PyslurmClient, PyslurmUnusableError
from tests.opsk.slurm.contract import SlurmContract, plain

pytestmark = pytest.mark.slurm

DEADLINE_S = 90.0


@pytest.fixture(scope="module")
def busy_lab(lab: Any) -> Iterator[Any]:
    """The lab with a job of every kind that the contract tells apart, and nothing that is about to change."""
    top = Path("/tmp")
    submitted = [
        ("-N2", "-n2", "--gpus=5", "-J", "uneven", "--wrap", "sleep 600"),
        ("-N1", "--gpus-per-node=1", "-J", "het", "--wrap", "sleep 600", ":", "-N1", "--gpus-per-node=2"),
        ("-N1", "--array=0-3%1", "--gpus-per-node=1", "-J", "array", "--wrap", "sleep 600"),
        ("-N1", "--hold", "--gpus=2", "-J", "held", "--wrap", "sleep 600"),
        ("-N1", "-J", "fails", "--wrap", "exit 3"),
        ("-N1", "-J", "killed", "--wrap", "exit 137"),
    ]
    ids = []
    try:
        for words in submitted:
            done = lab.run("sbatch", "--parsable", "-D", str(top), "-o", "/dev/null", *words)
            assert done.returncode == 0, done.stderr
            ids.append(done.stdout.strip())
        commands = CommandClient(environment=dict(lab.environment))
        until = time.monotonic() + DEADLINE_S
        while not is_settled(commands):
            assert time.monotonic() < until, [
                (job.label, job.state, job.reason) for job in commands.jobs(finished=True)
            ]
            time.sleep(0.5)
        yield lab
    finally:
        if ids:
            lab.run("scancel", *ids)


def is_settled(client: CommandClient) -> bool:
    """Return whether all jobs run that can, and those that fail have left their nodes."""
    by_name: dict[str, list[str]] = {}
    for job in client.jobs(finished=True):
        by_name.setdefault(job.name, []).append(job.state)
    return (
        by_name["uneven"] == ["RUNNING"]
        and by_name["het"] == ["RUNNING"] * 2
        and sorted(by_name["array"]) == ["PENDING", "RUNNING"]
        and by_name["fails"] == by_name["killed"] == ["FAILED"]
        and not any("COMPLETING" in states for states in by_name.values())
    )


def pyslurm_or_skip(lab: Any) -> PyslurmClient:
    """Return pyslurm's adapter, or skip with what is missing for it."""
    if importlib.util.find_spec("pyslurm") is None:
        pytest.skip("pyslurm is not installed: pip install 'opsk[pyslurm]' beside a Slurm 25.11")
    client = PyslurmClient(environment=dict(lab.environment))
    try:
        client.jobs()
    except PyslurmUnusableError as error:
        pytest.skip(f"pyslurm cannot ask this release: {error.message}")
    return client


class TestCommandsOnRealDaemons(SlurmContract):
    @pytest.fixture
    def client(self, busy_lab: Any) -> SlurmClient:
        return CommandClient(environment=dict(busy_lab.environment))


class TestPyslurmOnRealDaemons(SlurmContract):
    @pytest.fixture
    def client(self, busy_lab: Any) -> SlurmClient:
        return pyslurm_or_skip(busy_lab)


def test_both_adapters_answer_the_same_of_real_daemons(busy_lab: Any) -> None:
    pyslurm = pyslurm_or_skip(busy_lab)
    commands = CommandClient(environment=dict(busy_lab.environment))
    for finished in (False, True):
        told = {job.id: plain(job) for job in commands.jobs(details=True, finished=finished)}
        said = {job.id: plain(job) for job in pyslurm.jobs(details=True, finished=finished)}
        assert said == told
    assert {node.name: plain(node) for node in pyslurm.nodes()} == {node.name: plain(node) for node in commands.nodes()}


def test_an_installed_pyslurm_never_ends_or_blocks_opsk(busy_lab: Any) -> None:
    """Whatever release it meets: jobs are told, or an error is."""
    if importlib.util.find_spec("pyslurm") is None:
        pytest.skip("pyslurm is not installed: pip install 'opsk[pyslurm]' beside a Slurm 25.11")
    with contextlib.suppress(SlurmError):
        PyslurmClient(environment=dict(busy_lab.environment)).jobs()
