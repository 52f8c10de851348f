"""A cache of bounded size whose least recently used value goes first."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Value = TypeVar("Value")


class _Key:
    """A key that is hashed once: a workload has a hundred parts, each of which Python would ask again."""

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
    """Values by key; the least recently used one goes first. Not for several threads."""

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
