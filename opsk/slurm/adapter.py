"""Selects the Slurm adapter: pyslurm where it is installed and matches the cluster, else Slurm's commands."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TypeVar

from opsk.config import load_site
from opsk.errors import ConfigError
from opsk.slurm.client import SlurmClient
from opsk.slurm.commands.command import DEADLINE_S, CommandClient
from opsk.slurm.pyslurm.client import PyslurmClient, PyslurmUnusableError, conf_problem
from opsk.slurm.records import JobRecord, NodeRecord

VARIABLE = "OPSK_SLURM_ADAPTER"

_log = logging.getLogger("opsk.slurm")
_Answer = TypeVar("_Answer")


class Adapter(StrEnum):
    """Adapters to Slurm; ``AUTO`` is pyslurm as long as it can serve the cluster."""

    AUTO = "auto"
    PYSLURM = "pyslurm"
    COMMANDS = "commands"


class ChosenClient:
    """Queries through pyslurm until it proves unable to serve this cluster, and through commands from then on.

    A slurmctld that does not answer is no reason to change: commands would wait as long.

    Parameters
    ----------
    pyslurm
        Used as long as it serves; ``None`` to use commands from the start.
    commands
        Used otherwise.
    why
        Why this adapter is used.
    is_final
        Never fall back: pyslurm was requested by name.
    """

    def __init__(
        self, pyslurm: PyslurmClient | None, commands: CommandClient, *, why: str, is_final: bool = False
    ) -> None:
        self._pyslurm = pyslurm
        self._commands = commands
        self._is_final = is_final
        self._choose(Adapter.COMMANDS if pyslurm is None else Adapter.PYSLURM, why)

    @property
    def adapter(self) -> Adapter:
        """The adapter of the next query."""
        return self._adapter

    @property
    def why(self) -> str:
        """Why that adapter is used."""
        return self._why

    def jobs(self, *, details: bool = False, finished: bool = False) -> tuple[JobRecord, ...]:
        """Return pending and active jobs; with ``finished`` those too that Slurm still remembers."""
        return self._ask(lambda client: client.jobs(details=details, finished=finished))

    def job(self, job_id: str) -> JobRecord:
        """Return one job with all details."""
        return self._ask(lambda client: client.job(job_id))

    def nodes(self) -> tuple[NodeRecord, ...]:
        """Return all nodes."""
        return self._ask(lambda client: client.nodes())

    def release(self) -> tuple[int, int]:
        """Return the release of the commands or library in use."""
        return self._ask(lambda client: client.release())

    def config(self) -> dict[str, str]:
        """Return the output of ``scontrol show config``, by parameter."""
        return self._commands.config()

    def _ask(self, question: Callable[[SlurmClient], _Answer]) -> _Answer:
        pyslurm = self._pyslurm
        if pyslurm is not None:
            try:
                return question(pyslurm)
            except PyslurmUnusableError as error:
                if self._is_final:
                    raise
                self._pyslurm = None
                pyslurm.close()
                self._choose(Adapter.COMMANDS, error.message)
        return question(self._commands)

    def _choose(self, adapter: Adapter, why: str) -> None:
        self._adapter, self._why = adapter, why
        _log.debug("Slurm is asked through %s: %s", adapter.value, why)


def slurm_client(environment: Mapping[str, str] | None = None, *, deadline_s: float = DEADLINE_S) -> ChosenClient:
    """Return the client for this machine: ``OPSK_SLURM_ADAPTER`` decides, then ``[slurm] adapter`` of the site.

    Nothing is started or queried here. Without pyslurm the commands are used and no further process is ever started.

    Parameters
    ----------
    environment
        Variables to start from instead of this process's own.
    deadline_s
        Maximum duration of one query [s].

    Raises
    ------
    ConfigError
        The variable or the site's configuration names no adapter.
    """
    given = os.environ if environment is None else environment
    commands = CommandClient(environment=environment, deadline_s=deadline_s)
    requested = resolve_adapter(given)
    if requested is Adapter.COMMANDS:
        return ChosenClient(None, commands, why="asked for")
    if requested is Adapter.AUTO:
        problem = conf_problem(given) if is_pyslurm_installed() else "pyslurm is not installed"
        if problem:
            return ChosenClient(None, commands, why=problem)
    pyslurm = PyslurmClient(environment=environment, deadline_s=deadline_s)
    is_named = requested is Adapter.PYSLURM
    return ChosenClient(pyslurm, commands, why="asked for" if is_named else "pyslurm is installed", is_final=is_named)


def resolve_adapter(environment: Mapping[str, str]) -> Adapter:
    """Return the adapter that the caller, or else the site, requests.

    Raises
    ------
    ConfigError
        It is no adapter.
    """
    named = environment.get(VARIABLE)
    if not named:
        return Adapter(load_site().slurm.adapter)
    try:
        return Adapter(named)
    except ValueError as error:
        words = ", ".join(Adapter)
        raise ConfigError(f"{VARIABLE}={named[:40]!r} is no way of asking Slurm", hint=f"one of {words}") from error


def is_pyslurm_installed() -> bool:
    """Return whether pyslurm could be imported, without doing so: that may end the interpreter."""
    try:
        return importlib.util.find_spec("pyslurm") is not None
    except (ImportError, ValueError):
        return False
