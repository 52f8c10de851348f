"""Do systemd's programs accept the exporter's socket and drop-ins, and does each collector get what it needs?"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from opsk_exporters.core.server import DEFAULT_LISTEN, ListenAddress

FOLDER = Path("deploy/systemd")
DROP_INS = ("job-environments.conf", "kernel-log.conf", "rapl.conf", "tls.conf", "training-logs.conf")
MOST_EXPOSED = {
    "job-environments.conf": 4.0,
    "kernel-log.conf": 3.0,
    "rapl.conf": 3.0,
    "tls.conf": 2.5,
    "training-logs.conf": 4.0,
}
"""What `systemd-analyze security` may say of the unit with each drop-in; 5 and more it calls medium."""


def copied(root: Path, folder: Path, *drop_ins: str) -> Path:
    """Copy the units to a folder, with a program that is installed wherever this runs."""
    for name in ("opsk-exporter.service", "opsk-exporter.socket"):
        text = (root / FOLDER / name).read_text(encoding="utf-8")
        (folder / name).write_text(text.replace("/usr/bin/opsk ", "/bin/true "), encoding="utf-8")
    into = folder / "opsk-exporter.service.d"
    into.mkdir()
    for name in drop_ins:
        shutil.copy(root / FOLDER / into.name / name, into / name)
    return folder / "opsk-exporter.service"


def analyze(*words: str | Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze (Debian package systemd) is not installed")
    return subprocess.run([program, *words], capture_output=True, text=True, timeout=120, check=False)


def test_there_is_no_other_drop_in(root: Path) -> None:
    found = sorted(path.name for path in (root / FOLDER / "opsk-exporter.service.d").iterdir())
    assert found == list(DROP_INS)


def test_counters_of_jobs_are_kept_while_it_is_stopped(root: Path) -> None:
    """With ``restart`` an upgrade that stops and starts it would lose them; another boot is told by its id."""
    lines = (root / FOLDER / "opsk-exporter.service").read_text(encoding="utf-8").splitlines()
    assert "RuntimeDirectoryPreserve=yes" in lines
    assert "`RuntimeDirectoryPreserve=yes`" in (root / "docs" / "howto" / "see-jobs.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("drop_ins", [(), *((name,) for name in DROP_INS), DROP_INS], ids="+".join)
def test_systemd_finds_no_fault(root: Path, tmp_path: Path, drop_ins: tuple[str, ...]) -> None:
    service = copied(root, tmp_path, *drop_ins)
    done = analyze("verify", "--man=no", service, tmp_path / "opsk-exporter.socket")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("name", DROP_INS)
def test_a_drop_in_opens_only_so_much(root: Path, tmp_path: Path, name: str) -> None:
    # Drop-ins are not looked at for a unit named by its path: so they are written to its end, where they count alike.
    service = copied(root, tmp_path)
    drop_in = (root / FOLDER / "opsk-exporter.service.d" / name).read_text(encoding="utf-8")
    with service.open("a", encoding="utf-8") as file:
        file.write(drop_in)
    done = analyze("security", "--offline=true", "--no-pager", service)
    exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    if exposure is None:
        pytest.skip(f"this systemd-analyze cannot judge a unit offline: {done.stderr.strip()}")
    assert float(exposure[1]) <= MOST_EXPOSED[name]


def test_the_socket_is_the_exporters_port(root: Path) -> None:
    text = (root / FOLDER / "opsk-exporter.socket").read_text(encoding="utf-8")
    assert f"ListenStream={ListenAddress.parse(DEFAULT_LISTEN).port}\n" in text


def test_nvml_reaches_its_devices_and_nothing_hides_them(root: Path) -> None:
    lines = (root / FOLDER / "opsk-exporter.service").read_text(encoding="utf-8").splitlines()
    assert "DeviceAllow=char-nvidia* rw" in lines
    assert not any(line.startswith("PrivateDevices=") for line in lines)
    assert "Type=notify" in lines


def test_the_unit_says_why_it_leaves_something_open(root: Path) -> None:
    text = (root / FOLDER / "opsk-exporter.service").read_text(encoding="utf-8")
    for collector in ("gpu", "host", "infiniband", "jobs", "power", "xids"):
        assert re.search(rf"^# .*\b{collector}\b", text, re.MULTILINE), collector
