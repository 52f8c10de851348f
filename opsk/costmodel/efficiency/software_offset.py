"""Defines the offset between measured and predicted values that the runs of a software family share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ANY_OTHER = ""
"""Key of the families that have no offset of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwareOffset:
    """What runs of a family of software have in common beyond what is predicted, as ln(measured / predicted).

    Parameters
    ----------
    time_log, memory_log
        Of the time of a step, and of the memory of a GPU.
    time_log_sigma, memory_log_sigma
        How well that is known of the next run: where ranges count on less, they become narrower. 1 is not at all.
    """

    time_log: float = 0.0
    time_log_sigma: float = 1.0
    memory_log: float = 0.0
    memory_log_sigma: float = 1.0


Offsets = Mapping[str, SoftwareOffset]
"""By the family's name; ``""`` is any other."""


def find_offset(offsets: Offsets, software: str) -> SoftwareOffset | None:
    """Return the offset of a family, ``None`` where none is known."""
    return offsets.get(software, offsets.get(ANY_OTHER))
