"""A model's shape survives being written the way that a framework wants it, or what does not is named."""

from __future__ import annotations

import json
import math
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, make_dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk.frameworks.catalog import FRAMEWORKS
from opsk.frameworks.hf_config import hf_config
from opsk.frameworks.layers import chunk_layers, dense_layers, pattern, spread
from opsk.frameworks.torchtitan import missing_of_model, render_module, select_base
from opsk.workload.huggingface.model import parse_model_config
from opsk.workload.model import MeasuredParts, ModelShape
from opsk.workload.plan import Plan
from opsk.workload.public_models.lookup import public_model
from tests.opsk.frameworks.examples import LLAMA_70B
from tests.opsk.frameworks.random_plans import models

DEEPSEEK_V3 = ModelShape(
    name="deepseek-v3",
    layers=61,
    hidden=7168,
    ffn=18432,
    heads=128,
    kv_heads=128,
    head_dim=192,
    vocab=129280,
    seq=4096,
    gated_mlp=True,
    experts=256,
    top_k=8,
    shared_experts=1,
    expert_ffn=2048,
    tied_embeddings=False,
    q_lora_rank=1536,
    kv_lora_rank=512,
    qk_rope_dim=64,
    v_head_dim=128,
    dense_layers=3,
    router_bias=True,
    qkv_bias=False,
    output_bias=False,
    mlp_bias=False,
)
"""arXiv 2412.19437, table of the architecture, without its multi-token prediction."""


@st.composite
def shapes(draw: st.DrawFn) -> ModelShape:
    """Draw a model of any kind that the families have."""
    model = draw(models(layers=draw(st.integers(2, 12)), has_experts=draw(st.booleans())))
    more: dict[str, Any] = {}
    if model.experts and draw(st.booleans()):
        more = {"dense_layers": draw(st.integers(0, model.layers - 1)), "router_bias": draw(st.booleans())}
    if draw(st.booleans()):
        more |= {"kv_heads": model.heads, "q_lora_rank": draw(st.sampled_from((0, 512))), "kv_lora_rank": 256}
        more |= {"qk_rope_dim": 32, "v_head_dim": 64, "qk_norm": False}
    return replace(model, **more)


@given(shapes())
def test_a_config_json_reads_back_as_the_model_or_says_what_does_not(model: ModelShape) -> None:
    config = hf_config(model)
    assert json.loads(config.text) == config.content
    if config.missing:
        return
    back = parse_model_config(config.text, origin="config.json", seq=model.seq).shape
    for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "vocab", "gated_mlp", "experts", "top_k"):
        assert getattr(back, name) == getattr(model, name), name
    for name in ("tied_embeddings", "learned_positions", "dense_layers", "kv_lora_rank", "router_bias", "qk_norm"):
        assert getattr(back, name) == getattr(model, name), name
    for name in ("qkv_bias", "output_bias", "mlp_bias", "norm_bias"):
        assert back.has(name) == model.has(name), name


@pytest.mark.parametrize("model", [LLAMA_70B, DEEPSEEK_V3], ids=lambda model: model.name)
def test_public_models_are_written_whole(model: ModelShape) -> None:
    plan = Plan(global_batch=1)
    for name in ("megatron", "fsdp", "torchtitan"):
        assert FRAMEWORKS[name].settings(model, plan).missing == (), name


@pytest.mark.parametrize("name", ["nemotron-h-8b", "qwen3-next-80b-a3b", "kimi-linear-48b-a3b", "deepseek-v3.2"])
def test_layers_of_a_hybrid_are_named_by_frameworks_that_have_none(name: str) -> None:
    model = public_model(name)
    assert model is not None
    for framework in ("megatron", "deepspeed", "torchtitan", "fsdp"):
        missing = " ".join(FRAMEWORKS[framework].settings(model, Plan(global_batch=1)).missing)
        assert str(model.mixer) in missing if model.mixer_layers else "sparse" in missing or "index" in missing


