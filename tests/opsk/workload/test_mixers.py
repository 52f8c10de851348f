from __future__ import annotations

import pytest

from opsk.errors import InputError
from opsk.workload.defaults import average_layers
from opsk.workload.model import Mixer, ModelShape, count_layer_kinds
from opsk.workload.plan import Plan

SIZES = {"layers": 4, "hidden": 512, "ffn": 2048, "heads": 8, "kv_heads": 8, "head_dim": 64, "vocab": 1000, "seq": 128}
MAMBA = {"mixer_heads": 16, "mixer_head_dim": 64, "mixer_groups": 1, "mixer_state": 64}


@pytest.mark.parametrize(
    ("pattern", "kinds"),
    [
        ("M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-", (4, 24, 24, 0)),  # Nemotron-H 8B
        ("MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", (6, 23, 0, 23)),  # Nemotron 3 Nano
        ("M-|M*-/*E", (1, 2, 2, 0)),
    ],
)
def test_the_letters_of_a_pattern_are_kinds_of_layers(pattern: str, kinds: tuple[int, int, int, int]):
    assert count_layer_kinds(pattern) == kinds


@pytest.mark.parametrize("pattern", ["", "/", "MAMBA", "M M", "x" * 1000])
def test_other_texts_are_no_patterns(pattern: str):
    assert count_layer_kinds(pattern) is None


def test_a_mixer_is_known_by_its_name():
    model = ModelShape(**SIZES, mixer="mamba2", mixer_layers=3, **MAMBA)
    assert model.mixer is Mixer.MAMBA2
    assert model.attention_layers == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mixer": "mamba9"}, "mixer 'mamba9' is not known"),
        ({"mixer_layers": 2}, "mixer_layers without a mixer"),
        ({"mixer": "mamba2", "mixer_layers": 2}, "mixer_heads is missing for the mixer mamba2"),
        ({"mixer": "kda", "mixer_layers": 2, **MAMBA}, "mixer_rank is missing"),
        ({"mixer": "mamba2", "mixer_layers": 3, "mlp_layers": 2, **MAMBA}, "are more than layers 4"),
        ({"mixer": "mamba2", "mixer_layers": 3, **MAMBA, "mixer_groups": 3}, "not a multiple of mixer_groups 3"),
        ({"mixer": "mamba2", "mixer_layers": 3, **MAMBA, "windowed_layers": 2}, "more than the 1 with attention"),
        ({"index_top_k": 64}, "needs index_heads"),
        ({"mixer_conv": -1}, "mixer_conv is -1"),
    ],
)
def test_layers_that_cannot_be_are_refused(changes: dict[str, object], words: str):
    with pytest.raises(InputError) as raised:
        ModelShape(**{**SIZES, **changes})
    assert words in raised.value.message


def test_the_average_layer_is_an_assumption_of_pipelines_of_hybrids_alone():
    hybrid = ModelShape(**SIZES, mixer="mamba2", mixer_layers=3, **MAMBA)
    whole, split = Plan(global_batch=8), Plan(pp=2, global_batch=8)
    assert [entry.field for entry in average_layers(hybrid, split)] == ["model.mixer_layers"]
    for model, plan in ((hybrid, whole), (ModelShape(**SIZES), split), (None, split), (hybrid, None)):
        assert average_layers(model, plan) == ()
