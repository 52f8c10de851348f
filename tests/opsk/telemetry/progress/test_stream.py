"""Are steps told once, restarts counted, and hostile or broken logs read as far as they are sound?"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.telemetry.progress.lines import LONGEST_LINE_BYTES, parse_label, trim_partial_word
from opsk.telemetry.progress.records import Event, EventKind, StepRecord
from opsk.telemetry.progress.stream import ProgressReader
from tests.fakes.progress_logs import megatron_line


def log(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def read(data: bytes, piece: int | None = None) -> tuple[ProgressReader, list[StepRecord], list[Event]]:
    reader = ProgressReader("a.log")
    found = []
    size = piece or max(len(data), 1)
    for start in range(0, len(data), size):
        found += list(reader.feed(data[start : start + size]))
    found += list(reader.finish())
    steps = [each for each in found if isinstance(each, StepRecord)]
    return reader, steps, [each for each in found if isinstance(each, Event)]


def titan(step: int, second: int, loss: float = 5.0) -> str:
    stamp = f"2026-01-01 00:00:{second:02d},000 - root - INFO - "
    return f"{stamp}step: {step}  loss: {loss:.4f}  memory: 4.00GiB(5%)  tps: 100"


def test_a_step_that_falls_is_a_restart() -> None:
    reader, steps, _ = read(log(*(megatron_line(step) for step in (10, 20, 30, 20, 30, 40, 10))))
    assert reader.restarts == 2
    assert [each.generation for each in steps] == [0, 0, 0, 1, 1, 1, 2]


def test_a_launch_between_steps_is_a_restart_though_no_step_falls() -> None:
    banner = "using world size: 64, data-parallel size: 8"
    lines = [banner, banner, megatron_line(10), megatron_line(20), banner, banner, megatron_line(30), megatron_line(40)]
    reader, steps, events = read(log(*lines))
    assert reader.restarts == 1
    assert [each.generation for each in steps] == [0, 0, 1, 1]
    assert sum(event.kind is EventKind.LAUNCH for event in events) == 4


def test_a_launch_after_which_steps_fall_is_one_restart() -> None:
    lines = [megatron_line(10), megatron_line(20), "[before the start of training step] datetime: x", megatron_line(10)]
    assert read(log(*lines))[0].restarts == 1


@pytest.mark.parametrize(
    "label", ["{}: ", "[rank{}]:", "[default{}]: ", "node-{}: ", "[1,{}]<stdout>: ", "[trainer|{}]: "]
)
def test_a_step_that_all_ranks_print_counts_once(label: str) -> None:
    lines = [label.format(rank) + titan(step, step) for step in (1, 2, 3) for rank in (2, 0, 3, 1)]
    reader, steps, _ = read(log(*lines))
    assert [each.iteration for each in steps] == [1, 2, 3]
    assert (reader.duplicates, reader.restarts) == (9, 0)


@given(order=st.randoms(use_true_random=False), ranks=st.integers(1, 6), count=st.integers(1, 12))
def test_ranks_may_interleave_in_any_order(order: random.Random, ranks: int, count: int) -> None:
    """Each rank's own lines are in order; whatever the mixture, every step is there once and nothing restarted."""
    left = dict.fromkeys(range(ranks), 1)
    lines = []
    while left:
        rank = order.choice(sorted(left))
        lines.append(f"{rank}: {titan(left[rank], left[rank])}")
        left[rank] += 1
        if left[rank] > count:
            del left[rank]
    reader, steps, _ = read(log(*lines))
    assert sorted(each.iteration or 0 for each in steps) == list(range(1, count + 1))
    assert reader.restarts == 0


def test_ranks_that_all_restart_have_restarted_once() -> None:
    lines = [f"{rank}: {titan(step, second)}" for second, step in enumerate((1, 2, 3, 2, 3), 1) for rank in (0, 1, 2)]
    reader, steps, _ = read(log(*lines))
    assert reader.restarts == 1
    assert [(each.generation, each.iteration) for each in steps] == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3)]


@given(piece=st.integers(1, 400))
def test_however_the_bytes_come_the_steps_are_the_same(piece: int) -> None:
    data = (
        log("noise", *(megatron_line(step) for step in (1, 2, 3)), "  1%|1| 3/300 [00:30<41:10,  2.50s/it]\r")
        + b"\xff\x1b[31m"
    )
    whole = read(data)[1]
    assert [each.iteration for each in whole] == [1, 2, 3]
    assert read(data, piece)[1] == whole


@given(st.binary(max_size=400))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    read(data)


@given(st.integers(0, 250))
def test_a_torn_last_line_tells_no_wrong_number(cut: int) -> None:
    """What a torn line tells is what the whole line tells, or nothing."""
    line = megatron_line(20, step_ms=12345.6, batch=512, tflops=412.5, loss=2.345678)
    data = log(megatron_line(10)) + line[: min(cut, len(line))].encode()
    _, steps, _ = read(data)
    whole = read(log(megatron_line(10), line))[1][1]
    for torn in steps[1:]:
        told = {
            name: getattr(torn, name) for name in ("iteration", "step_s", "tflops_per_gpu", "loss", "grad_norm", "lr")
        }
        assert {name: getattr(whole, name) if value is not None else None for name, value in told.items()} == told


def test_a_line_without_an_end_that_is_whole_counts() -> None:
    reader, steps, _ = read(log(megatron_line(10)) + megatron_line(20).encode())
    assert [each.iteration for each in steps] == [10, 20]
    assert not reader.torn


def test_what_a_torn_line_surely_tells() -> None:
    assert trim_partial_word("loss: 1.25 lr: 0.00") == "loss: 1.25 lr: "
    assert trim_partial_word("loss: 1.25 |") == "loss: 1.25 |"


def test_a_line_of_any_length_takes_no_memory() -> None:
    reader = ProgressReader()
    for _ in range(200):
        assert list(reader.feed(b"x" * LONGEST_LINE_BYTES)) == []
    assert len(reader._splitter._rest) <= LONGEST_LINE_BYTES
    found = list(reader.feed(b"\n" + log(megatron_line(1))))
    assert [each.iteration for each in found] == [1]


def test_thousands_of_labels_are_not_remembered() -> None:
    reader = ProgressReader()
    for number in range(6000):
        list(reader.feed(log(f"n{number}-x: {titan(5, 5)}")))
    assert len(reader._printers) <= 4096


def test_a_clock_that_goes_back_is_told_and_gives_no_step_time() -> None:
    _, steps, events = read(log(titan(1, 10), titan(2, 5), titan(3, 7)))
    assert [each.step_s for each in steps] == [None, None, 2.0]
    assert [(event.kind, event.seconds) for event in events] == [(EventKind.CLOCK_BACK, 5.0)]


def test_labels_are_taken_off() -> None:
    line = parse_label("12: [rank3]: step: 1")
    assert (line.text, line.rank) == ("step: 1", 3)
    assert parse_label("step: 10  loss: 1").label == ""
    assert parse_label("vm-07-14:  iteration").label == "hostvm-07-14 "


def test_files_and_lines_are_named() -> None:
    _, steps, _ = read(log("noise", "", megatron_line(1)))
    assert (steps[0].file, steps[0].line) == ("a.log", 3)
    assert replace(steps[0], line=0) != steps[0]
