"""Finds the sizes that a workload leaves open, and between what they usually are."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

from opsk.workload.completion import ENCODER_LENGTH
from opsk.workload.measured_model import DATA_SET, INPUT_SIZE
from opsk.workload.public_models.lookup import Kind, find_listed, public_model
from opsk.workload.public_models.measured import MeasuredModel, Unit, find_measured, fixes_length
from opsk.workload.public_models.vision_language import find_vision_language
from opsk.workload.unstated.sizes import Size, Task, find_range, find_side
from opsk.workload.workload import Workload
from opsk.workload.worst_case import LOWERING, MAX_TOKENS, MICRO_BATCH

SEQ, BATCH, INPUT = "model.seq", "plan.micro_batch", "model.input"
_MAY_BE_MISSING = frozenset(
    {SEQ, BATCH, *LOWERING, "plan.precision", "plan.optimizer", "plan.gpus", "plan.nodes", "plan.gpus_per_node"}
)
"""Fields of which the largest case is known, see `opsk.workload.worst_case`, or a range."""
_TASKS = {
    Kind.DECODER: Task.LANGUAGE_MODEL,
    Kind.ENCODER: Task.TEXT_CLASSIFICATION,
    Kind.ENCODER_DECODER: Task.SEQUENCE_TO_SEQUENCE,
    Kind.VISION: Task.IMAGE_CLASSIFICATION,
}
_MEASURED_TASKS = {"image": Task.IMAGE_CLASSIFICATION, "speech": Task.SPEECH}
_DETECTORS = "ultralytics"
"""The package of the measured detectors."""
_NAMES_SIZE = re.compile(r"[-_](\d{2,3})(\.|$)")
"""The end of a model's name that is the side of its images: ``convnext-base-224``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSize:
    """A size that is stated nowhere: its dotted ``field``, what it usually is, and what it rarely exceeds."""

    field: str
    size: Size
    typical: int
    generous: int
    source: str


def find_task(name: str | None) -> Task | None:
    """Return what is trained with a public model; ``None`` where that is not known.

    Examples
    --------
    >>> find_task("roberta-base").value
    'text-classification'
    """
    if not name:
        return None
    if find_vision_language(name) is not None:
        return Task.LANGUAGE_MODEL
    listed = find_listed(name)
    if listed is not None:
        return _TASKS.get(listed[0])
    shape = public_model(name)
    if shape is not None:
        return Task.SEQUENCE_TO_SEQUENCE if shape.encoder_layers else Task.LANGUAGE_MODEL
    measured = find_measured(name)
    return _find_measured_task(measured) if measured is not None else None


def _find_measured_task(measured: MeasuredModel) -> Task | None:
    """Return what is trained with a measured model; ``None`` where that is not known."""
    is_detector = measured.source.startswith(_DETECTORS)
    return Task.DETECTION if is_detector else _MEASURED_TASKS.get(measured.kind)


def find_open_sizes(workload: Workload, missing: Collection[str]) -> tuple[OpenSize, ...]:
    """Return what is open of length, batch and images; none where anything else is missing, or a range is not known."""
    name = workload.model.name
    task, unknown = find_task(name), {entry.field for entry in workload.unknown}
    if task is None or not set(missing) <= _MAY_BE_MISSING:
        return ()
    rows: list[OpenSize | None] = []
    if MAX_TOKENS in dict(workload.options):
        return ()  # its largest case is that length
    if (workload.model.seq is None or SEQ in unknown) and not fixes_length(name):
        rows.append(_limit_tokens(_make(SEQ, Size.TOKENS, task), name or ""))
    is_batch_open = workload.plan.micro_batch is None or BATCH in unknown
    if is_batch_open and MICRO_BATCH not in dict(workload.options):
        rows.append(_make(BATCH, Size.MICRO_BATCH, task))
    if rows and (side := find_open_input(workload)) is not None:
        rows.append(side)
    return () if None in rows else tuple(row for row in rows if row is not None)


def find_open_input(workload: Workload) -> OpenSize | None:
    """Return the size of the images, or sounds, of a measured model where nothing states it, nor the model's name."""
    name, options = workload.model.name or "", dict(workload.options)
    measured = find_measured(name) if name and public_model(name) is None else None
    if measured is None or measured.unit is Unit.WINDOWS or INPUT_SIZE in options:
        return None
    task = _find_measured_task(measured)
    is_image = measured.unit is Unit.PIXELS
    if is_image and _NAMES_SIZE.search(name):
        return None
    span = find_range(Size.IMAGE_SIDE if is_image else Size.SOUND_SECONDS, task) if task is not None else None
    if span is None:
        return None
    side = find_side(options.get(DATA_SET, "")) if is_image else 0
    generous = max(side, find_typical_side(), measured.size) if side else max(span.generous, measured.size)
    return OpenSize(
        field=INPUT,
        size=span.size,
        typical=side or measured.size,
        generous=generous,
        source=f"images of {options[DATA_SET]}, or as large as models take them" if side else span.source,
    )


def find_typical_side() -> int:
    """Return the side to which programs enlarge small images."""
    span = find_range(Size.IMAGE_SIDE, Task.IMAGE_CLASSIFICATION)
    return span.typical if span is not None else 0


def list_corners(sizes: tuple[OpenSize, ...]) -> Iterator[dict[str, int]]:
    """Yield the values of which the largest memory counts: each size at its generous value, the others at the typical.

    Both at what one in twenty trainings exceeds is what next to none has: who has long texts has small batches.
    """
    for chosen in sizes:
        yield {row.field: row.generous if row is chosen else row.typical for row in sizes}


def state_sizes(workload: Workload, values: dict[str, int]) -> Workload:
    """Return a workload with the values of fields, or of its input, that its script leaves open."""
    for field, value in values.items():
        options = dict(workload.options)
        if field == INPUT:
            options[INPUT_SIZE] = str(value)
        elif field == SEQ and _has_encoder(workload.model.name):
            options.setdefault(ENCODER_LENGTH, str(value))  # both parts may read as much
        workload = replace(workload, options=tuple(sorted(options.items())))
        if field == INPUT:
            continue
        part, _, name = field.partition(".")
        changes: dict[str, Any] = {part: replace(getattr(workload, part), **{name: value})}
        unknown = tuple(entry for entry in workload.unknown if entry.field != field)
        workload = replace(workload, unknown=unknown, **changes)
    return workload


def _has_encoder(name: str | None) -> bool:
    """Return whether a model has an encoder and a decoder."""
    shape = public_model(name or "")
    return shape is not None and shape.encoder_layers > 0


def _make(field: str, size: Size, task: Task) -> OpenSize | None:
    """Return an open size by the table; ``None`` where that has none."""
    span = find_range(size, task)
    if span is None:
        return None
    return OpenSize(field=field, size=size, typical=span.typical, generous=span.generous, source=span.source)


def _limit_tokens(row: OpenSize | None, name: str) -> OpenSize | None:
    """Return a length; an encoder that was made for long texts gets such texts."""
    shape = public_model(name)
    if row is None or shape is None or not shape.seq or find_task(name) is Task.LANGUAGE_MODEL:
        return row
    return replace(row, generous=max(row.generous, shape.seq))
