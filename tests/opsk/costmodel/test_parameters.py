from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opsk.costmodel.closed_forms import gpt_parameters
from opsk.costmodel.parameters import total_parameters
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan
from tests.fakes.training_runs import gpt, parts


def test_a_gpt_counts_as_the_paper_plus_its_final_norm(gpt3: ModelShape):
    # Narayanan et al. 2021, equation 2, leaves the final LayerNorm (2 h) out
    printed = gpt_parameters(layers=96, hidden=12288, vocab=51200, seq=2048)
    assert total_parameters(gpt3) == pytest.approx(printed + 2 * 12288, abs=64)


@pytest.mark.parametrize(
    ("changes", "published"),
    [
        # parameter counts of the checkpoints (model cards, safetensors index)
        ({}, 8_030_261_248),
        ({"layers": 80, "hidden": 8192, "ffn": 28672, "heads": 64}, 70_553_706_496),
        ({"layers": 32, "ffn": 11008, "kv_heads": 32, "vocab": 32000}, 6_738_415_616),
        ({"vocab": 32000, "experts": 8, "top_k": 2, "expert_ffn": 14336}, 46_702_792_704),
    ],
    ids=["llama3-8b", "llama3-70b", "llama2-7b", "mixtral-8x7b"],
)
def test_public_checkpoints_count_exactly(llama3_8b: ModelShape, changes: dict[str, int], published: int):
    assert total_parameters(replace(llama3_8b, **changes)) == published


def test_stages_and_ranks_add_up_to_the_whole_model():
    # 12 layers on 3 stages and 2 tensor-parallel ranks, vocabulary without padding, untied head
    model = replace(gpt(layers=12, hidden=512, heads=8, vocab=51200), tied_embeddings=False)
    _, stages, split = parts(model, Plan(tp=2, pp=3, dp=1, global_batch=8))
    held = split.dense[:, 0].sum() * 2
    # norms, output biases, positions are held by both tensor-parallel ranks: 12 (2·2h + 2h) + 2048 h + 2h more
    copied = 12 * 6 * 512 + 2048 * 512 + 2 * 512
    assert stages.index[:, 0].tolist() == [0, 1, 2]
    assert held == total_parameters(model) + copied


def test_a_tied_head_is_held_again_by_the_last_stage_only():
    model = gpt(layers=12, hidden=512, heads=8)
    _, _, one = parts(model, Plan(pp=1, global_batch=8))
    _, _, two = parts(model, Plan(pp=2, global_batch=8))
    assert one.dense[0, 0] == total_parameters(model)
    assert two.dense[[0, 2], 0].sum() == total_parameters(model) + 51200 * 512


def test_the_vocabulary_is_padded_to_128_times_tp():
    # GPT-2's 50257 rows: 50304 at tp 1 and 51200 at tp 8 (Megatron-LM's known paddings)
    model = gpt(layers=2, hidden=512, heads=8, vocab=50257)
    shares, _, _ = parts(model, Plan(tp=1, global_batch=8), Plan(tp=8, global_batch=8))
    np.testing.assert_array_equal(shares.vocab * shares.tp, [50304, 51200])


def test_experts_are_split_over_expert_parallel_ranks(mixtral: ModelShape):
    _, _, split = parts(mixtral, Plan(dp=8, ep=1, global_batch=8), Plan(dp=8, ep=8, global_batch=8))
    # eight experts of three 4096 x 14336 matrices in each of 32 layers
    np.testing.assert_array_equal(split.experts[0], [32 * 8 * 3 * 4096 * 14336, 32 * 3 * 4096 * 14336])
