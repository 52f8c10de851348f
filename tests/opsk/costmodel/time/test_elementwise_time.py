"""Bytes of norms and gates that run operation by operation, counted by hand, on a machine of round numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opsk.costmodel.sizes.shape import build_shape
from opsk.costmodel.time.elementwise_time import activation_time, around_attention
from opsk.workload.plan import Plan, Software
from tests.fakes.ideal_machine import HBM_BYTES_PER_S, machine, software
from tests.fakes.training_runs import gpt, shares_and_stages

MODEL = replace(
    gpt(layers=4, hidden=1024, heads=16, vocab=1024, seq=1024, flash=True),
    gated_mlp=True, norm_bias=False, learned_positions=False, ffn=4096,
)  # fmt: skip
STREAM_BYTES = 2.0 * MODEL.seq * MODEL.hidden
INNER_BYTES = 2.0 * MODEL.seq * MODEL.ffn


def _around(**plan: Any) -> tuple[float, float]:
    """Return the passes over the stream around attention, forward and backward."""
    shares, _ = shares_and_stages(MODEL, Plan(global_batch=1, software=Software.PYTORCH, **plan))
    found = around_attention(build_shape(MODEL), shares, machine(), software(), None)
    forward, backward = (np.ravel(one)[0] for one in (found.forward, found.by_input))
    return float(forward) * HBM_BYTES_PER_S / STREAM_BYTES, float(backward) * HBM_BYTES_PER_S / STREAM_BYTES


def test_norms_of_one_kernel_do_without_what_norms_in_python_move() -> None:
    """28 bytes against 4 for each of two norms: 24 elements; rotary positions stay as they are."""
    apart, fused = _around(), _around(fused_norms=True)
    assert [one - other for one, other in zip(apart, fused, strict=True)] == pytest.approx([24, 40])
    compiled = _around(compiled=True)
    assert all(one > other for one, other in zip(fused, compiled, strict=True))


def test_a_gate_apart_moves_five_elements_and_nine() -> None:
    """Silu reads and writes (2), the product reads two and writes one (3); backward twice three and three."""

    def moved(**plan: Any) -> list[float]:
        shares, _ = shares_and_stages(MODEL, Plan(global_batch=1, software=Software.PYTORCH, **plan))
        elements = shares.tokens * shares.ffn_width
        found = activation_time(build_shape(MODEL), shares, machine(), software(), elements, None)
        return [float(np.ravel(one)[0]) * HBM_BYTES_PER_S / INNER_BYTES for one in (found.forward, found.by_input)]

    assert moved() == pytest.approx([5, 9])
    assert moved(compiled=True) == pytest.approx([3, 5])
