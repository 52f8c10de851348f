"""Stores lists of choices of different lengths as columns, so that thousands of rows are multiplied out at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from opsk.costmodel.table import IntColumn

Entries = tuple[tuple[int, ...], ...]
"""One list: its entries, each a value a column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """List ``i`` is entries ``starts[i]`` to ``starts[i + 1]`` of every column."""

    starts: IntColumn
    columns: Mapping[str, IntColumn]

    @classmethod
    def of(cls, names: Sequence[str], lists: Sequence[Sequence[tuple[int, ...]]]) -> Choices:
        """Return the choices whose list ``i`` is ``lists[i]``, each entry a value a name."""
        entries = np.array([entry for row in lists for entry in row], dtype=np.int64).reshape(-1, len(names))
        starts = np.concatenate(([0], np.cumsum([len(row) for row in lists], dtype=np.int64))).astype(np.int64)
        return cls(starts=starts, columns={name: entries[:, place] for place, name in enumerate(names)})

    def counts(self, lists: IntColumn) -> IntColumn:
        """Return the lengths of some lists."""
        return self.starts[lists + 1] - self.starts[lists]

    def multiplied(self, lists: IntColumn) -> tuple[IntColumn, IntColumn]:
        """Return every entry of ``lists[0]``, of ``lists[1]`` and so on: its list, and its index in the columns."""
        counts = self.counts(lists)
        owner = np.repeat(np.arange(lists.shape[0]), counts)
        before = np.repeat(np.cumsum(counts) - counts, counts)
        return owner, np.arange(owner.shape[0]) - before + np.repeat(self.starts[lists], counts)


class Numbering:
    """Gives equal lists of entries the same number, counting from 0."""

    def __init__(self) -> None:
        self._numbers: dict[Entries, int] = {}

    @property
    def lists(self) -> tuple[Entries, ...]:
        """The lists that were numbered, in order."""
        return tuple(self._numbers)

    def of(self, entries: Entries) -> int:
        """Return the number of a list."""
        return self._numbers.setdefault(entries, len(self._numbers))
