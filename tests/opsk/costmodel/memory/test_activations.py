"""Activations of a layer and of a stage: Korthikanti's formulas, and what PyTorch's own modules store."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opsk.costmodel.estimates import scaling_laws
from opsk.costmodel.memory.activations import (
    Activations,
    LayerBytes,
    compute_activations,
    layer_bytes,
    scores_bytes,
    stored_layer_bytes,
)
from opsk.costmodel.sizes.shape import build_shape
from opsk.costmodel.table import PlanTable
from opsk.units import as_gib
from opsk.workload.model import ModelShape
from opsk.workload.plan import (
    AdapterFormat,
    LoraTargets,
    Offload,
    Plan,
    Precision,
    QkvLayout,
    Recompute,
    Schedule,
    Sharding,
    Software,
    States,
)
from tests.fakes.training_runs import gpt, parts

SHAPES = [(6144, 64, 4), (12288, 96, 1), (20480, 128, 1), (25600, 160, 1)]
"""Hidden size, heads, micro-batch of the four models of Korthikanti et al. 2022."""


SEPARATE, PACKED = QkvLayout.SEPARATE, QkvLayout.PACKED


def _layer(model: ModelShape, plan: Plan) -> LayerBytes:
    return layer_bytes(build_shape(model), PlanTable.of([plan]), parts(model, plan)[0])


def _activations(model: ModelShape, plan: Plan) -> Activations:
    shares, stages, _ = parts(model, plan)
    return compute_activations(build_shape(model), PlanTable.of([plan]), shares, stages)


@pytest.mark.parametrize(("hidden", "heads", "micro_batch"), SHAPES)
class TestKorthikantiTable2:
    """Table 2 of Korthikanti et al. 2022, row by row: the general count gives the paper's formulas exactly."""

    def _kept(self, hidden: int, heads: int, plan: Plan) -> float:
        model = gpt(layers=4, hidden=hidden, heads=heads)
        layer = _layer(model, plan)
        return float(stored_layer_bytes(build_shape(model), PlanTable.of([plan]), parts(model, plan)[0], layer)[0][0])

    def test_no_parallelism(self, hidden: int, heads: int, micro_batch: int):
        shape = {"seq": 2048, "micro_batch": micro_batch, "hidden": hidden, "heads": heads}
        plan = Plan(micro_batch=micro_batch, global_batch=micro_batch)
        assert self._kept(hidden, heads, plan) == pytest.approx(scaling_laws.layer_activation_bytes(**shape), rel=1e-12)

    def test_tensor_parallel(self, hidden: int, heads: int, micro_batch: int):
        shape = {"seq": 2048, "micro_batch": micro_batch, "hidden": hidden, "heads": heads}
        plan = Plan(tp=8, micro_batch=micro_batch, global_batch=micro_batch)
        assert self._kept(hidden, heads, plan) == pytest.approx(
            scaling_laws.layer_activation_bytes_tp(**shape, tp=8), rel=1e-12
        )

    def test_tensor_and_sequence_parallel(self, hidden: int, heads: int, micro_batch: int):
        shape = {"seq": 2048, "micro_batch": micro_batch, "hidden": hidden, "heads": heads}
        plan = Plan(tp=8, sequence_parallel=True, micro_batch=micro_batch, global_batch=micro_batch)
        assert self._kept(hidden, heads, plan) == pytest.approx(
            scaling_laws.layer_activation_bytes_sp(**shape, tp=8), rel=1e-12
        )

    def test_sequence_parallel_and_selective(self, hidden: int, heads: int, micro_batch: int):
        shape = {"seq": 2048, "micro_batch": micro_batch, "hidden": hidden}
        plan = Plan(
            tp=8,
            sequence_parallel=True,
            recompute=Recompute.SELECTIVE,
            micro_batch=micro_batch,
            global_batch=micro_batch,
        )
        assert self._kept(hidden, heads, plan) == pytest.approx(
            scaling_laws.layer_activation_bytes_selective(**shape, tp=8), rel=1e-12
        )

    def test_full(self, hidden: int, heads: int, micro_batch: int):
        shape = {"seq": 2048, "micro_batch": micro_batch, "hidden": hidden}
        plan = Plan(tp=8, recompute=Recompute.FULL, micro_batch=micro_batch, global_batch=micro_batch)
        full = scaling_laws.layer_activation_bytes_full(**shape)
        assert self._kept(hidden, heads, plan) == pytest.approx(full, rel=1e-12)


