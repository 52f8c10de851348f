from __future__ import annotations

import re
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.costmodel.sizes.parameters import total_parameters
from opsk.errors import ConfigError
from opsk.workload.public_models.lookup import (
    COUNTED,
    TABLE,
    Kind,
    find_listed,
    normalise_words,
    public_model,
    public_models,
    read_catalogue,
)


def listed_rows() -> list[str]:
    """Return the rows of the table of names."""
    table = files("opsk.workload.public_models").joinpath("catalogue", TABLE)
    return table.read_text(encoding="utf-8").splitlines()


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
        ("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "llama-3-8b"),
        ("unsloth/Qwen2.5-7B-Instruct-unsloth-bnb-4bit", "qwen2.5-7b"),
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
    assert found is None or found.name in public_models() or find_listed(name) is not None


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


@pytest.mark.parametrize(
    ("name", "kind", "sizes"),
    [
        # arXiv 1810.04805, 1907.11692, 2010.11929, 2212.09748, 2304.01373; ESM-2 has its sizes in its names
        ("google-bert/bert-base-uncased", Kind.ENCODER, (12, 768, 12)),
        ("roberta-large", Kind.ENCODER, (24, 1024, 16)),
        ("facebook/esm2_t33_650M_UR50D", Kind.ENCODER, (33, 1280, 20)),
        ("vit_base_patch16_224", Kind.VISION, (12, 768, 12)),
        ("timm/vit_large_patch16_384.augreg_in21k_ft_in1k", Kind.VISION, (24, 1024, 16)),
        ("EleutherAI/pythia-1.4b", Kind.DECODER, (24, 2048, 16)),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", Kind.DECODER, (28, 3584, 28)),
        ("openai/whisper-small", Kind.ENCODER_DECODER, (12, 768, 12)),
        ("DiT-XL-2", Kind.DIFFUSION, (28, 1152, 16)),
    ],
)
def test_listed_names_have_the_shape_of_their_papers(name: str, kind: Kind, sizes: tuple[int, int, int]):
    listed = find_listed(name)
    assert listed is not None
    assert listed[0] is kind
    assert (listed[1].layers, listed[1].hidden, listed[1].heads) == sizes
    assert (public_model(name) is not None) == (kind in COUNTED)


def test_six_hundred_names_of_the_hub_are_listed_each_once():
    rows = [line.split("\t") for line in listed_rows() if not line.startswith("#")]
    names = [name for row in rows for name in row[3].split()]
    keys = [key for row in rows for key in row[4].split()]
    assert keys == [normalise_words(name) for name in names]
    assert len(set(keys)) == len(keys) >= 600
    for name in names:
        listed = find_listed(name)
        assert listed is not None, name
        assert listed[1].heads * listed[1].head_dim >= listed[1].hidden // 4, name  # ByT5's attention is that narrow


def test_parameters_of_listed_decoders_are_as_their_names_say():
    named = {
        "codegen-2b-mono": 2.78,
        "falcon3-1b": 1.67,
        "granite-3.3-2b-instruct": 2.53,
        "minicpm-2b-sft-bf16": 2.72,
        "olmo-2-0425-1b": 1.48,
    }
    # huggingface.co: parameters of the checkpoints, in billions
    checked = 0
    for line in listed_rows():
        kind, _, _, names, _ = line.split("\t") if not line.startswith("#") else ("", "", "", "", "")
        for name in names.split() if kind == "decoder" else ():
            match = re.search(r"(?<![\d.a_])(\d+(?:\.\d+)?)b(?!\d)", name.lower())
            listed = find_listed(name)
            if (
                match is None
                or listed is None
                or name.rpartition("/")[2].startswith(
                    ("codegen-", "Falcon3-1", "granite-3", "MiniCPM-2", "OLMo-2-0425")
                )
            ):
                continue
            assert 0.8 < total_parameters(listed[1]) / 1e9 / float(match[1]) < 1.25, name
            checked += 1
    assert checked > 100
    for name, billions in named.items():
        listed = find_listed(name)
        assert listed is not None
        assert total_parameters(listed[1]) / 1e9 == pytest.approx(billions, rel=0.01)


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        # of the checkpoints on huggingface.co, and of the papers' tables of models
        ("facebook/esm1b_t33_650M_UR50S", 652),
        ("EvolutionaryScale/esmc-300m-2024-12", 333),
        ("zhihan1996/DNABERT-2-117M", 117),
        ("gf-20L-95M-i4096", 151),
        ("bowang-lab/scGPT", 51),
        ("InstaDeepAI/nucleotide-transformer-2.5b-multi-species", 2548),
        ("InstaDeepAI/nucleotide-transformer-v2-50m-multi-species", 55.9),
        ("InstaDeepAI/nucleotide-transformer-v2-500m-multi-species", 498),
        ("hugohrban/progen2-medium", 764),
        ("Rostlab/prot_t5_xl_uniref50", 2818),
        ("google/mt5-base", 582),
        ("ElnaggarLab/ankh-large", 1880),
        ("facebook/nllb-200-distilled-600M", 615),
        ("microsoft/deberta-v3-base", 184),
        ("google/electra-base-discriminator", 109),
        ("google/byt5-small", 300),
        ("google/flan-t5-small", 77),
        ("Salesforce/codet5-base", 223),
        ("sentence-transformers/LaBSE", 471),
        ("facebook/xglm-564M", 564),
        ("tencent/Hunyuan-MT-7B", 7505),
    ],
)
def test_models_of_many_fields_and_languages_have_their_published_size(name: str, millions: float) -> None:
    listed = find_listed(name)
    assert listed is not None
    assert total_parameters(listed[1]) / 1e6 == pytest.approx(millions, rel=0.03)
