"""Fills in the settings of a plan beyond its axes from a script's framework and options.

A setting that is not stated keeps the default of `Plan`: an even layout, Adam, nothing in host memory.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from opsk.workload.defaults import MEGATRON_BRIDGE, MEGATRON_DEEPSPEED, MEGATRON_LM, Filling
from opsk.workload.plan import (
    AdapterFormat,
    LoraTargets,
    Loss,
    MoeDispatcher,
    MoeGemm,
    Offload,
    Plan,
    Precision,
    QkvLayout,
    Recompute,
    Sharding,
    Software,
    States,
)
from opsk.workload.rules import count_ends
from opsk.workload.software_defaults import LATEST_MONTH, find_defaults

_MAX_CAPACITY = 1000.0


def fill_experts(filling: Filling) -> None:
    """Fill in dispatcher, products, permutation, overlap and capacity of a model with experts."""
    framework = filling.workload.framework
    if not filling.get("model.experts") or framework not in (MEGATRON_LM, MEGATRON_BRIDGE):
        return
    is_recipe = framework == MEGATRON_BRIDGE
    dispatcher = _dispatcher(filling, is_recipe=is_recipe)
    filling.values["plan.moe_dispatcher"] = dispatcher
    filling.values["plan.moe_gemm"] = _gemm(filling, is_recipe=is_recipe)
    filling.values["plan.moe_permute_fusion"] = _is_on(filling, "moe.permute_fusion", otherwise=is_recipe)
    filling.values["plan.ep_overlap"] = _is_on(filling, "overlap.ep", otherwise=False)
    capacity = _capacity(filling.options.get("moe.capacity_factor", ""))
    if capacity and _is_on(filling, "moe.pads", otherwise=False):
        filling.values["model.capacity_factor"] = capacity


def _dispatcher(filling: Filling, *, is_recipe: bool) -> MoeDispatcher:
    """Return the dispatcher of tokens."""
    dispatcher = filling.options.get("moe.dispatcher", "")
    backend = filling.options.get("moe.flex_backend", "")
    if dispatcher == "flex" or (is_recipe and backend):
        return MoeDispatcher.HYBRIDEP if backend == "hybridep" else MoeDispatcher.DEEPEP
    if dispatcher in ("alltoall", "alltoall_seq"):
        return MoeDispatcher.ALLTOALL
    return MoeDispatcher.ALLTOALL if is_recipe and not dispatcher else MoeDispatcher.ALLGATHER


def _gemm(filling: Filling, *, is_recipe: bool) -> MoeGemm:
    """Return the implementation of the products of experts."""
    is_grouped = _is_on(filling, "moe.grouped_gemm", otherwise=is_recipe)
    return MoeGemm.GROUPED if is_grouped else MoeGemm.SEQUENTIAL


def _is_on(filling: Filling, option: str, *, otherwise: bool) -> bool:
    """Return whether an option is switched on."""
    text = filling.options.get(option, "").lower()
    return otherwise if text not in ("true", "false") else text == "true"


def _capacity(text: str) -> float:
    """Return a capacity factor, 0 where it is invalid."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) and 0 < value <= _MAX_CAPACITY else 0.0


LORA = "lora"
ENGINE, MEGATRON_ENGINE = "engine", "megatron"
"""Option of a workload whose framework runs on the engine of another, and the value for Megatron Core."""
_MAX_DIGITS = 4
_BASE_BITS = 16
_FLAGS = ("lora_dropout", "keeps_base_inputs", "quantised_head", "upcast_base")
_QUANTISED_ONLY = frozenset({"keeps_base_inputs", "quantised_head", "upcast_base"})
_BASE_16BIT = "the frozen base is kept as it was loaded, in 16 bits or fewer"


