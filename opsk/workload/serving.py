"""Defines what a job that only generates runs: an inference engine, its model, and the share of a GPU that it takes.

A script's reader states it as options of the workload; `complete_serving` makes a value of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from opsk.workload.model import ModelShape
from opsk.workload.public_models.lookup import public_model
from opsk.workload.roles import parse_share
from opsk.workload.workload import Workload

ENGINE, MODEL, TP, PP, SHARE, LENGTH, QUANTISED, CACHE_FORMAT, UNKNOWN = (
    *("serving.engine", "serving.model", "serving.tp", "serving.pp", "serving.memory_share", "serving.length"),
    *("serving.quantization", "serving.cache_dtype", "serving.unknown"),
)
USUAL_SHARES: Mapping[str, float] = MappingProxyType({"vllm": 0.9, "sglang": 0.88})
"""``--gpu-memory-utilization`` of vLLM 0.2 to 0.12; what SGLang chooses for a GPU of 80 GB (server_args.py)."""
_BITS = (
    (4.5, re.compile(r"awq|gptq|(^|[-_])(w4a16|int4|4bit|nf4|bnb-4bit|fp4|mxfp4|nvfp4)([-_]|$)", re.IGNORECASE)),
    (8.2, re.compile(r"(^|[-_])(fp8|int8|w8a8|8bit|fbgemm_fp8)([-_]|$)", re.IGNORECASE)),
)
"""Bits of a weight with its scales, by the words for formats in names of models and in ``--quantization``."""
_STORED_LOW = (
    (8.2, re.compile(r"deepseek-?(v3|r1)(?!.*distill)|kimi-?k2|minimax-?m2", re.IGNORECASE)),
    (4.5, re.compile(r"gpt-?oss", re.IGNORECASE)),
)
"""Models that are published in FP8 or FP4 alone, whatever their name says (``quantization_config`` of config.json)."""
_SUFFIX = re.compile(r"[-_](awq|gptq|fp8|int[48]|w[48]a\w+|bnb|4bit|8bit|quantized)\b.*", re.IGNORECASE)
_KNOWN_16 = frozenset({"", "none", "null"})
_MAX_DIGITS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What a job serves.

    Parameters
    ----------
    engine, model
        ``vllm`` or ``sglang``, and the model as the command names it.
    shape
        The shape of that model; ``None`` where opsk does not know it.
    tp, pp, memory_share, length
        As `opsk.costmodel.memory.serving` has them; ``length`` 0 is as long as the model allows.
    weight_bytes, cache_bytes
        Bytes of a weight, and of an element of the KV cache.
    why_unknown
        Why memory cannot be computed; empty where it can.
    """

    engine: str
    model: str
    shape: ModelShape | None
    tp: int = 1
    pp: int = 1
    memory_share: float = 0.9
    length: int = 0
    weight_bytes: float = 2.0
    cache_bytes: float = 2.0
    why_unknown: str = ""


def complete_serving(workload: Workload) -> Serving | None:
    """Return what a job serves; ``None`` where it serves nothing, or trains."""
    options = dict(workload.options)
    if ENGINE not in options or workload.is_training:
        return None
    engine, model = options[ENGINE], options.get(MODEL, "")
    shape = _find_shape(model)
    bits, why = _find_bits(model, options.get(QUANTISED, ""))
    why = options.get(UNKNOWN, "") or why
    if shape is None and not why:
        why = f"the model is {model[:60]}, whose shape opsk does not know" if model else "the command names no model"
    return Serving(
        engine=engine,
        model=model,
        shape=shape,
        tp=_number(options, TP) or 1,
        pp=_number(options, PP) or 1,
        memory_share=parse_share(options.get(SHARE, "")) or USUAL_SHARES.get(engine, 0.9),
        length=_number(options, LENGTH),
        weight_bytes=bits / 8.0,
        cache_bytes=1.0 if "fp8" in options.get(CACHE_FORMAT, "") else 2.0,
        why_unknown=why,
    )


def _find_shape(model: str) -> ModelShape | None:
    """Return the shape of the public model that a name or the last part of a path means, its format left out."""
    if not model:
        return None
    name = _SUFFIX.sub("", model.rstrip("/"))
    return public_model(name) or public_model(name.rpartition("/")[2])


def _find_bits(model: str, stated: str) -> tuple[float, str]:
    """Return the bits of a weight, and why they are not known."""
    for bits, pattern in _BITS:
        if pattern.search(stated) or (not stated and pattern.search(model)):
            return bits, ""
    for bits, pattern in _STORED_LOW:
        if pattern.search(model):
            return bits, ""
    if stated.lower() in _KNOWN_16:
        return 16.0, ""
    return 16.0, f"what --quantization {stated[:30]} takes is not known"


def _number(options: Mapping[str, str], name: str) -> int:
    """Return an option as a number, 0 where it is none."""
    text = options.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else 0
