from __future__ import annotations

import csv
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.costmodel.estimates.scaling_laws import gpt_parameters
from opsk.costmodel.sizes.parameters import active_parameters, total_parameters
from opsk.costmodel.sizes.shape import build_shape, build_shapes
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan
from opsk.workload.public_models.lookup import public_model, public_models
from tests.fakes.training_runs import gpt, parts

PUBLISHED = {name: model for name, model in public_models().items() if not model.rounded}
ROUNDED = {name: model for name, model in public_models().items() if model.rounded}
SPARSE = {name: model for name, model in public_models().items() if model.active_parameters}


def published(name: str) -> ModelShape:
    """Return a model of the catalogue."""
    model = public_model(name)
    assert model is not None
    return model


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_agree_with_the_published_count(name: str):
    # source and count stand in the catalogue, opsk/workload/public_models/catalogue
    model = PUBLISHED[name]
    assert total_parameters(model.shape) == pytest.approx(model.parameters, rel=1e-3)


def test_most_published_counts_are_met_to_the_last_parameter():
    exact = [name for name, model in PUBLISHED.items() if total_parameters(model.shape) == model.parameters]
    assert len(exact) >= 80


@pytest.mark.parametrize("name", ROUNDED)
def test_parameters_agree_with_counts_that_are_printed_rounded(name: str):
    # printed with two or three digits; the names of Nemotron-3 round up by more
    model = ROUNDED[name]
    assert total_parameters(model.shape) == pytest.approx(model.parameters, rel=0.04 if "nemotron-3" in name else 5e-3)


@pytest.mark.parametrize("name", SPARSE)
def test_active_parameters_agree_with_the_published_count(name: str):
    # printed with two digits, some rounded down; some leave the embedding out
    model = SPARSE[name]
    active = active_parameters(model.shape)
    if not model.active_counts_embedding:
        active -= model.shape.vocab * model.shape.hidden
    assert active == pytest.approx(model.active_parameters, rel=0.025)


@pytest.mark.shared
def test_parameters_agree_with_those_that_llm_foundry_prints(shared: Path):
    # its benchmark table prints billions with four decimals; GPT style, a trained position for each of seq tokens
    with (shared / "data" / "measured-runs.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["id"].startswith("lfa-")]
    assert len(rows) > 100
    for row in rows:
        shape = {"layers": int(row["layers"]), "hidden": int(row["hidden"]), "heads": int(row["heads"])}
        model = gpt(**shape, vocab=int(row["vocab"]), seq=int(row["seq_len"]))
        assert total_parameters(model) / 1e9 == pytest.approx(float(row["params_b"]), abs=5.1e-5), row["id"]


def test_multi_token_prediction_of_deepseek_v3_adds_its_own_layer():
    # README_WEIGHTS.md of the checkpoint: 11.5 billion parameters beside the shared embedding and head
    added = total_parameters(published("deepseek-v3-mtp")) - total_parameters(published("deepseek-v3"))
    assert added / 1e9 == pytest.approx(11.5, abs=0.12)


def test_a_gpt_counts_as_the_paper_plus_its_final_norm(gpt3: ModelShape):
    # Narayanan et al. 2021, equation 2, leaves the final LayerNorm (2 h) out
    printed = gpt_parameters(layers=96, hidden=12288, vocab=51200, seq=2048)
    assert total_parameters(gpt3) == pytest.approx(printed + 2 * 12288, abs=64)


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


def test_dense_first_layers_lie_on_the_first_stage():
    # DeepSeek-V3 on 16 stages, the last of two layers: the first holds 3 dense layers and 1 with experts
    model = published("deepseek-v3")
    plan = Plan(pp=16, last_stage_layers=1, global_batch=64)
    _, stages, split = parts(model, plan)
    one_layer_of_experts = 256 * 3 * 7168 * 2048
    assert stages.layers[:, 0].tolist() == [4, 4, 1]
    assert (split.experts[:, 0] / one_layer_of_experts).tolist() == [1, 4, 1]


def test_interleaved_dense_layers_lie_everywhere(mixtral: ModelShape):
    model = replace(mixtral, dense_layers=16, dense_interleaved=True)
    _, _, split = parts(model, Plan(pp=4, global_batch=8))
    np.testing.assert_array_equal(split.experts[:, 0], [4 * 8 * 3 * 4096 * 14336] * 3)


def test_multi_token_prediction_lies_on_the_last_stage_with_a_copy_of_the_embedding():
    model, plan = published("deepseek-v3"), Plan(pp=61, global_batch=64)
    with_mtp = replace(model, mtp_layers=1)
    (_, _, one), (_, _, two) = parts(model, plan), parts(with_mtp, plan)
    assert two.dense[0, 0] == one.dense[0, 0]
    added = two.dense[2, 0] + two.experts[2, 0] - one.dense[2, 0] - one.experts[2, 0]
    assert added == total_parameters(with_mtp) - total_parameters(model) + 129280 * 7168


def test_an_average_layer_times_the_layers_is_all_layers():
    model = published("deepseek-v3")
    _, _, split = parts(model, Plan(global_batch=8))
    assert 61 * split.layer[0] == pytest.approx(split.dense[0, 0] - split.ends[0, 0], rel=1e-12)
    assert 61 * split.layer_experts[0] == pytest.approx(split.experts[0, 0], rel=1e-12)


@given(
    name=st.sampled_from(sorted(public_models())),
    tp=st.sampled_from([1, 2, 4, 8]),
    ep=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2, 3]),
)
def test_gpus_together_hold_at_least_the_whole_model(name: str, tp: int, ep: int, pp: int):
    model = public_models()[name].shape
    _, _, split = parts(model, Plan(tp=tp, pp=pp, dp=4, ep=ep, global_batch=8))
    held = (split.dense[:, 0] + split.experts[:, 0] * ep)[: 1 if pp == 1 else 3]
    # with two stages the second is the last one too
    total = tp * (held.sum() - (held[1] if pp == 2 else 0))
    assert total >= total_parameters(model) * (1 - 1e-12)


