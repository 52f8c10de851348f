"""Parses the iteration lines of Megatron-LM, from 2019 to today, and of all of its forks.

``iteration 100/ 500000 | consumed samples: … | elapsed time per iteration (ms): … | throughput per GPU
(TFLOP/s/GPU): … | …``: fields come and go and are renamed, so each is recognised by the words of its name. AMD's forks
print ``now/mean``, of which the first counts. The elapsed time is the mean since the last such line.
"""

from __future__ import annotations

import re

from opsk.telemetry.progress.lines import (
    drop_missing,
    parse_number,
    parse_positive,
    parse_size_bytes,
    split_piped_fields,
)
from opsk.telemetry.progress.records import EventKind, ParsedLine, Reader, StepPart
from opsk.units import MIB

_ITERATION = re.compile(r"\biteration\s+(\d{1,15})\s*/\s*(\d{1,15})", re.ASCII)
_ELAPSED = re.compile(r"elapsed time per iteration \((ms|s)\)")
_MEMORY = re.compile(r"\(after (\d{1,15}) iterations\) memory \((MB|GB)\)")
_UTILISATION = re.compile(r"GPU utilization\s*:\s*([\d.]+)\s*MODEL_TFLOP/s/GPU", re.ASCII)
_MIB, _GB = float(MIB), 1e9
_OTHER_LOSSES = ("balanc", "z loss", "z_loss", "aux", "mtp", "scale", "value", "seq_")


class MegatronReader(Reader):
    """Iteration lines of Megatron-LM, Megatron-DeepSpeed, Megatron-Bridge and their forks."""

    name = "megatron-lm"
    rank = 10
    hints = ("elapsed time per iteration", "consumed samples:", " memory (", "MODEL_TFLOP/s/GPU")

    def __init__(self) -> None:
        self._tflops: float | None = None

    def read(self, text: str) -> ParsedLine | None:
        """Parse one line."""
        match = _ITERATION.search(text)
        if match is None or not (_ELAPSED.search(text) or "| consumed samples:" in text):
            return self._other(text)
        values = _parse_iteration_values(text)
        if "samples per second" in text and "TFLOPs:" in text:
            self.name = "megatron-deepspeed"
        if self._tflops is not None:
            values.setdefault("tflops_per_gpu", self._tflops)
            self._tflops = None
        return ParsedLine(part=StepPart.STEP, iteration=int(match[1]), total_iterations=int(match[2]), values=values)

    def _other(self, text: str) -> ParsedLine | None:
        """Read the lines around: memory, and what Megatron-Bridge prints before the iteration."""
        if (speed := _UTILISATION.search(text)) is not None:
            self.name, self._tflops = "megatron-bridge", parse_positive(speed[1])
            return None
        memory = _MEMORY.search(text)
        if memory is None:
            return None
        unit = _MIB if memory[2] == "MB" else _GB
        fields = {name.replace("-", " "): parse_positive(value) for name, value in split_piped_fields(text)}
        peak = fields.get("max allocated") or fields.get("mem max allocated gigabytes") or fields.get("allocated")
        values = drop_missing(memory_bytes=peak * unit if peak else None)
        return ParsedLine(part=StepPart.EVENT, event=EventKind.MEMORY, iteration=int(memory[1]), values=values)


class GptNeoxReader(Reader):
    """Iteration lines of GPT-NeoX: Megatron's fields after the samples per second of the whole job."""

    name = "gpt-neox"
    rank = 9
    hints = ("approx flops per GPU",)

    def read(self, text: str) -> ParsedLine | None:
        """Parse one line."""
        match = _ITERATION.search(text)
        if match is None or "approx flops per GPU" not in text:
            return None
        values = _parse_iteration_values(text)
        return ParsedLine(part=StepPart.STEP, iteration=int(match[1]), total_iterations=int(match[2]), values=values)


def _parse_iteration_values(text: str) -> dict[str, float]:
    """Parse the fields of an iteration line; of a name that comes twice the first counts."""
    values: dict[str, float] = {}
    for name, value in split_piped_fields(text):
        key, parsed = _parse_field(name, value)
        if key is not None and parsed is not None:
            values.setdefault(key, parsed)
    return values


def _parse_field(name: str, value: str) -> tuple[str | None, float | None]:
    """Return which value a field states, in SI."""
    first = value.partition("/")[0]
    if name.endswith("elapsed time per iteration (ms)"):
        elapsed_ms = parse_positive(first)
        return "step_s", elapsed_ms and elapsed_ms / 1e3
    if name.endswith("elapsed time per iteration (s)"):
        return "step_s", parse_positive(first)
    if "flop" in name:
        return ("tflops_per_gpu", _parse_tflops(first)) if "total" not in name else (None, None)
    if "token" in name and ("sec" in name or "/s" in name or "tgs" in name):
        is_per_gpu = "gpu" in name or "device" in name or "tgs" in name
        return "tokens_per_s_per_gpu" if is_per_gpu else "tokens_per_s", parse_positive(first)
    if name in ("samples per second", "samples/sec"):
        return "samples_per_s", parse_positive(first)
    if "mem usage" in name and parse_size_bytes(first):
        return "memory_bytes", parse_size_bytes(first)
    return _parse_training_field(name, value)


def _parse_training_field(name: str, value: str) -> tuple[str | None, float | None]:
    """Return which value of the training itself a field states."""
    if name in ("global batch size", "global_batch_size"):
        return "batch", parse_positive(value)
    if name == "actual seqlen":
        return "seq", parse_positive(value)
    if name == "consumed tokens":
        return "consumed_tokens", parse_positive(value)
    if name == "learning rate":
        return "lr", parse_number(value)
    if name in ("grad norm", "grad_norm"):
        return "grad_norm", parse_number(value)
    if name.endswith("loss") and not any(word in name for word in _OTHER_LOSSES):
        return "loss", parse_number(value)
    return None, None


def _parse_tflops(text: str) -> float | None:
    """Return TFLOP/s; GPT-NeoX writes the unit after the number."""
    match = re.match(r"\s*([\d.]+)\s*([KMGTP]?)FLOP", text, re.ASCII)
    if match is None:
        return parse_positive(text)
    scale = {"": 1e-12, "K": 1e-9, "M": 1e-6, "G": 1e-3, "T": 1.0, "P": 1e3}[match[2]]
    value = parse_positive(match[1])
    return value and value * scale
