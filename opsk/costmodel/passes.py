"""Defines the times of the forward pass, and of the backward pass by input and by weight."""

from __future__ import annotations

from dataclasses import dataclass

from opsk.costmodel.table import FloatColumn

GRADIENT_UPDATE_BYTES = 8.0
"""Reading and writing the fp32 main gradient of a parameter (fused into the weight-gradient product)."""


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
        """Return the sum of both, one after the other."""
        return Passes(
            forward=self.forward + other.forward,
            by_input=self.by_input + other.by_input,
            by_weight=self.by_weight + other.by_weight,
        )

    def times(self, count: FloatColumn) -> Passes:
        """Return the time of ``count`` such passes."""
        return Passes(forward=self.forward * count, by_input=self.by_input * count, by_weight=self.by_weight * count)