def test_one_gpu_alone_holds_the_whole_model():
    # but for the padding of the vocabulary
    for name, model in public_models().items():
        shape = model.shape
        padded = replace(shape, vocab=-(-shape.vocab // 128) * 128)
        _, _, split = parts(shape, Plan(global_batch=8))
        assert round(split.dense[0, 0] + split.experts[0, 0]) == total_parameters(padded), name


def test_many_models_at_once_count_as_each_alone():
    names = sorted(public_models())
    models = [public_models()[name].shape for name in names]
    table = build_shapes(models)
    for index, model in enumerate(models):
        alone = build_shape(model)
        assert (table.moe_layers[index], table.hidden[index]) == (alone.moe_layers, alone.hidden)


def test_adapters_have_rank_times_inputs_and_outputs_of_every_linear_layer(llama3_8b: ModelShape):
    # Llama 3 8B at rank 16 on all linear layers: 41,943,040 trainable parameters, as PEFT prints
    _, _, split = parts(llama3_8b, Plan(lora_rank=16, global_batch=8), Plan(global_batch=8))
    assert split.adapters[0].tolist() == [41_943_040, 0]
    assert not split.expert_adapters.any()


def test_adapters_of_latent_attention_and_experts_are_those_of_their_matrices():
    # rank 1 on DeepSeek-V2-Lite's projections: q 2048 -> 3072, kv 2048 -> 576, 512 -> 4096, o 2048 -> 2048; 26 layers
    # of two shared experts as one of 2816 and 64 experts of 1408, one layer of 10944
    _, _, split = parts(published("deepseek-v2-lite"), Plan(lora_rank=1, global_batch=8))
    attention = (2048 + 3072) + (2048 + 576) + (512 + 4096) + (2048 + 2048)
    dense = 27 * attention + 3 * (2048 + 10944) + 26 * 3 * (2048 + 2816)
    assert split.adapters[0, 0] == dense
    assert split.expert_adapters[0, 0] == 26 * 64 * 3 * (2048 + 1408)


@pytest.mark.parametrize(("detail", "gated"), [*product(["qkv_bias", "output_bias", "mlp_bias"], [False, True])])
def test_biases_count_where_they_are_stated(llama3_8b: ModelShape, detail: str, gated: bool):
    model = replace(llama3_8b, gated_mlp=gated)
    added = {"qkv_bias": 4096 + 2 * 1024, "output_bias": 4096, "mlp_bias": (1 + gated) * 14336 + 4096}[detail]
    on, off = (total_parameters(replace(model, **{detail: value})) for value in (True, False))
    assert on - off == 32 * added
