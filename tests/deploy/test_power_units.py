"""Does systemd accept the timer that asks a node's controller, and does the exporter read what it writes?"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from opsk.telemetry.power.ipmi import DEFAULT_FILE, DcmiFile
from tests.fakes.powercap import FREEIPMI, fake_tool

FOLDER = Path("deploy/systemd")


@pytest.mark.parametrize("name", ["opsk-dcmi.service", "opsk-dcmi.timer"])
def test_systemd_finds_no_fault(root: Path, name: str) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze (Debian package systemd) is not installed")
    done = subprocess.run(
        [program, "verify", "--man=no", root / FOLDER / name], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_what_the_timer_writes_is_what_the_exporter_reads(root: Path, tmp_path: Path) -> None:
    lines = (root / FOLDER / "opsk-dcmi.service").read_text(encoding="utf-8").splitlines()
    command = next(line.removeprefix("ExecStart=/bin/sh -c ").strip("'") for line in lines if line.startswith("ExecS"))
    tools = fake_tool(tmp_path / "bin", "ipmi-dcmi", f"cat <<'END'\n{FREEIPMI.format(watts=432)}\nEND")
    run = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=tmp_path,
        env={"PATH": f"{tools}:/bin:/usr/bin"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0
    assert DcmiFile(tmp_path / DEFAULT_FILE.name).read()[0].current_w == 432
    assert f"WorkingDirectory={DEFAULT_FILE.parent}" in lines