def fill_adapters(filling: Filling) -> None:
    """Fill in rank, layers and formats of adapters and of their base, by the framework's latest release.

    Options that are read: ``adapters`` (``lora``), ``adapters.rank``, ``adapters.targets`` (words of `LoraTargets`),
    ``adapters.dropout`` (``true`` or ``false``) and ``adapters.base_bits`` (4 or 8; 16 where it is left out).
    """
    options = filling.options
    if options.get("adapters") != LORA:
        return
    if filling.get("plan.precision") in (Precision.FP32, Precision.TF32):
        filling.need("plan.base_bits")
        return
    is_sharded = filling.get("plan.sharding") is Sharding.ZERO3
    # "trl + accelerate" and "hf-trainer+deepspeed" have adapters as their first part has them
    framework = (filling.workload.framework or "").partition("+")[0].strip()
    defaults = find_defaults(framework, gpu="", month=LATEST_MONTH, sharded=is_sharded)
    bits, rank = (
        _parse_number(options.get("adapters.base_bits", "")),
        _parse_number(options.get("adapters.rank", "")),
    )
    values = filling.values
    values["plan.base_bits"] = bits or _BASE_BITS
    if rank:
        values["plan.lora_rank"] = rank
    elif usual := defaults.get("lora_rank"):
        filling.assume("plan.lora_rank", lambda: (usual.value, usual.why))
    else:
        filling.need("plan.lora_rank")
    if (targets := options.get("adapters.targets")) in set(LoraTargets):
        values["plan.lora_targets"] = LoraTargets(targets)
    elif default := defaults.get("lora_targets"):
        filling.assume("plan.lora_targets", lambda: (LoraTargets(default.value), default.why))
    has_own_format = "adapter_format" in defaults and not _is_pure(filling)
    values["plan.adapter_format"] = AdapterFormat(defaults["adapter_format"].value if has_own_format else "base")
    for name in _FLAGS:
        if name in defaults and (bits or name not in _QUANTISED_ONLY):
            values[f"plan.{name}"] = bool(defaults[name].value)
    if dropout := options.get("adapters.dropout"):
        values["plan.lora_dropout"] = dropout == "true"
    if filling.get("plan.software") is not Software.DEEPSPEED:
        values.pop("plan.states", None)
        filling.assume("plan.states", lambda: (States.PURE_16BIT, _BASE_16BIT))


def _is_pure(filling: Filling) -> bool:
    """Return whether LLaMA-Factory stores all in 16 bits (``pure_bf16``); elsewhere that is for the base alone."""
    return filling.workload.framework == "llama-factory" and "weights.dtype" in filling.options


def _parse_number(text: str) -> int:
    """Return a small number, 0 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else 0


_SOFTWARE = {
    MEGATRON_LM: Software.MEGATRON_CORE,
    MEGATRON_BRIDGE: Software.MEGATRON_CORE,
    "megatron-core": Software.MEGATRON_CORE,
    "nemo": Software.MEGATRON_CORE,
    "bionemo": Software.MEGATRON_CORE,
    MEGATRON_DEEPSPEED: Software.DEEPSPEED,
    "gpt-neox": Software.DEEPSPEED,
}
_MAX_OPTION_DIGITS = 6
_MODULE_SETTINGS = (
    *("fused_norms", "keeps_gathered", "reduces_16bit", "expandable_segments"),
    *("gathers_fp32", "keeps_kv_cache", "accumulates_unsharded", "flat_adapters"),
    *("gathers_logits", "bare_loop", "distributed_tensors"),
)
_FP8_RECIPES = {
    "tensorwise": Precision.FP8_CURRENT,
    "rowwise": Precision.FP8_ROWWISE,
    "blockwise": Precision.FP8_BLOCK,
    "mxfp8": Precision.MXFP8,
}
"""``--fp8-recipe`` of Megatron Core; what is left out is delayed scaling."""


def fill_settings(filling: Filling) -> None:
    """Fill in the software, the formats of its states, and its options for stages and memory."""
    framework = filling.workload.framework
    if framework:
        is_megatron = filling.options.get(ENGINE) == MEGATRON_ENGINE
        software = Software.MEGATRON_CORE if is_megatron else _SOFTWARE.get(framework, Software.PYTORCH)
        filling.values.setdefault("plan.software", software)
    fill_adapters(filling)
    filling.assume("plan.states", lambda: _states(filling))
    if filling.options.get("optimizer.offload") == "cpu" and not filling.has("plan.offload"):
        filling.values["plan.offload"] = Offload.OPTIMIZER
    elif filling.options.get("activations.offload") == "cpu" and not filling.has("plan.offload"):
        filling.values["plan.offload"] = Offload.ACTIVATIONS
    if filling.get("plan.recompute") is Recompute.FULL and filling.options.get("recompute.method") == "block":
        # "uniform" recomputes all layers, so many at a time; "block" so many of each chunk
        filling.values["plan.recompute_layers"] = _number(filling, "recompute.layers") * (filling.get("plan.vpp") or 1)
    if filling.options.get("overlap.tp") == "true" and filling.get("plan.sequence_parallel"):
        filling.values["plan.tp_overlap"] = True
    if filling.get("plan.precision") is Precision.FP8 and (
        recipe := _FP8_RECIPES.get(_get_option(filling, "fp8.recipe"))
    ):
        filling.values["plan.precision"] = recipe
    if filling.get("model.experts") and (etp := _number(filling, "expert.tensor")):
        filling.values["plan.etp"] = etp
    fill_experts(filling)
    _split_states(filling)
    _set_end_stages(filling)
    _take_modules(filling)


def _get_option(filling: Filling, option: str) -> str:
    """Return an option, empty where it is not given."""
    return filling.options.get(option, "")


def _take_modules(filling: Filling) -> None:
    """Set what the framework's own modules and its FSDP store, by its latest release."""
    framework = filling.workload.framework
    if not framework or filling.get("plan.software") is not Software.PYTORCH:
        return
    is_sharded = filling.get("plan.sharding") is Sharding.ZERO3
    defaults = find_defaults(framework, gpu="", month=LATEST_MONTH, sharded=is_sharded)
    for name in _MODULE_SETTINGS:
        if name in defaults:
            filling.values.setdefault(f"plan.{name}", defaults[name].value)
    if layout := defaults.get("qkv_layout"):
        filling.values.setdefault("plan.qkv_layout", QkvLayout(layout.value))
    if defaults["loss_kernel"].value == Loss.FP32_KERNEL:
        filling.values.setdefault("plan.loss", Loss.FP32_KERNEL)


