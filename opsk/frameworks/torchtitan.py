"""Converts plans to torchtitan configurations, and checks which plans torchtitan can run.

Source: ``torchtitan/config/job_config.py``, ``distributed/parallel_dims.py``, ``distributed/pipeline_parallel.py``,
``train.py`` and ``models/llama3/infra/parallelize.py`` of v0.2.2, the last release that reads TOML: since February 2026
a configuration is a Python function, whose fields have the same names.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from opsk.costmodel.rules import expert_tensor_size
from opsk.frameworks.layers import chunk_layers
from opsk.frameworks.limits import Check, ExpertTensor, Limits, SequenceParallel, apply_checks
from opsk.frameworks.options import File, Settings, one_line
from opsk.frameworks.script import Program, UserVariable
from opsk.frameworks.settings.torchtitan_flags import PLAN_SECTIONS
from opsk.workload.model import ModelShape
from opsk.workload.plan import (
    Loss,
    Offload,
    Optimizer,
    Plan,
    Precision,
    Recompute,
    Schedule,
    Sharding,
    Software,
    States,
)

NAME = "opsk"
"""Name and flavour under which the shape is registered."""
MODULE = "opsk_model"
PIPELINED = ("llama3", "deepseek_v3")
"""Models whose train spec has a ``pipelining_fn``."""
_ARGS = {
    "llama3": ("torchtitan.models.llama3.model.args", "TransformerModelArgs"),
    "qwen3": ("torchtitan.models.qwen3.model.args", "Qwen3ModelArgs"),
    "deepseek_v3": ("torchtitan.models.deepseek_v3.model.args", "DeepSeekV3ModelArgs"),
}
RELEASE = "v0.2.2"
CONFIG = "torchtitan.toml"
_SHARDED = frozenset({Sharding.ZERO2, Sharding.ZERO3})
LIMITS = Limits(
    name="torchtitan",
    software=Software.PYTORCH,
    shardings=_SHARDED | {Sharding.NONE},
    pipelined_shardings=_SHARDED,
    partial_shardings=_SHARDED,
    replicated_alone=True,
    sequence_parallel=SequenceParallel.WITH_TP,
    recompute_layers=False,
    schedules=frozenset({Schedule.ONE_F_ONE_B, Schedule.GPIPE, Schedule.ZERO_BUBBLE_V}),
    expert_tensors=frozenset({ExpertTensor.ONE, ExpertTensor.AS_TP}),
    expert_shardings=_SHARDED,
    precisions=frozenset({Precision.FP32, Precision.BF16, Precision.FP8_CURRENT, Precision.MXFP8}),
    states=frozenset({States.AUTOCAST, States.PURE_16BIT}),
    optimizers=frozenset({Optimizer.ADAM}),
    offloads=frozenset({Offload.NONE, Offload.OPTIMIZER_AND_WEIGHTS}),
    losses=frozenset({Loss.PLAIN}),
    sources={
        "shardings": "torchtitan/config/job_config.py: fsdp_reshard_after_forward",
        "pipelined_shardings": "torchtitan/models/llama3/infra/parallelize.py: DDP combines with no other axis",
        "partial_shardings": "torchtitan/config/job_config.py: data_parallel_replicate_degree",
        "replicated_alone": "torchtitan/models/llama3/infra/parallelize.py: DDP combines with no other axis",
        "sequence_parallel": "torchtitan/models/llama3/infra/parallelize.py: apply_tp",
        "recompute_layers": "torchtitan/distributed/activation_checkpoint.py: by operation or of all layers",
        "schedules": "torch/distributed/pipelining/schedules.py",
        "expert_tensors": "torchtitan/distributed/parallel_dims.py: etp is tp or 1",
        "expert_shardings": "torchtitan/distributed/parallel_dims.py: experts are sharded with FSDP",
        "precisions": "torchtitan/components/quantization",
        "states": "torchtitan/config/job_config.py: training.dtype, mixed_precision_param",
        "optimizers": "torchtitan/components/optimizer.py: Adam and AdamW",
        "offloads": "torchtitan/config/job_config.py: enable_cpu_offload",
        "losses": "torchtitan/components/loss.py",
    },
)
"""etp is tp or 1 (parallel_dims.py); tensor parallelism always shards norms over the sequence, and DDP combines with no
other axis (parallelize.py); ZeRO-2 is ``fsdp_reshard_after_forward = "never"``, ZeRO-3 ``"always"``. Of the schedules
of ``torch.distributed.pipelining`` those that `Schedule` names: DualPipeV is not DualPipe, and the interleaved
zero-bubble schedule is not ZB-H1. Activations are
checkpointed by operation or for all layers, not for some of a stage.
"""
_SCHEDULES = {
    (Schedule.ONE_F_ONE_B, False): "1F1B",
    (Schedule.ONE_F_ONE_B, True): "Interleaved1F1B",
    (Schedule.GPIPE, False): "GPipe",
    (Schedule.GPIPE, True): "LoopedBFS",
    (Schedule.ZERO_BUBBLE_V, True): "ZBVZeroBubble",
}
_CONVERTERS = {Precision.FP8_CURRENT: "quantize.linear.float8", Precision.MXFP8: "quantize.linear.mx"}
PROGRAM = Program(
    places=(
        UserVariable(name="HF_ASSETS_PATH", what="a folder with the tokenizer's files"),
        UserVariable(name="DATASET", what="the name of a dataset that torchtitan knows", default="c4"),
        UserVariable(name="TRAIN_STEPS", what="steps in all", default="1000"),
        UserVariable(name="LEARNING_RATE", what="its highest", default="3.0e-4"),
    ),
    setup=('export PYTHONPATH="$RUN_DIR${PYTHONPATH:+:$PYTHONPATH}"',),
    command=(
        '-m torchtitan.train --job.dump_folder "$RUN_DIR/outputs"',
        '--model.hf_assets_path "$HF_ASSETS_PATH" --training.dataset "$DATASET"',
        '--training.steps "$TRAIN_STEPS" --optimizer.lr "$LEARNING_RATE"',
    ),
)


def select_base(model: ModelShape) -> str:
    """Return the model of torchtitan that comes nearest: latent attention, Llama's layers, else Qwen 3's."""
    if model.kv_lora_rank:
        return "deepseek_v3"
    is_llama = not (model.experts or model.tied_embeddings or model.qk_norm)
    return "llama3" if is_llama and model.heads * model.head_dim == model.hidden else "qwen3"


def render_module(model: ModelShape) -> str:
    """Return the text of the module that registers the shape."""
    base = select_base(model)
    package, kind = _ARGS[base]
    arguments = {"llama3": _llama3, "qwen3": _qwen3, "deepseek_v3": _deepseek_v3}[base](model)
    imports = [
        "from dataclasses import replace",
        "",
        f"from torchtitan.models.{base} import get_train_spec",
        f"from {package} import {kind}",
        *(["from torchtitan.models.moe import MoEArgs"] if model.experts else []),
        "from torchtitan.protocols.train_spec import register_train_spec",
    ]
    lines = [
        f'"""The shape of the model, registered as flavour {NAME} of {base}."""',
        "",
        *imports,
        "",
        f"SHAPE = {kind}(",
        *(f"    {name}={value}," for name, value in arguments.items()),
        ")",
        f'register_train_spec("{NAME}", replace(get_train_spec(), model_args={{"{NAME}": SHAPE}}))',
    ]
    return "\n".join(lines) + "\n"


def missing_of_model(model: ModelShape) -> Iterator[str]:
    """Yield the features of the model that torchtitan's models do not have."""
    base = select_base(model)
    shared = model.shared_ffn or model.shared_experts * model.expert_ffn
    details = {
        "an MLP of two matrices": not model.gated_mlp,
        "an encoder": model.encoder_layers,
        "a trained table of positions": model.learned_positions,
        "relative positions": model.relative_positions,
        "biases": any(model.has(name) for name in ("qkv_bias", "output_bias", "mlp_bias", "norm_bias")),
        "a bias of the output head": model.head_bias,
        "dropout": model.has("dropout"),
        "norms as wide as all heads for queries and keys": model.qk_norm and model.qk_norm_whole,
        "norms of queries and keys beside latent attention": model.qk_norm and base == "deepseek_v3",
        "an output head that reuses the embedding": model.tied_embeddings and base == "deepseek_v3",
        "a norm of the embedding": model.embedding_norm,
        f"{model.norms_per_layer} norms a layer": model.norms_per_layer != 2,
        "attention sinks": model.attention_sinks,
        "windows of attention": model.attention_window and model.windowed_layers,
        f"layers of {model.mixer}": model.mixer_layers,
        "layers that are an MLP alone": model.mlp_layers,
        "a gate of attention": model.attention_gate,
        "sparse attention": model.index_top_k,
        "a frozen model beside it": model.frozen_parameters,
        "attention that stores its scores": not model.flash_attention,
        "multi-token prediction": model.mtp_layers,
    }
    experts = {
        "layers without experts in this model": model.dense_layers and base == "qwen3",
        "layers without experts between the others": model.dense_layers and model.dense_interleaved,
        "a gate of the shared experts": model.shared_gate,
        "shared experts whose width is no multiple of an expert's": shared % model.expert_ffn if shared else False,
        "a limit on the tokens of an expert": model.capacity_factor,
    }
    yield from (name for name, there in details.items() if there)
    if model.experts:
        yield from (name for name, there in experts.items() if there)


