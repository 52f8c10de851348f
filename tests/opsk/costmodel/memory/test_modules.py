"""Bytes by hand, for DeepSeek-V3's layers: 4096 tokens, hidden 7168, 128 heads of 192 and 128, top 8 of 2048, bf16."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.costmodel.memory.activations import compute_activations, layer_bytes, stored_layer_bytes
from opsk.costmodel.sizes.shape import build_shape
from opsk.costmodel.table import PlanTable
from opsk.workload.model import ModelShape
from opsk.workload.plan import OffloadModule, Plan, Precision, Recompute, RecomputeModule, Software
from tests.fakes.training_runs import parts

TOKENS, HIDDEN, HEADS = 4096, 7168, 128
DEEPSEEK = ModelShape(
    layers=61, hidden=HIDDEN, ffn=18432, heads=HEADS, kv_heads=HEADS, head_dim=192, v_head_dim=128, vocab=129280,
    seq=TOKENS, gated_mlp=True, tied_embeddings=False, experts=256, top_k=8, expert_ffn=2048, shared_experts=1,
    dense_layers=3, q_lora_rank=1536, kv_lora_rank=512, qk_rope_dim=64,
)  # fmt: skip
LLAMA = ModelShape(
    layers=80, hidden=8192, ffn=28672, heads=64, kv_heads=8, head_dim=128, vocab=128256, seq=TOKENS, gated_mlp=True,
    tied_embeddings=False,
)  # fmt: skip
PLAN = Plan(global_batch=8, recompute=Recompute.SELECTIVE, recompute_modules="core_attn")
NORM = 2 * TOKENS * HIDDEN


def kept(model: ModelShape, plan: Plan) -> tuple[float, float]:
    shares, _, _ = parts(model, plan)
    shape, table = build_shape(model), PlanTable.of([plan])
    plain, sparse = stored_layer_bytes(shape, table, shares, layer_bytes(shape, table, shares))
    return float(plain[0]), float(sparse[0])


def freed(model: ModelShape, modules: str, **changes: object) -> tuple[float, float]:
    """Return what modules free beyond the attention core, of a layer without and of one with experts."""
    plan = replace(PLAN, **changes)  # type: ignore[arg-type]
    before, after = kept(model, plan), kept(model, replace(plan, recompute_modules=f"core_attn {modules}"))
    return before[0] - after[0], before[1] - after[1]


def test_the_attention_core_is_what_is_repeated_where_no_module_is_named():
    assert kept(DEEPSEEK, replace(PLAN, recompute_modules="")) == kept(DEEPSEEK, PLAN)


def test_up_projections_free_query_key_and_value():
    # key heads as wide as the query's, value heads of 128
    bytes_ = 2 * TOKENS * HEADS * (192 + 192 + 128)
    assert freed(DEEPSEEK, "mla_up_proj") == (bytes_, bytes_)


def test_a_dense_mlp_frees_its_inner_tensors_and_the_norm_fused_into_it():
    # gate and up 2 x 2 bytes, their product 2 bytes; nothing where the layer has experts
    assert freed(DEEPSEEK, "mlp") == (NORM + 6 * TOKENS * 18432, 0)
    assert freed(LLAMA, "mlp")[0] == 2 * TOKENS * 8192 + 6 * TOKENS * 28672


def test_the_activation_function_of_experts_frees_its_result():
    assert freed(DEEPSEEK, "moe_act") == (0, 2 * TOKENS * 8 * 2048)


def test_norms_that_stand_alone_free_what_the_products_behind_them_keep():
    # before latent attention, and before experts; a dense model has none
    assert freed(DEEPSEEK, "layernorm") == (NORM, 2 * NORM)
    assert freed(LLAMA, "layernorm") == (0, 0)


def test_experts_keep_their_input_only():
    routed, shared, router = TOKENS * 8 * (2 * HIDDEN + 6 * 2048), TOKENS * 6 * 2048, TOKENS * 256 * 8
    assert freed(DEEPSEEK, "moe")[1] == routed + shared + router
    assert freed(DEEPSEEK, "moe layernorm")[1] == routed + shared + router + 2 * NORM
    assert freed(DEEPSEEK, "moe moe_act shared_experts")[1] == routed + shared + router


def test_experts_under_fp8_keep_their_input_in_16_bits():
    both = freed(DEEPSEEK, "moe", precision=Precision.FP8_CURRENT)[1]
    router, shared = TOKENS * 256 * 8, TOKENS * 5 * 2048
    assert both == TOKENS * 8 * (HIDDEN + 5 * 2048) + shared + router - TOKENS * HIDDEN


def test_modules_that_wait_in_host_memory_leave_the_gpu():
    plan = replace(PLAN, offload_modules="core_attn attn_proj expert_fc1 moe_act")
    before, after = kept(DEEPSEEK, PLAN), kept(DEEPSEEK, plan)
    attention = 2 * TOKENS * HEADS * (192 + 192 + 128 + 128)
    assert before[0] - after[0] == attention
    assert before[1] - after[1] == attention + TOKENS * 8 * (2 * HIDDEN + 4 * 2048)


def test_what_is_thrown_away_does_not_wait_in_host_memory():
    again = replace(PLAN, recompute_modules="mla_up_proj")
    moved = replace(again, offload_modules="core_attn")
    assert kept(DEEPSEEK, moved) == kept(DEEPSEEK, again)


def test_full_recomputation_leaves_nothing_to_offload():
    plan = replace(PLAN, recompute=Recompute.FULL, offload_modules="core_attn expert_fc1")
    assert kept(DEEPSEEK, plan) == (NORM, NORM)


def test_two_layers_of_what_waits_are_on_the_gpu():
    plan = replace(PLAN, recompute=Recompute.NONE, offload_modules="core_attn", software=Software.MEGATRON_CORE)
    shape, table = build_shape(LLAMA), PlanTable.of([plan])
    shares, stages, _ = parts(LLAMA, plan)
    # query, key and value of 64 and 8 heads of 128
    waiting = 2 * TOKENS * 128 * (64 + 2 * 8)
    ends = 2 * 2 * TOKENS * 8192
    found = float(compute_activations(shape, table, shares, stages).stored[0, 0])
    assert found == 80 * kept(LLAMA, plan)[0] + 2 * waiting + ends


@pytest.mark.parametrize("model", [DEEPSEEK, LLAMA])
def test_no_modules_free_more_than_there_is(model: ModelShape):
    everything = " ".join(RecomputeModule)
    moved = " ".join(module for module in OffloadModule if module is not OffloadModule.FUSED_GROUP_MLP)
    for plan in (replace(PLAN, recompute_modules=everything), replace(PLAN, offload_modules=moved)):
        assert all(bytes_ >= 0 for bytes_ in kept(model, plan))
        assert all(less < more for less, more in zip(kept(model, plan), kept(model, PLAN), strict=True))
