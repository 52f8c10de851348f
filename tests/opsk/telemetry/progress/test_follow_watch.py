"""Does what is said of a job with several logs hold together when another of them begins to count?"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from opsk.telemetry.progress.follow import LogWatch, Progress
from tests.fakes.progress_logs import megatron_line


def append(path: Path, steps: Iterable[int]) -> None:
    with path.open("a", encoding="ascii") as file:
        file.writelines(f"{megatron_line(step)}\n" for step in steps)


def looked(watch: LogWatch) -> Progress:
    found = watch.look()
    assert found is not None
    return found


def test_restarts_do_not_go_back_when_another_log_counts(tmp_path: Path) -> None:
    """Standard output tells of one restart (10, 20, 10); then standard error tells of more steps, and of none."""
    out, err = tmp_path / "out", tmp_path / "err"
    err.touch()
    watch = LogWatch((out, err))
    append(out, (10, 20))
    looked(watch)
    append(out, (10,))
    first = looked(watch)
    assert (first.last.iteration, first.restarts) == (10, 1)
    append(err, range(11, 31))
    second = looked(watch)
    assert (second.last.iteration, second.restarts) == (30, 1)
    watch.close()


def test_the_first_steps_of_a_start_are_in_no_median(tmp_path: Path) -> None:
    """Two steps of 2 s after a start-up of 60 s, then a restart that does the same: no median is of the start-up."""
    log = tmp_path / "out"
    log.touch()
    watch = LogWatch((log,))
    for _ in range(2):
        with log.open("a", encoding="ascii") as file:
            file.writelines(f"{megatron_line(step, step_ms=60_000 if step == 1 else 2_000)}\n" for step in (1, 2, 3))
        assert looked(watch).step_s == 2.0
    watch.close()
