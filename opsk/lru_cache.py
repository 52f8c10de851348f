"""Implements a bounded cache that evicts the least recently used value first."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Value = TypeVar("Value")


class _Key:
    """A key that is hashed once: a workload has a hundred parts, each of which Python would hash again."""

    __slots__ = ("_hash", "_value")

    def __init__(self, value: Hashable) -> None:
        self._value = value
        self._hash = hash(value)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._value == other._value


@dataclass(slots=True)
class LruCache(Generic[Value]):
    """A cache of up to ``max_entries`` values by key.

    It may be used by several threads: at worst a value is computed twice.
    """

    max_entries: int
    _values: dict[_Key, tuple[Value]] = field(default_factory=dict)

    def get(self, key: Hashable, compute: Callable[[], Value]) -> Value:
        """Return the value of a key, computed where it is not cached; an exception of ``compute`` is not cached."""
        hashed = _Key(key)
        entry = self._values.pop(hashed, None) or (compute(),)
        self._values[hashed] = entry
        if len(self._values) > self.max_entries:
            for oldest in [*self._values][: -self.max_entries]:
                self._values.pop(oldest, None)
        return entry[0]

    def __contains__(self, key: Hashable) -> bool:
        """Return whether there is a value for a key."""
        return _Key(key) in self._values

    def __len__(self) -> int:
        """Return how many values there are."""
        return len(self._values)
