"""Limits what a step saves of samples of which nothing is known but what kind of layers read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import floor

from opsk.workload.unstated.layer_limit import FP32_BYTES, MARGIN, LayerSums, limit_images, limit_tokens
from opsk.workload.unstated.sizes import Size, SizeRange, Task, find_range

NUMBERS = 1 << 22
"""Numbers that a sample has at most: an image of 1182 × 1182 in colours, 95 s of sound, 1,024 tokens of 4,096."""
OPEN_FEATURES = (64, 1024, 1 << 14, 1 << 18)
"""Sizes that a layer may have where only the data tell it, from few columns to the pixels of a flattened image.

Genes of a cell are some 60,000 (GENCODE), words of a vocabulary up to 256,000.
"""
USUAL_FEATURES = 1024
"""Of these sizes, what is common: columns of a table, 784 pixels of a digit, features of an encoder."""
SHRINKING = 8
"""By how much a volume is smaller along an axis where layers of rows read it."""
SEVERAL = 3
"""Passes that a step may save where it computes gradients of gradients: the forward pass, the backward pass, both."""
STEP = 32
"""Images shrink by it in public models: what follows these reads that many pixels as one place."""
MEASURED_MARGIN = 1.3
"""What a public model saves over what was measured of it: its release, and a head of its own."""


class Sample(StrEnum):
    """What a sample is, by the layers that read it and what the program imports."""

    IMAGE = "image"
    VOLUME = "volume"
    GRAPH = "graph"
    SEQUENCE = "sequence"
    TOKENS = "tokens"
    ROWS = "rows"


_TASKS = {
    Sample.IMAGE: Task.ANY_IMAGES,
    Sample.VOLUME: Task.ANY_VOLUMES,
    Sample.GRAPH: Task.ANY_GRAPHS,
    Sample.SEQUENCE: Task.ANY_SEQUENCES,
    Sample.TOKENS: Task.ANY_TOKENS,
    Sample.ROWS: Task.ANY_ROWS,
}
_WORDS = {
    Sample.IMAGE: "images of {places} × {places}",
    Sample.VOLUME: "volumes of {places} × {places} × {places}",
    Sample.GRAPH: "graphs of {places:,} nodes and edges",
    Sample.SEQUENCE: "sequences of {places:,} steps",
    Sample.TOKENS: "samples of {places:,} tokens",
    Sample.ROWS: "samples of {places:,} rows",
}
_AXES = {Sample.IMAGE: 2, Sample.VOLUME: 3}
_MANY = {
    Sample.IMAGE: 256,
    Sample.VOLUME: 96,
    Sample.GRAPH: 2560,
    Sample.SEQUENCE: 5000,
    Sample.TOKENS: 512,
    Sample.ROWS: 256,
}
"""Places of samples that large batches have, too, by the sources of the table: images of ImageNet, crops of volumes,
graphs of ogbg-ppa, electrocardiograms of PTB-XL, texts of BERT, samples on a ray of NeRF."""
_OF_SIDES = (Sample.IMAGE, Sample.VOLUME)
_SIDES = (32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 1024)
_LENGTHS = tuple(1 << power for power in range(4, 16))
LADDERS = {
    Sample.IMAGE: _SIDES,
    Sample.VOLUME: tuple(side for side in _SIDES if side <= 512),
    Sample.GRAPH: _LENGTHS,
    Sample.SEQUENCE: _LENGTHS,
    Sample.TOKENS: _LENGTHS,
    Sample.ROWS: _LENGTHS,
}
"""Sizes of samples of which the largest that fits is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSizes:
    """Sizes by the settings of a program, 0 where none is known: images' side, texts' or sequences' length, batch.

    ``reads_images`` tells that the program imports a package of images: with a length and none of these, layers on
    images work on a sequence that is folded.
    ``parts`` are the images or texts of a sample at most, 0 where that is not known; ``passes`` what a step saves.
    """

    side: int
    length: int
    batch: int
    parts: int
    reads_images: bool = True
    passes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLimit:
    """What a step saves at most with samples of a size: ``kind`` and ``places``, ``batch`` at a time."""

    kind: Sample
    places: int
    batch: int
    saved_bytes: int

    def describe(self) -> str:
        """Return the samples in words."""
        return f"{_WORDS[self.kind].format(places=self.places)} in batches of {self.batch:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleLimits:
    """What a step saves at most.

    Parameters
    ----------
    largest
        With samples that are rarely larger.
    smaller
        With smaller ones, the smallest first.
    parameters
        The parameters of the model.
    """

    largest: StepLimit
    smaller: tuple[StepLimit, ...]
    parameters: int


def limit_samples(rows: Sequence[LayerSums], known: KnownSizes, *, is_graph: bool) -> SampleLimits | None:
    """Return what a step saves at most; ``None`` where that is not known.

    Parameters
    ----------
    rows
        The sums over the layers for each of the sizes that the data may tell.
    """
    if known.length and not known.reads_images:
        rows = [_unfold(sums) for sums in rows]
    kinds = {find_kind(sums, is_graph=is_graph) for sums in rows}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is None or not (known.parts or kind is Sample.ROWS):
        return None
    if known.passes > 1 and (kind is Sample.ROWS or not known.batch):
        return None  # equations that are solved at any number of points, with derivatives of any order
    cases = [_limit_step(some, kind, known, batch, places) for some, batch, places in _list_cases(rows, kind, known)]
    if not cases or None in cases:
        return None
    largest = max((case for case in cases if case is not None), key=lambda case: case.saved_bytes)
    batch = known.batch or min(case.batch for case in cases if case is not None)
    sizes = (size for size in LADDERS[kind] if size < max(case.places for case in cases if case is not None))
    smaller = [_limit_step(rows, kind, known, batch, size) for size in sizes]
    return SampleLimits(
        largest=largest,
        smaller=tuple(case for case in smaller if case is not None),
        parameters=max(sums.parameters for sums in rows),
    )


