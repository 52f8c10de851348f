"""Defines the errors that opsk raises and the exit status of each.

Every error says what is wrong and where in its message, and what to do in ``hint``. Only the command line turns an
error into an exit status; see ``ExitStatus``.
"""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """Exit statuses of every ``opsk`` command."""

    ANSWER = 0
    """An answer was given: fits, tight, unknown, nothing wrong."""
    BAD_NEWS = 1
    """An answer was given and it is negative: out of memory, drift, a failure class."""
    USAGE = 2
    """Wrong usage, or an input that cannot be read at all."""
    UNAVAILABLE = 3
    """A required service or program is not available."""


class OpskError(Exception):
    """Base class of all errors that opsk raises.

    Parameters
    ----------
    message
        What is wrong, and where.
    hint
        What to do about it; empty when the message includes it.
    """

    exit_status = ExitStatus.USAGE

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(OpskError):
    """An input of a user or a file cannot be used."""


class ConfigError(InputError):
    """A configuration or catalogue file is wrong; the message lists all violations."""


class UnavailableError(OpskError):
    """A required service or program is not available."""

    exit_status = ExitStatus.UNAVAILABLE


class SlurmError(UnavailableError):
    """Slurm did not answer, or refused."""


class TelemetryError(UnavailableError):
    """A device or counter file could not be read."""


class LabError(UnavailableError):
    """A part of the lab could not be started, or did not come up in time."""


class PlanInfeasibleError(OpskError):
    """A plan breaks limits; ``violations`` names all of them, each with its numbers."""

    def __init__(self, violations: tuple[str, ...], *, hint: str = "") -> None:
        super().__init__("; ".join(violations), hint=hint)
        self.violations = violations


class StoreError(UnavailableError):
    """The store is not installed, cannot be opened or written, or does not answer."""
