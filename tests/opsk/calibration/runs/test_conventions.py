"""Rates in the conventions in which they were published."""

from __future__ import annotations

import numpy as np
import pytest

from opsk.calibration.runs.conventions import measured_step_s, published_quantity, step_work
from opsk.calibration.runs.runs import Run, parse_runs
from opsk.costmodel.estimates.scaling_laws import gpt_model_flop, gpt_selective_flop_as_printed, gpt_step_flop
from tests.fakes.tables_of_runs import row, table

SHAPE = {"global_batch": 4, "seq": 2048, "layers": 48, "hidden": 6144, "vocab": 51200}


def one(**columns: str) -> Run:
    (run,) = parse_runs(table(row(**columns))).runs
    return run


def test_hardware_flop_of_full_recomputation_are_those_of_narayanan() -> None:
    work = step_work([one(flops_convention="hardware")])
    assert work.flop_per_gpu[0] * 8 == pytest.approx(gpt_step_flop(**SHAPE))
    assert work.model_flop_per_gpu[0] * 8 == pytest.approx(gpt_model_flop(**SHAPE))


def test_hardware_flop_of_selective_recomputation_are_as_printed_by_korthikanti() -> None:
    work = step_work([one(flops_convention="hardware", recompute="selective")])
    assert work.flop_per_gpu[0] * 8 == pytest.approx(gpt_selective_flop_as_printed(**SHAPE))


def test_attention_is_counted_as_the_row_says() -> None:
    full, causal, none = (step_work([one(attn_flops=kind)]).flop_per_gpu[0] for kind in ("full", "causal", "none"))
    # 72 B s l h^2 (s / 6h) is the whole attention square
    square = 12 * 4 * 2048**2 * 48 * 6144 / 8
    assert full - causal == pytest.approx(square / 2)
    assert full - none == pytest.approx(square)


def test_the_published_mfu_of_korthikanti_follows_from_the_step_time() -> None:
    # Korthikanti et al. 2022, table 5: 22B, sequence parallelism and selective recomputation, 1.10 s, MFU 41.5 %;
    # the time is printed with two digits after the point, half a percent
    run = one(recompute="selective", sequence_parallel="yes", iter_time_s="1.10", mfu="0.415")
    work = step_work([run])
    assert work.of("mfu")[0] / 1.10 == pytest.approx(0.415, abs=0.002)


def test_every_rate_gives_the_time_back() -> None:
    work = step_work([one()])
    rates = {
        "tokens_per_s_per_gpu": work.of("tokens_per_s_per_gpu")[0] / 2.5,
        "tflops_per_gpu": work.of("tflops_per_gpu")[0] / 2.5,
        "mfu": work.of("mfu")[0] / 2.5,
        "hfu": work.of("hfu")[0] / 2.5,
    }
    runs = [one(**{name: repr(float(value))}) for name, value in rates.items()] + [one(iter_time_s="2.5"), one()]
    assert measured_step_s(runs)[:-1] == pytest.approx([2.5] * 5)
    assert np.isnan(measured_step_s(runs)[-1])


def test_what_needs_no_convention_is_compared_first() -> None:
    assert published_quantity(one(iter_time_s="1", tflops_per_gpu="100")) == "step_s"
    assert published_quantity(one(tokens_per_s_per_gpu="1000", mfu="0.4")) == "tokens_per_s_per_gpu"
    assert published_quantity(one()) is None
