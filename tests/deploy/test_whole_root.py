"""Do all users and folders come into being in an empty root, and do the collector's parts agree with each other?"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from opsk.config import PostmortemConfig
from opsk.postmortem.evidence import missed_jobs as missed

FOLDERS = {
    "run/opsk": 0o755, "var/log/opsk": 0o750, "run/opsk-jobs": 0o755,
    "var/spool/opsk": 0o750, "var/spool/opsk/ended": 0o750, "var/spool/opsk/started": 0o750,
}  # fmt: skip


def run(name: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"{name} (Debian package systemd) is not installed")
    return subprocess.run([program, *map(str, words)], capture_output=True, text=True, timeout=120, check=False)


def test_users_and_folders_come_into_being(root: Path, tmp_path: Path) -> None:
    for kind in ("sysusers.d", "tmpfiles.d"):
        (tmp_path / "usr" / "lib" / kind).mkdir(parents=True)
        for file in sorted((root / "deploy" / kind).rglob("*.conf")):
            shutil.copy(file, tmp_path / "usr" / "lib" / kind)
    (tmp_path / "etc").mkdir()
    made = run("systemd-sysusers", f"--root={tmp_path}")
    if "Operation not permitted" in made.stderr or "Permission denied" in made.stderr:
        pytest.skip(f"systemd-sysusers may not write here: {made.stderr.strip()}")
    assert made.returncode == 0, made.stderr
    made = run("systemd-tmpfiles", f"--root={tmp_path}", "--create")
    if "Operation not permitted" in made.stderr:
        pytest.skip(f"systemd-tmpfiles may not change owners here: {made.stderr.strip()}")
    assert (made.returncode, made.stderr) == (0, "")
    assert {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in FOLDERS} == FOLDERS
    passwd = (tmp_path / "etc" / "passwd").read_text().splitlines()
    (uid,) = (int(line.split(":")[2]) for line in passwd if line.startswith("opsk:"))
    assert (tmp_path / "run" / "opsk").stat().st_uid == uid != 0
    assert (tmp_path / "var" / "spool" / "opsk").stat().st_uid == 0


def test_the_spool_is_where_epilog_collector_and_unit_expect_it(root: Path) -> None:
    spool = str(PostmortemConfig().spool)
    unit = (root / "deploy" / "systemd" / "opsk-collector.service").read_text().splitlines()
    assert f"ReadWritePaths={spool}" in unit
    assert {f"ConditionPathExistsGlob=|{spool}/{name}/*" for name in ("ended", "reports")} <= set(unit)
    assert f"OPSK_SPOOL_FOLDER:-{spool}}}" in (root / "deploy" / "slurm" / "opsk-epilog").read_text()


def test_the_timer_starts_the_collector(root: Path, tmp_path: Path) -> None:
    for name in ("opsk-collector.service", "opsk-collector.timer"):
        text = (root / "deploy" / "systemd" / name).read_text()
        (tmp_path / name).write_text(text.replace("/usr/bin/opsk ", "/bin/true "))
    done = run("systemd-analyze", "verify", "--man=no", tmp_path / "opsk-collector.timer")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_one_host_looks_for_jobs_that_ended_with_all_their_nodes(root: Path, tmp_path: Path) -> None:
    folder = root / "deploy" / "systemd"
    (tmp_path / "opsk-collector.service.d").mkdir()
    for name in ("opsk-collector.service", "opsk-collector.timer", "opsk-collector.service.d/missed.conf"):
        (tmp_path / name).write_text((folder / name).read_text().replace("/usr/bin/opsk ", "/bin/true "))
    done = run("systemd-analyze", "verify", "--man=no", tmp_path / "opsk-collector.timer")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    drop_in = (folder / "opsk-collector.service.d" / "missed.conf").read_text().splitlines()
    (limit_s,) = (float(line.partition("=")[2]) for line in drop_in if line.startswith("TimeoutStartSec="))
    assert limit_s > 2 * missed.MAX_SCAN_S
    assert "ConditionPathExistsGlob=" in drop_in  # resets that the spool must hold something


def test_the_collectors_rights_are_enough_to_read_as_a_user_and_to_give_reports_away(root: Path) -> None:
    """The tests of both pass with the rights that the unit leaves, and no others."""
    unit = (root / "deploy" / "systemd" / "opsk-collector.service").read_text()
    (words,) = (line.partition("=")[2] for line in unit.splitlines() if line.startswith("CapabilityBoundingSet="))
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv (Debian package util-linux)")
    kept = ",".join(f"+{word.removeprefix('CAP_').lower()}" for word in words.split())
    tests = [f"tests/opsk/postmortem/evidence/test_{name}.py" for name in ("as_user", "index")]
    pytest_words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(
        ["setpriv", f"--bounding-set=-all,{kept}", *pytest_words],
        cwd=root, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