def test_what_a_framework_has_no_words_for_is_named() -> None:
    plan = Plan(global_batch=1)
    sinks = replace(LLAMA_70B, attention_sinks=True, encoder_layers=2, encoder_seq=512)
    for name, word in (("megatron", "encoder"), ("deepspeed", "sinks"), ("torchtitan", "sinks"), ("fsdp", "sinks")):
        missing = FRAMEWORKS[name].settings(sinks, plan).missing
        assert any(word in what for what in missing), name
    assert any("latent" in what for what in FRAMEWORKS["deepspeed"].settings(DEEPSEEK_V3, plan).missing)


@dataclass
class MoEArgs:
    """Keeps what torchtitan's own class would be given."""

    num_experts: int
    num_shared_experts: int
    top_k: int
    score_func: str
    route_norm: bool
    score_before_experts: bool
    load_balance_coeff: float | None


_CLASSES = {"llama3": "TransformerModelArgs", "qwen3": "Qwen3ModelArgs", "deepseek_v3": "DeepSeekV3ModelArgs"}


@contextmanager
def torchtitan() -> Iterator[list[tuple[str, Any]]]:
    """Put stand-ins in the place of torchtitan's modules; yields what is registered."""
    registered: list[tuple[str, Any]] = []
    spec = make_dataclass("TrainSpec", ["model_args"])
    modules: dict[str, types.ModuleType] = {}

    def module(name: str, **content: object) -> None:
        modules[name] = types.ModuleType(name)
        modules[name].__dict__.update(content)

    for name in ("torchtitan", "torchtitan.models", "torchtitan.protocols"):
        module(name)
    for name, kind in _CLASSES.items():
        module(f"torchtitan.models.{name}", get_train_spec=lambda: spec({}))
        module(f"torchtitan.models.{name}.model")
        module(f"torchtitan.models.{name}.model.args", **{kind: lambda **given: given})
    module("torchtitan.models.moe", MoEArgs=MoEArgs)
    module("torchtitan.protocols.train_spec", register_train_spec=lambda *given: registered.append(given))
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield registered
    finally:
        for name, old in before.items():
            if old is None:
                del sys.modules[name]
            else:
                sys.modules[name] = old


@given(shapes())
def test_the_module_for_torchtitan_registers_the_shape(model: ModelShape) -> None:
    with torchtitan() as registered:
        exec(compile(render_module(model), "opsk_model.py", "exec"), {})
    [(name, spec)] = registered
    shape = spec.model_args["opsk"]
    assert name == "opsk"
    assert (shape["dim"], shape["n_layers"], shape["n_heads"]) == (model.hidden, model.layers, model.heads)
    assert shape["vocab_size"] == model.vocab
    if select_base(model) == "llama3":
        # TransformerBlock and FeedForward of torchtitan/models/llama3/model/model.py, v0.2.2
        width = int(2 * (4 * model.hidden) / 3)
        width = int(shape["ffn_dim_multiplier"] * width)
        assert shape["multiple_of"] * math.ceil(width / shape["multiple_of"]) == model.ffn
    if model.experts:
        assert shape["moe_args"].num_experts == model.experts
        assert shape["moe_args"].num_shared_experts * model.expert_ffn == model.shared_experts * model.expert_ffn


@given(st.integers(1, 40_000), st.integers(1, 200_000))
@settings(max_examples=300)
def test_any_inner_width_comes_out_of_llamas_rule(hidden: int, ffn: int) -> None:
    model = replace(LLAMA_70B, hidden=hidden, heads=1, kv_heads=1, head_dim=hidden, ffn=ffn)
    with torchtitan() as registered:
        exec(compile(render_module(model), "opsk_model.py", "exec"), {})
    shape = registered[0][1].model_args["opsk"]
    width = int(shape["ffn_dim_multiplier"] * int(2 * (4 * hidden) / 3))
    assert shape["multiple_of"] * math.ceil(width / shape["multiple_of"]) == ffn


