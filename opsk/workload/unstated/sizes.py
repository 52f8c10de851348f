"""Looks up what a size usually is that no script states, and what it rarely exceeds."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

TABLE = "sizes.toml"


class Size(StrEnum):
    """What a size counts."""

    TOKENS = "tokens"
    MICRO_BATCH = "micro-batch"
    IMAGE_SIDE = "image-side"
    SOUND_SECONDS = "sound-seconds"
    PLACES = "places"


class Task(StrEnum):
    """What a training does, as far as its sizes depend on it."""

    LANGUAGE_MODEL = "language-model"
    TEXT_CLASSIFICATION = "text-classification"
    SEQUENCE_TO_SEQUENCE = "sequence-to-sequence"
    IMAGE_CLASSIFICATION = "image-classification"
    DETECTION = "detection"
    ANY_IMAGES = "any-images"
    SPEECH = "speech"
    ANY_VOLUMES = "any-volumes"
    ANY = "any"
    ANY_TOKENS = "any-tokens"
    ANY_SEQUENCES = "any-sequences"
    ANY_ROWS = "any-rows"
    ANY_GRAPHS = "any-graphs"


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRange:
    """What a size of a task usually is (``typical``), what it rarely exceeds (``generous``), and where that is from."""

    size: Size
    task: Task
    typical: int
    generous: int
    source: str


def find_range(size: Size, task: Task) -> SizeRange | None:
    """Return the range of a size; ``None`` where none is known for the task.

    Examples
    --------
    >>> find_range(Size.IMAGE_SIDE, Task.IMAGE_CLASSIFICATION).typical
    224
    """
    return _ranges().get((size, task))


def find_side(name: str) -> int:
    """Return the side of the images of a public data set, 0 for a name that is none.

    Examples
    --------
    >>> find_side("CIFAR-100"), find_side("holidays")
    (32, 0)
    """
    return _sides().get(name.lower().replace("-", "_"), 0)


@cache
def _read() -> Mapping[str, Any]:
    """Return the table as it is written."""
    return tomllib.loads(files("opsk.workload.unstated").joinpath(TABLE).read_text(encoding="utf-8"))


@cache
def _ranges() -> Mapping[tuple[Size, Task], SizeRange]:
    """Return the ranges by what they count, and of which task."""
    rows = [
        SizeRange(
            size=Size(row["size"]),
            task=Task(row["task"]),
            typical=int(row["typical"]),
            generous=int(row["generous"]),
            source=str(row["source"]),
        )
        for row in _read()["range"]
    ]
    return {(row.size, row.task): row for row in rows}


@cache
def _sides() -> Mapping[str, int]:
    """Return the side of the images of each data set by its names."""
    return {name: int(row["side"]) for row in _read()["data_set"] for name in str(row["names"]).split()}
