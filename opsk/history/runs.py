"""Defines what is known of an earlier run of a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

MIN_OBSERVED_S = 30.0
"""After so long a program has mostly taken the memory that it needs; a peak that was observed for less is none."""
WHOLE_STATES = frozenset({"COMPLETED", "TIMEOUT", "CANCELLED", "PREEMPTED", "NODE_FAIL", "DEADLINE"})
"""States of runs that worked until they ended: those of a failed one may have ended before it took its memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """One run that has ended. ``None`` is "not measured".

    Parameters
    ----------
    job
        Slurm's id as it is shown.
    ended_at_s
        Seconds since 1970.
    settings
        As in `Submission`.
    capacity_bytes
        Memory of one GPU.
    memory_peak_bytes
        Highest memory in use on the fullest GPU.
    activity
        Share of the time in which the GPUs were busy, mean over GPUs and time [ratio].
    idle_gpus
        GPUs on which nothing ran.
    power_w
        Mean power of a GPU [W].
    host_memory_peak_bytes
        Highest resident memory of one task, by Slurm's accounting.
    observed_s, elapsed_s, time_limit_s
        How long its GPUs were observed, how long it ran, and how long it might have run [s].
    state
        Slurm's final state; empty where it is unknown.
    """

    job: str
    ended_at_s: float
    settings: Mapping[str, str] = field(default_factory=dict)
    gpu_type: str = ""
    gpus: int = 0
    capacity_bytes: float | None = None
    memory_peak_bytes: float | None = None
    activity: float | None = None
    idle_gpus: int | None = None
    power_w: float | None = None
    host_memory_peak_bytes: float | None = None
    observed_s: float = 0.0
    elapsed_s: float | None = None
    time_limit_s: float | None = None
    state: str = ""

    @property
    def has_memory(self) -> bool:
        """Whether its peak is that of the whole program."""
        return bool(self.memory_peak_bytes) and self.observed_s >= MIN_OBSERVED_S and self.state in WHOLE_STATES

    def pack(self) -> dict[str, Any]:
        """Return this as JSON values, without what is unknown."""
        return {name: value for name, value in asdict(self).items() if value not in (None, "", {})}

    @classmethod
    def unpack(cls, document: Mapping[str, Any]) -> PastRun:
        """Return the run from the result of `pack`; fields of newer releases are ignored."""
        return cls(**{name: value for name, value in document.items() if name in _NAMES})


_NAMES = frozenset(item.name for item in fields(PastRun))