@pytest.mark.parametrize(
    ("hidden", "heads", "layers", "plan", "figure_gib"),
    [
        (6144, 64, 48, Plan(tp=8, micro_batch=4, global_batch=4), 9.5625),
        (12288, 96, 96, Plan(tp=8, pp=8, vpp=3, global_batch=64), 12.3515625),
        (20480, 128, 105, Plan(tp=8, pp=35, vpp=3, global_batch=280), 23.076171875),
        (25600, 160, 128, Plan(tp=8, pp=64, global_batch=512), 26.5625),
    ],
    ids=["22B", "175B", "530B", "1T"],
)
def test_first_stage_of_figure_1(hidden: int, heads: int, layers: int, plan: Plan, figure_gib: float):
    # Korthikanti et al. 2022, figure 1, sp + selective. Ours adds the embedding's dropout mask (Megatron-LM's own
    # estimator, which has it too: 9.79, 12.38, 23.30, 26.95 GiB)
    model = gpt(layers=layers, hidden=hidden, heads=heads)
    found = _activations(model, replace(plan, recompute=Recompute.SELECTIVE, sequence_parallel=True))
    assert as_gib(float(found.stored[0, 0])) == pytest.approx(figure_gib, rel=0.025)


def test_the_backward_brings_back_what_was_recomputed():
    model = gpt(layers=4, hidden=6144, heads=64)
    plan = Plan(tp=8, recompute=Recompute.SELECTIVE, global_batch=4)
    scores = scores_bytes(build_shape(model), parts(model, plan)[0])
    assert _activations(model, plan).restored[0] == pytest.approx(scores[0], rel=1e-12)


def test_fused_attention_keeps_statistics_instead_of_scores():
    stored = [
        _layer(gpt(layers=4, hidden=4096, heads=32, flash=flash), Plan(global_batch=1)).plain[0]
        for flash in (False, True)
    ]
    # 5 a s^2 b against 4 bytes a row and head
    assert stored[0] - stored[1] == 5 * 32 * 2048**2 - 4 * 32 * 2048


@pytest.mark.parametrize(
    ("norm_bias", "changes", "more"),
    [
        (False, {}, 4),  # Transformers' Llama
        (True, {}, 0),
        (True, {"states": States.AUTOCAST}, 4),
        (True, {"states": States.AUTOCAST, "precision": Precision.FP32}, 0),
        (False, {"compiled": True}, 0),
        (False, {"software": Software.MEGATRON_CORE}, 0),
    ],
)
def test_a_softmax_in_fp32_is_stored_beside_its_copy(norm_bias: bool, changes: dict[str, object], more: int):
    plan = replace(Plan(software=Software.PYTORCH, states=States.PURE_16BIT, global_batch=1), **changes)  # type: ignore[arg-type]
    model = replace(gpt(layers=4, hidden=4096, heads=32), norm_bias=norm_bias)
    width = 4 if plan.precision is Precision.FP32 else 2
    bare = _layer(replace(model, dropout=0.0), plan).attention_core[0]
    assert bare == (width + more) * 32 * 2048**2


def test_grouped_query_attention_keeps_narrow_keys_and_values(llama3_8b: ModelShape):
    # per token, 2 bytes each: 4 x 4096 outside, query and output 2 x 4096, key and value 2 x 1024, 3 x 14336; and the
    # fp32 statistics of 32 heads
    per_token = 2 * (4 * 4096 + 2 * 4096 + 2 * 1024 + 3 * 14336) + 4 * 32
    assert _layer(llama3_8b, Plan(global_batch=1)).plain[0] == per_token * 8192


def test_pytorch_modules_keep_fp32_copies_of_norms_and_the_activated_gate(llama3_8b: ModelShape):
    eager, compiled, fused = (
        _layer(llama3_8b, Plan(software=software, compiled=compiled, global_batch=1)).plain[0]
        for software, compiled in ((Software.PYTORCH, False), (Software.PYTORCH, True), (Software.MEGATRON_CORE, False))
    )
    # x.float() and the normalised x instead of x: 4 bytes more in each of two norms; silu's output, 2 bytes
    assert eager - compiled == (2 * 4 * 4096 + 2 * 14336) * 8192
    assert compiled == fused


