"""Fills in the settings of a plan that concern recomputation, formats of states, and host memory.

What changes memory and is not predicted is listed among the assumptions, with its value and why.
"""

from __future__ import annotations

import re
from typing import Any

from opsk.workload.defaults import MEGATRON_BRIDGE, MEGATRON_LM, Assumption, Filling
from opsk.workload.plan import (
    Loss,
    Offload,
    OffloadModule,
    Optimizer,
    OptimizerStep,
    Precision,
    Recompute,
    RecomputeModule,
    Sharding,
    Software,
    StateFormat,
    States,
    sorted_words,
)

UNMODELLED = "unmodelled."
"""Options with this prefix name a flag, as ``value: why``, that changes memory and is not modelled."""
_WIDE = (Precision.FP32, Precision.TF32)
_FP8 = (Precision.FP8, Precision.FP8_CURRENT, Precision.FP8_BLOCK, Precision.MXFP8)
_FRACTION = re.compile(r"[0-9]*\.?[0-9]+|[0-9]+\.", re.ASCII)
_FORMATS = {"bf16": StateFormat.BF16, "fp16": StateFormat.FP16, "fp8": StateFormat.FP8}


def fill_memory(filling: Filling) -> None:
    """Set modules, formats, offloading and kernels; list what is not modelled."""
    _take_modules(filling)
    _take_fp8_weights(filling)
    _take_formats(filling)
    _take_offload(filling)
    _take_kernels(filling)
    if (layers := _get_option(filling, "mtp.layers")).isascii() and layers.isdigit() and len(layers) < 4:
        filling.values["model.mtp_layers"] = int(layers)
    for name, text in filling.options.items():
        if name.startswith(UNMODELLED):
            value, _, why = text.partition(": ")
            note_unmodelled(filling, name.removeprefix(UNMODELLED), value, why)


def _take_kernels(filling: Filling) -> None:
    """Set the loss kernel, the optimizer and how it steps, and whether modules are compiled."""
    kernel = _get_option(filling, "loss.kernel")
    if _get_option(filling, "loss.fusion") == "true" and kernel in ("", "native"):
        filling.values["plan.loss"] = Loss.MEGATRON_FUSED
    elif kernel == "chunked":
        filling.values["plan.loss"] = Loss.CHUNKED
    elif kernel == "fused":
        filling.values["plan.loss"] = Loss.FUSED
    if (step := _get_option(filling, "optimizer.step")) in set(OptimizerStep):
        filling.values["plan.optimizer_step"] = OptimizerStep(step)
    if (optimizer := _get_option(filling, "optimizer.keeps")) in set(Optimizer):
        filling.values["plan.optimizer"] = Optimizer(optimizer)
    if _get_option(filling, "compiled") == "true":
        filling.values["plan.compiled"] = True


def note_unmodelled(filling: Filling, field: str, value: Any, why: str) -> None:
    """List an option that is not modelled."""
    filling.assumed.append(Assumption(field=field, value=value, why=why))


def parse_fraction(text: str, *, maximum: float = 1.0) -> float | None:
    """Return a number from 0 to ``maximum``; ``None`` for anything else."""
    if len(text) > 20 or not _FRACTION.fullmatch(text):
        return None
    value = float(text)
    return value if value <= maximum else None


def _get_option(filling: Filling, option: str) -> str:
    return filling.options.get(option, "")


def _take_modules(filling: Filling) -> None:
    """Set which modules are recomputed, and which are offloaded to host memory."""
    requested = _get_option(filling, "recompute.modules")
    if _get_option(filling, "recompute.moe_layer") == "true":
        # Megatron adds it to the list, which has the attention core where none is given
        requested = f"{requested or RecomputeModule.CORE_ATTN} {RecomputeModule.MOE}"
    if requested and filling.get("plan.recompute") is Recompute.SELECTIVE:
        known, unknown = sorted_words(RecomputeModule, requested)
        filling.values["plan.recompute_modules"] = known
        for word in unknown:
            note_unmodelled(filling, f"recompute module {word[:40]}", "kept", "opsk does not count what it frees")
    if _get_option(filling, "offload.fine_grained") == "true" and (moved := _get_option(filling, "offload.modules")):
        known, unknown = sorted_words(OffloadModule, moved)
        filling.values["plan.offload_modules"] = known
        for word in unknown:
            note_unmodelled(filling, f"offload module {word[:40]}", "on the GPU", "opsk does not count what it moves")


