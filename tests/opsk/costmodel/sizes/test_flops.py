from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.costmodel.estimates.scaling_laws import gpt_model_flop, gpt_step_flop
from opsk.costmodel.sizes.flops import ATTENTION_SHARES, hardware_flop, model_flop, token_flop
from opsk.costmodel.sizes.parameters import active_parameters
from opsk.costmodel.sizes.shape import build_shape
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Recompute
from opsk.workload.public_models.lookup import public_model
from tests.fakes.training_runs import gpt, parts

GPT3 = {"global_batch": 1024, "seq": 2048, "layers": 96, "hidden": 12288, "vocab": 51200}


def gflop_per_token(model: ModelShape, attention: str) -> float:
    """Return forward and backward of one token, as published rates count it [GFLOP]."""
    one_sequence = np.ones(1)
    return float(model_flop(build_shape(model), one_sequence, ATTENTION_SHARES[attention])[0]) / model.seq / 1e9


def published(name: str, **changes: int) -> ModelShape:
    """Return a model of the catalogue with the sequence length of a published run."""
    model = public_model(name)
    assert model is not None
    return replace(model, **changes)


def test_full_recomputation_of_gpt3_is_the_closed_form(gpt3: ModelShape):
    shares, _, _ = parts(gpt3, Plan(recompute=Recompute.FULL, global_batch=1024))
    assert hardware_flop(build_shape(gpt3), shares)[0] == pytest.approx(gpt_step_flop(**GPT3), rel=1e-12)
    assert hardware_flop(build_shape(gpt3), shares)[0] == pytest.approx(3.0073e18, rel=1e-4)


def test_without_recomputation_gpt3_is_the_closed_form(gpt3: ModelShape):
    assert model_flop(build_shape(gpt3), np.array([1024.0]))[0] == pytest.approx(gpt_model_flop(**GPT3), rel=1e-12)


def test_selective_recomputation_repeats_the_attention_products_once(gpt3: ModelShape):
    shares, _, _ = parts(gpt3, Plan(recompute=Recompute.SELECTIVE, global_batch=1024))
    shape = build_shape(gpt3)
    # 4 B s^2 h a layer
    again = 4 * 1024 * 2048**2 * 12288 * 96
    difference = hardware_flop(shape, shares)[0] - model_flop(shape, shares.global_batch)[0]
    assert difference == pytest.approx(again, rel=1e-9)


def test_recomputing_a_few_layers_of_each_stage_repeats_their_forward_only(gpt3: ModelShape):
    whole = Plan(pp=8, recompute=Recompute.FULL, global_batch=1024)
    shares, _, _ = parts(gpt3, whole, replace(whole, recompute_layers=3), replace(whole, recompute_layers=99))
    again = hardware_flop(build_shape(gpt3), shares) - model_flop(build_shape(gpt3), shares.global_batch)
    # 12 layers a stage, 3 of them; more than there are is all of them
    assert again[1] / again[0] == pytest.approx(3 / 12, rel=1e-9)
    assert again[2] == again[0]


@pytest.mark.parametrize(
    ("name", "changes", "attention", "gflop", "tolerance"),
    [
        # TFLOP/s over tokens/s of Megatron-Bridge's performance summary, releases 25.09 to 26.08 (medians)
        ("llama-3-8b", {}, "causal", 51.47, 1e-3),
        ("llama-3-70b", {}, "causal", 449.2, 1e-3),
        ("llama-3-70b", {"seq": 4096}, "causal", 432.9, 2e-3),
        ("qwen3-30b-a3b", {}, "causal", 23.008, 1e-3),
        ("deepseek-v3-mtp", {}, "causal", 259.98, 1e-3),
        ("deepseek-v3", {}, "causal", 249.7, 1e-3),
        # the same of NeMo 24.07's summary, which counts attention in full
        ("llama-3-8b", {}, "full", 57.9, 1e-3),
    ],
)
def test_a_token_takes_the_flop_of_published_rates(
    name: str, changes: dict[str, int], attention: str, gflop: float, tolerance: float
):
    assert gflop_per_token(published(name, **changes), attention) == pytest.approx(gflop, rel=tolerance)


