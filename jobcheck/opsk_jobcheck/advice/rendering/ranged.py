"""Renders the verdict on a job whose memory is known over the range of what is stated nowhere."""

from __future__ import annotations

from collections.abc import Iterator

from opsk.units import as_gib
from opsk.workload.counted_model import COUNTED_PLACES
from opsk.workload.unstated.open_sizes import BATCH, OpenSize
from opsk.workload.unstated.sizes import Size
from opsk_jobcheck.advice.advice import Advice, MemoryOverRange
from opsk_jobcheck.advice.layout import LABEL_WIDTH, MAX_WIDTH, Line, Weight, continuation, cut

SMALL_SHARE = 0.25
"""A job that takes less of a GPU's memory at the most is a small one that fits: the long form has it."""


def is_quiet(advice: Advice) -> bool:
    """Return whether a job is a small one that fits by the layers of its model: nothing that a user need read."""
    if advice.prediction is None or COUNTED_PLACES not in dict(advice.workload.options):
        return False
    memory = advice.prediction.memory
    return float(memory.total_bytes.high) < SMALL_SHARE * float(memory.capacity_bytes)


def render_over_range(advice: Advice) -> Iterator[Line]:
    """Yield the line on what a job takes over the range, and in the long form where the range is from."""
    span, cluster = advice.over_range, advice.cluster
    if span is None or cluster is None:
        return
    capacity_bytes = float(cluster.node.gpu.capacity_bytes)
    low, high = f"{as_gib(span.low_bytes):.1f}", f"{as_gib(span.high_bytes):.1f}"
    size = f"{low}–{high}" if low != high else high
    text = f"✓ {size} GiB of {as_gib(capacity_bytes):.1f} GiB per GPU: fits for {describe_sizes(span)}"
    whole = f"{text} ({_name_missing(span)} stated nowhere)"
    weight = Weight.NEVER if span.high_bytes < SMALL_SHARE * capacity_bytes else Weight.MEMORY
    rows = (whole, f"{text} (stated nowhere)", f"{text} (not stated)", text)
    brief = next((row for row in rows if len(row) <= MAX_WIDTH - LABEL_WIDTH), cut(text, MAX_WIDTH - LABEL_WIDTH))
    yield Line(label="memory", text=whole, brief=brief, weight=weight, topic="memory terms")
    for row in span.sizes:
        words = f"{describe_size(row, row.typical)} usually, rarely more than {row.generous:,}: {row.source}"
        yield continuation(words, Weight.NEVER, topic="limits")


def describe_sizes(span: MemoryOverRange) -> str:
    """Return up to which sizes a job fits."""
    return " or ".join(f"{describe_size(row, row.generous, is_limit=True)}" for row in span.sizes)


def describe_size(row: OpenSize, value: int, *, is_limit: bool = False) -> str:
    """Return a size in words, as that up to which something holds where ``is_limit``."""
    upto = "up to " if is_limit else ""
    match row.size:
        case Size.TOKENS:
            return f"texts of {upto}{value:,} tokens"
        case Size.MICRO_BATCH:
            return f"batches of {upto}{value:,}"
        case Size.IMAGE_SIDE:
            return f"images of {upto}{value} × {value}"
        case Size.PLACES:
            return f"samples of {upto}{value:,} places"
        case Size.SOUND_SECONDS:
            return f"sounds of {upto}{value} s"


def _name_missing(span: MemoryOverRange) -> str:
    """Return what is not stated, with its verb."""
    names = ["batch" if row.field == BATCH else "size" for row in span.sizes]
    return f"their {' and '.join(reversed(names))} {'are' if len(names) > 1 else 'is'}"
