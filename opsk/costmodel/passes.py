"""How long do forward and backward of some operations take for one micro-batch?"""

from __future__ import annotations

from dataclasses import dataclass

from opsk.costmodel.table import FloatColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """Seconds of one micro-batch through some operations: ``forward``, gradients ``by_input`` and ``by_weight``."""

    forward: FloatColumn
    by_input: FloatColumn
    by_weight: FloatColumn

    @property
    def total(self) -> FloatColumn:
        """Forward and backward."""
        return self.forward + self.by_input + self.by_weight

    def __add__(self, other: Passes) -> Passes:
        """Return both, one after the other."""
        return Passes(
            forward=self.forward + other.forward,
            by_input=self.by_input + other.by_input,
            by_weight=self.by_weight + other.by_weight,
        )

    def times(self, count: FloatColumn) -> Passes:
        """Return ``count`` of them."""
        return Passes(forward=self.forward * count, by_input=self.by_input * count, by_weight=self.by_weight * count)