def _limit_step(
    rows: Sequence[LayerSums], kind: Sample, known: KnownSizes, batch: int, places: int
) -> StepLimit | None:
    """Return what a step saves at most with samples of a size; ``None`` where that is not known."""
    limits = [_limit_sample(sums, kind, places) for sums in rows]
    if None in limits:
        return None
    parts = known.passes * (known.parts if kind is not Sample.ROWS else 1)  # the rows of a sample are its parts
    saved_bytes = parts * batch * max(limit or 0 for limit in limits)
    return StepLimit(kind=kind, places=places, batch=batch, saved_bytes=saved_bytes)


def _unfold(sums: LayerSums) -> LayerSums:
    """Return sums whose layers on images work on the steps of a sequence."""
    return replace(sums, map_features=0, row_features=sums.row_features + sums.map_features, grows=False)


def find_kind(sums: LayerSums, *, is_graph: bool) -> Sample | None:
    """Return what a sample is; ``None`` where that is not known, or nothing limits it."""
    has_images = sums.map_features > 0 or sums.pixel_bytes > 0
    if sums.volumes:
        return None if sums.attends or sums.grows > sums.shrinks or sums.pixel_bytes else Sample.VOLUME
    if has_images and (is_graph or sums.sequence_features):
        return None
    if is_graph:
        return Sample.GRAPH
    if has_images:
        return Sample.IMAGE if sums.first == "Conv2d" or sums.pixel_bytes else None
    if sums.sequence_features and sums.grows:
        return None
    if sums.attends or sums.first == "Embedding":
        return Sample.TOKENS
    return Sample.SEQUENCE if sums.sequence_features else Sample.ROWS


def _list_cases(
    rows: Sequence[LayerSums], kind: Sample, known: KnownSizes
) -> Iterator[tuple[Sequence[LayerSums], int, int]]:
    """Yield the sums, the batches and the places of a sample of which the largest counts.

    Two at what few trainings exceed is what next to none has: who has large samples has small batches, and who has
    many columns has no thousand of rows of them.
    """
    places = find_range(Size.IMAGE_SIDE if kind in _OF_SIDES else Size.PLACES, _TASKS[kind])
    batches = find_range(Size.MICRO_BATCH, Task.ANY)
    if places is None or batches is None:
        return
    usual, most = _find_places(rows[0], kind, known, places)
    some = [sums for sums in rows if sums.open_features <= USUAL_FEATURES] or rows
    if known.batch:
        yield some, known.batch, min(most, max(usual, _limit_places(kind, places, known.batch / batches.typical)))
        yield rows, known.batch, usual
    else:
        yield some, batches.typical, most
        yield some, batches.generous, usual
        yield rows, batches.typical, usual


def _limit_places(kind: Sample, span: SizeRange, ratio: float) -> int:
    """Return the places of a sample at most in a batch that is larger than common ones by a ratio.

    What has larger batches has smaller samples: no more places together, and no fewer than many have.
    """
    axes = _AXES.get(kind, 1)
    return max(_MANY[kind], floor(float(span.generous / max(1.0, ratio) ** (1 / axes))))


def _find_places(sums: LayerSums, kind: Sample, known: KnownSizes, span: SizeRange) -> tuple[int, int]:
    """Return the places of a sample, usually and at most."""
    if sums.side and kind in (*_OF_SIDES, Sample.SEQUENCE):
        return sums.side, sums.side
    if kind in _OF_SIDES:
        return (known.side, known.side) if known.side else (span.typical, span.generous)
    if kind is Sample.TOKENS and sums.positions > 1:
        return sums.positions, sums.positions
    if known.length and kind in (Sample.TOKENS, Sample.SEQUENCE):
        return known.length, known.length
    return span.typical, span.generous


def _limit_sample(sums: LayerSums, kind: Sample, places: int) -> int | None:
    """Return what a step saves of a sample at most [bytes]; ``None`` where that is not known."""
    if kind is Sample.IMAGE:
        return _limit_image(sums, places)
    if kind is Sample.VOLUME:
        rows = sums.row_features * max(1, (places // SHRINKING) ** 3)
        return round(MARGIN * FP32_BYTES * (places**3 * sums.map_features + rows))
    places = min(places, max(1, NUMBERS // sums.open_features)) if sums.open_features else places
    if kind is Sample.TOKENS:
        return limit_tokens(sums, length=places)
    return limit_tokens(sums, length=1) * places


def _limit_image(sums: LayerSums, side: int) -> int | None:
    """Return what a step saves of an image at most: by the layers of the program, and by public models among them."""
    if not sums.pixel_bytes:
        return limit_images(sums, parameters=sums.parameters, side=side)
    whole = -(-side // STEP) * STEP
    saved_bytes = round(MEASURED_MARGIN * sums.pixel_bytes * whole * whole)
    rows = limit_tokens(replace(sums, map_features=0), length=(whole // STEP) ** 2 + 1)
    own = replace(sums, first="Conv2d", patch=0)
    layers = limit_images(own, parameters=sums.parameters, side=side) if sums.map_features else 0
    return saved_bytes + rows + layers if layers is not None else None
