"""Computes the time of a synthesised schedule (SCCL, TACCL, MSCCL) on the network that it was made for.

Such tools search for a schedule for one collective on one topology; opsk takes their result as input: steps, rounds and
chunks, and the range of sizes for which it is used. A schedule of S steps, R rounds and C chunks takes S alpha + R/C
K/b, where b is one link's bandwidth and K what each rank contributes (Cai et al. 2021, "Synthesizing optimal collective
algorithms", section 3). Nothing is searched here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from opsk.costmodel.collectives.algorithms import Collective
from opsk.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One schedule as its tool reports it.

    Parameters
    ----------
    network
        Name of the topology that it was made for.
    steps, rounds, chunks
        Consecutive steps; rounds in which each link carries one chunk; chunks of what each rank contributes.
    min_bytes, max_bytes
        Sizes for which it is used, from the first up to but without the second [bytes] (MSCCL's minBytes, maxBytes).
    source
        Tool, version or paper.
    """

    collective: Collective
    ranks: int
    network: str
    steps: int
    rounds: int
    chunks: int
    min_bytes: float = 0.0
    max_bytes: float = math.inf
    source: str = ""

    def __post_init__(self) -> None:
        """Validate the schedule."""
        wrong = [
            f"{name} is {getattr(self, name)}"
            for name in ("ranks", "steps", "rounds", "chunks")
            if getattr(self, name) < 1
        ]
        if self.rounds < self.steps:
            wrong.append(f"{self.rounds} rounds are fewer than {self.steps} steps")
        if not 0 <= self.min_bytes < self.max_bytes:
            wrong.append(f"no size from {self.min_bytes:g} up to {self.max_bytes:g} bytes")
        if wrong:
            raise InputError(f"not a schedule: {'; '.join(wrong)}", hint="check what the tool printed")

    def time_s(self, contributed_bytes: float, *, hop_s: float, bytes_per_s: float) -> float:
        """Return S alpha + R/C K/b for ``contributed_bytes`` of each rank and links of ``bytes_per_s`` [s]."""
        return self.steps * hop_s + self.rounds / self.chunks * contributed_bytes / bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleTable:
    """The schedules that a library has loaded."""

    schedules: tuple[Schedule, ...]

    def lookup(self, collective: Collective, *, ranks: int, network: str, size_bytes: float) -> Schedule:
        """Return the schedule that is used for a size: the first whose range holds it.

        Raises
        ------
        InputError
            No schedule is for this collective, number of ranks, network and size.
        """
        fitting = [
            schedule
            for schedule in self.schedules
            if (schedule.collective, schedule.ranks, schedule.network) == (collective, ranks, network)
        ]
        for schedule in fitting:
            if schedule.min_bytes <= size_bytes < schedule.max_bytes:
                return schedule
        ranges = ", ".join(f"{item.min_bytes:g} up to {item.max_bytes:g}" for item in fitting) or "no size at all"
        raise InputError(
            f"no schedule for a {collective} of {size_bytes:g} bytes among {ranks} ranks on {network}",
            hint=f"the table has schedules for {ranges}; NCCL's own algorithms take any size",
        )
