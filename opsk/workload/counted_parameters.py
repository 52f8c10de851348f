"""Defines how many parameters the models of a program have, counted from its text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

COUNTED = "counted.parameters"
"""The option that states the parameters of the models that a program uses, as `ParameterRange` writes them."""
COUNTED_TRAINED = "counted.trained"
"""The option that states those of the models whose parameters it gives to an optimizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterRange:
    """A number of parameters between ``low`` and ``high``, which is ``None`` where no limit is known.

    Examples
    --------
    >>> str(ParameterRange(low=5, high=None)), ParameterRange.parse("5-7").high
    ('5-', 7)
    """

    low: int
    high: int | None

    def __str__(self) -> str:
        """Return the two limits with a dash between them."""
        return f"{self.low}-{'' if self.high is None else self.high}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the range that a text states; ``None`` for any other text."""
        low, dash, high = text.partition("-")
        is_number = low.isascii() and low.isdigit() and (not high or (high.isascii() and high.isdigit()))
        return cls(low=int(low), high=int(high) if high else None) if dash and is_number else None