_TUNED = Plan(software=Software.PYTORCH, lora_rank=16, base_bits=16, global_batch=1)
_FROZEN_LAYER = 2 * (4 * 4096 + 4096 + 2 * 1024 + 4096 + 3 * 14336) + 4 * 32
"""Bytes a token of a frozen Llama 3 8B layer of HuggingFace's, bf16: the fp32 input of two norms, query, key, value,
output of attention, gate, up and the activated gate; log-sum-exp of 32 heads."""


def test_a_frozen_norm_keeps_no_normalised_copy(llama3_8b: ModelShape):
    # two RMSNorms written in PyTorch, bf16, on 4,096 wide vectors of 8,192 tokens; adapters give 7 x 16 numbers
    trained, frozen = (_layer(llama3_8b, replace(_TUNED, lora_rank=rank)).plain[0] for rank in (0, 16))
    assert trained - frozen == (2 * 2 * 4096 - 2 * 7 * 16) * 8192


@pytest.mark.parametrize(
    ("targets", "stored", "more"),
    [
        # benchmarks/published/memory.md, A1 to A3 and A12: adapters in 16 bits share what neighbours read
        (LoraTargets.ALL, AdapterFormat.BASE, 2 * (2 * 4096 + 14336) + 2 * 7 * 16),
        (LoraTargets.ALL, AdapterFormat.AUTOCAST, 2 * (3 + 1 + 2) * 4096 + 2 * 14336 + 2 * 7 * 16),
        (LoraTargets.ALL, AdapterFormat.FP32, 4 * (3 + 1 + 2) * 4096 + 4 * 14336 + 4 * 7 * 16),
        (LoraTargets.ATTENTION, AdapterFormat.AUTOCAST, 2 * (3 + 1) * 4096 + 2 * 4 * 16),
        (LoraTargets.QUERY_VALUE, AdapterFormat.BASE, 2 * 4096 + 2 * 2 * 16),
        (LoraTargets.QUERY_VALUE, AdapterFormat.AUTOCAST, 2 * 2 * 4096 + 2 * 2 * 16),
    ],
)
def test_adapters_keep_what_they_read(llama3_8b: ModelShape, targets: LoraTargets, stored: AdapterFormat, more: int):
    plan = replace(_TUNED, lora_targets=targets, adapter_format=stored)
    assert _layer(llama3_8b, plan).plain[0] == (_FROZEN_LAYER + more) * 8192


def test_adapters_of_a_quantised_base_share_inputs_under_autocast(llama3_8b: ModelShape):
    plan = replace(_TUNED, adapter_format=AdapterFormat.AUTOCAST, base_bits=4)
    assert _layer(llama3_8b, plan).plain[0] == _layer(llama3_8b, _TUNED).plain[0]
    # the largest matrix, unpacked for the backward
    unpacked = _layer(llama3_8b, plan).working[0] - _layer(llama3_8b, _TUNED).working[0]
    assert unpacked == 2 * 4096 * 14336


def test_autocast_from_fp32_weights_keeps_an_fp32_stream(llama3_8b: ModelShape):
    plan = Plan(software=Software.PYTORCH, states=States.AUTOCAST, global_batch=1)
    mixed, sharded = (
        _layer(llama3_8b, each) for each in (plan, replace(plan, dp=8, global_batch=8, sharding=Sharding.ZERO3))
    )
    # two norms of 2 bytes more; three more 16-bit copies: one each for query, key, value, gate and up, not two in all
    assert mixed.plain[0] - sharded.plain[0] == (2 * 2 + 2 * 3) * 4096 * 8192
    assert mixed.checkpoint[0] == 2 * sharded.checkpoint[0]


def test_inputs_gathered_over_tp_are_kept_whole_where_they_are_not_gathered_again(llama3_8b: ModelShape):
    plan = Plan(software=Software.PYTORCH, tp=8, sequence_parallel=True, fused_norms=True, global_batch=1)
    again, kept = (_layer(llama3_8b, replace(plan, keeps_gathered=keeps)).plain[0] for keeps in (False, True))
    assert kept - again == 2 * 2 * 4096 * (8192 - 1024)


def test_fused_norms_keep_their_input_only(llama3_8b: ModelShape):
    plan = Plan(software=Software.PYTORCH, global_batch=1)
    eager, fused = (_layer(llama3_8b, replace(plan, fused_norms=has)).plain[0] for has in (False, True))
    assert eager - fused == 2 * 4 * 4096 * 8192


