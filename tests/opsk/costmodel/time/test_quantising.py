"""Casts of operands to FP8 and FP4, by implementation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.costmodel.table import PlanTable
from opsk.costmodel.time.quantising import quantising_s
from opsk.workload.plan import Plan, Precision, Software
from tests.fakes.ideal_machine import HBM_BYTES_PER_S, machine
from tests.fakes.training_runs import gpt, shares_and_stages

MODEL = gpt(layers=2, hidden=1024, heads=8, vocab=512, seq=1024, flash=True)


def cast_bytes(**plan: object) -> tuple[float, float] | None:
    """Return what the casts of 100 inputs, 200 gradients and 1,000 weights move, forward and backward."""
    planned = Plan(**{"global_batch": 4, **plan})  # type: ignore[arg-type]
    shares, _ = shares_and_stages(MODEL, planned)
    found = quantising_s(
        PlanTable.of([planned]), shares, machine(), inputs=100.0, gradients=200.0, weights=1000.0
    )  # fmt: skip
    return None if found is None else (found[0][0] * HBM_BYTES_PER_S, found[1][0] * HBM_BYTES_PER_S)


def test_products_in_16_bits_cast_nothing() -> None:
    assert cast_bytes(precision=Precision.BF16) is None


def test_torchao_casts_weights_for_every_micro_batch() -> None:
    # rowwise: 8 bytes an element, 10 a weight (torchao/testing/training/roofline_utils.py)
    found = cast_bytes(precision=Precision.FP8_ROWWISE, software=Software.PYTORCH)
    assert found == (pytest.approx(8 * 100 + 10 * 1000), pytest.approx(8 * 200))


def test_transformer_engine_casts_weights_once_a_step() -> None:
    # MXFP8: one read of 2 bytes and two layouts of 1; 4 micro-batches share the casts of the weights
    found = cast_bytes(precision=Precision.MXFP8, software=Software.MEGATRON_CORE)
    assert found == (pytest.approx(4 * 100 + 4 * 1000 / 4), pytest.approx(4 * 200))


def test_current_scaling_reads_twice() -> None:
    delayed, current = (cast_bytes(precision=each) for each in (Precision.FP8, Precision.FP8_CURRENT))
    assert delayed is not None
    assert current is not None
    assert current[1] - delayed[1] == pytest.approx(2 * 200)


def test_every_low_precision_has_costs_in_both_implementations() -> None:
    low = [each for each in Precision if each.is_low]
    for precision in low:
        for software in (Software.PYTORCH, Software.MEGATRON_CORE):
            found = cast_bytes(precision=precision, software=software)
            assert found is not None
            assert min(found) > 0
    assert replace(Plan(global_batch=1), precision=Precision.FP8_ROWWISE).precision in low
