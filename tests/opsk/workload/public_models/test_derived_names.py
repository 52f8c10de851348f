"""Names that people give to what they trained further, and which model of the catalogue they are named after."""

from __future__ import annotations

from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.workload.public_models.derived_names import MAX_WORDS, find_base
from opsk.workload.public_models.lookup import find_base_name, public_model


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("Qwen2.5-0.5B-Instruct-triage-r8-merged", "qwen2.5-0.5b"),
        ("some-lab/Llama-3-Harbour-JP-8B", "llama-3-8b"),
        ("tuned_llama_weights_7B", "llama-7b"),
        ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron-3-nano-30b-a3b"),
        ("harbour-2.9-llama3-8b", "llama-3-8b"),
        ("Llama-2-7b-hf-triage", "llama-2-7b"),
        ("domain-bert-base-multilingual-uncased", "bert-multilingual-uncased"),
        ("roberta-large-triage", "roberta-large"),
        ("gpt2-medium-triage", "gpt2-medium"),
        ("our-lab/court-rulings-gpt2", "gpt2"),
    ],
)
def test_a_model_has_the_shape_of_the_one_that_it_is_named_after(name: str, base: str):
    shape = public_model(name)
    assert shape is not None
    assert shape.name == base


@pytest.mark.parametrize(
    "name",
    [
        "llava-v1.6-mistral-7b",  # another model beside it
        "Qwen2.5-VL-7B-Instruct",
        "llama-3-8b-vision-triage",
        "Pruned-LLaMA-1.3B",  # another number of layers
        "Llama-3-8B-to-1B",
        "llama-3-8b-12layers",
        "Llama-3-8B-Mamba",  # other layers
        "Llama-2-7B-GPTQ",  # weights of another format
        "opt-1-3b",  # 1.3 B, or 3 B
        "triage-3B",
        "llama-finetuned",
        "bloom-finetuned",  # that of 176 B, or of 560 M
        "checkpoint-1000",
    ],
)
def test_a_name_that_does_not_tell_the_shape_has_none(name: str):
    assert public_model(name) is None
    assert find_base_name(name) is None


def test_a_listed_name_is_named_after_no_other():
    assert find_base_name("meta-llama/Llama-3.1-8B-Instruct") is None
    assert find_base_name("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B") is None


def test_no_measured_model_is_named_after_one_of_text():
    rows = files("opsk.workload.public_models").joinpath("catalogue", "measured.tsv").read_text(encoding="utf-8")
    names = [name for row in rows.splitlines() if row[:1] != "#" for name in row.rpartition("\t")[2].split()]
    assert names
    assert {name: base for name in names if (base := find_base_name(name))} == {}


@given(st.text(alphabet="ab7b-.", max_size=4 * MAX_WORDS))
def test_any_words_have_a_base_of_the_catalogue_or_none(words: str):
    assert find_base(words, {"a-7b", "ab-7b"}) in (None, "a-7b", "ab-7b")
