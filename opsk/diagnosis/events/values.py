"""Defines an event, a part that fails or is about to, as a plain value for the store, the TUI and programs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Part(StrEnum):
    """The kind of a failed part; ``opsk remap --failed`` takes these values before the colon."""

    GPU = "gpu"
    NIC = "nic"
    CABLE = "cable"
    LEAF = "leaf"
    NODE = "node"
    HB_DOMAIN = "hb"


class Severity(StrEnum):
    """How bad it is."""

    FATAL = "fatal"
    """The part is gone; jobs on it die or hang."""
    DEGRADED = "degraded"
    """It works, slower or at risk."""
    WATCH = "watch"
    """Worth knowing, nothing to do now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One failure as it was observed.

    Parameters
    ----------
    key
        Identifies this failure, the same however often it is observed and whatever reports it (``gpu:n3/5``).
    failed
        Value for ``opsk remap --failed`` (``gpu:n3/5``, ``nic:n3/mlx5_2``, ``leaf:leaf07``, ``hb:rack2``).
    part, severity
        Kind of the part, and severity.
    first_seen_s, last_seen_s
        Seconds since 1970.
    count
        How often it was observed.
    text
        The observation, with its numbers; plain text, hostile parts not yet escaped.
    action
        Action in one sentence; ``source`` is its reference (a vendor's page, ``facts``' section).
    nodes
        Nodes that it touches.
    jobs
        Slurm ids of jobs that use the part now.
    is_over
        True when it is healthy again.
    was_there
        True when the very first round showed it: it may have failed long before ``first_seen_s``.
    """

    key: str
    failed: str
    part: Part
    severity: Severity
    first_seen_s: float
    last_seen_s: float
    count: int = 1
    text: str = ""
    action: str = ""
    source: str = ""
    nodes: tuple[str, ...] = ()
    jobs: tuple[int, ...] = ()
    is_over: bool = False
    was_there: bool = False
