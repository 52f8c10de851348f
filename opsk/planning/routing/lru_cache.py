"""Caches the most recently used values in memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Value = TypeVar("Value")


@dataclass(slots=True)
class LruCache(Generic[Value]):
    """A least-recently-used cache of up to ``max_entries`` values.

    It may be used by several threads: at worst a value is computed twice.
    """

    max_entries: int
    _values: dict[Hashable, tuple[Value]] = field(default_factory=dict)

    def get(self, key: Hashable, compute: Callable[[], Value]) -> Value:
        """Return the value of a key, computed where it is not cached; exceptions are not cached."""
        entry = self._values.pop(key, None)
        if entry is None:
            entry = (compute(),)
        self._values[key] = entry
        for oldest in [*self._values][: -self.max_entries]:
            self._values.pop(oldest, None)
        return entry[0]
