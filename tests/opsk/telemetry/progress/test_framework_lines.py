"""What do a framework's lines say together: steps of several, bars, sizes, what happens between steps, and prose?"""

from __future__ import annotations

import math

import pytest

from opsk.telemetry.progress.records import EventKind, StepRecord
from opsk.telemetry.progress.stream import ProgressReader
from tests.fakes.progress_logs import megatron_line, read_log


def test_litgpt_counts_micro_batches_and_steps_take_several() -> None:
    """Four micro-batches of 250 ms a step from the second line on."""
    text = "".join(
        f"Epoch 1 | iter {4 * step:3d} step {step} | loss train: {9 - step:.3f}, val: n/a | iter time: 250.00 ms "
        "(step) remaining time: 0:12:34\n"
        for step in (1, 2, 3)
    )
    reader, steps, _ = read_log(text)
    assert reader.framework == "litgpt"
    assert [(each.iteration, each.step_s, each.loss) for each in steps] == [
        (1, None, 8.0),
        (2, 1.0, 7.0),
        (3, 1.0, 6.0),
    ]


def test_steps_of_torchtitan_take_what_lies_between_their_lines() -> None:
    text = "".join(
        f"2026-01-01 00:00:{5 * number:02d},000 - root - INFO - step: {10 * number:2d}  "
        "loss:  5.0000  memory: 40.00GiB(50%)  tps: 4,096  mfu: N/A\n"
        for number in (1, 2, 3)
    )
    _, steps, _ = read_log(text)
    assert [each.step_s for each in steps] == [None, 0.5, 0.5]
    assert steps[1].derived == ("step_s",)


def test_what_the_caller_knows_gives_rates_of_job_and_gpu() -> None:
    """512 samples of 4,096 tokens in 2 s on 64 GPUs."""
    _, steps, _ = read_log(megatron_line(1, step_ms=2000, batch=512) + "\n", sequence_tokens=4096, gpus=64)
    assert steps[0].tokens_per_s == 512 * 4096 / 2
    assert steps[0].tokens_per_s_per_gpu == 512 * 4096 / 2 / 64
    assert set(steps[0].derived) == {"samples_per_s", "tokens_per_s", "tokens_per_s_per_gpu"}


def test_sizes_that_the_log_tells_count_unless_it_contradicts_itself() -> None:
    head = "using world size: 64, data-parallel size: 8\n  seq_length ............ 4096\n"
    assert read_log(head + megatron_line(1) + "\n")[1][0].tokens_per_s_per_gpu == 512 * 4096 / 2 / 64
    assert read_log(head + "  seq_length ... 2048\n" + megatron_line(1) + "\n")[1][0].tokens_per_s is None


def test_deepspeeds_own_lines_do_not_count_beside_megatrons() -> None:
    text = "[Rank 0] step=1, skipped=0, lr=[1e-05], mom=[(0.9, 0.999)]\n" + megatron_line(1) + "\n"
    reader = ProgressReader()
    found = [*reader.feed(text.encode()), *reader.finish()]
    assert reader.framework == "megatron-lm"
    assert [each.step_s for each in found if isinstance(each, StepRecord)] == [2.0]


def test_bars_that_load_evaluate_or_download_are_not_the_training() -> None:
    text = (
        "Loading checkpoint shards: 100%|###| 4/4 [00:10<00:00,  2.50s/it]\r\n"
        "  2%|2 | 10/500 [00:20<16:20,  2.00s/it]\r"
        " 50%|#####     | 4/8 [00:01<00:01,  4.00it/s]\r100%|##########| 8/8 [00:02<00:00,  4.00it/s]\r"
        "Evaluating: 100%|###| 8/8 [00:02<00:00,  4.00it/s]\r"
        "  2%|2 | 11/500 [00:25<16:20,  2.00s/it]\r"
    )
    reader, steps, _ = read_log(text)
    assert [each.iteration for each in steps] == [10, 11]
    assert reader.restarts == 0


def test_bars_that_begin_anew_each_epoch_add_up() -> None:
    text = "".join(
        f"Epoch {epoch}: {100 * step // 4}%|#| {step}/4 [00:0{step}<00:00, 1.00s/it]\r"
        for epoch in (0, 1)
        for step in range(1, 5)
    )
    reader, steps, _ = read_log(text)
    assert [each.iteration for each in steps] == list(range(1, 9))
    assert reader.restarts == 0


def test_the_summary_of_a_run_is_an_event() -> None:
    reader, steps, events = read_log(
        "{'train_runtime': 273.0, 'train_samples_per_second': 3.66, 'train_steps_per_second': 0.64}\n"
    )
    assert (reader.framework, steps) == ("hf-trainer", [])
    assert (events[0].kind, events[0].seconds, events[0].values["train_steps_per_second"]) == (
        EventKind.SUMMARY,
        273.0,
        0.64,
    )


def test_what_happens_between_steps() -> None:
    text = (
        "[Rank 0] (after 2 iterations) memory (MB) | allocated: 100.0 | max allocated: 200.0 | reserved: 300.0\n"
        " validation loss at iteration 100 | lm loss value: 2.5E+00 | lm loss PPL: 1.2E+01 |\n"
        "saving checkpoint at iteration     100 to /scratch/ckpt\n"
        "save-checkpoint: 12500.0\n"
        "validate step: 100  loss:  2.5000  memory: 40.00GiB(50%)  tps: 4,096\n"
    )
    _, steps, events = read_log(text)
    assert steps == []
    assert [(each.kind, each.iteration, each.seconds) for each in events] == [
        (EventKind.MEMORY, 2, None),
        (EventKind.VALIDATION, 100, None),
        (EventKind.CHECKPOINT, 100, None),
        (EventKind.CHECKPOINT, None, 12.5),
        (EventKind.VALIDATION, 100, None),
    ]
    assert events[0].values == {"memory_bytes": 200.0 * (1 << 20)}


@pytest.mark.parametrize(("word", "is_nan"), [("nan", True), ("NaN", True), ("inf", False), ("-inf", False)])
def test_a_loss_that_is_no_number_stays_so(word: str, is_nan: bool) -> None:
    _, steps, _ = read_log(megatron_line(1).replace("2.000000E+00", word) + "\n")
    assert steps[0].loss is not None
    assert math.isnan(steps[0].loss) == is_nan
    assert not math.isfinite(steps[0].loss)


@pytest.mark.parametrize(
    "line",
    [
        "Installing step 3 of 10: no loss of data, time 10 s",
        "At iteration 11447 we registered a huge spike",
        "NCCL INFO Channel 00/02 : 0 1 2 3",
        "NVRM: Xid (PCI:0000:cb:00): 13, pid=1, Graphics Exception",
        "batch=3",
        "{'loss': 'unknown'}",
        "12/100 [00:31",
        "iteration / | elapsed time per iteration (ms): |",
    ],
)
def test_prose_and_other_logs_are_no_progress(line: str) -> None:
    reader, steps, _ = read_log(line + "\n")
    assert steps == []
    assert reader.framework is None
