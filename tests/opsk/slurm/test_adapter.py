"""Which adapter is taken: by name, else pyslurm where it serves; nothing is started where it is not installed."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opsk.errors import ConfigError, SlurmError
from opsk.slurm.adapter import Adapter, slurm_client
from opsk.slurm.pyslurm.client import PyslurmUnusableError
from tests.fakes.slurm_cluster import cluster, install_commands, install_pyslurm, tables

FAKES = Path(__file__).parents[2] / "fakes"


@pytest.fixture(autouse=True)
def no_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read no configuration of this machine."""
    monkeypatch.setattr("opsk.config.DEFAULT_PATH", tmp_path / "none.toml")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the stand-in importable, as an installed pyslurm is."""
    monkeypatch.syspath_prepend(str(FAKES))


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


def surroundings(folder: Path, mode: str = "", **more: str) -> dict[str, str]:
    """Return an environment with both ways of asking one cluster."""
    told = cluster(1)
    return install_pyslurm(folder / "pyslurm", told, mode) | install_commands(folder / "bin", tables(told)) | more


@pytest.mark.usefixtures("absent")
def test_without_pyslurm_commands_are_taken_and_no_process_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = surroundings(tmp_path)

    def refuse(*arguments: Any, **settings: Any) -> None:
        raise AssertionError("a process was started")

    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", refuse)
        client = slurm_client(environment)
    assert (client.adapter, client.why) == (Adapter.COMMANDS, "pyslurm is not installed")
    assert client.jobs()


def test_looking_for_pyslurm_does_not_import_it(installed: None, tmp_path: Path) -> None:
    client = slurm_client(surroundings(tmp_path))
    assert client.adapter is Adapter.PYSLURM
    assert "pyslurm" not in sys.modules


def test_pyslurm_answers_where_it_is_installed(installed: None, tmp_path: Path) -> None:
    client = slurm_client(surroundings(tmp_path) | {"PATH": "/nowhere"})
    assert client.nodes()
    assert client.job("1").name == "even"
    assert client.release() == (25, 11)
    assert client.adapter is Adapter.PYSLURM


@pytest.mark.parametrize("mode", ["exits at import", "no module", "dies", "older slurmctld", "old cluster", "22.05"])
def test_a_pyslurm_that_cannot_serve_gives_way_to_commands_for_good(
    installed: None, tmp_path: Path, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="opsk.slurm")
    client = slurm_client(surroundings(tmp_path, mode))
    assert client.jobs()
    assert client.adapter is Adapter.COMMANDS
    assert client.why in caplog.text
    assert client.nodes()


def test_a_controller_that_is_down_is_not_asked_a_second_time_by_commands(installed: None, tmp_path: Path) -> None:
    client = slurm_client(surroundings(tmp_path, "down"))
    with pytest.raises(SlurmError, match="connect failure"):
        client.jobs()
    assert client.adapter is Adapter.PYSLURM


def test_without_a_slurm_conf_commands_are_taken(installed: None, tmp_path: Path) -> None:
    client = slurm_client(surroundings(tmp_path, SLURM_CONF="/nowhere/slurm.conf"))
    assert client.adapter is Adapter.COMMANDS
    assert "/nowhere/slurm.conf" in client.why


def test_the_variable_and_then_the_site_decide(
    installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "opsk.toml"
    site.write_text('[slurm]\nadapter = "commands"\n')
    monkeypatch.setenv("OPSK_CONFIG", str(site))
    environment = surroundings(tmp_path)
    assert slurm_client(environment).adapter is Adapter.COMMANDS
    assert slurm_client(environment | {"OPSK_SLURM_ADAPTER": "pyslurm"}).adapter is Adapter.PYSLURM
    site.write_text('[slurm]\nadapter = "rest"\n')
    with pytest.raises(ConfigError, match=r"slurm\.adapter"):
        slurm_client(environment)


def test_pyslurm_by_name_is_never_replaced(tmp_path: Path) -> None:
    client = slurm_client(surroundings(tmp_path, "no module", OPSK_SLURM_ADAPTER="pyslurm"))
    with pytest.raises(PyslurmUnusableError, match="libslurmfull"):
        client.jobs()


def test_a_word_that_names_no_adapter_is_an_error_that_lists_them() -> None:
    with pytest.raises(ConfigError, match="OPSK_SLURM_ADAPTER='rest'") as caught:
        slurm_client({"OPSK_SLURM_ADAPTER": "rest"})
    assert caught.value.hint == "one of auto, pyslurm, commands"
