"""Prolog and epilog start a collector that outlives them, and are themselves never late nor a failure."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.fakes.advisor_process import eventually

SLOW = """#!/bin/sh
# Stands for an opsk that hangs on a GPU: says that it began and that nobody ended it.
echo "$@" >>{log}
sleep 2
echo whole >>{log}
"""


@pytest.fixture
def node(tmp_path: Path) -> Path:
    for name in ("jobs", "spool/started", "spool/ended"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "opsk").write_text(SLOW.format(log=tmp_path / "log"))
    (tmp_path / "opsk").chmod(0o755)
    return tmp_path


def run_as_slurmd(root: Path, node: Path, which: str, job: str = "77", cluster: str = "") -> float:
    """Run a script, and kill what is left in its process group when it has ended, as slurmd does."""
    environment = {
        "OPSK_JOBS_FOLDER": str(node / "jobs"), "OPSK_SPOOL_FOLDER": str(node / "spool"), "SLURM_JOB_ID": job,
        "OPSK_COMMAND": str(node / "opsk"), "SLURM_JOB_UID": "1000", "SLURMD_NODENAME": "n1",
        "SLURM_CLUSTER_NAME": cluster,
    }  # fmt: skip
    begun = time.monotonic()
    child = subprocess.Popen([str(root / "deploy" / "slurm" / f"opsk-{which}")], env=environment, process_group=0)
    assert child.wait(20) == 0
    took_s = time.monotonic() - begun
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    return took_s


@pytest.mark.parametrize(("which", "option"), [("prolog", "--started"), ("epilog", "--ended")])
def test_the_collector_outlives_the_script_that_does_not_wait_for_it(
    root: Path, node: Path, which: str, option: str
) -> None:
    took_s = run_as_slurmd(root, node, which)
    assert took_s < 1.8, "the stand-in takes 2 s"
    said = eventually(
        lambda: (node / "log").read_text() if (node / "log").exists() else "", lambda text: "whole" in text
    )
    assert said.splitlines()[0] == f"collect {option}"


def test_the_note_is_in_the_spool_whole_when_the_epilog_ends(root: Path, node: Path) -> None:
    run_as_slurmd(root, node, "prolog")
    run_as_slurmd(root, node, "epilog")
    assert sorted(path.name for path in (node / "spool" / "ended").iterdir()) == [".77.end", "77"]
    assert (node / "spool" / "ended" / "77").read_text().endswith("\nwhole\n")
    assert list((node / "jobs").iterdir()) == []


def test_what_others_put_beside_a_note_does_not_go_into_the_spool(root: Path, node: Path) -> None:
    run_as_slurmd(root, node, "prolog")
    (node / "jobs" / "77.advice").write_text("x")
    run_as_slurmd(root, node, "epilog")
    assert not (node / "spool" / "ended" / "77.advice").exists()
    assert not (node / "jobs" / "77.advice").exists()


def test_a_spool_that_nobody_empties_grows_only_so_far(root: Path, node: Path) -> None:
    for number in range(4096):
        (node / "spool" / "ended" / str(100_000 + number)).touch()
    run_as_slurmd(root, node, "prolog")
    run_as_slurmd(root, node, "epilog")
    assert not (node / "spool" / "ended" / "77").exists()
    assert list((node / "jobs").iterdir()) == []


def test_without_opsk_the_note_waits_in_the_spool(root: Path, node: Path) -> None:
    (node / "opsk").unlink()
    run_as_slurmd(root, node, "prolog")
    run_as_slurmd(root, node, "epilog")
    assert (node / "spool" / "ended" / "77").exists()


def test_jobs_of_two_clusters_with_one_number_wait_in_the_spool_side_by_side(root: Path, node: Path) -> None:
    (node / "opsk").unlink()
    for cluster in ("east", "west"):
        run_as_slurmd(root, node, "prolog", cluster=cluster)
    run_as_slurmd(root, node, "epilog", cluster="east")
    assert [path.name for path in (node / "jobs").iterdir()] == ["west.77"]
    run_as_slurmd(root, node, "epilog", cluster="west")
    notes = [path for path in (node / "spool" / "ended").iterdir() if not path.name.startswith(".")]
    assert {path.name: f"cluster={path.name[:4]}\n" in path.read_text() for path in notes} == {
        "east.77": True, "west.77": True,
    }  # fmt: skip
