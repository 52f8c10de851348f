"""Shapes are those of the published config.json of each model, cut to the keys that matter."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk_jobcheck.scripts.frameworks.huggingface.model import ConfigReading, read_config
from opsk_jobcheck.scripts.script import read_script

LLAMA3_8B = """{
  "architectures": ["LlamaForCausalLM"],
  "hidden_act": "silu",
  "hidden_size": 4096,
  "intermediate_size": 14336,
  "max_position_embeddings": 8192,
  "model_type": "llama",
  "num_attention_heads": 32,
  "num_hidden_layers": 32,
  "num_key_value_heads": 8,
  "rope_theta": 500000.0,
  "tie_word_embeddings": false,
  "vocab_size": 128256
}
"""


def read(**values: object) -> ConfigReading:
    return read_config(json.dumps(values), file="config.json")


def stated(reading: ConfigReading) -> dict[str, object]:
    return {
        name: value
        for name in reading.model.__dataclass_fields__
        if (value := getattr(reading.model, name)) is not None and name != "name"
    }


def test_llama_is_read_value_for_value() -> None:
    reading = read_config(LLAMA3_8B, file="m/config.json")
    assert stated(reading) == {
        "layers": 32,
        "hidden": 4096,
        "ffn": 14336,
        "heads": 32,
        "kv_heads": 8,
        "vocab": 128256,
        "gated_mlp": True,
        "tied_embeddings": False,
        "learned_positions": False,
    }
    assert not reading.problems


def test_evidence_points_at_the_line_of_the_key() -> None:
    found = {entry.field: entry for entry in read_config(LLAMA3_8B, file="m/config.json").evidence}
    assert (found["model.layers"].line, found["model.layers"].text) == (9, '"num_hidden_layers": 32,')
    assert found["model.vocab"].line == 13
    assert {entry.file for entry in found.values()} == {"m/config.json"}


def test_the_longest_sequence_is_not_the_trained_one() -> None:
    assert read_config(LLAMA3_8B, file="x").model.seq is None


def test_gpt2_fixes_what_it_does_not_say() -> None:
    reading = read(model_type="gpt2", n_embd=768, n_layer=12, n_head=12, vocab_size=50257, n_inner=None)
    # GPT-2: MLP of 4 x 768, one key and value head a head, tied, learned positions, biases everywhere
    assert stated(reading) == {
        "layers": 12,
        "hidden": 768,
        "ffn": 3072,
        "heads": 12,
        "kv_heads": 12,
        "vocab": 50257,
        "gated_mlp": False,
        "tied_embeddings": True,
        "learned_positions": True,
        "qkv_bias": True,
        "output_bias": True,
        "mlp_bias": True,
        "norm_bias": True,
    }


@pytest.mark.parametrize(
    ("values", "kv_heads"),
    [
        ({"model_type": "falcon", "num_attention_heads": 71, "multi_query": True}, 1),
        (
            {"model_type": "falcon", "num_attention_heads": 128, "num_kv_heads": 8, "new_decoder_architecture": True},
            8,
        ),
        ({"model_type": "gpt_bigcode", "n_head": 48}, 1),
        ({"model_type": "gpt_bigcode", "n_head": 48, "multi_query": False}, 48),
        ({"model_type": "llama", "num_attention_heads": 32}, 32),
        ({"model_type": "mistral", "num_attention_heads": 32}, None),
        ({"model_type": "dbrx", "n_heads": 48, "attn_config": {"kv_n_heads": 8}}, 8),
    ],
)
def test_key_and_value_heads_follow_the_family(values: dict[str, object], kv_heads: int | None) -> None:
    assert read(**values).model.kv_heads == kv_heads


@pytest.mark.parametrize(
    ("values", "experts", "top_k", "shared", "width"),
    [
        (
            {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 14336},
            8,
            2,
            None,
            14336,
        ),
        (
            {
                "model_type": "deepseek_v3",
                "n_routed_experts": 256,
                "num_experts_per_tok": 8,
                "n_shared_experts": 1,
                "moe_intermediate_size": 2048,
                "intermediate_size": 18432,
            },
            256,
            8,
            1,
            2048,
        ),
        (
            {
                "model_type": "qwen2_moe",
                "num_experts": 60,
                "num_experts_per_tok": 4,
                "moe_intermediate_size": 1408,
                "shared_expert_intermediate_size": 5632,
            },
            60,
            4,
            4,
            1408,
        ),
        (
            {
                "model_type": "dbrx",
                "d_model": 6144,
                "ffn_config": {"moe_num_experts": 16, "moe_top_k": 4, "ffn_hidden_size": 10752},
            },
            16,
            4,
            None,
            10752,
        ),
        ({"model_type": "llama", "num_experts_per_tok": 2}, None, None, None, None),
    ],
)
def test_mixtures_of_experts_are_read(
    values: dict[str, object], experts: int | None, top_k: int | None, shared: int | None, width: int | None
) -> None:
    model = read(**values).model
    assert (model.experts, model.top_k, model.shared_experts, model.expert_ffn) == (experts, top_k, shared, width)


def test_details_point_at_the_key_that_states_them() -> None:
    reading = read_config(
        '{"model_type": "deepseek_v3",\n"n_routed_experts": 256,\n"first_k_dense_replace": 3}', file="x"
    )
    assert reading.model.dense_layers == 3
    assert {entry.field: entry.line for entry in reading.evidence}["model.dense_layers"] == 3
    # what trains from such a file does not build multi-token prediction, so that nothing is said of it
    assert not read(model_type="deepseek_v3", num_nextn_predict_layers=1, num_hidden_layers=61).problems


def test_the_decoder_of_a_multimodal_model_is_read() -> None:
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34, "head_dim": 256}
    reading = read(model_type="gemma3", text_config=text, vision_config={"hidden_size": 1152, "num_hidden_layers": 27})
    assert (reading.model.hidden, reading.model.layers, reading.model.head_dim) == (2560, 34, 256)
    assert reading.model.tied_embeddings is True
    assert "text_config" in reading.problems[0].what


@pytest.mark.parametrize(
    ("values", "gated"),
    [
        ({"model_type": "new", "hidden_act": "silu"}, True),
        ({"model_type": "new", "hidden_act": "gelu_new"}, False),
        ({"model_type": "new", "hidden_act": "gelu"}, None),
        ({"model_type": "gemma", "hidden_act": "gelu"}, True),
    ],
)
def test_gating_is_told_by_family_or_activation(values: dict[str, object], gated: bool | None) -> None:
    assert read(**values).model.gated_mlp is gated


def test_an_unknown_family_ties_nothing_for_certain() -> None:
    assert read(model_type="new", hidden_size=64).model.tied_embeddings is None


def test_wrong_types_are_problems_with_their_lines() -> None:
    reading = read_config('{"hidden_size": "4096",\n"num_hidden_layers": true,\n"vocab_size": -3}', file="x")
    assert [problem.line for problem in reading.problems] == [1, 2, 3]
    assert (reading.model.hidden, reading.model.layers, reading.model.vocab) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "line"),
    [('{"a":\n x}', 2), ("[1]", 0), ("", 1), ("[" * 100_000, 0), ("9" * 5000, 0), (" " * (5 << 20), 0), ("null", 0)],
)
def test_what_is_no_configuration_is_one_problem(text: str, line: int) -> None:
    reading = read_config(text, file="x")
    assert [problem.line for problem in reading.problems] == [line]
    assert not stated(reading)


def test_encoders_are_refused() -> None:
    assert read(model_type="bert", hidden_size=768).model.hidden is None
    assert read(model_type="t5", d_model=768).model.hidden is None
    assert read(model_type="t5", d_model=768).problems
    assert read(model_type="new", is_encoder_decoder=True, d_model=512).problems


def test_of_a_key_given_twice_the_last_counts() -> None:
    reading = read_config('{"hidden_size": 1,\n"hidden_size": 2}', file="x")
    entry = next(entry for entry in reading.evidence if entry.field == "model.hidden")
    assert (entry.value, entry.line) == (2, 2)


def test_a_key_inside_a_string_or_a_list_is_no_key() -> None:
    reading = read_config('{"a": "\\"hidden_size\\": 1",\n"b": [{"hidden_size": 2}],\n"hidden_size": 3}', file="x")
    assert [entry.line for entry in reading.evidence if entry.field == "model.hidden"] == [3]


KEYS = [
    "hidden_size", "num_hidden_layers", "num_attention_heads", "model_type", "text_config", "ffn_config", "n_embd",
    "multi_query", "expansion_ratio", "num_experts", "moe_intermediate_size", "shared_expert_intermediate_size",
    "hidden_act", "tie_word_embeddings", "kv_lora_rank", "moe_layer_freq", "_name_or_path", "n_head",
]  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS | st.sampled_from(["falcon", "mpt", "qwen", "gpt2", "dbrx", "llama4"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
)


@given(st.dictionaries(st.sampled_from(KEYS), VALUES))
@settings(max_examples=300)
def test_no_document_makes_the_reader_raise(document: dict[str, object]) -> None:
    read_config(json.dumps(document, indent=1), file="x")


@given(st.text())
def test_no_text_makes_the_reader_raise(text: str) -> None:
    read_config(text, file="x")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ('find "$HF_HOME/hub/models--Qwen--Qwen2.5-0.5B/snapshots" -mindepth 1 -type d | head -1', "Qwen/Qwen2.5-0.5B"),
        ("ls -d /data/hub/models--Qwen--Qwen2.5-0.5B/snapshots/* | tail -n 1", "Qwen/Qwen2.5-0.5B"),
        ("ls -d /data/models/Qwen2.5-* | tail -n 1", None),
    ],
)
def test_a_search_in_the_cache_of_the_hub_names_the_model(command: str, name: str | None) -> None:
    script = (
        f"#!/bin/bash\n#SBATCH --gres=gpu:1\nBASE=$({command})\n"
        'python run_clm.py --model_name_or_path "$BASE" --do_train --block_size 512\n'
    )
    assert read_script(script, file="job.sh").model.name == name
