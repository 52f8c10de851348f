"""What was worked out lately, so that the same question about the same fabric or jobs costs nothing the second time?"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Value = TypeVar("Value")


@dataclass(slots=True)
class Recent(Generic[Value]):
    """Values by key, ``most`` of them: the one that was not asked for longest goes first.

    Several threads may ask: at worst a value is worked out twice.
    """

    most: int
    _values: dict[Hashable, tuple[Value]] = field(default_factory=dict)

    def get(self, key: Hashable, work_out: Callable[[], Value]) -> Value:
        """Return the value of a key, worked out where it is not known; what that raises is not kept."""
        found = self._values.pop(key, None)
        if found is None:
            found = (work_out(),)
        self._values[key] = found
        for oldest in [*self._values][: -self.most]:
            self._values.pop(oldest, None)
        return found[0]