def test_recomputed_layers_may_keep_their_keys_and_values(llama3_8b: ModelShape):
    # 2 tensors of 8 heads of 128 in 16 bits for each token of 32 layers; kept to the end of the step
    plan = Plan(software=Software.PYTORCH, recompute=Recompute.FULL, keeps_kv_cache=True, global_batch=1)
    kept, freed = (_activations(llama3_8b, each) for each in (plan, replace(plan, keeps_kv_cache=False)))
    cache = 2 * 8 * 128 * 2 * llama3_8b.seq * 32
    assert (kept.stored - freed.stored)[0, 0] == cache
    assert np.broadcast_to(kept.lingering, (3, 1))[0, 0] == cache
    stored = replace(plan, recompute=Recompute.NONE)
    assert (
        _activations(llama3_8b, stored).stored[0, 0]
        == _activations(llama3_8b, replace(stored, keeps_kv_cache=False)).stored[0, 0]
    )  # they are stored for the backward anyway


def test_the_stream_is_fp32_where_autocast_casts_gathered_weights(llama3_8b: ModelShape):
    plan = Plan(
        dp=8, sharding=Sharding.ZERO3, software=Software.PYTORCH, states=States.AUTOCAST, recompute=Recompute.FULL,
        global_batch=8,
    )  # fmt: skip
    wide, narrow = (_layer(llama3_8b, replace(plan, gathers_fp32=asked)).checkpoint[0] for asked in (True, False))
    assert wide == 2 * narrow == 4 * llama3_8b.seq * 4096


def test_reentrant_checkpoints_of_frozen_fsdp_units_linger_to_the_end_of_the_backward(llama3_8b: ModelShape):
    plan = replace(_TUNED, dp=2, sharding=Sharding.ZERO3, recompute=Recompute.FULL, reentrant=True, global_batch=2)
    # input and its gradient of 32 layers
    assert _activations(llama3_8b, plan).lingering[0, 0] == 4 * 32 * 4096 * 8192
    for other in (replace(plan, reentrant=False), replace(plan, lora_rank=0), replace(plan, sharding=Sharding.NONE)):
        assert not np.any(_activations(llama3_8b, other).lingering)


def test_context_parallelism_divides_everything(llama3_8b: ModelShape):
    one, four = (_layer(llama3_8b, Plan(cp=cp, global_batch=4)).plain[0] for cp in (1, 4))
    assert four == one / 4


def test_checkpoints_are_split_by_sequence_parallelism(gpt3: ModelShape):
    whole, split = (
        _layer(gpt3, Plan(tp=8, sequence_parallel=split, global_batch=1)).checkpoint[0] for split in (False, True)
    )
    assert split == whole / 8


def test_fp8_keeps_inputs_of_products_in_one_byte(llama3_8b: ModelShape):
    kept = [
        _layer(llama3_8b, Plan(precision=each, global_batch=1)).plain[0] for each in (Precision.BF16, Precision.FP8)
    ]
    # inputs of the projections and of the MLP (2 x 4096) and of its last matrix (14336), one byte less each; the output
    # projection's input in FP8 lies beside the attention output, which attention's backward needs in 16 bits
    assert kept[0] - kept[1] == (2 * 4096 + 14336 - 4096) * 8192


def test_experts_keep_the_tokens_sent_to_them(mixtral: ModelShape):
    plan = Plan(ep=8, dp=8, global_batch=8)
    found = _layer(mixtral, plan)
    # two experts a token: input 4096 and 3 x 14336 inside, 2 bytes each, instead of one MLP's inner tensors; fp32
    # logits and probabilities of eight experts
    more = 2 * (2 * (4096 + 3 * 14336) - 3 * 14336) + 8 * 8
    assert found.sparse[0] - found.plain[0] == more * 4096


def test_an_overloaded_expert_keeps_more(mixtral: ModelShape):
    plan = Plan(ep=8, dp=8, global_batch=8)
    even, twice = (_layer(replace(mixtral, expert_imbalance=load), plan).sparse[0] for load in (1.0, 2.0))
    assert twice - even == 2 * 2 * (4096 + 3 * 14336) * 4096


