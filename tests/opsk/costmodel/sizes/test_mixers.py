from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.machine import build_machine
from opsk.costmodel.memory.activations import layer_bytes
from opsk.costmodel.predict import predict, predict_one
from opsk.costmodel.rules import find_violations
from opsk.costmodel.sizes.flops import model_flop, token_flop
from opsk.costmodel.sizes.mixers import build_model_widths, mixer_flop, mixer_parameters, mixer_passes
from opsk.costmodel.sizes.parameters import total_parameters
from opsk.costmodel.sizes.shape import ShapeColumns, attended_tokens, build_shape, build_shapes
from opsk.costmodel.sizes.shares import Shares, compute_shares
from opsk.costmodel.table import PlanTable
from opsk.costmodel.time.layer_time import layer_time
from opsk.costmodel.time.volumes import mixer_context_bytes
from opsk.hardware.catalog import cluster
from opsk.workload.model import Mixer, ModelShape
from opsk.workload.plan import Plan, Recompute
from opsk.workload.public_models.lookup import public_model
from tests.fakes.training_runs import a100_cluster, parts

PUBLISHED = Path(__file__).parents[4] / "benchmarks" / "published" / "mixers.csv"
HYBRIDS = (
    "nemotron-h-8b",
    "nemotron-3-nano-30b-a3b",
    "qwen3-next-80b-a3b",
    "kimi-linear-48b-a3b",
    "jamba",
    "falcon-h1-34b",
)


def published(name: str) -> ModelShape:
    """Return a model of the catalogue."""
    model = public_model(name)
    assert model is not None
    return model


def one_layer(mixer: Mixer, *, heads: int, groups: int, width: int, state: int, seq: int) -> ModelShape:
    """Return a model of one layer with such a mixer."""
    return ModelShape(
        layers=1,
        hidden=2048,
        ffn=2048,
        heads=16,
        kv_heads=16,
        head_dim=128,
        vocab=1024,
        seq=seq,
        gated_mlp=True,
        mixer=mixer,
        mixer_layers=1,
        mixer_heads=heads,
        mixer_head_dim=width,
        mixer_groups=groups,
        mixer_state=state,
        mixer_conv=4,
        mixer_rank=128,
    )


def columns(model: ModelShape, plan: Plan) -> tuple[ShapeColumns, Shares]:
    """Return what the cost model computes with."""
    shape = build_shape(model)
    return shape, compute_shares(shape, PlanTable.of([plan]))


def test_a_mamba2_layer_of_nemotron_h_has_the_parameters_of_its_modules():
    # in_proj 4096 x (2·8192 + 2·8·128 + 128), conv 10240 x (4 + 1), three of 128, norm 8192, out_proj 8192 x 4096
    shape = build_shape(published("nemotron-h-8b"))
    expected = 4096 * 18560 + 10240 * 5 + 3 * 128 + 8192 + 8192 * 4096
    assert mixer_parameters(shape, build_model_widths(shape)) == expected


def test_a_layer_of_qwen3_next_has_the_parameters_of_its_modules():
    # in_proj_qkvz 2048 x 12288, in_proj_ba 2048 x 64, conv 8192 x 4 without a bias, dt_bias and A of 32, norm of 128,
    # out_proj 4096 x 2048
    shape = build_shape(published("qwen3-next-80b-a3b"))
    assert (
        mixer_parameters(shape, build_model_widths(shape))
        == 2048 * 12288 + 2048 * 64 + 8192 * 4 + 2 * 32 + 128 + 4096 * 2048
    )


def test_a_layer_of_kimi_linear_has_the_parameters_of_its_modules():
    # q, k, v 2304 x 4096 each with conv of 4; decay and gate 2304 x 128 and 128 x 4096 each; b 2304 x 32; A 32,
    # dt_bias 4096, norm 128, o 4096 x 2304
    shape = build_shape(published("kimi-linear-48b-a3b"))
    expected = 3 * (2304 * 4096 + 4096 * 4) + 2 * (2304 * 128 + 128 * 4096) + 2304 * 32 + 32 + 4096 + 128
    assert mixer_parameters(shape, build_model_widths(shape)) == expected + 4096 * 2304