def _llama3(model: ModelShape) -> dict[str, str]:
    """Return the arguments of ``TransformerModelArgs``.

    It has no inner width but computes one, a share of 8/3 of the width rounded up to ``multiple_of``: with the required
    width as the multiple, and half of it before rounding, the result is the required width.
    """
    before = max(int(8 * model.hidden / 3), 1)
    half = -(-model.ffn // 2) + 0.5
    return _plain(
        dim=model.hidden,
        n_layers=model.layers,
        n_heads=model.heads,
        n_kv_heads=model.kv_heads,
        vocab_size=model.vocab,
        multiple_of=model.ffn,
        ffn_dim_multiplier=round(half / before, 9),
        max_seq_len=model.seq,
    )


def _qwen3(model: ModelShape) -> dict[str, str]:
    """Return the arguments of ``Qwen3ModelArgs``."""
    arguments = _plain(
        dim=model.hidden,
        n_layers=model.layers,
        n_heads=model.heads,
        n_kv_heads=model.kv_heads,
        vocab_size=model.vocab,
        head_dim=model.head_dim,
        hidden_dim=model.ffn,
        qk_norm=model.qk_norm,
        max_seq_len=model.seq,
        enable_weight_tying=model.tied_embeddings,
    )
    if model.experts:
        arguments |= _plain(moe_enabled=True, moe_inter_dim=model.expert_ffn)
        arguments["moe_args"] = _moe(model, "softmax")
    return arguments


def _deepseek_v3(model: ModelShape) -> dict[str, str]:
    """Return the arguments of ``DeepSeekV3ModelArgs``; without experts all its layers are dense ones."""
    arguments = _plain(
        dim=model.hidden,
        inter_dim=model.ffn,
        moe_inter_dim=model.expert_ffn or model.ffn,
        n_layers=model.layers,
        n_dense_layers=model.dense_layers if model.experts else model.layers,
        n_heads=model.heads,
        vocab_size=model.vocab,
        q_lora_rank=model.q_lora_rank,
        kv_lora_rank=model.kv_lora_rank,
        qk_nope_head_dim=model.head_dim - model.qk_rope_dim,
        qk_rope_head_dim=model.qk_rope_dim,
        v_head_dim=model.v_head_dim,
        max_seq_len=model.seq,
    )
    if model.experts:
        arguments["moe_args"] = _moe(model, "sigmoid")
    return arguments


def _moe(model: ModelShape, score: str) -> str:
    """Return the call that makes ``MoEArgs``; the router's bias is what balances without a loss."""
    shared = (model.shared_ffn or model.shared_experts * model.expert_ffn) // model.expert_ffn
    arguments = _plain(
        num_experts=model.experts,
        num_shared_experts=shared,
        top_k=model.top_k,
        score_func=score,
        route_norm=True,
        score_before_experts=False,
        load_balance_coeff=1e-3 if model.router_bias else None,
    )
    return f"MoEArgs({', '.join(f'{name}={value}' for name, value in arguments.items())})"


def _plain(**values: str | float | bool | None) -> dict[str, str]:
    """Return values as Python writes them."""
    return {name: repr(value) for name, value in values.items()}


def render_toml(tables: Mapping[str, Mapping[str, object]]) -> str:
    """Return the text of named tables; an empty one is left out, and text becomes one printable ASCII line."""
    parts = []
    for name, table in tables.items():
        if table:
            parts.append("\n".join([f"[{name}]", *(f"{key} = {_value(value)}" for key, value in table.items())]))
    return "\n\n".join(parts) + "\n"


def _value(value: object) -> str:
    """Return one value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(one_line(value))
    if isinstance(value, Sequence):
        words = [_value(item) for item in value]
        if any(word.startswith("[") for word in words):
            return "[\n" + "".join(f"    {word},\n" for word in words) + "]"
        return f"[{', '.join(words)}]"
    raise TypeError(f"no TOML for {type(value).__name__}")


def limits_for(model: ModelShape) -> Limits:
    """Return the limits for a model: those that run as its Qwen 3 have no pipeline."""
    return LIMITS if select_base(model) in PIPELINED else replace(LIMITS, largest_pp=1)


def refusals(model: ModelShape, plan: Plan) -> tuple[str, ...]:
    """Return checks of torchtitan that the plan violates and that `LIMITS` cannot express."""
    return apply_checks(CHECKS, model, plan)


def build_settings(model: ModelShape, plan: Plan) -> Settings:
    """Return the TOML that expresses the plan, and the module that registers the model."""
    content = build_config(model, plan)
    return Settings(
        framework=LIMITS.name,
        release=RELEASE,
        files=(
            File(name=CONFIG, text=render_toml(content), content=content, option="--job.config_file"),
            File(name=f"{MODULE}.py", text=render_module(model), content={}),
        ),
        notes=tuple(_notes(model, plan)),
        missing=tuple(missing_of_model(model)) + _missing_of_plan(model, plan),
    )


def build_config(model: ModelShape, plan: Plan) -> dict[str, dict[str, object]]:
    """Return the tables of the configuration."""
    converter = _CONVERTERS.get(plan.precision)
    return {
        "job": {"description": f"{model.name}, as opsk plan wrote it"},
        "experimental": {"custom_import": MODULE},
        "model": {"name": NAME, "flavor": NAME, **({"converters": [converter]} if converter else {})},
        "optimizer": {"name": "AdamW"},
        "training": _training(model, plan),
        "parallelism": {**_axes(model, plan), **(_stages(model, plan) if plan.pp > 1 else {})},
        "activation_checkpoint": _recompute(plan),
        "compile": {"enable": plan.compiled, "components": ["model", "loss"]},
        "quantize.linear.float8": _float8(plan),
    }


def build_plan_settings(model: ModelShape, plan: Plan) -> dict[str, object]:
    """Return the settings of a plan by section and name."""
    config = build_config(model, plan)
    return {f"{section}.{name}": value for section in PLAN_SECTIONS for name, value in config[section].items()}


def _training(model: ModelShape, plan: Plan) -> dict[str, object]:
    """Return the batch, and the formats of states and products.

    With a pipeline the local batch is that of all micro-batches, which the schedule cuts; without one, each is a step
    of gradient accumulation.
    """
    local = plan.micro_batch * (plan.micro_batches if plan.pp > 1 else 1)
    low = "float32" if plan.precision is Precision.FP32 else "bfloat16"
    return {
        "seq_len": model.seq,
        "local_batch_size": local,
        "global_batch_size": plan.global_batch,
        "dtype": "bfloat16" if plan.states is States.PURE_16BIT else "float32",
        "mixed_precision_param": low,
        "mixed_precision_reduce": "float32",
        "enable_cpu_offload": plan.offload is Offload.OPTIMIZER_AND_WEIGHTS,
    }


def _axes(model: ModelShape, plan: Plan) -> dict[str, object]:
    """Return the sizes of the axes; states are sharded over dp_shard x cp."""
    shared = plan.shard_gpus or plan.dp * plan.cp
    copies = plan.dp if plan.sharding is Sharding.NONE else plan.dp * plan.cp // shared
    axes: dict[str, object] = {
        "data_parallel_replicate_degree": copies,
        "data_parallel_shard_degree": plan.dp // copies,
        "fsdp_reshard_after_forward": "always" if plan.sharding is Sharding.ZERO3 else "never",
        "tensor_parallel_degree": plan.tp,
        "enable_async_tensor_parallel": plan.tp_overlap,
        "context_parallel_degree": plan.cp,
        "pipeline_parallel_degree": plan.pp,
    }
    if model.experts:
        axes["expert_parallel_degree"] = plan.ep
        axes["expert_tensor_parallel_degree"] = expert_tensor_size(plan)
    return axes


def _stages(model: ModelShape, plan: Plan) -> dict[str, object]:
    """Return the schedule, and which layers each chunk holds."""
    stages: dict[str, object] = {
        "pipeline_parallel_schedule": _SCHEDULES.get((plan.schedule, plan.vpp > 1), "1F1B"),
        "pipeline_parallel_microbatch_size": plan.micro_batch,
    }
    if plan.first_stage_layers or plan.last_stage_layers:
        return {**stages, "module_fqns_per_model_part": _parts(model, plan)}
    return {
        **stages,
        "pipeline_parallel_layers_per_stage": model.layers // (plan.pp * plan.vpp),
        "pipeline_parallel_first_stage_less_layers": 0,
        "pipeline_parallel_last_stage_less_layers": 0,
    }


def _parts(model: ModelShape, plan: Plan) -> list[list[str]]:
    """Return the modules of each chunk by name."""
    parts: list[list[str]] = []
    first = 0
    for count in chunk_layers(model, plan):
        parts.append([f"layers.{index}" for index in range(first, first + count)])
        first += count
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "output"]
    return parts


def _recompute(plan: Plan) -> dict[str, object]:
    """Return the recomputation; selective by operation stores the outputs of matrix products."""
    if plan.recompute is Recompute.SELECTIVE:
        return {"mode": "selective", "selective_ac_option": "op"}
    return {"mode": "full" if plan.recompute is Recompute.FULL else "none"}


def _float8(plan: Plan) -> dict[str, object]:
    """Return the table of FP8 with a scale a tensor."""
    if plan.precision is not Precision.FP8_CURRENT:
        return {}
    sharded = plan.dp * plan.cp > 1 and plan.sharding is not Sharding.NONE
    return {
        "enable_fsdp_float8_all_gather": sharded,
        "precompute_float8_dynamic_scale_for_fsdp": sharded,
        "filter_fqns": ["output"],
    }


def _whole_models(model: ModelShape, plan: Plan) -> Iterator[str]:
    if plan.pp > 1 and select_base(model) not in PIPELINED:
        yield f"pp {plan.pp}: this shape is one of its Qwen 3 models, which have no pipeline"


def _shard_groups(model: ModelShape, plan: Plan) -> Iterator[str]:
    if plan.shard_gpus and plan.sharding is not Sharding.NONE and plan.shard_gpus % plan.cp:
        yield f"FSDP shards over cp as a whole: shard_gpus {plan.shard_gpus} is not a multiple of cp {plan.cp}"


def _split_tokens(model: ModelShape, plan: Plan) -> Iterator[str]:
    if (plan.tp > 1 or plan.cp > 1) and model.seq % (plan.tp * 2 * plan.cp):
        yield f"seq {model.seq} is not a multiple of tp {plan.tp} x 2 x cp {plan.cp}"


def _cast_by_fsdp(model: ModelShape, plan: Plan) -> Iterator[str]:
    if plan.dp * plan.cp == 1 and plan.tp * plan.pp > 1 and plan.states is States.AUTOCAST and _is_low(plan):
        yield f"precision {plan.precision} with fp32 states needs dp or cp beside tp and pp: FSDP brings it about"


def _order_stages(model: ModelShape, plan: Plan) -> Iterator[str]:
    if (plan.schedule, plan.vpp > 1) not in _SCHEDULES and plan.pp > 1:
        yield f"schedule {plan.schedule} with vpp {plan.vpp}"
    if plan.compiled and plan.pp > 1 and _is_v(plan):
        yield f"schedule {plan.schedule} cannot be combined with compiled"


def _write_parts(model: ModelShape, plan: Plan) -> Iterator[str]:
    if plan.vpp > 1 and plan.pp > 1 and (plan.first_stage_layers or plan.last_stage_layers) and _is_v(plan):
        yield "uneven stages are not written for V-shaped schedules"


def _overlap_tensor(model: ModelShape, plan: Plan) -> Iterator[str]:
    if plan.tp_overlap and not plan.compiled:
        yield "tp_overlap needs compiled"


CHECKS = (
    Check(source="torchtitan/models/qwen3", find=_whole_models),
    Check(source="torchtitan/distributed/parallel_dims.py", find=_shard_groups),
    Check(source="torchtitan/distributed/parallel_dims.py: seq_len_divisor", find=_split_tokens),
    Check(source="torchtitan/distributed/utils.py: maybe_enable_amp", find=_cast_by_fsdp),
    Check(source="torch/distributed/pipelining/schedules.py", find=_order_stages),
    Check(source="torchtitan/config/job_config.py: module_fqns_per_model_part", find=_write_parts),
    Check(source="torchtitan/distributed/tensor_parallel.py: maybe_enable_async_tp", find=_overlap_tensor),
)
"""What torchtitan refuses beyond `LIMITS`."""


def _is_low(plan: Plan) -> bool:
    """Return whether products run in fewer than 32 bits."""
    return plan.precision is not Precision.FP32


def _is_v(plan: Plan) -> bool:
    """Return whether the last chunk lies on the first stage."""
    return plan.schedule is Schedule.ZERO_BUBBLE_V


def _notes(model: ModelShape, plan: Plan) -> Iterator[str]:
    """Yield caveats."""
    yield "torchtitan reads TOML up to v0.2.2; later it wants the same fields from a Python function"
    if plan.precision in (Precision.FP8_CURRENT, Precision.MXFP8) and not plan.compiled:
        yield f"{plan.precision} is slow in torchtitan without compile.enable"
    if model.experts and not model.router_bias:
        yield "its routers have no loss that balances experts: without load_balance_coeff they may drift"


def _missing_of_plan(model: ModelShape, plan: Plan) -> tuple[str, ...]:
    """Return the plan's features without a field that change the training or its speed."""
    if plan.lora_rank or plan.frozen_fraction:
        return ("frozen weights and LoRA adapters: torchtitan.train trains all",)
    return ()
