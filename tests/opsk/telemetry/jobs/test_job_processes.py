"""Is the file that a batch script writes to found through its processes, and never one that is none of its user's?"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from opsk.telemetry.jobs.job_processes import MAX_LOGS, find_batch_outputs

OWNER = os.getuid()
BATCH_V1 = "5:freezer:/slurm/uid_1000/job_12/step_batch/task_0\n1:name=systemd:/system.slice/slurmd.service\n"
BATCH_V2 = "0::/system.slice/slurmstepd.scope/job_12/step_batch/user/task_0\n"
BATCH_NAMESPACE = "0::/../../slurmstepd.scope/s0000000000000/step_batch\n"
STEP_V2 = "0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n"


class Proc:
    """A procfs of a few processes, whose descriptors are links to files of a test."""

    def __init__(self, root: Path) -> None:
        self.root = root / "proc"

    def process(self, pid: int, group: str = BATCH_V2, *, out: object = "/dev/null", err: object = "/dev/null") -> None:
        folder = self.root / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "cgroup").write_text(group, encoding="ascii")
        for number, target in ((1, out), (2, err)):
            (folder / "fd" / str(number)).symlink_to(str(target))

    def found(self, *pids: int, owner: int = OWNER, stepd: int | None = None) -> tuple[Path, ...]:
        return find_batch_outputs(self.root, pids, owner, stepd)


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "slurm-12.out"
    path.write_text("", encoding="ascii")
    return path


@pytest.mark.parametrize("group", [BATCH_V1, BATCH_V2, BATCH_NAMESPACE])
def test_the_file_of_the_batch_step_is_found_whatever_the_control_groups(proc: Proc, log: Path, group: str) -> None:
    proc.process(101, group, out=log, err=log)
    assert proc.found(101) == (log,)


def test_what_the_script_sends_elsewhere_is_found_too_and_other_steps_are_not_looked_at(
    proc: Proc, log: Path, tmp_path: Path
) -> None:
    train, other = tmp_path / "train.log", tmp_path / "other.log"
    train.touch()
    other.touch()
    proc.process(101, out=log)
    proc.process(102, out=train)
    proc.process(103, STEP_V2, out=other)
    proc.process(104, "0::/system.slice/slurmstepd.scope/job_12/step_batcher\n", out=other)
    assert proc.found(104, 103, 102, 101) == (log, train)


@pytest.mark.parametrize("kind", ["pipe", "socket", "fifo", "folder", "terminal", "deleted", "nothing", "relative"])
def test_what_is_no_file_is_none(proc: Proc, tmp_path: Path, kind: str) -> None:
    target = tmp_path / kind
    if kind == "fifo":
        os.mkfifo(target)
    elif kind == "folder":
        target.mkdir()
    said = {"pipe": "pipe:[4711]", "socket": "socket:[1]", "terminal": "/dev/tty", "deleted": f"{target} (deleted)"}
    proc.process(101, out=said.get(kind, "x" if kind == "relative" else target))
    assert proc.found(101) == ()


def test_somebody_elses_file_is_none(proc: Proc, log: Path) -> None:
    proc.process(101, out=log)
    assert proc.found(101, owner=OWNER + 1) == ()


def test_a_process_that_has_gone_or_may_not_be_looked_at_is_left_out(proc: Proc, log: Path) -> None:
    proc.process(101, out=log)
    (proc.root / "102").mkdir()
    (proc.root / "102" / "cgroup").write_text(BATCH_V2, encoding="ascii")
    assert proc.found(99, 102, 101) == (log,)
    assert proc.found() == ()


def test_a_script_of_many_files_has_some_of_them(proc: Proc, tmp_path: Path) -> None:
    for number in range(30):
        path = tmp_path / f"{number}.log"
        path.touch()
        proc.process(100 + number, out=path)
    assert len(proc.found(*range(100, 130))) == MAX_LOGS


def test_a_real_process_is_found_through_the_one_that_started_it(tmp_path: Path) -> None:
    """As slurmstepd does, from a thread: a shell that writes to one file, and what it starts to another."""
    log, inner = tmp_path / "a log with spaces.out", tmp_path / "inner.log"
    script = f"echo begun; sleep 60 >{inner} & wait"
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        with log.open("wb") as out:
            started.append(subprocess.Popen(["sh", "-c", script], stdout=out, stderr=out, start_new_session=True))
        ended.wait(60)

    ended = threading.Event()
    thread = threading.Thread(target=start)
    thread.start()
    try:
        found: tuple[Path, ...] = ()
        for _ in range(600):
            found = find_batch_outputs(Path("/proc"), (), OWNER, os.getpid())
            if {log, inner} <= set(found):
                break
            ended.wait(0.05)
        assert {log, inner} <= set(found)
    finally:
        for process in started:
            os.killpg(process.pid, 9)
            process.wait()
        ended.set()
        thread.join()


def test_a_log_that_was_deleted_or_replaced_is_not_taken_for_what_lies_there(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdout=out)
    try:
        assert log in find_batch_outputs(Path("/proc"), (), OWNER, os.getpid())
        log.unlink()
        log.write_text("another file", encoding="ascii")
        assert log not in find_batch_outputs(Path("/proc"), (), OWNER, os.getpid())
    finally:
        process.kill()
        process.wait()