def test_a_lone_block_has_one_norm_and_no_mlp_beside_it():
    # Nemotron-H 8B: 24 Mamba-2, 24 MLP of 4096 x 21504, 4 attention of 32 and 8 heads; 52 norms and the last one
    shape = build_shape(published("nemotron-h-8b"))
    attention = 2 * 4096 * (4096 + 1024)
    mamba = mixer_parameters(shape, build_model_widths(shape))
    expected = 24 * mamba + 24 * 2 * 4096 * 21504 + 4 * attention + 53 * 4096 + 2 * 131072 * 4096
    assert total_parameters(published("nemotron-h-8b")) == expected


@pytest.mark.parametrize("name", HYBRIDS)
def test_stages_and_ranks_hold_the_whole_model(name: str):
    model = replace(published(name), vocab=131072)
    pp = 4 if model.layers % 4 == 0 else 3
    _, stages, split = parts(model, Plan(pp=pp, global_batch=64))
    # the embedding and the head lie on the ends; the stages between them are like the second
    held = split.dense[:, 0] + split.experts[:, 0]
    middle = held[1] * (pp - 2)
    assert stages.layers[:, 0].sum() + (pp - 3) * stages.layers[1, 0] == model.layers
    if not model.dense_layers:
        assert held[0] + middle + held[2] == pytest.approx(total_parameters(model), rel=1e-12)


def test_tensor_parallel_ranks_split_a_mixer_but_for_what_no_rank_can_do_without():
    model = published("nemotron-h-8b")
    _, _, split = parts(model, Plan(tp=1, dp=1, global_batch=8), Plan(tp=8, dp=1, global_batch=8))
    one, eight = split.dense[0]
    # 53 norms of 4096 are held by all eight
    assert 8 * eight - one == pytest.approx(7 * 53 * 4096, rel=1e-9)


def test_flop_of_a_mamba2_layer_are_those_that_megatron_counts():
    # megatron/training/training.py, mamba_layer_flops: 2 h (2 d + 2 G N + H) + 7 d N + 2 d h a token
    shape = build_shape(published("nemotron-h-8b"))
    expected = 2 * 4096 * (2 * 8192 + 2 * 8 * 128 + 128) + 7 * 8192 * 128 + 2 * 8192 * 4096
    assert mixer_flop(shape) + shape.mixer_scan_flop == expected


def test_flop_of_a_gated_delta_layer_are_those_that_megatron_counts():
    # gdn_layer_flops: 2 (h (2 qk + 2 v + 2 H) + 4 (2 qk + v) + 4 H 128^2 + h v) a token, with qk 2048 and v 4096
    shape = build_shape(published("qwen3-next-80b-a3b"))
    expected = 2 * (2048 * (2 * 2048 + 2 * 4096 + 64) + 4 * 8192 + 4 * 32 * 128**2 + 2048 * 4096)
    assert mixer_flop(shape) + shape.mixer_scan_flop == expected


def test_flop_of_a_hybrid_are_the_sum_over_its_layers():
    # Nemotron-H 8B at 8,192 tokens, forward and backward, attention counted by half
    model = published("nemotron-h-8b")
    mamba = 2 * 4096 * 18560 + 7 * 8192 * 128 + 2 * 8192 * 4096
    attention = 4 * 4096 * (4096 + 1024) + 4 * 8192 * 4096 / 2
    forward = 24 * mamba + 24 * 4 * 4096 * 21504 + 4 * attention + 2 * 4096 * 131072
    found = model_flop(build_shape(model), np.array([1.0]), 0.5)[0] / model.seq
    assert found == pytest.approx(3 * forward, rel=1e-12)


