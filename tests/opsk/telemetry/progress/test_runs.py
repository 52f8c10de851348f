"""Are several logs the ranks of one start, or starts one after another, and are damaged ones read as far as they go?"""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from opsk.errors import InputError
from opsk.telemetry.progress.runs import Run, merge_logs, read_log
from tests.fakes.progress_logs import megatron_line


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def run(*paths: Path) -> Run:
    return merge_logs([read_log(path) for path in paths])


def titan(step: int, second: int, more: str) -> str:
    return f"2026-01-01 00:00:{second:02d},000 - root - INFO - step: {step}  {more}  memory: 4.00GiB(5%)  tps: 100"


def test_logs_of_ranks_are_one_run_and_fill_each_other_up(tmp_path: Path) -> None:
    """With pipeline stages the last one knows the loss, the first the TFLOP/s."""
    first = write(tmp_path / "0", *(titan(step, step, "tflops: 400.0") for step in (1, 2, 3)))
    last = write(tmp_path / "7", *(titan(step, step, f"loss: {step}.5") for step in (1, 2, 3)))
    found = run(first, last)
    assert [(each.iteration, each.tflops_per_gpu, each.loss) for each in found.records] == [
        (1, 400.0, 1.5),
        (2, 400.0, 2.5),
        (3, 400.0, 3.5),
    ]
    assert found.restarts == 0


def test_logs_of_starts_follow_each_other_by_time(tmp_path: Path) -> None:
    second = write(tmp_path / "2", *(titan(step, 30 + step, "loss: 1.0") for step in (3, 4, 5)))
    first = write(tmp_path / "1", *(titan(step, step, "loss: 1.0") for step in (1, 2, 3)))
    found = run(second, first)
    assert [(each.generation, each.iteration) for each in found.records] == [
        (0, 1),
        (0, 2),
        (0, 3),
        (1, 3),
        (1, 4),
        (1, 5),
    ]
    assert found.restarts == 1


def test_logs_without_times_follow_each_other_as_they_are_named(tmp_path: Path) -> None:
    first = write(tmp_path / "1", *(megatron_line(step) for step in (1, 2, 3)))
    second = write(tmp_path / "2", *(megatron_line(step) for step in (4, 5, 6)))
    found = run(first, second)
    assert [each.iteration for each in found.records] == [1, 2, 3, 4, 5, 6]
    assert found.restarts == 1


def test_a_log_of_no_progress_beside_one_that_has_some(tmp_path: Path) -> None:
    found = run(write(tmp_path / "err", "NCCL INFO"), write(tmp_path / "out", megatron_line(1)))
    assert (found.framework, len(found.records), len(found.logs)) == ("megatron-lm", 1, 2)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_logs_are_read(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "log"
    path.write_bytes(pack(f"{megatron_line(7)}\n".encode()))
    assert [each.iteration for each in run(path).records] == [7]


def test_what_a_damaged_archive_still_tells(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress("".join(f"{megatron_line(step)}\n" for step in range(1, 20001)).encode())[:-2000])
    log = read_log(path)
    assert log.problem is not None
    assert log.records[0].iteration == 1


def test_a_log_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_log(tmp_path / "nothing")
    with pytest.raises(InputError, match="directory"):
        read_log(tmp_path)


def test_an_empty_log_is_a_run_without_steps(tmp_path: Path) -> None:
    found = run(write(tmp_path / "log"))
    assert (found.framework, found.records, found.restarts) == (None, (), 0)
