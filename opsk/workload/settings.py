"""Which settings of a plan beyond its axes follow from a script's framework and options?

What is not said here keeps the defaults of `Plan`: an even layout, Adam, nothing kept in host memory.
"""

from __future__ import annotations

from opsk.workload.adapter_settings import fill_adapters
from opsk.workload.defaults import MEGATRON_BRIDGE, MEGATRON_DEEPSPEED, MEGATRON_LM, Filling
from opsk.workload.expert_settings import fill_experts
from opsk.workload.plan import Loss, Offload, Precision, QkvLayout, Recompute, Sharding, Software, States
from opsk.workload.software_defaults import LATEST_MONTH, defaults_of

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
