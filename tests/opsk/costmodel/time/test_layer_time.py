"""Times of layers and of the model's ends, worked out by hand on a machine of round numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.costmodel.efficiency.efficiency import Efficiency, GpuEfficiency, SoftwareColumns
from opsk.costmodel.machine import Machine, build_machine, find_generation
from opsk.costmodel.sizes.shape import build_shape
from opsk.costmodel.table import PlanTable
from opsk.costmodel.time.experts import SYNC_S
from opsk.costmodel.time.layer_time import LayerTime, attention_s, launches_s, layer_time, quantising_s
from opsk.hardware.catalog import cluster as catalog_cluster
from opsk.hardware.catalog import gpu as catalog_gpu
from opsk.workload.model import ModelShape
from opsk.workload.plan import Attention, Plan, Precision, Software
from tests.fakes.ideal_machine import FLOP_PER_S, HBM_BYTES_PER_S, endless_arithmetic, endless_memory, machine, software
from tests.fakes.training_runs import gpt, shares_and_stages

WIDE = gpt(layers=1, hidden=2048, heads=16, vocab=1024, seq=16384, flash=True)
"""16 heads of 128 and 16k tokens, as the benchmarks have them."""
AS_BENCHMARKED = Efficiency(gpu={"": GpuEfficiency(matmul_fraction=0.70)})


def on(cluster: str, plan: Plan) -> Machine:
    return build_machine(catalog_cluster(cluster), PlanTable.of([plan]).precision, AS_BENCHMARKED)


def reached(model: ModelShape, cluster: str = "superpod-h100", **plan: object) -> tuple[float, float]:
    """Return TFLOP/s of the forward and the backward pass, causal attention counted half."""
    planned = Plan(**{"global_batch": 1, **plan})  # type: ignore[arg-type]
    shares, _ = shares_and_stages(model, planned)
    times = attention_s(build_shape(model), PlanTable.of([planned]), shares, on(cluster, planned))
    flop = 2.0 * float(shares.tokens[0]) * model.seq * model.heads * model.head_dim
    forward, backward = (float(np.ravel(time)[0]) for time in times)
    return flop / forward / 1e12, 2.5 * flop / backward / 1e12


@pytest.mark.parametrize(
    ("kernel", "forward", "backward"),
    [
        # 16k causal on an H100, heads of 128: FlashAttention-2 34 and 32 %, -3 62 and 57 % (2024), cuDNN 63 and
        # 52 % of 989 TFLOP/s (benchmarks/published/attention.md)
        (Attention.FLASH2, 336, 316),
        (Attention.FLASH3, 613, 545),
        (Attention.CUDNN, 622, 515),
    ],
)
def test_a_kernel_reaches_what_its_benchmark_prints(kernel: Attention, forward: float, backward: float) -> None:
    found = reached(WIDE, attention=kernel)
    assert found == (pytest.approx(forward, rel=0.06), pytest.approx(backward, rel=0.06))


def test_short_sequences_reach_less() -> None:
    # s / (s + 450) of the plateau: 0.53 at 512, 0.97 at 16k
    at_16k = reached(WIDE, attention=Attention.FLASH2)[0]
    at_512 = reached(replace(WIDE, seq=512), attention=Attention.FLASH2, micro_batch=32, global_batch=32)[0]
    assert at_512 / at_16k == pytest.approx(0.53 / 0.973, rel=0.02)


def test_chunks_of_context_parallelism_are_short_sequences() -> None:
    whole, split = (reached(replace(WIDE, seq=32768), cp=cp, dp=1) for cp in (1, 32))
    assert split[0] < 0.75 * whole[0]


def test_few_tiles_leave_multiprocessors_empty() -> None:
    few = replace(WIDE, seq=1024, heads=2, kv_heads=2, hidden=256, head_dim=128)
    assert reached(few)[0] < 0.3 * reached(few, micro_batch=64, global_batch=64)[0]


def test_the_kernel_that_the_software_takes_is_the_default() -> None:
    engine = reached(WIDE, software=Software.MEGATRON_CORE)
    assert engine == reached(WIDE, software=Software.MEGATRON_CORE, attention=Attention.CUDNN)
    assert reached(WIDE, software=Software.PYTORCH) == reached(
        WIDE, software=Software.PYTORCH, attention=Attention.FLASH2
    )


def test_a_kernel_that_a_chip_does_not_have_is_taken_for_its_usual_one() -> None:
    assert reached(WIDE, "titan", attention=Attention.FLASH3) == reached(WIDE, "titan", attention=Attention.FLASH2)


def test_a_card_with_a_lower_power_cap_is_slower() -> None:
    # H100 PCIe: 756 of 989 TFLOP/s, of which 0.62 and not 0.70 at 350 W
    cluster = catalog_cluster("superpod-h100")
    plan = Plan(global_batch=1)
    pcie = replace(cluster, node=replace(cluster.node, gpu=catalog_gpu("h100-pcie")))
    rates = [
        build_machine(each, PlanTable.of([plan]).precision, AS_BENCHMARKED).attention_flop_per_s[0]
        for each in (cluster, pcie)
    ]
    assert rates[1] / rates[0] == pytest.approx(756 * 0.62 / (989.4 * 0.70))


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


def test_frozen_weights_are_cast_only_where_they_are_stored_in_16_bits() -> None:
    lora = {"precision": Precision.MXFP8, "software": Software.MEGATRON_CORE, "lora_rank": 16}
    assert cast_bytes(**lora, fp8_weights=True) == (pytest.approx(4 * 100), pytest.approx(4 * 200))
    assert cast_bytes(**lora, fp8_weights=False) == (pytest.approx(4 * 100 + 4 * 1000 / 4), pytest.approx(4 * 200))


def test_current_scaling_reads_twice() -> None:
    delayed, current = (cast_bytes(precision=each) for each in (Precision.FP8, Precision.FP8_CURRENT))
    assert delayed is not None
    assert current is not None
    assert current[1] - delayed[1] == pytest.approx(2 * 200)


def test_every_low_precision_has_costs_in_both_implementations() -> None:
    low = [each for each in Precision if each.is_low]
    for precision in low:
        for family in (Software.PYTORCH, Software.MEGATRON_CORE):
            found = cast_bytes(precision=precision, software=family)
            assert found is not None
            assert min(found) > 0
    assert replace(Plan(global_batch=1), precision=Precision.FP8_ROWWISE).precision in low


EAGER = Plan(global_batch=1, software=Software.PYTORCH)


def seconds(plan: Plan, launch_factor: float = 1.0) -> tuple[float, float]:
    found = launches_s(PlanTable.of([plan]), machine(launch_factor=launch_factor))
    forward, backward = (float(np.ravel(time)[0]) for time in found)
    return forward, backward


def test_an_eager_layer_is_forty_kernels_of_nine_microseconds_and_ninety_of_six() -> None:
    assert seconds(EAGER) == (pytest.approx(360e-6), pytest.approx(540e-6))


def test_compiled_layers_have_fewer_kernels() -> None:
    plan = Plan(global_batch=1, software=Software.PYTORCH, compiled=True)
    assert seconds(plan) == (pytest.approx(65e-6), pytest.approx(140e-6))


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({}, 1),
        ({"tp": 1}, 0),
        ({"compiled": True}, 0),
        ({"software": Software.MEGATRON_CORE}, 0),
        ({"cuda_graphs": True}, 0),
    ],
)
def test_distributed_tensors_take_the_host_long_where_nothing_compiles_them(changes: dict[str, Any], more: int) -> None:
    plan = replace(EAGER, **{"tp": 4, **changes})
    extra = np.subtract(seconds(replace(plan, distributed_tensors=True)), seconds(plan))
    np.testing.assert_allclose(extra, [more * 3.9e-3, more * 6.7e-3], atol=1e-9)


def test_cuda_graphs_leave_the_host_out() -> None:
    assert seconds(Plan(global_batch=1, cuda_graphs=True)) == (0, 0)


def test_a_slower_host_and_casts_take_longer() -> None:
    plain = seconds(Plan(global_batch=1))[0]
    assert seconds(Plan(global_batch=1), launch_factor=2.5)[0] == pytest.approx(2.5 * plain)
    assert seconds(Plan(global_batch=1, precision=Precision.FP8))[0] == pytest.approx(2.0 * plain)


def test_a_layer_is_never_faster_than_its_launches_and_a_large_one_does_not_wait() -> None:
    for seq, waits in ((64, True), (16384, False)):
        model = gpt(layers=2, hidden=512, heads=8, vocab=512, seq=seq, flash=True)
        shares, _ = shares_and_stages(model, EAGER)
        with_host, without = (
            layer_time(
                build_shape(model), PlanTable.of([EAGER]), shares, machine(launch_factor=factor), software()
            ).plain
            for factor in (1.0, 0.0)
        )
        assert with_host.total[0] >= without.total[0]
        assert bool(with_host.total[0] == pytest.approx(900e-6)) is waits
        assert waits or with_host.total[0] == without.total[0]


ONE = Plan(global_batch=1)
SMALL = gpt(layers=4, hidden=1024, heads=16, vocab=1024, seq=1024, flash=True)
TOKENS, HIDDEN = 1024, 1024
STREAM_BYTES = TOKENS * HIDDEN * 2
LLAMA_LIKE = replace(SMALL, gated_mlp=True, learned_positions=False, tied_embeddings=False)


def _times(
    model: ModelShape, plan: Plan = ONE, *, on: Machine | None = None, using: SoftwareColumns | None = None
) -> LayerTime:
    shares, _ = shares_and_stages(model, plan)
    return layer_time(build_shape(model), PlanTable.of([plan]), shares, on or machine(), using or software())


def _s(column: np.ndarray) -> float:
    return float(np.ravel(column)[0])


def test_a_large_product_runs_at_the_reached_rate() -> None:
    # 24 m h^2 FLOP in the products of a GPT layer, and half of the 4 m s h of attention since it is causal
    times = _times(SMALL, on=endless_memory()).plain
    products = 24 * TOKENS * HIDDEN**2 / FLOP_PER_S
    attention = 0.5 * 4 * TOKENS * 1024 * HIDDEN / FLOP_PER_S
    assert _s(times.forward) == pytest.approx(products + attention)
    assert _s(times.by_weight) == pytest.approx(products)
    # fused attention's backward makes five products of the forward's two
    assert _s(times.by_input) == pytest.approx(products + 2.5 * attention)


def test_without_arithmetic_the_bytes_of_a_layer_count() -> None:
    times = _times(SMALL, on=endless_arithmetic()).plain
    # projections: 2 inputs of h, outputs of 3 h and input of h; MLP: h and 4 h each way; weights 4 h^2 and 8 h^2
    projections = 6 * STREAM_BYTES + 4 * HIDDEN**2 * 2
    mlp = 10 * STREAM_BYTES + 8 * HIDDEN**2 * 2
    gelu, around = 2 * 4 * STREAM_BYTES, 11 * STREAM_BYTES
    assert _s(times.forward) == pytest.approx((projections + mlp + gelu + around) / HBM_BYTES_PER_S)
    # the weight gradient adds to an fp32 buffer: 8 bytes a weight in place of 2
    updates = 16 * STREAM_BYTES + 12 * HIDDEN**2 * 8
    assert _s(times.by_weight) == pytest.approx(updates / HBM_BYTES_PER_S)
    assert _s(times.by_input) == pytest.approx(
        (projections + mlp + 3 * 4 * STREAM_BYTES + 14 * STREAM_BYTES) / HBM_BYTES_PER_S
    )


def test_tiny_layers_are_bound_by_memory_and_large_ones_by_arithmetic() -> None:
    tiny, large = (
        gpt(layers=1, hidden=64, heads=1, seq=16, flash=True),
        gpt(layers=1, hidden=16384, heads=128, flash=True),
    )
    for model, bound in ((tiny, endless_arithmetic()), (large, endless_memory())):
        whole, alone = (_s(_times(model, on=on).plain.total) for on in (machine(), bound))
        assert alone <= whole < 1.15 * alone


@given(micro_batch=st.integers(1, 64), size=st.sampled_from([0.0, 40.0, 100.0]))
def test_more_tokens_take_longer_but_never_in_proportion(micro_batch: int, size: float) -> None:
    # so the efficiency of a product rises with m, and by no step
    some, more = (
        _s(_times(SMALL, Plan(micro_batch=count, global_batch=count), on=machine(matmul_size=size)).plain.forward)
        for count in (micro_batch, micro_batch + 1)
    )
    assert some < more <= some * (micro_batch + 1) / micro_batch * (1 + 1e-12)


@given(width=st.integers(8, 8192), size=st.sampled_from([0.0, 40.0, 100.0]))
def test_a_wider_mlp_takes_longer_but_never_in_proportion(width: int, size: float) -> None:
    base = _times(replace(SMALL, ffn=1), on=machine(matmul_size=size)).plain.forward
    some, more = (
        _s(_times(replace(SMALL, ffn=ffn), on=machine(matmul_size=size)).plain.forward - base)
        for ffn in (width, width + 1)
    )
    assert 0 < some < more
    assert more / some < 1.35


def test_each_dimension_of_a_product_costs_by_its_own_size() -> None:
    # MLP of 1024 x 1024 x 4096 and back, with s = 64: 1 + 64/1024 + 64/1024 + 64/4096 times as long as without
    with_mlp, without = (
        _times(model, on=endless_memory(matmul_size=64.0)).plain.by_weight for model in (SMALL, replace(SMALL, ffn=1))
    )
    # the 1 wide MLP: 1 + 64/1024 + 64/1024 + 64/1
    one_wide = 2 * 2 * TOKENS * HIDDEN / FLOP_PER_S * (1 + 2 * 64 / 1024 + 64)
    wide = 2 * 2 * TOKENS * HIDDEN * 4096 / FLOP_PER_S * (1 + 2 * 64 / 1024 + 64 / 4096)
    assert _s(with_mlp - without) == pytest.approx(wide - one_wide)


def test_higher_tp_is_less_than_proportionally_faster() -> None:
    one, eight = (
        _s(
            _times(
                SMALL, Plan(tp=tp, sequence_parallel=True, global_batch=1), on=machine(matmul_size=100.0)
            ).plain.total
        )
        for tp in (1, 8)
    )
    assert one / 8 < eight < one


def test_unfused_attention_writes_and_reads_its_scores() -> None:
    # 16 heads of 1024 x 1024 scores of 2 bytes are 33.6 MB: 6.5 passes forward and 9.5 backward, at 1 TB/s
    scores_bytes = 16 * 1024 * 1024 * 2
    fused, plain = (_times(replace(SMALL, flash_attention=flash), on=endless_arithmetic()) for flash in (True, False))
    assert _s(fused.attention) == pytest.approx(0.0, abs=1e-12)
    assert _s(plain.attention) == pytest.approx(6.5 * scores_bytes / HBM_BYTES_PER_S)
    added = _s(plain.plain.by_input - fused.plain.by_input)
    assert added == pytest.approx(9.5 * scores_bytes / HBM_BYTES_PER_S)


def test_only_fused_attention_skips_what_the_mask_hides() -> None:
    fused, plain = (
        _s(_times(replace(SMALL, flash_attention=flash), on=endless_memory()).attention) for flash in (True, False)
    )
    assert plain == pytest.approx(2 * fused)


def test_tp_and_cp_split_attention() -> None:
    whole, heads, tokens = (
        _s(_times(SMALL, plan).attention) for plan in (ONE, Plan(tp=4, global_batch=1), Plan(cp=4, global_batch=1))
    )
    assert heads == pytest.approx(whole / 4)
    assert tokens == pytest.approx(whole / 4)


def test_a_window_of_half_the_sequence_sees_three_quarters_of_the_square() -> None:
    # w (2 - w/s) = s/2 x 1.5; in half of the layers
    plain, windowed = (
        _s(_times(replace(SMALL, attention_window=window, windowed_layers=layers)).attention)
        for window, layers in ((0, 0), (512, 2))
    )
    assert windowed == pytest.approx((1 + 0.75) / 2 * plain)


def test_unfused_attention_of_unaligned_heads_is_slow() -> None:
    # 15 heads of 100 against 15 of 104 elements: 104 is a multiple of 8
    slow, fast = (
        _s(
            _times(
                replace(SMALL, flash_attention=False, heads=15, kv_heads=15, head_dim=width), on=endless_memory()
            ).attention
        )
        for width in (100, 104)
    )
    assert slow == pytest.approx(8 * fast * 100 / 104)
    fused = [
        _s(_times(replace(SMALL, heads=15, kv_heads=15, head_dim=width), on=endless_memory()).attention)
        for width in (100, 104)
    ]
    assert fused[0] == pytest.approx(fused[1] * 100 / 104)


@pytest.mark.parametrize(
    ("generation", "plan", "vocab", "units"),
    [
        # forward 1; by input and by weight 1 each, times the factor of rows that are no multiple of 8
        ("ampere", {}, 1001, 1 + 2 * 3),
        ("hopper", {}, 1001, 1 + 2 * 5),
        ("hopper", {}, 1008, 3),
        ("hopper", {"tp": 4}, 1008, 1 + 2 * 5),  # 252 rows on a GPU
        ("hopper", {"compiled": True}, 1001, 3),
        ("hopper", {"software": Software.MEGATRON_CORE}, 1001, 3),
        ("cdna3", {}, 1001, 3),
    ],
)
def test_a_head_of_unaligned_rows_is_slow_where_nothing_pads_it(
    generation: str, plan: dict[str, object], vocab: int, units: int
) -> None:
    planned = Plan(**{"global_batch": 1, "software": Software.PYTORCH, **plan})  # type: ignore[arg-type]
    on = replace(endless_memory(), generation=np.array(find_generation(generation)))
    head = _s(_times(replace(SMALL, vocab=vocab), planned, on=on).head)
    rows = (1024 if planned.software is Software.MEGATRON_CORE else vocab) / planned.tp  # Megatron pads to 128
    assert head == pytest.approx(units * 2 * TOKENS * HIDDEN * rows / FLOP_PER_S)


def test_grouped_queries_save_projections_of_keys_and_values() -> None:
    # 4 of 16 heads: 2 h (h + h/4) weights in place of 4 h^2
    whole, grouped = (
        _s(_times(replace(SMALL, kv_heads=heads), on=endless_memory()).plain.by_weight) for heads in (16, 4)
    )
    assert whole - grouped == pytest.approx(2 * TOKENS * 1.5 * HIDDEN**2 / FLOP_PER_S)


def test_latent_attention_multiplies_by_its_four_or_five_matrices(deepseek_v3: ModelShape) -> None:
    # 7168 x 1536 + 1536 x 128 x 192 for queries; 7168 x (512 + 64), 512 x 128 x (128 + 128); 128 x 128 x 7168 out
    weights = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
    plain_mlp = 3 * 7168 * 18432
    times = _times(deepseek_v3, on=endless_memory())
    assert _s(times.plain.by_weight) == pytest.approx(2 * 4096 * (weights + plain_mlp) / FLOP_PER_S)
    # attention: 4 m s x the mean of 192 (scores) and 128 (values) x 128 heads, half of it
    assert _s(times.attention) == pytest.approx(0.5 * 4 * 4096 * 4096 * 128 * 160 / FLOP_PER_S)


def test_one_expert_for_every_token_costs_what_the_dense_layer_does_and_its_dispatch() -> None:
    model = replace(SMALL, experts=1, top_k=1, expert_ffn=SMALL.ffn)
    arithmetic = _times(model, on=endless_memory(matmul_size=50.0))
    router = 2 * 2 * TOKENS * HIDDEN / FLOP_PER_S
    assert _s(arithmetic.sparse.total) == pytest.approx(_s(arithmetic.plain.total) + router + SYNC_S)
    whole = _times(model)
    # fused permutation of one rank: 3 reads and writes of a token's vector each way; 4 of its one logit in fp32, and
    # the vector read by the router, 2 m h FLOP each way; and the host is waited for once
    moved = 3 * STREAM_BYTES + 4 * TOKENS * 4 + STREAM_BYTES
    around = 2 * (moved / HBM_BYTES_PER_S + 2 * TOKENS * HIDDEN / FLOP_PER_S) + SYNC_S
    assert _s(whole.sparse.total - whole.plain.total) == pytest.approx(around)


def test_experts_work_as_their_busiest_rank_or_as_far_as_their_capacity() -> None:
    model = replace(SMALL, experts=8, top_k=2, expert_ffn=1024)

    def work(plan: Plan = ONE, **fields: float) -> float:
        return _s(_times(replace(model, **fields), plan, on=endless_memory()).sparse.by_weight)

    attention = 2 * TOKENS * 4 * HIDDEN**2 / FLOP_PER_S
    even = work() - attention
    assert even == pytest.approx(2 * 2 * TOKENS * 2 * HIDDEN * 1024 / FLOP_PER_S)
    # one rank with all experts has all tokens, however uneven
    assert work(expert_imbalance=1.5) - attention == pytest.approx(even)
    apart = Plan(dp=8, ep=8, global_batch=8)
    assert work(apart, expert_imbalance=1.5) - attention == pytest.approx(1.5 * even)
    assert work(capacity_factor=1.25) - attention == pytest.approx(1.25 * even)


def test_the_average_layer_mixes_dense_and_sparse_ones() -> None:
    model = replace(SMALL, experts=8, top_k=2, expert_ffn=1024, dense_layers=1)
    times = _times(model)
    assert _s(times.average.total) == pytest.approx(_s(times.plain.total) / 4 + 3 / 4 * _s(times.sparse.total))


def test_many_small_experts_are_slower_than_few_large_ones() -> None:
    # the same FLOP a token, with s = 50: (m + s e) x weights + s m x sides, for m tokens over e experts
    few = replace(SMALL, experts=4, top_k=1, expert_ffn=4096)
    many = replace(SMALL, experts=64, top_k=16, expert_ffn=256)
    on = endless_memory(matmul_size=50.0)
    slower = _s(_times(many, on=on).sparse.by_weight - _times(few, on=on).sparse.by_weight)
    many_work = (16384 + 50 * 64) * 2 * HIDDEN * 256 + 50 * 16384 * 2 * (HIDDEN + 256)
    few_work = (1024 + 50 * 4) * 2 * HIDDEN * 4096 + 50 * 1024 * 2 * (HIDDEN + 4096)
    assert slower == pytest.approx(2 * (many_work - few_work) / FLOP_PER_S)
    assert slower > 0


def test_shared_experts_are_an_mlp_beside() -> None:
    model = replace(SMALL, experts=8, top_k=2, expert_ffn=1024)
    alone, beside = (
        _s(_times(replace(model, shared_experts=shared), on=endless_memory()).sparse.by_weight) for shared in (0, 1)
    )
    assert beside - alone == pytest.approx(2 * TOKENS * 2 * HIDDEN * 1024 / FLOP_PER_S)


def test_multi_token_prediction_is_one_more_layer_a_projection_and_the_head() -> None:
    times = _times(replace(SMALL, mtp_layers=1), on=endless_memory())
    # 2 h to h: 3 passes of 2 m 2 h^2
    projection = 12 * TOKENS * HIDDEN**2 / FLOP_PER_S
    assert _s(times.mtp) == pytest.approx(_s(times.plain.total) + projection + _s(times.head))
    assert _s(_times(SMALL).mtp) == 0


def test_an_encoder_makes_each_layer_longer_by_its_share_of_the_flop() -> None:
    # as many encoder layers and tokens: a decoder layer has 12 h^2 weights and 4 more of cross attention, one of the
    # encoder 12; squares of scores: its own, cross attention's, and the encoder's
    plain = _s(_times(SMALL, on=endless_memory()).plain.total)
    both = _s(_times(replace(SMALL, encoder_layers=4, encoder_seq=1024), on=endless_memory()).plain.total)
    own = 24 * HIDDEN**2 + 4 * 1024 * HIDDEN
    whole = (24 + 8 + 24) * HIDDEN**2 + 3 * 4 * 1024 * HIDDEN
    assert both == pytest.approx(plain * whole / own)


def test_frozen_weights_have_no_gradients() -> None:
    whole, half, adapters = (
        _times(SMALL, replace(ONE, frozen_fraction=share, lora_rank=rank))
        for share, rank in ((0.0, 0), (0.5, 0), (0.0, 16))
    )
    assert _s(half.plain.by_weight) == pytest.approx(_s(whole.plain.by_weight) / 2)
    assert _s(adapters.plain.by_weight) == 0
    assert _s(adapters.plain.forward) == _s(whole.plain.forward)
    assert _s(adapters.plain.by_input) == _s(whole.plain.by_input)


def test_a_frozen_head_makes_two_products_of_three() -> None:
    whole, frozen = (_s(_times(SMALL, replace(ONE, lora_rank=rank), on=endless_memory()).head) for rank in (0, 16))
    # 1,024 rows of the vocabulary
    assert whole == pytest.approx(6 * TOKENS * HIDDEN * 1024 / FLOP_PER_S)
    assert frozen == pytest.approx(2 / 3 * whole)


@pytest.mark.parametrize("axis", ["tp", "cp"])
def test_the_head_is_split_by_vocabulary_and_by_tokens(axis: str) -> None:
    # 1,024 rows are a multiple of 128 x 2, so nothing is padded
    plan = Plan(tp=2, global_batch=1) if axis == "tp" else Plan(cp=2, global_batch=1)
    whole, half = (_s(_times(SMALL, one, on=endless_memory()).head) for one in (ONE, plan))
    assert half == pytest.approx(whole / 2)


def test_sequence_parallelism_splits_what_lies_outside_the_products() -> None:
    # the residual stream's 11 passes forward and 14 backward are halved, all else stays
    split, copied = (
        _s(_times(SMALL, Plan(tp=2, sequence_parallel=how, global_batch=1)).plain.total) for how in (True, False)
    )
    assert copied - split == pytest.approx(25 * STREAM_BYTES / 2 / HBM_BYTES_PER_S)


def test_gated_models_pay_for_a_third_matrix_and_rotary_positions() -> None:
    plain, gated = (_s(_times(model, on=endless_memory()).plain.forward) for model in (SMALL, LLAMA_LIKE))
    assert gated - plain == pytest.approx(2 * TOKENS * HIDDEN * 4 * HIDDEN / FLOP_PER_S)
    plain, gated = (_s(_times(model, on=endless_arithmetic()).plain.forward) for model in (SMALL, LLAMA_LIKE))
    # 4 h more of activations, weights and inner traffic; query and key (2 h) read and written once
    added = (4 + 4 + 2 * 2) * STREAM_BYTES + 4 * HIDDEN**2 * 2
    assert gated - plain == pytest.approx(added / HBM_BYTES_PER_S)


def test_llama_models_in_uncompiled_pytorch_run_their_norms_operation_by_operation() -> None:
    fused, apart, compiled = (
        _s(_times(LLAMA_LIKE, replace(ONE, software=family, compiled=compiled)).plain.forward)
        for family, compiled in ((Software.MEGATRON_CORE, False), (Software.PYTORCH, False), (Software.PYTORCH, True))
    )
    assert apart > fused == compiled


def test_every_kernel_waits_for_its_launch() -> None:
    # 24 forward and 44 backward
    plain, waiting = (_s(_times(SMALL, using=software(kernel_gap_s=gap)).plain.total) for gap in (0.0, 1e-5))
    assert waiting - plain == pytest.approx(68e-5)


def test_passes_add_and_multiply() -> None:
    one = _times(SMALL).plain
    twice = one + one
    assert _s(twice.total) == pytest.approx(_s(one.times(np.asarray(2.0)).total))
