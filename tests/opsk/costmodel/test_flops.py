from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opsk.costmodel.closed_forms import gpt_model_flop, gpt_step_flop
from opsk.costmodel.flops import hardware_flop, model_flop, token_flop
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Recompute
from tests.fakes.training_runs import parts

GPT3 = {"global_batch": 1024, "seq": 2048, "layers": 96, "hidden": 12288, "vocab": 51200}


def test_full_recomputation_of_gpt3_is_the_closed_form(gpt3: ModelShape):
    shares, _, _ = parts(gpt3, Plan(recompute=Recompute.FULL, global_batch=1024))
    assert hardware_flop(gpt3, shares)[0] == pytest.approx(gpt_step_flop(**GPT3), rel=1e-12)
    assert hardware_flop(gpt3, shares)[0] == pytest.approx(3.0073e18, rel=1e-4)


def test_without_recomputation_gpt3_is_the_closed_form(gpt3: ModelShape):
    assert model_flop(gpt3, np.array([1024.0]))[0] == pytest.approx(gpt_model_flop(**GPT3), rel=1e-12)


def test_selective_recomputation_repeats_the_attention_products_once(gpt3: ModelShape):
    shares, _, _ = parts(gpt3, Plan(recompute=Recompute.SELECTIVE, global_batch=1024))
    # 4 B s^2 h a layer
    again = 4 * 1024 * 2048**2 * 12288 * 96
    assert hardware_flop(gpt3, shares)[0] - model_flop(gpt3, shares.global_batch)[0] == pytest.approx(again, rel=1e-9)


def test_llama3_8b_takes_58_gflop_a_token(llama3_8b: ModelShape):
    # GFLOP a token that NeMo's table (attention in full) implies for Llama 3 8B at 8,192 tokens: 57.9
    flop = token_flop(llama3_8b)
    per_token = 3 * (32 * (flop.projections + flop.attention) + flop.logits)
    assert per_token / 1e9 == pytest.approx(57.9, abs=0.1)


def test_a_token_passes_top_k_and_shared_experts(mixtral: ModelShape):
    dense = replace(mixtral, experts=0, top_k=0)
    sparse = token_flop(mixtral).projections - token_flop(dense).projections
    # one more expert of three 4096 x 14336 matrices, and the router of 4096 x 8
    assert sparse == 2 * (3 * 4096 * 14336 + 4096 * 8)
    shared = token_flop(replace(mixtral, shared_experts=1)).projections - token_flop(mixtral).projections
    assert shared == 2 * 3 * 4096 * 14336
