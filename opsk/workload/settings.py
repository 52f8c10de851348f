"""Which settings of a plan beyond its axes follow from a script's framework and options?

What is not said here keeps the defaults of `Plan`: an even layout, Adam, nothing kept in host memory.
"""

from __future__ import annotations

import math

from opsk.workload.defaults import MEGATRON_BRIDGE, MEGATRON_DEEPSPEED, MEGATRON_LM, Filling
from opsk.workload.plan import (
    AdapterFormat,
    LoraTargets,
    Loss,
    MoeDispatcher,
    MoeGemm,
    Offload,
    Precision,
    QkvLayout,
    Recompute,
    Sharding,
    Software,
    States,
)
from opsk.workload.software_defaults import LATEST_MONTH, defaults_of

_MOST_CAPACITY = 1000.0


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
    """Return who dispatches tokens."""
    said = filling.options.get("moe.dispatcher", "")
    backend = filling.options.get("moe.flex_backend", "")
    if said == "flex" or (is_recipe and backend):
        return MoeDispatcher.HYBRIDEP if backend == "hybridep" else MoeDispatcher.DEEPEP
    if said in ("alltoall", "alltoall_seq"):
        return MoeDispatcher.ALLTOALL
    return MoeDispatcher.ALLTOALL if is_recipe and not said else MoeDispatcher.ALLGATHER


def _gemm(filling: Filling, *, is_recipe: bool) -> MoeGemm:
    """Return how the products of experts run."""
    is_grouped = _is_on(filling, "moe.grouped_gemm", otherwise=is_recipe)
    return MoeGemm.GROUPED if is_grouped else MoeGemm.SEQUENTIAL


def _is_on(filling: Filling, option: str, *, otherwise: bool) -> bool:
    """Return whether an option is switched on."""
    said = filling.options.get(option, "").lower()
    return otherwise if said not in ("true", "false") else said == "true"


def _capacity(text: str) -> float:
    """Return a capacity factor, 0 where it is none."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) and 0 < value <= _MOST_CAPACITY else 0.0


LORA = "lora"
_MAX_DIGITS = 4
_BASE_BITS = 16
_FLAGS = ("lora_dropout", "keeps_base_inputs", "quantised_head", "upcast_base")
_OF_QUANTISED = frozenset({"keeps_base_inputs", "quantised_head", "upcast_base"})
_KEPT_16BIT = "the frozen base is kept as it was loaded, in 16 bits or fewer"


def fill_adapters(filling: Filling) -> None:
    """Fill in rank, layers and formats of adapters and of their base, as the framework's latest release has them.

    Options that are read: ``adapters`` (``lora``), ``adapters.rank``, ``adapters.targets`` (words of `LoraTargets`),
    ``adapters.dropout`` (``true`` or ``false``) and ``adapters.base_bits`` (4 or 8; 16 where it is left out).
    """
    options = filling.options
    if options.get("adapters") != LORA:
        return
    if filling.get("plan.precision") is Precision.FP32:
        filling.need("plan.base_bits")
        return
    is_sharded = filling.get("plan.sharding") is Sharding.ZERO3
    # "trl + accelerate" and "hf-trainer+deepspeed" have adapters as their first part has them
    framework = (filling.workload.framework or "").partition("+")[0].strip()
    found = defaults_of(framework, gpu="", month=LATEST_MONTH, sharded=is_sharded)
    bits, rank = (
        _parse_number(options.get("adapters.base_bits", "")),
        _parse_number(options.get("adapters.rank", "")),
    )
    values = filling.values
    values["plan.base_bits"] = bits or _BASE_BITS
    if rank:
        values["plan.lora_rank"] = rank
    elif usual := found.get("lora_rank"):
        filling.assume("plan.lora_rank", lambda: (usual.value, usual.why))
    else:
        filling.need("plan.lora_rank")
    if (targets := options.get("adapters.targets")) in set(LoraTargets):
        values["plan.lora_targets"] = LoraTargets(targets)
    elif default := found.get("lora_targets"):
        filling.assume("plan.lora_targets", lambda: (LoraTargets(default.value), default.why))
    has_own_format = "adapter_format" in found and not _is_pure(filling)
    values["plan.adapter_format"] = AdapterFormat(found["adapter_format"].value if has_own_format else "base")
    for name in _FLAGS:
        if name in found and (bits or name not in _OF_QUANTISED):
            values[f"plan.{name}"] = bool(found[name].value)
    if dropout := options.get("adapters.dropout"):
        values["plan.lora_dropout"] = dropout == "true"
    if filling.get("plan.software") is not Software.DEEPSPEED:
        values.pop("plan.states", None)
        filling.assume("plan.states", lambda: (States.PURE_16BIT, _KEPT_16BIT))


def _is_pure(filling: Filling) -> bool:
    """Tell whether LLaMA-Factory keeps all in 16 bits (``pure_bf16``); elsewhere that option is of the base alone."""
    return filling.workload.framework == "llama-factory" and "weights.dtype" in filling.options


def _parse_number(text: str) -> int:
    """Return a small number, 0 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else 0