def test_latent_attention_keeps_latents_and_heads():
    model = replace(
        gpt(layers=2, hidden=2048, heads=16, flash=True),
        gated_mlp=True,
        q_lora_rank=512,
        kv_lora_rank=256,
        qk_rope_dim=64,
        head_dim=192,
        v_head_dim=128,
    )
    # two norms, inputs of attention and MLP; query and key of 192, value and output of 128 for each head; latents
    # before and after their norms, the rotary key; 3 x 8192 in the MLP; statistics
    per_token = 2 * (4 * 2048 + 16 * (192 + 192 + 128 + 128) + 2 * (512 + 256) + 64 + 3 * 8192) + 4 * 16
    assert _layer(model, Plan(global_batch=1)).plain[0] == per_token * 2048


def test_recomputing_some_layers_keeps_the_others(llama3_8b: ModelShape):
    plan = Plan(recompute=Recompute.FULL, global_batch=1)
    everything, half, nothing = (
        _activations(llama3_8b, each).stored[0, 0]
        for each in (plan, replace(plan, recompute_layers=16), replace(plan, recompute=Recompute.NONE))
    )
    assert half == pytest.approx((everything + nothing) / 2, rel=1e-12)


def test_selective_checkpointing_of_pytorch_keeps_every_second_product(llama3_8b: ModelShape):
    plan = Plan(software=Software.PYTORCH, recompute=Recompute.SELECTIVE, global_batch=1)
    # input 4096, attention output 4096; of q, k, v, o, gate, up and down every second from the first: q 4096, v 1024,
    # gate 14336, down 4096, which a compiler leaves out
    kept = 2 * (4096 + 4096 + 4096 + 1024 + 14336 + 4096) + 4 * 32
    head = 2 * 2 * 4096
    assert _activations(llama3_8b, plan).stored[0, 0] == (32 * kept + head) * 8192
    compiled = _activations(llama3_8b, replace(plan, compiled=True))
    assert compiled.stored[0, 0] == (32 * (kept - 2 * 4096) + head) * 8192


def test_offloaded_activations_leave_two_layers(llama3_8b: ModelShape):
    plan = Plan(offload=Offload.ACTIVATIONS, global_batch=1)
    layer = _layer(llama3_8b, plan).plain[0]
    head = 2 * 2 * 4096 * 8192
    assert _activations(llama3_8b, plan).stored[0, 0] == 2 * layer + head


def test_offloaded_inputs_of_recomputed_layers_leave_two_of_them(llama3_8b: ModelShape):
    plan = Plan(
        offload=Offload.ACTIVATIONS, recompute=Recompute.FULL, software=Software.PYTORCH, micro_batch=4, global_batch=4
    )
    inputs, head = 2 * 4096, 2 * 2 * 4096
    assert _activations(llama3_8b, plan).stored[0, 0] == (2 * inputs + head) * 4 * 8192


def test_zero_bubble_keeps_what_waits_for_weight_gradients(gpt3: ModelShape):
    plain, split = (
        _activations(gpt3, Plan(tp=8, pp=8, schedule=schedule, global_batch=64)).stored[2, 0]
        for schedule in (Schedule.ONE_F_ONE_B, Schedule.ZERO_BUBBLE)
    )
    assert split > 7 * plain


def test_deepspeed_keeps_the_output_of_a_stage_for_every_micro_batch_in_flight(gpt3: ModelShape):
    plan = Plan(tp=8, pp=8, recompute=Recompute.FULL, global_batch=64)
    megatron, deepspeed = (
        _activations(gpt3, replace(plan, software=software)).stored[0, 0]
        for software in (Software.MEGATRON, Software.DEEPSPEED)
    )
    assert deepspeed - megatron == 8 * 2 * 2048 * 12288


def test_a_quantised_base_whose_rest_is_fp32_has_an_fp32_stream(llama3_8b: ModelShape):
    # benchmarks/published/memory.md, A9: norms keep the stream, 4 bytes; every target casts its own input
    plan = replace(_TUNED, base_bits=4, adapter_format=AdapterFormat.AUTOCAST, upcast_base=True)
    found = _layer(llama3_8b, plan)
    own = 2 * (3 + 1 + 2) * 4096 + 2 * 14336 + 2 * 7 * 16
    assert found.plain[0] == (_FROZEN_LAYER + own) * 8192
    assert found.checkpoint[0] == 4 * 4096 * 8192


