"""Do we tell a service that runs from one that should, and from one that is not there?"""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk.telemetry.gpu.services import ServiceSample, read_service

NAME = "nvidia-fabricmanager"


def systemd(root: Path, *, installed: bool = True, enabled: bool = True, groups: str = "sys/fs/cgroup") -> Path:
    unit = root / "usr/lib/systemd/system" / f"{NAME}.service"
    wants = root / "etc/systemd/system/multi-user.target.wants"
    for folder in (unit.parent, wants, root / groups / "system.slice"):
        folder.mkdir(parents=True)
    if installed:
        unit.write_text("[Service]\n")
    if enabled:
        (wants / unit.name).symlink_to(unit)
    return root / groups / "system.slice" / unit.name


def test_a_service_whose_group_has_processes_runs(tmp_path: Path) -> None:
    group = systemd(tmp_path)
    group.mkdir()
    (group / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    assert read_service(NAME, tmp_path) == ServiceSample(name=NAME, enabled=True, running=True)


@pytest.mark.parametrize("emptied", [True, False])
def test_an_enabled_service_without_processes_does_not_run(tmp_path: Path, emptied: bool) -> None:
    group = systemd(tmp_path)
    if emptied:
        group.mkdir()
        (group / "cgroup.events").write_text("populated 0\nfrozen 0\n")
    assert read_service(NAME, tmp_path) == ServiceSample(name=NAME, enabled=True, running=False)


def test_the_first_version_of_control_groups_is_read_too(tmp_path: Path) -> None:
    group = systemd(tmp_path, enabled=False, groups="sys/fs/cgroup/systemd")
    group.mkdir()
    (group / "cgroup.procs").write_text("4711\n")
    assert read_service(NAME, tmp_path) == ServiceSample(name=NAME, enabled=False, running=True)


def test_a_service_that_is_not_installed_is_not_there(tmp_path: Path) -> None:
    systemd(tmp_path, installed=False, enabled=False)
    assert read_service(NAME, tmp_path) is None


def test_a_node_without_systemd_says_nothing(tmp_path: Path) -> None:
    assert read_service(NAME, tmp_path) is None