def _take_fp8_weights(filling: Filling) -> None:
    """Set whether weights of FP8 products are stored in FP8: Megatron-LM has a flag for it, Bridge's recipes do it."""
    if filling.get("plan.precision") not in _FP8:
        return
    if stated := _get_option(filling, "fp8.params"):
        filling.values["plan.fp8_weights"] = stated == "true"
    elif filling.workload.framework == MEGATRON_LM:
        filling.values["plan.fp8_weights"] = False
    elif filling.workload.framework == MEGATRON_BRIDGE:
        is_fp8 = filling.get("plan.precision") is not Precision.FP8_BLOCK
        why = "Megatron-Bridge's recipes keep FP8 weights, those of blockwise scaling 16-bit ones"
        filling.assume("plan.fp8_weights", lambda: (is_fp8, why))


def _take_formats(filling: Filling) -> None:
    """Set the formats of the precision-aware optimizer, which apply only where it is enabled.

    It stores the low half of an fp32 master weight with a bf16 weight (``store_param_remainders``), but not with FP8
    weights, for FP8 recipes other than delayed scaling, or in host memory (``use_precision_aware_optimizer_no_fp8_or_
    ds_fp8``, megatron/core/optimizer/optimizer_config.py and distrib_optimizer.py).
    """
    if filling.get("plan.software") is Software.DEEPSPEED:
        _take_deepspeed_formats(filling)
        return
    precision, fp8_weights = filling.get("plan.precision"), filling.get("plan.fp8_weights")
    is_sharded = filling.get("plan.sharding") not in (None, Sharding.NONE)
    if _get_option(filling, "optimizer.precision_aware") != "true" or precision in _WIDE or not is_sharded:
        return
    if (master := _get_option(filling, "optimizer.main_params")) == "fp16":
        filling.values["plan.master_format"] = StateFormat.FP16
    elif master in ("", "fp32") and _get_option(filling, "optimizer.offload") != "cpu":
        has_rest = precision in (Precision.BF16, Precision.NVFP4) or (precision is Precision.FP8 and not fp8_weights)
        if has_rest:
            filling.values["plan.master_format"] = StateFormat.BF16
    first, second = (_get_option(filling, f"optimizer.{name}") for name in ("exp_avg", "exp_avg_sq"))
    if first in _FORMATS:
        filling.values["plan.moment_format"] = _FORMATS[first]
    if second != first and (second in _FORMATS or first in _FORMATS):
        filling.values["plan.second_moment_format"] = _FORMATS.get(second, StateFormat.FP32)


def _take_deepspeed_formats(filling: Filling) -> None:
    """Set ZeRO's 16-bit states, and gradients that are accumulated in fp32 next to 16-bit ones."""
    if filling.get("plan.precision") in _WIDE:
        return
    if _get_option(filling, "optimizer.grad_accum") == "fp32":
        filling.values["plan.states"] = States.MIXED
    if _get_option(filling, "optimizer.main_params") == "bf16":
        filling.values["plan.master_format"] = StateFormat.BF16
    if _get_option(filling, "optimizer.exp_avg") == "bf16":
        filling.values["plan.moment_format"] = StateFormat.BF16


def _take_offload(filling: Filling) -> None:
    """Set what share of the optimizer, and how many layers' activations, are in host memory."""
    share = parse_fraction(_get_option(filling, "optimizer.offload_fraction"))
    if filling.get("plan.offload") is Offload.OPTIMIZER and share is not None and share < 1.0:
        filling.values["plan.offload_fraction"] = share
    layers = _get_option(filling, "offload.layers")
    if layers.isascii() and layers.isdigit() and int(layers[:6]) > 0:
        if filling.get("plan.offload") in (None, Offload.NONE):
            filling.values |= {"plan.offload": Offload.ACTIVATIONS, "plan.offload_layers": int(layers[:6])}
        else:
            note_unmodelled(filling, "plan.offload_layers", int(layers[:6]), "predicted is the offload of states alone")
    elif (
        _get_option(filling, "activations.offload") == "cpu" and filling.get("plan.offload") is not Offload.ACTIVATIONS
    ):
        note_unmodelled(filling, "activations.offload", "cpu", "predicted is the offload of states alone")