@pytest.mark.parametrize(
    ("stored", "bits", "upcast", "more"),
    [
        # benchmarks/published/memory.md, A4: each of seven targets keeps its own input and a mask of one byte
        (AdapterFormat.BASE, 16, False, 3 * (6 * 4096 + 14336) + 2 * 7 * 16),
        (AdapterFormat.AUTOCAST, 4, False, 3 * (6 * 4096 + 14336) + 2 * 7 * 16),
        (AdapterFormat.AUTOCAST, 4, True, 3 * (6 * 4096 + 14336) + 2 * 7 * 16),
        (AdapterFormat.FP32, 16, False, 5 * (6 * 4096 + 14336) + 4 * 7 * 16),
    ],
)
def test_adapters_behind_a_dropout_keep_their_own_inputs_and_masks(
    llama3_8b: ModelShape, stored: AdapterFormat, bits: int, upcast: bool, more: float
):
    plan = replace(_TUNED, adapter_format=stored, base_bits=bits, upcast_base=upcast, lora_dropout=True)
    assert _layer(llama3_8b, plan).plain[0] == (_FROZEN_LAYER + more) * 8192


@pytest.mark.parametrize(
    ("targets", "drops", "upcast", "more"),
    [
        # benchmarks/published/memory.md, A8: the input of attention, of gate and up, and of down, beside the adapters'
        (LoraTargets.QUERY_VALUE, True, False, 2 * (2 * 4096 + 14336)),
        # without a dropout the adapters of queries and values read what the base keeps
        (LoraTargets.QUERY_VALUE, False, False, 2 * (4096 + 14336)),
        (LoraTargets.ALL, False, False, 0),
        # a 16-bit copy for each of five products from the fp32 stream
        (LoraTargets.ALL, True, True, 2 * (5 * 4096 + 14336)),
    ],
)
def test_an_older_bitsandbytes_keeps_what_its_products_read(
    llama3_8b: ModelShape, targets: LoraTargets, drops: bool, upcast: bool, more: float
):
    plan = replace(
        _TUNED,
        base_bits=4,
        adapter_format=AdapterFormat.AUTOCAST,
        lora_targets=targets,
        lora_dropout=drops,
        upcast_base=upcast,
    )
    without, older = (_layer(llama3_8b, replace(plan, keeps_base_inputs=keeps)).plain[0] for keeps in (False, True))
    assert older - without == more * 8192
    eight_bits = replace(plan, base_bits=8)
    assert _layer(llama3_8b, replace(eight_bits, keeps_base_inputs=True)) == _layer(llama3_8b, eight_bits)


def test_values_hold_the_whole_product_of_queries_keys_and_values():
    # benchmarks/published/memory.md, A19: unrotated queries and keys stay, 2 + 2 bytes; of adapters of queries and
    # values what they add, 2 + 2 more, and one input, not two
    model = gpt(layers=2, hidden=2048, heads=16, flash=True)
    plan = Plan(software=Software.PYTORCH, global_batch=1)
    apart, packed = (_layer(model, replace(plan, qkv_layout=layout)).plain[0] for layout in (SEPARATE, PACKED))
    assert packed - apart == 2 * (2048 + 2048) * 2048
    plan = replace(_TUNED, lora_targets=LoraTargets.QUERY_VALUE, lora_dropout=True)
    apart, packed = (_layer(model, replace(plan, qkv_layout=layout)).plain[0] for layout in (SEPARATE, PACKED))
    assert packed - apart == (4 * (2048 + 2048) - 3 * 2048) * 2048


def test_permuted_copies_are_kept_beside_what_attention_reads(llama3_8b: ModelShape):
    # nanotron's attention: queries hold the product of all three, 2 bytes for each key and value of a token; heads that
    # share keys and values are copied apart; several sequences have their output transposed
    model = gpt(layers=2, hidden=2048, heads=16, flash=True)
    one, two = (Plan(software=Software.PYTORCH, micro_batch=count, global_batch=2) for count in (1, 2))
    for shape, plan, more in ((model, one, 4 * 2048), (model, two, 2 * 6 * 2048), (llama3_8b, one, 0)):
        apart, permuted = (
            _layer(shape, replace(plan, qkv_layout=layout)).plain[0] for layout in (SEPARATE, QkvLayout.PERMUTED)
        )
        assert permuted - apart == more * shape.seq


def test_keys_and_values_that_heads_share_are_repeated_for_each(llama3_8b: ModelShape):
    plan = Plan(software=Software.PYTORCH, global_batch=1)
    apart, packed = (_layer(llama3_8b, replace(plan, qkv_layout=layout)).plain[0] for layout in (SEPARATE, PACKED))
    assert packed - apart == 2 * 2 * (4096 - 1024) * 8192
