"""Takes over the LoRA adapters that a script says are trained, and what their framework settles beside them."""

from __future__ import annotations

from opsk.workload.defaults import Filling
from opsk.workload.plan import AdapterFormat, LoraTargets, Precision, Sharding, Software, States
from opsk.workload.software_defaults import LATEST_MONTH, defaults_of

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
    bits, rank = _number(options.get("adapters.base_bits", "")), _number(options.get("adapters.rank", ""))
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


def _number(text: str) -> int:
    """Return a small number, 0 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else 0
