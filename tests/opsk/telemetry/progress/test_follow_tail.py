"""Are logs followed cheaply: through rotation, truncation and carriage returns, and each step told once?"""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from opsk.errors import InputError
from opsk.telemetry.progress.follow import MAX_PAUSE_S, MIN_PAUSE_S, SHARE, Tail
from opsk.telemetry.progress.records import StepRecord
from tests.fakes.progress_logs import megatron_line


class Cpu:
    """CPU time that a test spends."""

    def __init__(self) -> None:
        self.spent_s = 0.0

    def __call__(self) -> float:
        return self.spent_s


def append(path: Path, *steps: int, end: str = "\n") -> None:
    with path.open("a", encoding="ascii", newline="") as file:
        file.writelines(f"{megatron_line(step)}{end}" for step in steps)


def steps(tail: Tail) -> list[int | None]:
    return [found.iteration for found in tail.poll() if isinstance(found, StepRecord)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    append(path, 1, 2)
    return path


def test_what_is_there_comes_first_and_then_what_is_added(log: Path) -> None:
    tail = Tail([log])
    assert steps(tail) == [1, 2]
    assert tail.is_live
    assert steps(tail) == []
    append(log, 3)
    assert steps(tail) == [3]
    assert tail.framework == "megatron-lm"


def test_a_log_may_be_rotated_truncated_deleted_and_come_back(log: Path) -> None:
    tail = Tail([log])
    assert steps(tail) == [1, 2]
    append(log, 3)
    log.rename(log.with_name("log.1"))
    append(log, 4, 5)
    assert steps(tail) == [3, 4, 5]
    log.write_text("")
    append(log, 6)
    assert steps(tail) == [6]
    log.unlink()
    assert steps(tail) == []
    append(log, 7)
    assert steps(tail) == [7]
    assert tail.problems == {}


def test_carriage_returns_end_lines_and_half_a_line_waits(tmp_path: Path) -> None:
    log, line = tmp_path / "log", megatron_line(3)
    append(log, 1, 2, end="\r")
    with log.open("a", encoding="ascii") as file:
        file.write(line[:70])
    tail = Tail([log])
    assert steps(tail) == [1, 2]
    with log.open("a", encoding="ascii") as file:
        file.write(line[70:])
    assert steps(tail) == []
    assert [found.iteration for found in tail.finish() if isinstance(found, StepRecord)] == [3]


def test_a_step_that_two_logs_tell_is_one(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "rank1"
    append(other, 1, 2, 3)
    tail = Tail([log, other, log])
    assert steps(tail) == [1, 2, 3]
    append(log, 3, 4)
    append(other, 4)
    assert steps(tail) == [4]


def test_a_log_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tail = Tail([log])
    assert steps(tail) == []
    assert "No such file" in tail.problems[log]
    append(log, 1)
    assert steps(tail) == [1]
    assert tail.problems == {}


def test_a_link_is_followed_to_where_it_points_now(log: Path, tmp_path: Path) -> None:
    link, second = tmp_path / "latest", tmp_path / "second"
    link.symlink_to(log)
    tail = Tail([link])
    assert steps(tail) == [1, 2]
    append(second, 3)
    link.unlink()
    link.symlink_to(second)
    assert steps(tail) == [3]


def test_looks_are_seldom_while_nothing_comes(log: Path) -> None:
    tail = Tail([log], cpu_s=Cpu())
    steps(tail)
    assert tail.rest_s == MIN_PAUSE_S
    rests = []
    for _ in range(12):
        steps(tail)
        rests.append(tail.rest_s)
    assert rests == sorted(rests)
    assert rests[-1] == MAX_PAUSE_S
    append(log, 3)
    steps(tail)
    assert tail.rest_s == MIN_PAUSE_S


def test_who_takes_the_steps_pays_for_it_too(log: Path) -> None:
    """0.02 s of CPU for two steps are followed by 2.5 s of rest: 0.8 %."""
    cpu = Cpu()
    tail = Tail([log], cpu_s=cpu)
    for _ in tail.poll():
        cpu.spent_s += 0.01
    assert tail.rest_s == pytest.approx(0.02 / SHARE)


def test_a_log_that_outruns_its_reader_is_read_at_its_end(log: Path) -> None:
    tail = Tail([log])
    assert steps(tail) == [1, 2]
    with log.open("ab") as file:
        file.write(b"x" * 79 + b"\n")
        file.write((b"y" * 79 + b"\n") * (10 << 14))
    append(log, 3)
    for _ in range(100):
        if 3 in steps(tail):
            break
    else:
        pytest.fail("the end is not reached")
    assert tail.skipped_bytes > 1 << 20


def test_what_can_never_be_followed_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "log.gz").write_bytes(gzip.compress(b"x"))
    for name, why in (("fifo", "regular"), ("log.gz", "compressed"), ("none/log", "No such"), (".", "regular")):
        with pytest.raises(InputError, match=why):
            Tail([tmp_path / name])