def test_kernels_take_as_long_as_they_were_measured():
    # benchmarks/published/mixers.csv: flash-linear-attention and mamba_ssm on Hopper; convolution, gate and norm of
    # the layer are beside the kernels that were measured there
    with PUBLISHED.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["pass"] == "forward" and row["gpu"] in ("H100", "H200")]
    rows = [row for row in rows if row["software"].startswith(("flash", "mamba"))]
    assert len(rows) >= 4
    for row in rows:
        sizes = {"heads": int(row["heads"]), "groups": int(row["key_heads"]), "width": int(row["head_dim"])}
        model = one_layer(Mixer(row["kernel"]), **sizes, state=int(row["state"]), seq=int(row["tokens"]))
        machine_name = {"H100": "superpod-h100", "H200": "superpod-h200"}[row["gpu"]]
        shape, shares = columns(model, Plan(global_batch=1))
        machine = build_machine(cluster(machine_name), PlanTable.of([Plan(global_batch=1)]).precision, DEFAULT)
        inner = sizes["heads"] * sizes["width"]
        around = 2 * (5 * inner + 4 * sizes["groups"] * int(row["state"])) * model.seq / machine.hbm_bytes_per_s
        found = mixer_passes(shape, shares, machine).forward[0] - around
        assert found == pytest.approx(float(row["ms"]) / 1e3, rel=0.25), row


def test_what_a_mamba2_layer_keeps_is_the_output_of_its_projection_and_of_its_scan():
    # Nemotron-H 8B, a token: in_proj's output 18,560, the scan's 8,192 and out_proj's input 8,192 elements of 2 bytes
    model = replace(published("nemotron-h-8b"), layers=1, mlp_layers=0, mixer_layers=1, norms_per_layer=2)
    plain = replace(model, mixer_layers=0, mixer=Mixer.NONE)
    plan = Plan(global_batch=1)
    (shape, shares), (other, of_other) = columns(model, plan), columns(plain, plan)
    table = PlanTable.of([plan])
    found = layer_bytes(shape, table, shares).plain[0] - layer_bytes(other, table, of_other).plain[0]
    # attention keeps query, output and the output's copy as a product's input 4096 each, keys and values 1024, and
    # a statistic of 4 bytes for each of 32 heads
    attention = 2 * (2 * 4096 + 2 * 1024) + 2 * 0 + 4 * 32
    assert found / model.seq == 2 * (18560 + 2 * 8192) - attention


def test_a_window_counts_among_the_layers_with_attention():
    # 2 of 4 layers have attention, one of these a window of 512 in 2048: 512 (2 - 1/4) = 896
    model = replace(
        one_layer(Mixer.MAMBA2, heads=32, groups=1, width=64, state=64, seq=2048),
        layers=4,
        mixer_layers=2,
        attention_window=512,
        windowed_layers=1,
    )
    assert attended_tokens(build_shape(model)) == pytest.approx((2048 + 896) / 2)


def test_chunks_see_their_own_tokens_only():
    # Llama 4 at 32k: 36 of 48 layers see chunks of 8,192
    model = replace(published("llama-4-scout"), seq=32768)
    assert attended_tokens(build_shape(model)) == (36 * 8192 + 12 * 32768) / 48
    assert attended_tokens(build_shape(published("llama-4-scout"))) == 8192


def test_sparse_attention_sees_the_chosen_tokens_and_its_indexer_all_of_them():
    # DeepSeek-V3.2 at 32k: 2,048 chosen, a side of 2048 (2 - 1/16) = 3,968; the indexer's 64 x 128 of 128 (192 + 128);
    # kernels multiply latents of 576 and 512 in place of 192 and 128
    shape = build_shape(replace(published("deepseek-v3.2"), seq=32768))
    indexer = 32768 * 64 * 128 / (128 * 320)
    assert attended_tokens(shape, as_run=False) == pytest.approx(3968 + indexer)
    assert attended_tokens(shape) == pytest.approx(3968 * 1088 / 320 + indexer)