def test_every_shape_has_one_of_the_models_of_torchtitan() -> None:
    assert select_base(LLAMA_70B) == "llama3"
    assert select_base(DEEPSEEK_V3) == "deepseek_v3"
    assert select_base(replace(LLAMA_70B, tied_embeddings=True)) == "qwen3"
    assert select_base(replace(LLAMA_70B, head_dim=64)) == "qwen3"
    assert list(missing_of_model(replace(LLAMA_70B, gated_mlp=False)))


@given(st.integers(0, 60), st.integers(1, 60))
def test_spread_layers_are_as_many_and_as_even_as_can_be(some: int, among: int) -> None:
    some = min(some, among)
    marks = spread(some, among)
    assert (len(marks), sum(marks)) == (among, some)
    seen = [sum(marks[: index + 1]) for index in range(among)]
    assert all(abs(count - (index + 1) * some / among) < 1 for index, count in enumerate(seen))


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_a_pattern_evaluates_to_its_marks(marks: list[bool]) -> None:
    text = pattern(tuple(marks))
    # the characters that Megatron-LM's _eval_pattern lets through
    assert set(text) <= set("0123456789,[]()+*")
    assert eval(text) == [int(mark) for mark in marks]


def test_patterns_are_short_where_layers_repeat() -> None:
    assert pattern((False,) * 3 + (True,) * 58) == "([0]*3+[1]*58)"
    assert pattern((False, True) * 24) == "([0,1]*24)"


def test_dense_layers_lie_before_or_between_the_others() -> None:
    assert dense_layers(DEEPSEEK_V3) == (True,) * 3 + (False,) * 58
    between = replace(DEEPSEEK_V3, layers=4, dense_layers=2, dense_interleaved=True)
    assert dense_layers(between) == (True, False, True, False)
    assert all(dense_layers(LLAMA_70B))


@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 4), st.integers(0, 3), st.integers(0, 3))
def test_chunks_hold_all_layers(pp: int, vpp: int, middle: int, first: int, last: int) -> None:
    if pp < 3:
        first = last = 0
    layers = sum({0: first, pp - 1: last}.get(stage) or middle for stage in range(pp)) * vpp
    model = replace(LLAMA_70B, layers=layers)
    plan = Plan(pp=pp, vpp=vpp, global_batch=1, first_stage_layers=first * vpp, last_stage_layers=last * vpp)
    chunks = chunk_layers(model, plan)
    assert (len(chunks), sum(chunks)) == (pp * vpp, layers)
    assert sum(chunks[::pp]) == (first or middle) * vpp


def test_all_fields_of_a_shape_were_thought_of() -> None:
    """A new field of the model must be written, or be named as missing, by every framework."""
    assert len(fields(ModelShape)) == 65


@pytest.mark.parametrize("name", sorted(FRAMEWORKS))
def test_a_model_that_is_no_transformer_is_refused(name: str) -> None:
    parts = MeasuredParts(parameters=25_557_032, sample_bytes=90_000_000, sample_fp32_bytes=180_000_000)
    resnet = replace(LLAMA_70B, name="resnet50", measured=parts)
    assert any("resnet50" in reason for reason in FRAMEWORKS[name].refuses(resnet, Plan(global_batch=8)))


def test_the_chunks_with_embedding_and_loss_have_a_layer_less_where_stages_do_not_divide():
    """126 layers on 16 stages of 8 chunks: the first and the last chunk have none, all others one."""
    llama = public_model("llama-3.1-405b")
    assert llama is not None
    plan = Plan(pp=16, vpp=8, first_stage_layers=7, last_stage_layers=7, global_batch=16)
    assert chunk_layers(llama, plan) == (0, *(1,) * 126, 0)
    options = {option.name: option.value for option in FRAMEWORKS["megatron"].settings(llama, plan).options}
    assert options.keys() >= {"--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"}
    assert "--decoder-first-pipeline-num-layers" not in options
    assert not FRAMEWORKS["megatron"].refuses(llama, plan)
