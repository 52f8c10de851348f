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
from opsk.frameworks.limits import ExpertTensor, Limits, SequenceParallel
from opsk.frameworks.options import File, Settings, one_line
from opsk.frameworks.script import Place, Program
from opsk.frameworks.torchtitan_model import MODULE, NAME, PIPELINED, missing_of_model, render_module, select_base
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
)
"""etp is tp or 1 (parallel_dims.py); tensor parallelism always shards norms over the sequence, and DDP combines with no
other axis (parallelize.py); ZeRO-2 is ``fsdp_reshard_after_forward = "never"``, ZeRO-3 ``"always"``. Of the schedules
of ``torch.distributed.pipelining`` those that `Schedule` names: DualPipeV is not DualPipe, and the interleaved
zero-bubble schedule is not ZB-H1. Activations are
checkpointed by operation or for all layers, not for some of a stage.
"""


def limits_for(model: ModelShape) -> Limits:
    """Return the limits for a model: those that run as its Qwen 3 have no pipeline."""
    return LIMITS if select_base(model) in PIPELINED else replace(LIMITS, largest_pp=1)


_SCHEDULES = {
    (Schedule.ONE_F_ONE_B, False): "1F1B",
    (Schedule.ONE_F_ONE_B, True): "Interleaved1F1B",
    (Schedule.GPIPE, False): "GPipe",
    (Schedule.GPIPE, True): "LoopedBFS",
    (Schedule.ZERO_BUBBLE_V, True): "ZBVZeroBubble",
}
_CONVERTERS = {Precision.FP8_CURRENT: "quantize.linear.float8", Precision.MXFP8: "quantize.linear.mx"}


def refusals(model: ModelShape, plan: Plan) -> tuple[str, ...]:
    """Return checks of torchtitan that the plan violates and that `LIMITS` cannot express."""
    return tuple(_refusals(model, plan))


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


PROGRAM = Program(
    places=(
        Place(name="HF_ASSETS_PATH", what="a folder with the tokenizer's files"),
        Place(name="DATASET", what="the name of a dataset that torchtitan knows", default="c4"),
        Place(name="TRAIN_STEPS", what="steps in all", default="1000"),
        Place(name="LEARNING_RATE", what="its highest", default="3.0e-4"),
    ),
    setup=('export PYTHONPATH="$RUN_DIR${PYTHONPATH:+:$PYTHONPATH}"',),
    command=(
        '-m torchtitan.train --job.dump_folder "$RUN_DIR/outputs"',
        '--model.hf_assets_path "$HF_ASSETS_PATH" --training.dataset "$DATASET"',
        '--training.steps "$TRAIN_STEPS" --optimizer.lr "$LEARNING_RATE"',
    ),
)


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


def _refusals(model: ModelShape, plan: Plan) -> Iterator[str]:
    """Yield the checks that the plan breaks."""
    base = select_base(model)
    if plan.pp > 1 and base not in PIPELINED:
        yield f"pp {plan.pp}: this shape is one of its Qwen 3 models, which have no pipeline"
    if plan.shard_gpus and plan.sharding is not Sharding.NONE and plan.shard_gpus % plan.cp:
        yield f"FSDP shards over cp as a whole: shard_gpus {plan.shard_gpus} is not a multiple of cp {plan.cp}"
    if (plan.tp > 1 or plan.cp > 1) and model.seq % (plan.tp * 2 * plan.cp):
        yield f"seq {model.seq} is not a multiple of tp {plan.tp} x 2 x cp {plan.cp}"
    if plan.dp * plan.cp == 1 and plan.tp * plan.pp > 1 and plan.states is States.AUTOCAST and _is_low(plan):
        yield f"precision {plan.precision} with fp32 states needs dp or cp beside tp and pp: FSDP brings it about"
    if (plan.schedule, plan.vpp > 1) not in _SCHEDULES and plan.pp > 1:
        yield f"schedule {plan.schedule} with vpp {plan.vpp}"
    if plan.tp_overlap and not plan.compiled:
        yield "tp_overlap needs compiled"
    if plan.vpp > 1 and plan.pp > 1 and (plan.first_stage_layers or plan.last_stage_layers) and _is_v(plan):
        yield "uneven stages are not written for V-shaped schedules"
    if plan.compiled and plan.pp > 1 and _is_v(plan):
        yield f"schedule {plan.schedule} cannot be combined with compiled (torch/distributed/pipelining/schedules.py)"


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
