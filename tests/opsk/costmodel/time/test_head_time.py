"""Times of the head and the loss, worked out by hand on a machine of round numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opsk.costmodel.sizes.shape import build_shape
from opsk.costmodel.table import PlanTable
from opsk.costmodel.time.head_time import head_s
from opsk.workload.plan import Loss, Plan, Software
from tests.fakes.ideal_machine import HBM_BYTES_PER_S, machine, software
from tests.fakes.training_runs import gpt, shares_and_stages

MODEL = gpt(layers=4, hidden=1024, heads=16, vocab=1024, seq=1024, flash=True)
TOKENS = 1024


def head(factor: float, loss: Loss, family: Software, **settings: Any) -> float:
    plan = Plan(global_batch=1, loss=loss, software=family, **settings)
    shares, _ = shares_and_stages(MODEL, plan)
    using = software(elementwise_factor=factor)
    return float(np.ravel(head_s(build_shape(MODEL), PlanTable.of([plan]), shares, machine(), using))[0])


@pytest.mark.parametrize(
    ("loss", "family", "bytes_per_logit"),
    [
        # cast 2 + 4, softmax 4 + 4; its gradient 4 zeros, 4 + 4 read and 4 written, less 2 in the cache; cast 4 + 2
        (Loss.PLAIN, Software.PYTORCH, 34),
        # no cast: softmax 2 + 2; its gradient 2 zeros, 2 + 2 read and 2 written
        (Loss.NATIVE, Software.PYTORCH, 12),
        # each operation a kernel: cast 6, max 4, shift 8, exp 8, sum 4, divide 8; scale 8, cast 6
        (Loss.PLAIN, Software.MEGATRON_CORE, 52),
        (Loss.MEGATRON_FUSED, Software.MEGATRON_CORE, 30),
        # 16-bit logits read twice, and their gradient written over one more read
        (Loss.KERNEL, Software.PYTORCH, 8),
        (Loss.FUSED, Software.PYTORCH, 8),
    ],
)
def test_the_loss_moves_what_its_kernels_read_and_write(loss: Loss, family: Software, bytes_per_logit: float) -> None:
    moved = head(2.0, loss, family) - head(1.0, loss, family)
    assert moved == pytest.approx(bytes_per_logit * TOKENS * 1024 / HBM_BYTES_PER_S)


@pytest.mark.parametrize("gathers_logits", [False, True])
def test_gathered_logits_pass_whole_through_the_loss_of_every_rank(gathers_logits: bool) -> None:
    settings = {"tp": 4, "gathers_logits": gathers_logits}
    moved = head(2.0, Loss.PLAIN, Software.PYTORCH, **settings) - head(1.0, Loss.PLAIN, Software.PYTORCH, **settings)
    assert moved == pytest.approx(34 * TOKENS * 1024 / (1 if gathers_logits else 4) / HBM_BYTES_PER_S)
