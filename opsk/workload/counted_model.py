"""Makes the shape of a model that a user wrote, at the largest, by what was counted and followed in its text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from opsk.units import GIB
from opsk.workload.counted_parameters import COUNTED, COUNTED_TRAINED, ParameterRange
from opsk.workload.model import MeasuredParts, ModelShape

COUNTED_STEP = "counted.step"
"""The option that states the bytes that one step of a process stores, in fp32, as `ParameterRange` writes them."""
COUNTED_INPUT = "counted.input"
"""The option that states where the size of a sample is from, where that is no data set (``settings``)."""
COUNTED_PLACES = "counted.places"
"""The option that states on what each layer runs (``images of 64 × 64``), where a step is limited by the layers."""
COUNTED_SIZES = "counted.sizes"
"""The option that states what a step stores with samples of sizes from small to large, as `write_sizes` writes them."""
COUNTED_LIMIT = "counted.limit"
"""The option that states how many parameters there are at most, where some sizes of layers are those of the data."""
MARGIN = 1.5
"""What a step stores at most over what its operations save in fp32: autocast adds a 16-bit copy of each of them."""
WORKSPACE_BYTES = GIB
"""What convolutions may take to compute fast: cuDNN takes what is free, and less where there is not much."""
_FROZEN_BYTES = 2
"""Bytes in which the cost model holds a parameter that is not trained."""
_COPY_BYTES = 4
"""Bytes of one more copy of a weight: that of an average, of autocast, or of a model that only computes."""
_WIDTH, _HEADS = 1024, 16
_PER_LAYER = 12 * _WIDTH * _WIDTH


def build_largest_shape(options: Mapping[str, str], name: str | None) -> ModelShape | None:
    """Return the shape of a counted model whose micro-batch of 1 is the whole batch; ``None`` where it has no limit.

    Its weights are all trained, and held once more.
    """
    counted = ParameterRange.parse(options.get(COUNTED, ""))
    trained = ParameterRange.parse(options.get(COUNTED_TRAINED, "")) or counted
    step = ParameterRange.parse(options.get(COUNTED_STEP, ""))
    if counted is None or trained is None or step is None:
        return None
    if options.get(COUNTED_LIMIT, "").isdecimal():
        counted = trained = ParameterRange(low=counted.low, high=int(options[COUNTED_LIMIT]))
    if not counted.high or trained.high is None or step.high is None:
        return None
    parameters = min(counted.high, trained.high)
    others = counted.high - parameters
    frozen = (_COPY_BYTES * (others + counted.high)) // _FROZEN_BYTES
    margin = 1 if COUNTED_PLACES in options else MARGIN  # what layers save at most counts copies
    stored = round(margin * step.high) + WORKSPACE_BYTES
    return ModelShape(
        name=name or "model",
        layers=max(1, round(parameters / _PER_LAYER)),
        hidden=_WIDTH,
        ffn=4 * _WIDTH,
        heads=_HEADS,
        kv_heads=_HEADS,
        head_dim=_WIDTH // _HEADS,
        vocab=1,
        seq=1,
        measured=MeasuredParts(
            parameters=max(1, parameters),
            frozen_parameters=frozen,
            sample_bytes=stored,
            sample_fp32_bytes=stored,
        ),
    )


def write_sizes(sizes: Iterable[tuple[str, int]]) -> str:
    """Return what a step stores with samples of several sizes, each in words, as an option states it.

    Examples
    --------
    >>> read_sizes(write_sizes([("images of 32 × 32", 5), ("images of 64 × 64", 20)]))
    (('images of 32 × 32', 5), ('images of 64 × 64', 20))
    """
    return ";".join(f"{stored_bytes} {words}" for words, stored_bytes in sizes)


def read_sizes(text: str) -> tuple[tuple[str, int], ...]:
    """Return what an option states of several sizes; none for any other text."""
    rows = [part.partition(" ") for part in text.split(";") if part]
    return tuple((words, int(number)) for number, _, words in rows if number.isascii() and number.isdigit() and words)
