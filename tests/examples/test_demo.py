"""``make demo`` where the lab may not be installed: the same scripts, against the fabric recorded from the lab."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.warm_opsk import warm


@pytest.fixture(scope="module")
def without_lab(root: Path) -> subprocess.CompletedProcess[str]:
    """Run the demo as on a machine that lacks a package and cannot install it."""
    return run(
        root, "demo.find_missing_packages = lambda: ['slurm-wlm']; sys.exit(demo.run_reporting_errors(demo.main))"
    )


def run(root: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run statements after ``import demo, sys``, as a person would: without OPSK_TRACEBACK; opsk is loaded already."""
    command = [sys.executable, "-c", f"import demo, sys; demo.OPSK = {warm().command()}; {code}"]
    environment = {name: value for name, value in os.environ.items() if name != "OPSK_TRACEBACK"}
    return subprocess.run(
        command, cwd=root / "examples", env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_without_a_lab_the_demo_says_so_in_one_line_and_shows_all_kinds_of_answers(
    without_lab: subprocess.CompletedProcess[str],
) -> None:
    assert without_lab.returncode == 0, without_lab.stderr
    assert without_lab.stdout.split("\n")[0].startswith("demo: no lab without slurm-wlm: ")
    scripts = ("fits (chance", "will run out", "cannot tell", "no training job")
    fabric = ("HCAs cabled crosswise", "predicted step", "spare_node")
    for answer in (*scripts, *fabric):
        assert answer in without_lab.stdout


def test_the_recorded_fabric_is_named_as_the_evidence_of_the_placement(
    without_lab: subprocess.CompletedProcess[str],
) -> None:
    assert "8 rails, as cabled in fabric.ibnetdiscover" in " ".join(without_lab.stdout.split())


def test_an_exporter_that_does_not_answer_is_one_line_and_a_hint(root: Path, tmp_path: Path) -> None:
    show = "demo.demo_exporter.show({'ports': {'exporters': {'n0': 1}}}, print, print, ())"
    done = run(root, f"sys.exit(demo.run_reporting_errors(lambda: {show}))")
    assert done.returncode == 3
    first, second = done.stderr.splitlines()
    assert first.startswith("opsk: http://127.0.0.1:1/metrics does not answer: ")
    assert second.startswith("opsk: hint: ")


def test_a_lab_that_does_not_start_is_taken_down_and_named(root: Path, tmp_path: Path) -> None:
    occupied = tmp_path / "lab"
    occupied.mkdir()
    (occupied / "mine.txt").write_text("not a lab")
    done = run(
        root, f"demo.LAB = demo.Path({str(occupied)!r}); sys.exit(demo.run_reporting_errors(demo.show_with_lab))"
    )
    assert done.returncode == 3
    assert f"{occupied} is not empty and is not the folder of a lab" in done.stderr
    assert done.stderr.count("Traceback") == 0
    assert (occupied / "mine.txt").read_text() == "not a lab"
