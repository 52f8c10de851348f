from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import ConfigError
from opsk.workload.public_models.lookup import public_model, public_models, read_catalogue


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("Meta-Llama-3-8B", "llama-3-8b"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("LLAMA3_8B", "llama-3-8b"),
        ("Llama 3.2 3B", "llama-3.2-3b"),
        ("LLAMA2-70B", "llama-2-70b"),
        ("LLaMA-6.7B", "llama-7b"),
        ("Qwen2.5-14B", "qwen2.5-14b"),
        ("Qwen3_30B_a3B", "qwen3-30b-a3b"),
        ("Qwen/Qwen3-30B-A3B-Base", "qwen3-30b-a3b"),
        ("GPT-3 175B", "gpt3-175b"),
        ("GPT 175B (GPT-3)", "gpt3-175b"),
        ("MT-NLG 530B", "mt-nlg-530b"),
        ("DeepSeekV3", "deepseek-v3"),
        ("deepseek-ai/DeepSeek-V2-Lite", "deepseek-v2-lite"),
        ("MPT-7b", "mpt-7b"),
        ("InternLM-7B", "internlm-7b"),
        ("BLOOM-176B", "bloom-176b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("TinyLlama-1.1B", "tinyllama-1.1b"),
        ("google/flan-t5-xxl", "flan-t5-xxl"),
    ],
)
def test_spellings_of_a_name_are_one_model(spelling: str, name: str):
    found = public_model(spelling)
    assert found is not None
    assert found.name == name


def test_names_that_differ_in_separators_only_are_told_apart_by_them():
    for name in ("OPT-1.3B", "opt_13b", "Qwen2.5-7B", "Qwen2-57B"):
        assert public_model(name) is not None
    # without separators it is 1.3 or 13 billion
    assert public_model("OPT13B") is None


@pytest.mark.parametrize("name", ["", "llama", "gpt", "-", "/", "Llama-3-9B", "GPT 181B (BLOOM candidates)", "\x00"])
def test_a_name_that_means_no_model_finds_none(name: str):
    assert public_model(name) is None


@given(st.text())
def test_any_text_is_a_name(name: str):
    found = public_model(name)
    assert found is None or found.name in public_models()


def test_every_name_and_alias_finds_its_own_model():
    for name, model in public_models().items():
        for spelling in (name, name.upper().replace("-", "_"), *model.aliases):
            found = public_model(spelling)
            assert found is not None, spelling
            assert found.name == name, spelling


def test_every_model_has_a_source_and_a_count():
    for name, model in public_models().items():
        assert model.source, name
        assert model.parameters > 1e7, name
        assert bool(model.active_parameters) == bool(model.shape.experts) or "mtp" in name, name


def test_a_faulty_catalogue_lists_all_that_is_wrong():
    text = """
    [small]
    layers = 2
    hiden = 512
    [child]
    like = "nobody"
    [half]
    layers = 2
    hidden = 512
    ffn = 2048
    heads = 8
    vocab = 1000
    seq = 128
    [zero]
    layers = 0
    hidden = 512
    ffn = 2048
    heads = 8
    vocab = 1000
    seq = 128
    parameters = 1
    source = "nowhere"
    """
    with pytest.raises(ConfigError) as raised:
        read_catalogue(text, origin="made.toml")
    message = raised.value.message
    assert message.startswith("made.toml: ")
    for part in ("small: unknown hiden", "child: unknown nobody", "half: parameters, source is missing", "layers is 0"):
        assert part in message
