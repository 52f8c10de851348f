"""Time of the experts of one layer, worked out by hand on a machine of round numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opsk.costmodel.machine import Machine
from opsk.costmodel.passes import Passes
from opsk.costmodel.sizes.shape import build_shape
from opsk.costmodel.time.experts import (
    CAST_FACTOR,
    GRAPH_KERNEL_S,
    KERNELS,
    PRODUCT_LAUNCH_S,
    SYNC_S,
    UNFUSED_KERNELS,
    WAVE_ELEMENTS,
    expert_time,
)
from opsk.workload.model import ModelShape
from opsk.workload.plan import MoeDispatcher, MoeGemm, Plan, Precision
from tests.fakes.ideal_machine import FLOP_PER_S, HBM_BYTES_PER_S, endless_arithmetic, endless_memory, machine, software
from tests.fakes.training_runs import gpt, shares_and_stages

TOKENS, HIDDEN, WIDTH = 1024, 1024, 512
MODEL = replace(
    gpt(layers=4, hidden=HIDDEN, heads=16, vocab=1024, seq=TOKENS, flash=True), experts=16, top_k=2, expert_ffn=WIDTH
)
ROUTER_S = 2 * TOKENS * HIDDEN * 16 / FLOP_PER_S
VECTOR_BYTES = TOKENS * HIDDEN * 2


def _times(model: ModelShape = MODEL, on: Machine | None = None, gap_s: float = 0.0, **plan: object) -> Passes:
    shares, _ = shares_and_stages(model, Plan(**{"global_batch": 8, **plan}))  # type: ignore[arg-type]
    return expert_time(build_shape(model), shares, on or machine(), software(kernel_gap_s=gap_s))


def _s(column: np.ndarray) -> float:
    return float(np.ravel(column)[0])


def test_one_kernel_for_all_experts_runs_at_the_rate_of_dense_products() -> None:
    # 2 products of 2 m h w FLOP for 2 m dispatched tokens
    times = _times(on=endless_memory())
    assert _s(times.by_weight) == pytest.approx(2 * 2 * 2 * TOKENS * HIDDEN * WIDTH / FLOP_PER_S)
    assert _s(times.by_input) == pytest.approx(_s(times.by_weight) + ROUTER_S)


def test_small_products_abreast_fill_a_part_of_the_gpu() -> None:
    # 128 rows an expert, (512 + 1024) / 2 columns: four of 16 at a time, one at a time
    grouped, streams, sequential = (
        _s(_times(on=endless_memory(matmul_flop_per_s=1e12), moe_gemm=kind).by_input) - ROUTER_S
        for kind in (MoeGemm.GROUPED, MoeGemm.STREAMS, MoeGemm.SEQUENTIAL)
    )
    filled = 128 * 768 / WAVE_ELEMENTS
    assert streams == pytest.approx(grouped / (4 * filled))
    assert sequential == pytest.approx(4 * streams)


def test_a_loop_over_experts_takes_no_less_than_its_launches() -> None:
    times = _times(on=endless_memory(matmul_flop_per_s=1e40), moe_gemm=MoeGemm.STREAMS)
    assert _s(times.by_weight) == pytest.approx(2 * 16 * PRODUCT_LAUNCH_S)
    # eight ranks have two of the experts each
    spread = _times(on=endless_memory(matmul_flop_per_s=1e40), moe_gemm=MoeGemm.STREAMS, dp=8, ep=8)
    assert _s(spread.by_weight) == pytest.approx(2 * 2 * PRODUCT_LAUNCH_S)


def test_a_loop_over_experts_launches_casts_too_where_operands_are_quantised() -> None:
    on = endless_memory(matmul_flop_per_s=1e40)
    times = _times(on=on, moe_gemm=MoeGemm.STREAMS, precision=Precision.MXFP8)
    assert _s(times.by_input) - ROUTER_S == pytest.approx(CAST_FACTOR * 2 * 16 * PRODUCT_LAUNCH_S)
    assert _s(times.by_weight) == pytest.approx(2 * 16 * PRODUCT_LAUNCH_S)
    one_kernel = _times(on=on, precision=Precision.MXFP8)
    assert _s(one_kernel.by_weight) < _s(times.by_weight)


@pytest.mark.parametrize(
    ("plan", "passes"),
    [
        ({}, 3),  # permute: read, write; the sum back reads
        ({"moe_permute_fusion": False}, 3 + 4),
        ({"dp": 8, "ep": 8}, 3 + 4),  # sorts by local expert what came, and back
        ({"dp": 8, "ep": 8, "moe_dispatcher": MoeDispatcher.DEEPEP}, 4),
        ({"dp": 8, "ep": 8, "moe_dispatcher": MoeDispatcher.HYBRIDEP}, 2),
        ({"dp": 8, "ep": 8, "fused_moe": True}, 2),
    ],
)
def test_tokens_are_read_and_written_around_the_experts(plan: dict[str, object], passes: int) -> None:
    # beside the products' 2 x (2 h + 2 w) elements a dispatched token, 2 h w weights of each local expert, and the
    # router's vectors and logits
    local = 16 // int(plan.get("ep", 1))  # type: ignore[call-overload]
    products = 2 * TOKENS * (2 * HIDDEN + 2 * WIDTH) * 2 + local * 2 * HIDDEN * WIDTH * 2
    logits = (4 if plan.get("moe_permute_fusion", True) else 12) * TOKENS * 16 * 4
    moved = passes * 2 * VECTOR_BYTES + products + logits + VECTOR_BYTES
    assert _s(_times(on=endless_arithmetic(), **plan).by_input) == pytest.approx(moved / HBM_BYTES_PER_S)


def test_the_host_is_waited_for_once_where_it_must_know_the_counts() -> None:
    plain = _times()
    assert _s(plain.forward - plain.by_input) == pytest.approx(SYNC_S)
    for known in (
        _times(fused_moe=True),
        _times(moe_dispatcher=MoeDispatcher.HYBRIDEP),
        _times(replace(MODEL, capacity_factor=1.0)),
    ):
        assert _s(known.forward - known.by_input) == pytest.approx(0.0, abs=1e-15)


def test_small_kernels_have_gaps_and_hardly_any_in_a_graph() -> None:
    fused, unfused, graph = (
        _s(_times(gap_s=1e-5, **plan).by_input - _times(**plan).by_input)
        for plan in ({}, {"moe_permute_fusion": False}, {"fused_moe": True})
    )
    assert fused == pytest.approx(KERNELS * 1e-5)
    assert unfused == pytest.approx(UNFUSED_KERNELS * 1e-5)
    assert graph == pytest.approx(KERNELS * GRAPH_KERNEL_S)
