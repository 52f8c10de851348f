"""Defines the two ports of the screens: a feed that delivers views of the cluster, and actions that change it.

Screens await both and never block a key: an implementation does its waiting in threads or in asyncio. A request that
cannot be answered raises an `OpskError` whose message is shown. Nothing here imports Textual.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from opsk.planning.remap.values import Option
from opsk.slurm.commands.remap_commands import Command
from opsk_tui.data.view import ClusterView, Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTable:
    """The ranks of one job: one entry a rank, in rank order.

    Parameters
    ----------
    nodes, gpus
        Node of the rank, and the index of its GPU there (-1: not known).
    values
        By metric, float32, one entry a rank; NaN is unknown.
    step_s
        Latest step time of the rank itself [s]; NaN where it reports none; ``None`` where no rank does.
    memory_bytes
        Device memory in use [bytes]; NaN unknown; ``None`` where there is no source.
    places
        The rank's position in the plan (``tp0 pp1 dp3``); empty where the plan is unknown.
    """

    nodes: tuple[str, ...]
    gpus: NDArray[np.int16]
    values: Mapping[Metric, NDArray[np.float32]] = field(default_factory=dict)
    step_s: NDArray[np.float32] | None = None
    memory_bytes: NDArray[np.float64] | None = None
    places: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDetails:
    """The details of one job beyond its `JobView`; empty where unknown.

    Parameters
    ----------
    memory_parts_bytes
        The predicted memory of the fullest GPU by component [bytes].
    log_path, log
        The log that was read, and its last lines (hostile text, unchanged).
    advice
        The advice as sbatch printed it, line by line (plain text, hostile parts not yet escaped).
    problems
        What could not be read, and why.
    """

    job_id: int
    ranks: RankTable | None = None
    memory_parts_bytes: Mapping[str, float] = field(default_factory=dict)
    log_path: str = ""
    log: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class Feed(Protocol):
    """Delivers cluster views."""

    def views(self) -> AsyncIterator[ClusterView]:
        """Yield a view as soon as there is any, then one whenever something has changed.

        It never ends by itself and never raises for a source that is silent: the view's ``sources`` say so.
        Arrays that did not change should be the same objects as in the view before.
        """
        ...

    def ask_now(self) -> None:
        """Query the sources again without waiting for the interval; returns at once."""
        ...

    async def job_details(self, job_id: int) -> JobDetails:
        """Return the details of one job; queried every few seconds while its screen is open.

        Raises
        ------
        OpskError
            There is no such job, or its details cannot be read.
        """
        ...

    async def report_text(self, path: str) -> str:
        """Return the text of a report (hostile until made harmless).

        Raises
        ------
        OpskError
            It cannot be read.
        """
        ...

    async def accuracy(self) -> Mapping[str, Any]:
        """Return how good predictions have been here, as `opsk accuracy --json` prints it.

        Raises
        ------
        OpskError
            The store cannot be read.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementView:
    """Who sits where: one row a node, one column a GPU slot (which is a rail where each GPU has one HCA).

    Parameters
    ----------
    nodes
        Names of the nodes, in the order of the rows.
    columns
        Names of the columns (``rail 0``), hostile until made harmless.
    ranks
        Rank in each seat, int32, shape (nodes, columns); -1 is free.
    failed
        Whether the seat failed, shape (nodes, columns).
    """

    nodes: tuple[str, ...]
    columns: tuple[str, ...]
    ranks: NDArray[np.int32]
    failed: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemapChoice:
    """One remap option with the data that the screen shows beside it.

    Parameters
    ----------
    option
        The option itself: predicted speed, moved ranks, downtime, exact commands.
    goodput
        Useful part of the time until the end of the job [ratio]; ``None`` where the end is not known.
    before, after
        Rank placement before and after; ``None`` where it is unknown (a new numbering).
    mine
        One entry per command: whether the caller may run it; others are handed over.
    is_predicted
        Whether the speed is that of the job's own model; else options are compared by communication alone, and no speed
        is shown.
    """

    option: Option
    goodput: float | None = None
    before: PlacementView | None = None
    after: PlacementView | None = None
    mine: tuple[bool, ...] = ()
    is_predicted: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The remap options for one job after one event.

    Parameters
    ----------
    key
        Passed back to `Actions.apply`, which refuses when the state has changed since.
    choices
        Options, the best first; empty with ``nothing_to_do`` where there are none.
    notes
        Notes for the user: assumptions, refused kinds with their reason.
    """

    key: str
    job_id: int
    failed: tuple[str, ...]
    choices: tuple[RemapChoice, ...] = ()
    nothing_to_do: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of an action.

    Parameters
    ----------
    done
        Commands that were run.
    refused, said
        The command at which it ended and why; empty on success. A plan that is out of date is refused with an empty
        ``refused`` and the reason in ``said``.
    left
        Commands for someone else or for later, each with for whom.
    journal
        Name of the journal entry, for undo and resume; empty where there is none.
    """

    done: tuple[str, ...] = ()
    refused: str = ""
    message: str = ""
    left: tuple[tuple[str, str], ...] = ()
    journal: str = ""
    can_undo: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Undoing:
    """The commands that undo a remap, and what of it ``stays``, with the reason.

    ``mine`` has one entry per command: whether the caller may run it.
    """

    commands: tuple[Command, ...] = ()
    mine: tuple[bool, ...] = ()
    stays: tuple[str, ...] = ()


class Actions(Protocol):
    """Changes the cluster with the caller's rights, after the screen has shown the exact commands and was confirmed."""

    async def propose(self, failed: Sequence[str], job_id: int, avoid: Collection[str] = ()) -> Proposal:
        """Return the options for a job after events; ``failed`` holds the `Event.failed` of each of them.

        Nodes to ``avoid`` are not used as spares: they are faulty as well.

        Raises
        ------
        OpskError
            They cannot be computed: the plan or the fabric is unknown, or Slurm does not answer.
        """
        ...

    async def apply(self, proposal: Proposal, choice: int, report: Callable[[str], None]) -> Outcome:
        """Execute ``proposal.choices[choice]``; ``report`` receives one line per step, from any thread."""
        ...

    async def undoing(self, journal: str) -> Undoing:
        """Return the commands that `undo` would run now; it runs nothing.

        Raises
        ------
        OpskError
            There is nothing to undo, or Slurm does not answer.
        """
        ...

    async def undo(self, journal: str, undoing: Undoing, report: Callable[[str], None]) -> Outcome:
        """Undo an applied option, as far as Slurm allows; only commands that ``undoing`` has shown are run."""
        ...

    async def run(self, commands: Sequence[Command], report: Callable[[str], None]) -> Outcome:
        """Run single commands (cancel, hold, requeue, drain, resume) that the screen built and the caller confirmed."""
        ...
