"""States what the parameters of a model take, where they were counted from the program's text and the rest is open.

It is no verdict: what a batch adds is not known.
"""

from __future__ import annotations

import re

from opsk.units import as_gib
from opsk.workload.advice_record import Verdict
from opsk.workload.counted_parameters import COUNTED, COUNTED_TRAINED, ParameterRange
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.layout import LABEL_WIDTH, MAX_WIDTH, Line, Weight, cut

MIN_PARAMETERS = 1_000_000
"""A model of fewer takes next to nothing of any GPU."""
MIN_OPEN_PARAMETERS = 10_000_000
"""The same where only a lower limit is known."""
MAX_RATIO = 1.25
"""Largest ratio of both limits at which a range says more than its lower limit."""
MIN_SHARE = 0.01
"""States of a smaller share of a GPU's memory are news to nobody: their line is in the long form only."""
ROOM = MAX_WIDTH - LABEL_WIDTH
WEIGHT_BYTES, TRAINED_BYTES, MOMENTUM_BYTES = 4, 16, 12
"""Bytes of a parameter in fp32: its weight alone; with its gradient and Adam's two states; with one momentum."""
_ADAM = frozenset({"adam", "adamw", "fusedadam", "fusedadamw", "nadam", "radam", "adamax", "lamb"})
_TRAINABLE = "trainable"
_OTHER_WEIGHTS = re.compile(r"quanti[sz]ed|adapters|other models")
"""Reasons for which the weights take another memory than in fp32, or others come on top."""


def find_counted(advice: Advice) -> ParameterRange | None:
    """Return the counted parameters of a job, where they are worth a line."""
    options = dict(advice.workload.options)
    counted = ParameterRange.parse(options.get(COUNTED, ""))
    if counted is None or advice.verdict is not Verdict.UNKNOWN or advice.cluster is None or not advice.is_gpu_known:
        return None
    if _OTHER_WEIGHTS.search(options.get(_TRAINABLE, "")):
        return None
    least = MIN_PARAMETERS if _find_limit(counted) is not None else MIN_OPEN_PARAMETERS
    return counted if counted.low >= least else None


def render_count(advice: Advice) -> Line | None:
    """Return the line on what the parameters of the model take; ``None`` where that is not known."""
    counted = find_counted(advice)
    if counted is None or advice.cluster is None:
        return None
    options = dict(advice.workload.options)
    trained = ParameterRange.parse(options.get(COUNTED_TRAINED, "")) or counted
    each_bytes, states, others = _find_states(options)
    capacity_bytes = float(advice.cluster.node.gpu.capacity_bytes)
    capacity = f"{as_gib(capacity_bytes):.1f} GiB"
    high = _find_limit(counted)
    trained_high = _find_limit(trained) if high is not None else None
    least = "at least " if trained_high is None else ""
    low_bytes = WEIGHT_BYTES * counted.low + (each_bytes - WEIGHT_BYTES) * min(trained.low, counted.low)
    high_bytes = None
    if high is not None and trained_high is not None:
        high_bytes = WEIGHT_BYTES * high + (each_bytes - WEIGHT_BYTES) * trained_high
    size = _format_size(low_bytes, high_bytes)
    number = f"{least}{_format_number(counted.low, high if high_bytes is not None else None)} parameters"
    if trained != counted and each_bytes > WEIGHT_BYTES:
        number += f", {_format_number(trained.low, trained_high)} trained"
    text = f"{number}: {states} in fp32 take {least}{size} of {capacity} per GPU, without what a batch adds"
    brief = f"{number}, without a batch: {size} of {capacity} in fp32"
    brief = next((row for row in (brief + others, brief) if len(row) <= ROOM), cut(brief, ROOM))
    weight = Weight.MEMORY if (high_bytes or low_bytes) >= MIN_SHARE * capacity_bytes else Weight.NEVER
    return Line(label="memory", text=text, brief=brief, weight=weight, topic="parameters")


def _find_limit(counted: ParameterRange) -> int | None:
    """Return the upper limit of a range that is narrow enough to be stated."""
    return counted.high if counted.high is not None and counted.high <= MAX_RATIO * counted.low else None


def _find_states(options: dict[str, str]) -> tuple[int, str, str]:
    """Return the bytes that each parameter takes, what they are, and what of it is beside the weights."""
    if _TRAINABLE in options:  # a part of it is frozen
        return WEIGHT_BYTES, "weights", " for the weights"
    optimizer = options.get("optimizer.name", "adamw").lower()
    if optimizer in _ADAM:
        return TRAINED_BYTES, "weights, gradients and Adam's states", " with gradients and Adam"
    if optimizer == "sgd":
        return MOMENTUM_BYTES, "weights, gradients and momentum", " with gradients and momentum"
    return 2 * WEIGHT_BYTES, "weights and gradients", " with gradients"


def _format_number(low: int, high: int | None) -> str:
    """Return a number of parameters as text (``86.1 M``), or both limits of it (``28.0–31.5 M``)."""
    scale, unit, digits = (1e9, "B", 2) if low >= 1e9 else (1e6, "M", 1)
    first = f"{low / scale:.{digits}f}"
    last = first if high is None else f"{high / scale:.{digits}f}"
    return f"{first} {unit}" if first == last else f"{first}–{last} {unit}"


def _format_size(low_bytes: int, high_bytes: int | None) -> str:
    """Return a size as text, or both limits of it."""
    first = f"{as_gib(float(low_bytes)):.1f}"
    last = first if high_bytes is None else f"{as_gib(float(high_bytes)):.1f}"
    return f"{first} GiB" if first == last else f"{first}–{last} GiB"