def test_sparse_attention_is_worth_it_for_long_sequences_only():
    machines, plan = cluster("superpod-h100"), Plan(pp=4, ep=64, dp=64, global_batch=256)
    for seq, is_faster in ((4096, False), (65536, True)):
        dense, sparse = (
            predict_one(replace(published(name), seq=seq), plan, machines).time.step_s.expected
            for name in ("deepseek-v3", "deepseek-v3.2")
        )
        assert bool(np.all(sparse < dense)) is is_faster


def test_time_of_a_hybrid_grows_in_proportion_to_the_sequence_but_for_its_attention():
    plan = Plan(tp=2, dp=4, global_batch=4)
    machine = build_machine(a100_cluster(), PlanTable.of([plan]).precision, DEFAULT)
    model = replace(published("nemotron-h-8b"), mixer_layers=28)
    assert model.attention_layers == 0
    seconds = []
    for seq in (8192, 16384):
        shape, shares = columns(replace(model, seq=seq), plan)
        software = DEFAULT.for_software(PlanTable.of([plan]))
        seconds.append(layer_time(shape, PlanTable.of([plan]), shares, machine, software).average.total[0])
    assert seconds[1] / seconds[0] == pytest.approx(2.0, rel=0.05)


def test_models_of_several_kinds_are_predicted_together_as_alone():
    models = [published(name) for name in ("llama-3-8b", *HYBRIDS)]
    together = token_flop(build_shapes(models))
    for index, model in enumerate(models):
        alone = token_flop(build_shape(model))
        assert np.asarray(together.projections)[index] == pytest.approx(alone.projections, rel=1e-12)
        assert np.asarray(together.encoder_attention)[index] == alone.encoder_attention


@pytest.mark.parametrize("name", HYBRIDS)
def test_more_recomputation_needs_less_memory_and_more_time(name: str):
    model, machines = published(name), cluster("superpod-h100")
    plans = [Plan(dp=64, ep=8 if model.experts else 1, global_batch=64, recompute=recompute) for recompute in Recompute]
    table = predict(model, PlanTable.of(plans), machines)
    memory, seconds = table.memory.allocated_bytes, table.time.step_s.expected
    assert memory[0] >= memory[1] >= memory[2]
    assert seconds[0] <= seconds[1] <= seconds[2]


def test_context_parallel_mixers_change_between_tokens_and_heads():
    # Nemotron-H 8B on 8 GPUs with cp 8: 1,024 tokens x (18,560 + 8,192) elements of 2 bytes in 24 of 52 layers, and
    # keys and values of 4 of 52 where every layer of a dense model has them
    model, machines = replace(published("nemotron-h-8b"), seq=8192), cluster("superpod-h100")
    plan = Plan(cp=8, dp=1, global_batch=1)
    shape, shares = columns(model, plan)
    assert mixer_context_bytes(shape, shares)[0] == 1024 * (18560 + 8192) * 2
    hybrid = predict_one(model, plan, machines).time
    assert 0 < hybrid.communication["cp"] < hybrid.step_s.expected


def test_heads_of_a_mixer_must_divide_over_tensor_parallel_ranks():
    model = published("falcon-h1-34b")
    wrong = replace(model, mixer_heads=30, mixer_groups=2, heads=32)
    assert any("mixer_heads 30" in what for what in find_violations(wrong, Plan(tp=4, global_batch=1)))
    assert not any("mixer_heads" in what for what in find_violations(model, Plan(tp=4, global_batch=1)))


def test_dense_models_have_nothing_of_a_mixer():
    shape = build_shape(published("llama-3-8b"))
    assert not any((shape.has_mixers, shape.has_index, shape.has_attention_gate))
    assert (shape.attention_share, shape.mixer_share, shape.mlp_share) == (1.0, 0.0, 1.0)