def test_a_token_passes_top_k_and_shared_experts(mixtral: ModelShape):
    dense = replace(mixtral, experts=0, top_k=0)
    sparse = token_flop(build_shape(mixtral)).mlp - token_flop(build_shape(dense)).mlp
    # one more expert of three 4096 x 14336 matrices
    assert sparse == 2 * 3 * 4096 * 14336
    shared = token_flop(build_shape(replace(mixtral, shared_experts=1))).mlp - token_flop(build_shape(mixtral)).mlp
    assert shared == 2 * 3 * 4096 * 14336
    assert token_flop(build_shape(mixtral)).router == 2 * 4096 * 8


def test_a_sliding_window_leaves_the_pairs_that_it_sees(mixtral: ModelShape):
    # a causal window of w sees w (s - w/2) pairs; the causal convention counts s^2/2 of a full square
    model = replace(mixtral, seq=4096, attention_window=1024, windowed_layers=32)
    flop = token_flop(build_shape(model)).attention
    pairs = 1024 * (4096 - 1024 / 2)
    assert 0.5 * flop * 4096 == pytest.approx(4 * 4096 * pairs, rel=1e-12)


def test_latent_attention_is_the_sum_of_its_matrices():
    # DeepSeek-V3's config.json: 7168 x 1536, 1536 x 128·192, 7168 x (512 + 64), 512 x 128·(128 + 128), 128·128 x 7168
    matrices = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
    flop = token_flop(build_shape(published("deepseek-v3")))
    assert flop.attention_projections == 2 * matrices
    # scores over heads of 192, values of 128
    assert flop.attention == 2 * 4096 * 128 * (192 + 128)


def test_an_encoder_and_its_cross_attention_cost_the_same_as_counted_by_hand():
    # T5 base, 512 tokens on both sides: a decoder layer has 8 matrices of 768 x 768 (4 of them see the encoder's tokens
    # or ours, all 512) and an MLP of 2 x 768 x 3072, an encoder layer 4 and an MLP; three squares of scores
    model = published("t5-base", seq=512, encoder_seq=512)
    layer = 12 * 768 * 768 + 4 * 768 * 3072
    scores = 3 * 4 * 512 * 768
    per_token = 3 * (12 * (2 * layer + scores) + 2 * 768 * 32128)
    assert gflop_per_token(model, "full") * 1e9 == pytest.approx(per_token, rel=1e-12)


@given(
    hidden=st.sampled_from([256, 512, 1024]),
    heads=st.sampled_from([4, 8]),
    kv_heads=st.sampled_from([1, 2, 4]),
    gated=st.booleans(),
    experts=st.sampled_from([0, 4, 16]),
    dense=st.integers(0, 3),
    latent=st.sampled_from([0, 64]),
    query_rank=st.sampled_from([0, 96]),
)
def test_without_attention_every_matrix_is_passed_once_by_each_token(
    hidden: int, heads: int, kv_heads: int, gated: bool, experts: int, dense: int, latent: int, query_rank: int
):
    model = ModelShape(
        layers=3,
        hidden=hidden,
        ffn=3 * hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=64,
        vocab=1024,
        seq=128,
        gated_mlp=gated,
        tied_embeddings=False,
        experts=experts,
        top_k=2 if experts else 0,
        expert_ffn=hidden if experts else 0,
        shared_experts=1 if experts else 0,
        dense_layers=dense,
        kv_lora_rank=latent,
        q_lora_rank=query_rank if latent else 0,
        qk_rope_dim=16 if latent else 0,
        v_head_dim=48 if latent else 0,
        norms_per_layer=0,
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        norm_bias=False,
    )
    # 2 FLOP a weight forward, 4 backward; the embedding is looked up, routers and norms of latents are not counted
    norms = 3 * (model.q_lora_rank + model.kv_lora_rank)
    routers = (3 - dense) * hidden * experts
    matrices = active_parameters(model) - 1024 * hidden - norms - routers
    assert gflop_per_token(model, "none") * 1e9 == pytest.approx(6 * matrices, rel=1e-9)


def test_causal_attention_is_half_of_the_square():
    model = gpt(layers=2, hidden=512, heads=8)
    full, causal, none = (gflop_per_token(model, name) for name in ("full", "causal", "none"))
    assert causal - none == pytest.approx((full - none) / 2, rel=1e-12)
