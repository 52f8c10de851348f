from __future__ import annotations

import csv
import io

import pytest

from opsk.calibration.runs.runs import Run, parse_runs
from opsk.workload.model import Mixer
from opsk.workload.plan import MoeDispatcher

ROW = {
    **{"id": "made-1", "software": "megatron-core", "source_date": "2025-06", "arch": "llama", "gpu": "h100-sxm"},
    **{"gpus": "8", "gpus_per_node": "8", "tp": "1", "pp": "1", "dp": "8", "seq_len": "4096", "micro_batch": "1"},
    **{"global_batch": "64", "precision": "bf16", "iter_time_s": "1.0"},
}
SIZES = {"layers": "32", "hidden": "4096", "heads": "32", "kv_heads": "8", "ffn_hidden": "14336", "vocab": "128256"}


def one(**cells: str) -> Run:
    """Return the run of a row with these cells."""
    row = {**ROW, **cells}
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(row))
    writer.writeheader()
    writer.writerow(row)
    read = parse_runs(text.getvalue(), origin="made.csv")
    assert not read.unpredictable
    return read.runs[0]


def test_a_public_hybrid_has_its_own_layers():
    model = one(model="Nemotron-H-8B").model
    assert (model.mixer, model.mixer_layers, model.mlp_layers, model.mixer_groups) == (Mixer.MAMBA2, 24, 24, 8)


def test_a_stated_mixer_takes_the_usual_sizes_of_its_kind():
    run = one(**SIZES, mixer="mamba2", mixer_layers="28")
    model = run.model
    assert (model.mixer, model.mixer_layers) == (Mixer.MAMBA2, 28)
    # twice the width in heads of 64, eight groups, a state of 128: Megatron Core's defaults
    assert (model.mixer_heads, model.mixer_head_dim, model.mixer_groups, model.mixer_state) == (128, 64, 8, 128)
    assert {entry.field for entry in run.assumed} >= {"model.mixer_heads", "model.mixer_state"}


@pytest.mark.parametrize("mixer", [mixer.value for mixer in Mixer if mixer is not Mixer.NONE])
def test_every_mixer_of_the_column_can_be_predicted(mixer: str):
    assert one(**SIZES, mixer=mixer, mixer_layers="24").model.mixer.value == mixer


def test_stated_sizes_win():
    model = one(model="Nemotron-H-8B", mixer="mamba2", mixer_layers="20", mixer_state="256").model
    assert (model.mixer_layers, model.mixer_state, model.mixer_groups) == (20, 256, 8)


def test_a_mixer_without_its_layers_is_named():
    run = one(**SIZES, mixer="mamba-hybrid")
    assert run.model.mixer_layers == 0
    assert any("attention layers" in str(problem) for problem in run.problems)


def test_a_window_is_that_of_the_layers_that_have_it():
    assert one(**SIZES, window="1024").model.windowed_layers == 32
    assert one(**SIZES, window="1024", windowed_layers="16").model.windowed_layers == 16
    # of a public model the layers stay
    model = one(model="gemma-2-9b", window="2048").model
    assert (model.attention_window, model.windowed_layers) == (2048, 21)
    # of a hybrid the layers with attention have it: 4 of 52
    assert one(model="Nemotron-H-8B", window="2048").model.windowed_layers == 4


def test_a_public_mixture_of_experts_has_the_settings_of_its_framework():
    # Megatron-Bridge's recipes for Blackwell dispatch with HybridEP from 25.11 on; no column states experts
    plan = one(model="Qwen3-30B-A3B", software="megatron-bridge", gpu="B200", source_date="2026-01").plan
    assert plan.moe_dispatcher is MoeDispatcher.HYBRIDEP
