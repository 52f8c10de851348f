"""Values are those of the published config.json of each model, cut to the keys that matter.

That a file is read right is held against the published parameter count of its model, which stands in the catalogue.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk.workload.huggingface.model import ConfigModel, parse_model_config
from opsk.workload.model import ModelShape
from opsk.workload.public_models.lookup import public_models


def llama(layers: int, hidden: int, ffn: int, heads: int, vocab: int, **more: Any) -> dict[str, Any]:
    """Return the keys that most families share."""
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_attention_heads": heads,
        "vocab_size": vocab,
        **more,
    }


CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {
        "model_type": "gpt2",
        "n_layer": 12,
        "n_embd": 768,
        "n_head": 12,
        "vocab_size": 50257,
        "n_positions": 1024,
    },
    "gpt-neox-20b": llama(44, 6144, 24576, 64, 50432, model_type="gpt_neox"),
    "gpt-j-6b": {"model_type": "gptj", "n_layer": 28, "n_embd": 4096, "n_head": 16, "vocab_size": 50400},
    "opt-13b": {
        "model_type": "opt",
        "num_hidden_layers": 40,
        "hidden_size": 5120,
        "ffn_dim": 20480,
        "num_attention_heads": 40,
        "vocab_size": 50272,
        "max_position_embeddings": 2048,
        "word_embed_proj_dim": 5120,
    },
    "bloom-176b": {"model_type": "bloom", "n_layer": 70, "hidden_size": 14336, "n_head": 112, "vocab_size": 250880},
    "mpt-7b": {
        "model_type": "mpt",
        "n_layers": 32,
        "d_model": 4096,
        "n_heads": 32,
        "vocab_size": 50432,
        "no_bias": True,
        "expansion_ratio": 4,
    },
    "falcon-7b": {
        "model_type": "falcon",
        "num_hidden_layers": 32,
        "hidden_size": 4544,
        "num_attention_heads": 71,
        "vocab_size": 65024,
        "multi_query": True,
        "parallel_attn": True,
        "bias": False,
        "new_decoder_architecture": False,
    },
    "falcon-40b": {
        "model_type": "falcon",
        "num_hidden_layers": 60,
        "hidden_size": 8192,
        "num_attention_heads": 128,
        "num_kv_heads": 8,
        "vocab_size": 65024,
        "parallel_attn": True,
        "bias": False,
        "new_decoder_architecture": True,
    },
    "starcoder-15b": {
        "model_type": "gpt_bigcode",
        "n_layer": 40,
        "n_embd": 6144,
        "n_head": 48,
        "n_inner": 24576,
        "vocab_size": 49152,
        "n_positions": 8192,
        "multi_query": True,
    },
    "starcoder2-7b": llama(
        32, 4608, 18432, 36, 49152, model_type="starcoder2", num_key_value_heads=4, use_bias=True, sliding_window=4096
    ),
    "phi-2": llama(32, 2560, 10240, 32, 51200, model_type="phi"),
    "phi-3-mini": llama(32, 3072, 8192, 32, 32064, model_type="phi3", sliding_window=2047),
    "llama-2-7b": llama(32, 4096, 11008, 32, 32000, model_type="llama"),
    "llama-3.2-1b": llama(
        16,
        2048,
        8192,
        32,
        128256,
        model_type="llama",
        num_key_value_heads=8,
        head_dim=64,
        tie_word_embeddings=True,
        attention_bias=False,
        mlp_bias=False,
    ),
    "mistral-7b": llama(32, 4096, 14336, 32, 32000, model_type="mistral", num_key_value_heads=8, sliding_window=4096),
    "mixtral-8x7b": llama(
        32,
        4096,
        14336,
        32,
        32000,
        model_type="mixtral",
        num_key_value_heads=8,
        num_local_experts=8,
        num_experts_per_tok=2,
        sliding_window=None,
    ),
    "dbrx": {
        "model_type": "dbrx",
        "d_model": 6144,
        "n_heads": 48,
        "n_layers": 40,
        "vocab_size": 100352,
        "attn_config": {"kv_n_heads": 8, "clip_qkv": 8},
        "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
    },
    "qwen2.5-7b": llama(
        28,
        3584,
        18944,
        28,
        152064,
        model_type="qwen2",
        num_key_value_heads=4,
        use_sliding_window=False,
        sliding_window=131072,
        max_window_layers=28,
    ),
    "qwen1.5-moe-a2.7b": llama(
        24,
        2048,
        5632,
        16,
        151936,
        model_type="qwen2_moe",
        num_key_value_heads=16,
        num_experts=60,
        num_experts_per_tok=4,
        moe_intermediate_size=1408,
        shared_expert_intermediate_size=5632,
        decoder_sparse_step=1,
        mlp_only_layers=[],
    ),
    "qwen3-4b": llama(
        36, 2560, 9728, 32, 151936, model_type="qwen3", num_key_value_heads=8, head_dim=128, tie_word_embeddings=True
    ),
    "qwen3-30b-a3b": llama(
        48,
        2048,
        6144,
        32,
        151936,
        model_type="qwen3_moe",
        num_key_value_heads=4,
        head_dim=128,
        num_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=768,
        attention_bias=False,
    ),
    "gemma-2b": llama(18, 2048, 16384, 8, 256000, model_type="gemma", num_key_value_heads=1, head_dim=256),
    "gemma-2-9b": llama(
        42, 3584, 14336, 16, 256000, model_type="gemma2", num_key_value_heads=8, head_dim=256, sliding_window=4096
    ),
    "olmo-7b": llama(32, 4096, 11008, 32, 50304, model_type="olmo", attention_bias=False),
    "olmo-2-7b": llama(32, 4096, 11008, 32, 100352, model_type="olmo2", num_key_value_heads=32),
    "internlm2-7b": llama(32, 4096, 14336, 32, 92544, model_type="internlm2", num_key_value_heads=8, bias=False),
    "deepseek-v2-lite": llama(
        27,
        2048,
        10944,
        16,
        102400,
        model_type="deepseek_v2",
        kv_lora_rank=512,
        q_lora_rank=None,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        n_routed_experts=64,
        n_shared_experts=2,
        num_experts_per_tok=6,
        moe_intermediate_size=1408,
        first_k_dense_replace=1,
        moe_layer_freq=1,
    ),
    "deepseek-v3-mtp": llama(
        61,
        7168,
        18432,
        128,
        129280,
        model_type="deepseek_v3",
        num_key_value_heads=128,
        kv_lora_rank=512,
        q_lora_rank=1536,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        n_routed_experts=256,
        n_shared_experts=1,
        num_experts_per_tok=8,
        moe_intermediate_size=2048,
        first_k_dense_replace=3,
        moe_layer_freq=1,
        num_nextn_predict_layers=1,
    ),
    "gpt-oss-20b": llama(
        24,
        2880,
        2880,
        64,
        201088,
        model_type="gpt_oss",
        num_key_value_heads=8,
        head_dim=64,
        num_local_experts=32,
        num_experts_per_tok=4,
        attention_bias=True,
        sliding_window=128,
        layer_types=["sliding_attention", "full_attention"] * 12,
    ),
    "phi-3.5-moe": llama(
        32,
        4096,
        6400,
        32,
        32064,
        model_type="phimoe",
        num_key_value_heads=8,
        num_local_experts=16,
        num_experts_per_tok=2,
        attention_bias=True,
        lm_head_bias=True,
    ),
    "t5-3b": {
        "model_type": "t5",
        "is_encoder_decoder": True,
        "d_model": 1024,
        "d_kv": 128,
        "d_ff": 16384,
        "num_heads": 32,
        "num_layers": 24,
        "vocab_size": 32128,
        "relative_attention_num_buckets": 32,
    },
    "flan-t5-xxl": {
        "model_type": "t5",
        "is_encoder_decoder": True,
        "d_model": 4096,
        "d_kv": 64,
        "d_ff": 10240,
        "num_heads": 64,
        "num_layers": 24,
        "num_decoder_layers": 24,
        "vocab_size": 32128,
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
    },
}
SHAPE_ONLY = ("name", "seq", "encoder_seq", "dropout", "attention_window", "windowed_layers", "ffn")


def read(**values: object) -> ConfigModel:
    """Return the model that a file with these values describes."""
    return parse_model_config(json.dumps(values), origin="config.json", seq=2048)


def compared(model: ModelShape) -> dict[str, object]:
    """Return what two descriptions of one model must agree on, details by their style."""
    values = {name: getattr(model, name) for name in model.__dataclass_fields__ if name not in SHAPE_ONLY}
    values |= {name: model.has(name) for name in ("qkv_bias", "output_bias", "mlp_bias", "norm_bias")}
    values["shared_ffn"] = model.shared_ffn or model.shared_experts * model.expert_ffn
    values["position_rows"] = (model.position_rows or model.seq) if model.learned_positions else 0
    return values


@pytest.mark.parametrize("name", CONFIGS)
def test_a_published_configuration_is_the_model_of_the_catalogue(name: str):
    public = public_models()[name].shape
    shape = parse_model_config(
        json.dumps(CONFIGS[name]), origin=name, seq=public.seq, encoder_seq=public.encoder_seq
    ).shape
    assert compared(shape) == compared(public)


@pytest.mark.parametrize(
    ("name", "window", "layers"),
    [
        ("mistral-7b", 4096, 32),
        ("gemma-2-9b", 4096, 21),
        ("gpt-oss-20b", 128, 12),
        ("qwen2.5-7b", 0, 0),
        ("mixtral-8x7b", 0, 0),
    ],
)
def test_sliding_windows_are_those_of_the_family(name: str, window: int, layers: int):
    shape = read(**CONFIGS[name]).shape
    assert (shape.attention_window, shape.windowed_layers) == (window, layers)


def test_layers_without_experts_lie_between_the_others_where_a_step_is_stated():
    # Llama 4 Maverick's text_config: every second layer has experts, dense ones are 16384 wide
    text = llama(48, 5120, 8192, 40, 202048, model_type="llama4_text", num_key_value_heads=8, num_local_experts=128)
    text |= {"num_experts_per_tok": 1, "intermediate_size_mlp": 16384, "interleave_moe_layer_step": 2}
    reading = read(model_type="llama4", text_config=text)
    shape = reading.shape
    assert (shape.dense_layers, shape.dense_interleaved, shape.ffn, shape.expert_ffn) == (24, True, 16384, 8192)
    assert shape.shared_experts == 1
    assert "text_config" in reading.doubts[0]


def test_the_sequence_is_assumed_where_it_is_not_given():
    reading = parse_model_config(json.dumps({**CONFIGS["llama-2-7b"], "max_position_embeddings": 131072}), origin="x")
    assert reading.shape.seq == 4096
    assert [entry.field for entry in reading.assumed] == ["model.seq"]
    assert not read(**CONFIGS["llama-2-7b"]).assumed


def test_an_unknown_family_is_read_with_a_doubt():
    reading = read(**llama(2, 512, 2048, 8, 1000, model_type="brandnew"))
    assert (reading.shape.layers, reading.shape.kv_heads, reading.shape.gated_mlp) == (2, 8, True)
    assert "brandnew" in reading.doubts[0]
    assert {entry.field for entry in reading.assumed} >= {"model.kv_heads", "model.gated_mlp", "model.tied_embeddings"}


def test_everything_wrong_is_one_error():
    with pytest.raises(InputError) as raised:
        read(
            model_type="llama",
            num_hidden_layers=-3,
            hidden_size="4096",
            vocab_size=10**30,
            intermediate_size=float("inf"),
        )
    message = raised.value.message
    assert message.startswith("config.json: ")
    for part in ("num_hidden_layers is -3", "hidden_size is '4096'", "vocab_size is 1000", "heads is missing"):
        assert part in message


@pytest.mark.parametrize(
    ("values", "part"),
    [
        (llama(2, 512, 2048, 7, 1000, model_type="llama"), "hidden 512 is not a multiple of heads 7"),
        (
            llama(2, 512, 2048, 8, 1000, model_type="llama", num_key_value_heads=3),
            "heads 8 is not a multiple of kv_heads 3",
        ),
        ({"model_type": "bert", "hidden_size": 768}, "bert is no decoder-only transformer"),
        ({"model_type": "new", "is_encoder_decoder": True}, "no decoder-only transformer"),
    ],
)
def test_an_impossible_model_is_refused(values: dict[str, object], part: str):
    with pytest.raises(InputError, match=part):
        read(**values)


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"a": nul}', "[" * 100_000, "9" * 5000, " " * (5 << 20), "null"])
def test_what_is_no_configuration_is_an_input_error(text: str):
    with pytest.raises(InputError, match=r"^made\.json: "):
        parse_model_config(text, origin="made.json")


_KEYS = sorted({key for config in CONFIGS.values() for key in config} | {"layer_types", "text_config", "mlp_bias"})
_SCALARS = st.none() | st.booleans() | st.integers(-2, 10**10) | st.floats() | st.text(max_size=4)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=5)
)


@given(name=st.sampled_from(sorted(CONFIGS)), changes=st.dictionaries(st.sampled_from(_KEYS), _VALUES, max_size=4))
@settings(max_examples=300)
def test_any_file_is_a_model_or_one_input_error(name: str, changes: dict[str, object]):
    try:
        reading = parse_model_config(json.dumps(CONFIGS[name] | changes), origin="x")
    except InputError:
        return
    assert isinstance(reading.shape, ModelShape)