def adapt_to_sharding(framework: str, requested: Plan, plan: Plan) -> Plan:
    """Return a plan near a requested one with what the framework does otherwise because its weights are sharded.

    accelerate adds up the gradients of several micro-batches whole under FSDP, for example, and not without it.
    """
    is_sharded = plan.sharding is Sharding.ZERO3
    if plan.software is not Software.PYTORCH or is_sharded == (requested.sharding is Sharding.ZERO3):
        return plan
    before, after = (
        find_defaults(framework, gpu="", month=LATEST_MONTH, sharded=sharded)
        for sharded in (not is_sharded, is_sharded)
    )
    changed: dict[str, Any] = {
        name: after[name].value if name in after else Plan.__dataclass_fields__[name].default
        for name in _MODULE_SETTINGS
        if before.get(name) != after.get(name)
    }
    return replace(plan, **changed)


def _split_states(filling: Filling) -> None:
    """Set how many replicas share states, where several optimizer instances are requested (HSDP)."""
    copies = _number(filling, "optimizer.instances")
    dp, cp = filling.get("plan.dp"), filling.get("plan.cp")
    per_node = filling.get("plan.gpus_per_node")
    if _get_option(filling, "fsdp.hybrid") == "true" and per_node and dp and cp and filling.get("plan.tp") == 1:
        # inside of every node
        copies = copies or dp * cp // per_node
    if copies < 2 or not dp or not cp or filling.get("plan.sharding") is Sharding.NONE:
        return
    if dp * cp % copies == 0:
        filling.values["plan.shard_gpus"] = dp * cp // copies


def _states(filling: Filling) -> tuple[States, str] | None:
    """Return the formats of weights, gradients and optimizer states, and why."""
    framework = filling.workload.framework
    if filling.get("plan.precision") in (Precision.FP32, Precision.TF32):
        return States.AUTOCAST, "all is in fp32"
    if filling.options.get("optimizer.main_grads") in ("bf16", "fp16"):
        source = "grad_reduce_in_fp32 is off" if framework == MEGATRON_BRIDGE else "--main-grads-dtype"
        return States.MIXED_16BIT_GRADIENTS, f"gradients are kept in 16 bits ({source})"
    if framework == MEGATRON_DEEPSPEED:
        return States.MIXED_16BIT_GRADIENTS, "DeepSpeed's engine keeps 16-bit gradients"
    if framework and framework not in _SOFTWARE and filling.options.get(ENGINE) != MEGATRON_ENGINE:
        return States.AUTOCAST, f"{framework} keeps weights in fp32 and computes in 16 bits unless told otherwise"
    return States.MIXED, "16-bit weights, fp32 gradients and fp32 optimizer states"


def _set_end_stages(filling: Filling) -> None:
    """Set the stated layers of the first and last stage, where layers remain for the other stages."""
    layers, pp = filling.get("model.layers"), filling.get("plan.pp")
    if not layers or not pp or pp == 1:
        return
    counted = {} if "pipeline.partition" in filling.options else count_ends(filling.options)
    if counted and (layers + sum(counted.values())) % pp == 0:
        per_stage = (layers + sum(counted.values())) // pp
        requested = {name: per_stage - 1 if counts else 0 for name, counts in counted.items()}
    else:
        requested = {name: _number(filling, f"pipeline.{name}_layers") for name in ("first", "last")}
    others = pp - sum(count > 0 for count in requested.values())
    remaining = layers - sum(requested.values())
    if remaining < others or (remaining and not others):
        return
    for name, count in requested.items():
        filling.values[f"plan.{name}_stage_layers"] = count


def _number(filling: Filling, option: str) -> int:
    """Return an option as a number, 0 where it is not a number."""
    text = filling.options.get(option, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_OPTION_DIGITS else 0