_SOFTWARE = {
    MEGATRON_LM: Software.MEGATRON_CORE,
    MEGATRON_BRIDGE: Software.MEGATRON_CORE,
    "nemo": Software.MEGATRON_CORE,
    "bionemo": Software.MEGATRON_CORE,
    MEGATRON_DEEPSPEED: Software.DEEPSPEED,
    "gpt-neox": Software.DEEPSPEED,
}
_MOST_DIGITS = 6
_MODULE_SETTINGS = ("fused_norms", "keeps_gathered", "reduces_16bit", "expandable_segments")
_FP8_RECIPES = {
    "tensorwise": Precision.FP8_CURRENT,
    "rowwise": Precision.FP8_ROWWISE,
    "blockwise": Precision.FP8_BLOCK,
    "mxfp8": Precision.MXFP8,
}
"""``--fp8-recipe`` of Megatron Core; what is left out is delayed scaling."""


def fill_settings(filling: Filling) -> None:
    """Fill in the software, the formats of its states, and what its options say of stages and memory."""
    framework = filling.workload.framework
    if framework:
        filling.values.setdefault("plan.software", _SOFTWARE.get(framework, Software.PYTORCH))
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
    if filling.get("plan.precision") is Precision.FP8 and (recipe := _FP8_RECIPES.get(_said(filling, "fp8.recipe"))):
        filling.values["plan.precision"] = recipe
    if filling.get("model.experts") and (etp := _number(filling, "expert.tensor")):
        filling.values["plan.etp"] = etp
    fill_experts(filling)
    _split_states(filling)
    _lay_out(filling)
    _take_modules(filling)


def _said(filling: Filling, option: str) -> str:
    """Return an option's word, empty where it is not given."""
    return filling.options.get(option, "")


def _take_modules(filling: Filling) -> None:
    """Take over what the framework's own modules and its FSDP keep, as its latest release has it."""
    framework = filling.workload.framework
    if not framework or filling.get("plan.software") is not Software.PYTORCH:
        return
    found = defaults_of(framework, gpu="", month=LATEST_MONTH)
    for name in _MODULE_SETTINGS:
        if name in found:
            filling.values.setdefault(f"plan.{name}", found[name].value)
    if layout := found.get("qkv_layout"):
        filling.values.setdefault("plan.qkv_layout", QkvLayout(layout.value))
    if found["loss_kernel"].value == Loss.FP32_KERNEL:
        filling.values.setdefault("plan.loss", Loss.FP32_KERNEL)


def _split_states(filling: Filling) -> None:
    """Take over how many replicas share states, where several instances of them are asked for (HSDP)."""
    copies = _number(filling, "optimizer.instances")
    dp, cp = filling.get("plan.dp"), filling.get("plan.cp")
    per_node = filling.get("plan.gpus_per_node")
    if _said(filling, "fsdp.hybrid") == "true" and per_node and dp and cp and filling.get("plan.tp") == 1:
        # inside of every node
        copies = copies or dp * cp // per_node
    if copies < 2 or not dp or not cp or filling.get("plan.sharding") is Sharding.NONE:
        return
    if dp * cp % copies == 0:
        filling.values["plan.shard_gpus"] = dp * cp // copies


def _states(filling: Filling) -> tuple[States, str] | None:
    """Return in which formats weights, gradients and optimizer states are kept; ``None`` is as `Plan` has it."""
    framework = filling.workload.framework
    if filling.get("plan.precision") is Precision.FP32:
        return States.AUTOCAST, "all is in fp32"
    if filling.options.get("optimizer.main_grads") in ("bf16", "fp16"):
        return States.MIXED_16BIT_GRADIENTS, "gradients are kept in 16 bits (--main-grads-dtype)"
    if framework == MEGATRON_DEEPSPEED:
        return States.MIXED_16BIT_GRADIENTS, "DeepSpeed's engine keeps 16-bit gradients"
    if framework and framework not in _SOFTWARE:
        return States.AUTOCAST, f"{framework} keeps weights in fp32 and computes in 16 bits unless told otherwise"
    return States.MIXED, "16-bit weights, fp32 gradients and fp32 optimizer states"


def _lay_out(filling: Filling) -> None:
    """Take the layers of the first and last stage as they are stated, where any are left for the other stages."""
    layers, pp = filling.get("model.layers"), filling.get("plan.pp")
    if not layers or not pp or pp == 1:
        return
    asked = {name: _number(filling, f"pipeline.{name}_layers") for name in ("first", "last")}
    others = pp - sum(count > 0 for count in asked.values())
    left = layers - sum(asked.values())
    if left < others or (left and not others):
        return
    for name, count in asked.items():
        filling.values[f"plan.{name}_stage_layers"] = count


def _number(filling: Filling, option: str) -> int:
    """Return an option as a number, 0 where it is none."""
    text = filling.options.get(option, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else 0
