"""Do systemd's own programs accept the units, users and folders, and are the units as confined as we say?"""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from opsk.cli.main import opsk
from opsk.config import AdvisorConfig, LearningConfig
from opsk.errors import ExitStatus

UNITS = (
    *("opsk-advisor.service", "opsk-collector.service", "opsk-exporter.service", "opsk-recorder.service"),
    *("opsk-watcher.service", "opsk-learn.service"),
)
EXPOSURE_LIMIT = 3.0
"""`systemd-analyze security` calls up to 2 "OK"; the design asks for less than 3."""


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} (Debian package systemd) is not installed")
    return found


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def unit(root: Path, name: str) -> configparser.ConfigParser:
    """Read a unit; of a key that stands there twice the last counts, which is enough here."""
    parsed = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read(root / "deploy" / "systemd" / name, encoding="utf-8")
    return parsed


@pytest.mark.parametrize("name", UNITS)
def test_systemd_finds_no_fault(root: Path, tmp_path: Path, name: str) -> None:
    text = (root / "deploy" / "systemd" / name).read_text(encoding="utf-8")
    # The program need not be installed where the test runs.
    (tmp_path / name).write_text(text.replace("/usr/bin/opsk ", "/bin/true "), encoding="utf-8")
    done = run(program("systemd-analyze"), "verify", "--man=no", tmp_path / name)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("name", UNITS)
def test_the_unit_is_confined(root: Path, name: str) -> None:
    done = run(
        program("systemd-analyze"), "security", "--offline=true", "--no-pager", root / "deploy" / "systemd" / name
    )
    exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    if exposure is None:
        pytest.skip(f"this systemd-analyze cannot judge a unit offline: {done.stderr.strip()}")
    assert float(exposure[1]) < EXPOSURE_LIMIT


@pytest.mark.parametrize("name", UNITS)
def test_the_unit_starts_a_command_that_exists_with_options_that_exist(root: Path, name: str) -> None:
    words = shlex.split(unit(root, name)["Service"]["ExecStart"])
    assert words[0] == "/usr/bin/opsk"
    command = opsk.get_command(click.Context(opsk), words[1])
    assert command is not None
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words[2:] if word.startswith("--")} <= options


def test_the_advisor_sees_uids_as_they_are(root: Path) -> None:
    # With PrivateUsers= the kernel maps foreign uids of a socket's peer to 65534 (user_namespaces(7)).
    assert "PrivateUsers" not in unit(root, "opsk-advisor.service")["Service"]


def test_the_exporter_may_read_the_files_of_the_host_collector(root: Path) -> None:
    # ProcSubset=pid hides /proc/stat, meminfo and diskstats (systemd.exec(5)).
    assert "ProcSubset" not in unit(root, "opsk-exporter.service")["Service"]


def test_user_and_folders_are_made(root: Path, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    done = run(program("systemd-sysusers"), f"--root={tmp_path}", root / "deploy" / "sysusers.d" / "opsk.conf")
    if "Operation not permitted" in done.stderr or "Permission denied" in done.stderr:
        pytest.skip(f"systemd-sysusers may not write here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    (line,) = [
        line
        for line in (tmp_path / "etc" / "passwd").read_text(encoding="utf-8").splitlines()
        if line.startswith("opsk:")
    ]
    assert line.endswith((":/usr/sbin/nologin", ":/sbin/nologin"))
    done = run(
        program("systemd-tmpfiles"), f"--root={tmp_path}", "--create", root / "deploy" / "tmpfiles.d" / "opsk.conf"
    )
    if "Operation not permitted" in done.stderr:
        pytest.skip(f"systemd-tmpfiles may not change owners here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "opsk").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "var" / "log" / "opsk").stat().st_mode & 0o777 == 0o750


def test_the_socket_lies_where_hooks_and_unit_expect_it(root: Path) -> None:
    service = unit(root, "opsk-advisor.service")["Service"]
    assert AdvisorConfig().socket.parent == Path("/run") / service["RuntimeDirectory"]


def test_learning_runs_at_night_where_jobs_are_recorded_and_may_write_its_folder(root: Path, tmp_path: Path) -> None:
    assert unit(root, "opsk-recorder.service")["Unit"]["Wants"] == "opsk-learn.timer"
    service = unit(root, "opsk-learn.service")["Service"]
    assert LearningConfig().folder == Path("/var/lib") / service["StateDirectory"]
    assert service["StateDirectoryMode"] == "0755"  # all who predict read the published fit
    assert service["SuccessExitStatus"] == str(int(ExitStatus.BAD_NEWS))  # no better fit is no failure of the unit
    for name in ("opsk-learn.service", "opsk-learn.timer"):
        text = (root / "deploy" / "systemd" / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace("/usr/bin/opsk ", "/bin/true "), encoding="utf-8")
    done = run(program("systemd-analyze"), "verify", "--man=no", tmp_path / "opsk-learn.timer")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
