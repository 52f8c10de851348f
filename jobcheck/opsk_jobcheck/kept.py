"""Has the same recipe been asked about before? Then what was searched for it is known, whatever else its script says.

People submit a recipe again and again, with another seed, another folder, another length. The text differs, so the
stored answer does not count; what may be done better does not differ, and takes nine tenths of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from opsk.costmodel.table import PredictionTable
from opsk.workload.workload import Workload
from opsk_jobcheck.advice import PlacementAdvice
from opsk_jobcheck.searching import Searched
from opsk_jobcheck.spelling.named import settings_file

MOST_PREDICTED, MOST_SEARCHED, MOST_PLACED = 256, 256, 16
"""Answers that are kept: a prediction is some numbers, a search a few plans, a placement may be a thousand ranks."""

Value = TypeVar("Value")


class _Key:
    """A key that is hashed once: a recipe has a hundred parts, each of which Python asks anew."""

    __slots__ = ("_hash", "_value")

    def __init__(self, value: Hashable) -> None:
        self._value = value
        self._hash = hash(value)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._value == other._value


@dataclass(slots=True)
class LatestUsed(Generic[Value]):
    """Values by key; the one that was not asked for longest goes first. Not for several threads."""

    most: int
    _values: dict[_Key, Value] = field(default_factory=dict)

    def get(
        self, key: Hashable, work_out: Callable[[], Value], *, is_kept: Callable[[Value], bool] = lambda _: True
    ) -> Value:
        """Return what is kept under a key, worked out where there is nothing.

        What working out raises is not kept, nor a value that ``is_kept`` refuses.
        """
        hashed = _Key(key)
        if hashed not in self._values:
            value = work_out()
            if not is_kept(value):
                return value
        else:
            value = self._values.pop(hashed)
        self._values[hashed] = value
        if len(self._values) > self.most:
            del self._values[next(iter(self._values))]
        return value

    def __contains__(self, key: Hashable) -> bool:
        """Tell whether something is kept under a key."""
        return _Key(key) in self._values

    def __len__(self) -> int:
        """Return how many values there are."""
        return len(self._values)


@dataclass(slots=True, kw_only=True)
class Kept:
    """What one adviser has worked out: ``predicted`` by plan, ``searched`` by recipe, ``placed`` also by the state.

    Keys do not hold the cluster, the fabric and the efficiencies: they are one adviser's own.
    """

    predicted: LatestUsed[PredictionTable] = field(default_factory=lambda: LatestUsed(MOST_PREDICTED))
    searched: LatestUsed[Searched] = field(default_factory=lambda: LatestUsed(MOST_SEARCHED))
    placed: LatestUsed[PlacementAdvice] = field(default_factory=lambda: LatestUsed(MOST_PLACED))


def recipe_of(workload: Workload) -> Hashable:
    """Return what of a workload ways out depend on: all that it states, and how that is spelled, but not where."""
    return (
        replace(workload, job_name=None, evidence=(), wanted_files=(), unknown=(), problems=()),
        tuple((entry.field, entry.text, settings_file(entry)) for entry in workload.evidence),
    )
