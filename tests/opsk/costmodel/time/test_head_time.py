"""Times of the head and the loss, worked out by hand on a machine of round numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opsk.costmodel.machine import find_generation
from opsk.costmodel.sizes.shape import build_shape
from opsk.costmodel.table import PlanTable
from opsk.costmodel.time.head_time import head_s
from opsk.workload.model import ModelShape
from opsk.workload.plan import Loss, Plan, Precision, Software
from tests.fakes.ideal_machine import HBM_BYTES_PER_S, machine, software
from tests.fakes.training_runs import gpt, shares_and_stages

MODEL = gpt(layers=4, hidden=1024, heads=16, vocab=1024, seq=1024, flash=True)
TOKENS = 1024


def head(factor: float, loss: Loss, family: Software, *, model: ModelShape = MODEL, **settings: Any) -> float:
    plan = Plan(global_batch=1, loss=loss, software=family, **settings)
    shares, _ = shares_and_stages(model, plan)
    using, on = software(elementwise_factor=factor), machine(generation=find_generation("ampere"))
    return float(np.ravel(head_s(build_shape(model), PlanTable.of([plan]), shares, on, using))[0])


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
        # the first, and cast and softmax again
        (Loss.RECOMPUTED, Software.PYTORCH, 34 + 14),
        # nothing cast; twice the largest logit, and the entropy's exponential, product and sum
        (Loss.RECOMPUTED_FP32, Software.PYTORCH, 8 + 14 + 8 + 2 * (4 + 8 + 8 + 3)),
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


@pytest.mark.parametrize(
    ("loss", "share"), [(Loss.KERNEL, 1.0), (Loss.RECOMPUTED, 4 / 3), (Loss.RECOMPUTED_FP32, 40 / 3)]
)
def test_a_loss_that_recomputes_its_logits_multiplies_four_times_and_in_fp32_slowly(loss: Loss, share: float) -> None:
    # products in fp32 run at a tenth of the rate of this machine's others
    model = replace(MODEL, vocab=1024 * 1024)
    times = [head(0.0, each, Software.PYTORCH, model=model) for each in (Loss.KERNEL, loss)]
    assert times[1] / times[0] == pytest.approx(share, rel=0.2)


@pytest.mark.parametrize(
    ("precision", "is_slow"), [(Precision.BF16, True), (Precision.TF32, True), (Precision.FP32, False)]
)
def test_products_in_fp32_read_single_elements_of_unaligned_rows(precision: Precision, is_slow: bool) -> None:
    times = [
        head(0.0, Loss.KERNEL, Software.PYTORCH, model=replace(MODEL, vocab=vocab), precision=precision)
        for vocab in (1 << 20, (1 << 20) + 1)
    ]
    assert (times[1] > 1.5 * times[0]) == is_slow
