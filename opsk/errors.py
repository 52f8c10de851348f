"""Which errors does opsk raise, and with which exit status does each end a command?

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
    """An answer was given and it is bad news: out of memory, drift, a failure class."""
    USAGE = 2
    """Wrong usage, or an input that cannot be read at all."""
    UNAVAILABLE = 3
    """A needed service or program is not there."""


class OpskError(Exception):
    """Root of all errors that opsk raises on purpose.

    Parameters
    ----------
    message
        What is wrong, and where.
    hint
        What to do about it; empty when the message says it.
    """

    exit_status = ExitStatus.USAGE

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(OpskError):
    """An input given by a person or read from a file cannot be used at all."""


class ConfigError(InputError):
    """A configuration or catalogue file is wrong; the message lists all violations."""


class UnavailableError(OpskError):
    """A service or program that the request needs is not there."""

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
