"""Times to add up gradients over micro-batches, worked out by hand on a machine of round numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opsk.costmodel.table import PlanTable
from opsk.costmodel.time.gradient_time import accumulation_s
from opsk.workload.plan import Plan, Sharding, Software, StateFormat, States
from tests.fakes.ideal_machine import HBM_BYTES_PER_S, machine
from tests.fakes.training_runs import gpt, shares_and_stages

MODEL = gpt(layers=4, hidden=1024, heads=16, vocab=1024, seq=1024, flash=True)


def moved(**plan: Any) -> float:
    """Return the bytes that are moved for a weight in each micro-batch, four in a step unless stated."""
    planned = Plan(**{"global_batch": 4, "software": Software.PYTORCH, **plan})
    shares, _ = shares_and_stages(MODEL, planned)
    found = accumulation_s(PlanTable.of([planned]), shares, machine(), np.ones(1))
    return 0.0 if found is None else float(found[0]) * HBM_BYTES_PER_S


def test_a_new_gradient_is_read_and_the_held_one_is_read_and_written() -> None:
    # 2 + 2 x 4 bytes in every micro-batch: nanotron's fp32 accumulators
    assert moved(states=States.MIXED) == pytest.approx(10)
    # 2 + 2 x 2 bytes in three of four: AccumulateGrad has nothing to add to in the first
    assert moved(states=States.PURE_16BIT) == pytest.approx(0.75 * 6)
    assert moved(states=States.PURE_16BIT, gradient_format=StateFormat.FP32) == pytest.approx(0.75 * 10)
    assert moved(states=States.MIXED_16BIT_GRADIENTS, software=Software.DEEPSPEED) == pytest.approx(0.75 * 6)


def test_frozen_weights_have_nothing_to_add_up() -> None:
    assert moved(states=States.PURE_16BIT, frozen_fraction=0.5) == pytest.approx(0.75 * 3)
    assert moved(states=States.PURE_16BIT, lora_rank=8) == 0


@pytest.mark.parametrize(
    "plan",
    [
        {"software": Software.MEGATRON_CORE},
        {"states": States.PURE_16BIT, "global_batch": 1},
        {"states": States.AUTOCAST, "sharding": Sharding.ZERO3, "dp": 2},
    ],
    ids=["fused into the product", "one micro-batch", "shards only"],
)
def test_nothing_is_added_up(plan: dict[str, Any]) -> None:
    assert moved(**plan) == 0
