"""Does each daemon have the rights that the threat model says, and no others?"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import click
import pytest

from opsk.cli.main import opsk
from opsk_exporters.core.settings import Settings
from tests.deploy.test_systemd import unit

RIGHTS = {
    "opsk-advisor.service": ("opsk", set()),
    "opsk-watcher.service": ("opsk", set()),
    "opsk-recorder.service": ("opsk", set()),
    "opsk-learn.service": ("opsk", set()),
    "opsk-exporter.service": ("opsk-exporter", set()),
    # Root: reads /dev/kmsg (SYSLOG), and users' files only after it became them (SETUID, SETGID, KILL of the child).
    "opsk-collector.service": ("root", {"CAP_CHOWN", "CAP_KILL", "CAP_SETGID", "CAP_SETUID", "CAP_SYSLOG"}),
    # Root: runs ipmitool alone, nothing of opsk.
    "opsk-dcmi.service": ("root", {"CAP_SYS_RAWIO", "CAP_DAC_OVERRIDE"}),
}
SECRET = re.compile(r"pass(word|wd|phrase)?|secret|token|credential|api-?key", re.IGNORECASE)


def test_every_unit_is_in_the_table(root: Path) -> None:
    assert {path.name for path in (root / "deploy" / "systemd").glob("*.service")} == set(RIGHTS)


@pytest.mark.parametrize("name", RIGHTS)
def test_a_daemon_has_its_user_and_its_capabilities_and_gains_no_others(root: Path, name: str) -> None:
    service = unit(root, name)["Service"]
    user, capabilities = RIGHTS[name]
    assert service.get("User", "root") == user
    assert set(service["CapabilityBoundingSet"].split()) == capabilities
    assert not service.get("AmbientCapabilities", "")
    assert service["NoNewPrivileges"] == "yes"
    assert service.get("ProtectSystem") == "strict"


def test_no_drop_in_gives_what_could_change_others_files(root: Path) -> None:
    """They let the exporter read more; CAP_DAC_OVERRIDE, SETUID or SYS_ADMIN would let it write or become anybody."""
    given: set[str] = set()
    for path in (root / "deploy" / "systemd").glob("*.service.d/*.conf"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith(("AmbientCapabilities=", "CapabilityBoundingSet=")):
                given |= set(line.partition("=")[2].split())
    assert given <= {"CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH", "CAP_SYSLOG"}


def test_the_exporter_listens_to_this_machine_alone_until_it_is_told_otherwise() -> None:
    assert Settings().listen == "127.0.0.1:9876"


def commands(group: click.Group, words: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    found: list[tuple[tuple[str, ...], click.Command]] = []
    for word in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), word)
        assert command is not None
        found.append(((*words, word), command))
        if isinstance(command, click.Group):
            found += commands(command, (*words, word))
    return found


def test_no_option_takes_a_secret_that_a_list_of_processes_would_show() -> None:
    options = {
        " ".join((*words, option))
        for words, command in commands(opsk)
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for option in parameter.opts
        if SECRET.search(option) and "tokens" not in option  # tokens per second
    }
    assert {option for option in options if not option.endswith("-file")} == set()


def test_no_unit_and_no_hook_has_a_secret_on_a_command_line(root: Path) -> None:
    for path in (root / "deploy").rglob("*"):
        if path.suffix in (".service", ".conf", ".timer", ".socket"):
            lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("Exec")]
            assert [line for line in lines if SECRET.search(line)] == [], path


def test_no_file_of_ours_is_setuid_or_writable_by_others(root: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-s"], cwd=root, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is no git checkout")
    assert {line.split()[0] for line in listed.stdout.splitlines()} <= {"100644", "100755", "120000"}
