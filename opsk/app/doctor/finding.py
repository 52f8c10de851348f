"""Defines the findings of site checks and what the checks read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from opsk.config import SiteConfig

CHECKS_GROUP = "opsk.site_checks"
"""Entry points of front ends: functions that get a `Site` and return findings about their own parts."""


class Level(StrEnum):
    """How bad it is; only ``WRONG`` is bad news."""

    SOUND = "sound"
    NOTE = "note"
    UNKNOWN = "unknown"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check.

    Parameters
    ----------
    check
        Name of the check; stable from release to release.
    level
        Severity.
    what, where, hint
        The observation, the file, socket or address, and what to do.
    """

    check: str
    level: Level
    what: str
    where: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The input of the checks.

    Parameters
    ----------
    config, config_path
        The site configuration (the defaults where it cannot be read) and its file.
    slurm
        Output of ``scontrol show config``; ``None`` when slurmctld does not answer.
    exporters
        URL by node.
    now_s
        Time of the check, in seconds since 1970.
    """

    config: SiteConfig
    config_path: Path
    slurm: Mapping[str, str] | None
    exporters: Mapping[str, str] = field(default_factory=dict)
    now_s: float


Check = Callable[[Site], Iterable[Finding]]


def sound(check: str, what: str, where: object = "") -> Finding:
    """Return that something is as it should be."""
    return Finding(check=check, level=Level.SOUND, what=what, where=str(where))


def note(check: str, what: str, where: object = "", hint: str = "") -> Finding:
    """Return that something is worth knowing, and not wrong."""
    return Finding(check=check, level=Level.NOTE, what=what, where=str(where), hint=hint)


def unknown(check: str, what: str, where: object = "", hint: str = "") -> Finding:
    """Return that something could not be checked."""
    return Finding(check=check, level=Level.UNKNOWN, what=what, where=str(where), hint=hint)


def wrong(check: str, what: str, where: object = "", hint: str = "") -> Finding:
    """Return that something is wrong."""
    return Finding(check=check, level=Level.WRONG, what=what, where=str(where), hint=hint)
