"""Builds the Slurm commands that execute a remap option, by release, with the rights that each needs.

Run on 22.05, 24.11, 25.11 and 26.05; what differs between them:

================================= ============================================================================
what                              how it differs
================================= ============================================================================
NumNodes= of a requeued job       22.05 refuses more nodes than the job asked for at first
required nodes of a requeued job  with topology/block they work against the choice of blocks: only the failed
                                  nodes are excluded there
order of a step's ranks           26.05 places steps in topology order: there a rank file is always needed to
                                  keep ranks where they are
``-m arbitrary``                  for steps only: 26.05 refuses it on an allocation with topology/block, and
                                  opsk never uses it there
================================= ============================================================================

Slurm never adds a node to a running job, and one GPU of a node cannot be taken out of it: ``scontrol update
nodename=... gres=`` is refused while gres.conf names files. This module runs nothing; values are single arguments,
without a shell in between.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from opsk.errors import InputError
from opsk.hostlist import fold

Release = tuple[int, int]
TOPOLOGY_ORDER_SINCE: Release = (26, 5)
"""From here on a step's ranks follow the topology and not the names of nodes."""
PLACEHOLDER = "YOUR_COMMAND"
"""Placeholder for what the batch script launches; a command that holds it cannot be run by opsk."""
PENDING = "PENDING"
UNKNOWN_JOB = "JOBID"
"""Placeholder for the id of a job that was not named; a command that holds it cannot be run either."""
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_EVERY_NODE = "ALL"
"""What scontrol takes for all nodes there are."""
_JOB = re.compile(r"\d{1,10}(?:_\d{1,10}|\+\d{1,6})?")
_REASON = re.compile(r"[^\w .,:/+-]")
_MAX_REASON_CHARACTERS = 120
STALE = (
    "SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_JOB_NODELIST", "SLURM_NODELIST",
    "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE",
)  # fmt: skip
"""Variables of the batch script that describe the nodes at its start; srun would use them."""


class Who(StrEnum):
    """Whose rights a command needs; each may do what those before may do to their own jobs."""

    USER = "user"
    """The owner of the job."""
    OPERATOR = "operator"
    """AdminLevel=Operator in slurmdbd."""
    ADMINISTRATOR = "administrator"
    """AdminLevel=Administrator, SlurmUser or root."""


class Where(StrEnum):
    """Where a command is run."""

    ANYWHERE = "anywhere"
    """On any host that has Slurm's commands."""
    IN_JOB = "in the job"
    """In the job's batch script or in a shell of its allocation, in place of the step that ended."""


class ActionKind(StrEnum):
    """What a command does; journals store these words."""

    DRAIN = "drain"
    RESUME = "resume"
    RESERVE = "reserve"
    REQUEUE = "requeue"
    REQUEUE_HOLD = "requeue_hold"
    RELEASE = "release"
    CONSTRAIN_NODES = "constrain_nodes"
    START = "start"
    SHRINK = "shrink"
    RELAUNCH = "relaunch"
    DECIDE = "decide"
    """No Slurm command: opsk hands a new rank map to the launcher that runs in the job."""
    OTHER = "other"
    UNKNOWN = "unknown"
    """A step of a journal that an older opsk wrote, without the kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What a command does, and to which nodes.

    Parameters
    ----------
    nodes
        Nodes that are drained, resumed or reserved; that the job must get; or that it keeps.
    excluded
        Nodes that the job must not get.
    """

    kind: ActionKind
    nodes: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()


OTHER = Action(kind=ActionKind.OTHER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command: its arguments, whose rights it needs (``who``), where it runs, why, and its environment.

    ``action`` is what it does. ``later`` marks what waits for the end of a repair. ``when`` is the state that the job
    must be in first, as ``squeue -o %T`` shows it; empty where that does not matter.
    """

    argv: tuple[str, ...]
    who: Who
    why: str
    action: Action = OTHER
    where: Where = Where.ANYWHERE
    environment: Mapping[str, str] = field(default_factory=dict)
    later: bool = False
    when: str = ""

    @property
    def text(self) -> str:
        """Return it as a shell command line."""
        words = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        return " ".join([*words, shlex.join(self.argv)])

    @property
    def is_complete(self) -> bool:
        """Return whether nothing has to be filled in."""
        blanks = (PLACEHOLDER, UNKNOWN_JOB)
        return not any(word.rpartition("=")[2] in blanks for word in self.argv)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSite:
    """Properties of the site's Slurm; ``topology`` is ``tree``, ``block``, ..., ``None`` where it is unknown."""

    release: Release
    topology: str | None = None


def drain(nodes: Sequence[str], reason: str) -> Command:
    """Keep new jobs off nodes; what runs there goes on."""
    text = _REASON.sub(" ", reason)[:_MAX_REASON_CHARACTERS].strip() or "failure"
    return Command(
        argv=("scontrol", "update", f"nodename={_nodes(nodes)}", "state=drain", f"reason=opsk: {text}"),
        action=Action(kind=ActionKind.DRAIN, nodes=tuple(nodes)),
        who=Who.ADMINISTRATOR,
        why="no new job starts there; running jobs continue",
    )


def resume(nodes: Sequence[str]) -> Command:
    """Take nodes back after the repair."""
    return Command(
        argv=("scontrol", "update", f"nodename={_nodes(nodes)}", "state=resume"),
        action=Action(kind=ActionKind.RESUME, nodes=tuple(nodes)),
        who=Who.ADMINISTRATOR,
        why="after the repair: clears the drain and its reason",
        later=True,
    )


def reserve(nodes: Sequence[str], job: str) -> Command:
    """Reserve nodes, where no administrator is at hand to drain them."""
    return Command(
        argv=(
            "scontrol", "create", "reservation", f"reservationname=opsk-failed-{_job(job)}", f"nodes={_nodes(nodes)}",
            "starttime=now", "duration=1-00:00:00", "users=root", "flags=maint,ignore_jobs",
        ),
        action=Action(kind=ActionKind.RESERVE, nodes=tuple(nodes)), who=Who.OPERATOR,
        why="instead of the drain, if no administrator is available: no job starts there for a day",
    )  # fmt: skip


def requeue(job: str) -> Command:
    """Put a running job back into the queue."""
    return Command(
        argv=("scontrol", "requeue", _job(job)),
        action=Action(kind=ActionKind.REQUEUE),
        who=Who.USER,
        why="the job is pending again, eligible in 120 s",
    )


def build_state_query(job: str) -> tuple[str, ...]:
    """Return the command that prints the state of a job; ``COMPLETING`` until its nodes are clean."""
    return ("squeue", "-h", f"--jobs={_job(job)}", "--states=all", "-o", "%T")


def requeue_hold(job: str) -> Command:
    """Put a running job back into the queue and hold it there."""
    return Command(
        argv=("scontrol", "requeuehold", _job(job)),
        action=Action(kind=ActionKind.REQUEUE_HOLD),
        who=Who.USER,
        why="the job releases its nodes and is held",
    )


def release_job(job: str) -> Command:
    """Let a held job start."""
    return Command(
        argv=("scontrol", "release", _job(job)),
        action=Action(kind=ActionKind.RELEASE),
        who=Who.USER,
        why="after the repair: the job may start",
        later=True,
    )


def constrain_nodes(
    job: str, site: SlurmSite, *, excluded: Sequence[str], required: Sequence[str] = (), count: int | None = None
) -> Command:
    """Constrain where a pending job may start.

    Parameters
    ----------
    excluded
        Nodes that it must not get.
    required
        Exactly the nodes that it should get; not requested with topology/block, nor where it is left out.
    count
        Nodes that it should get, where that is another number than before.
    """
    pins = bool(required) and site.topology != "block"
    words = [f"excnodelist={_nodes(excluded)}"] if excluded else []
    words.append(f"reqnodelist={_nodes(required) if pins else ''}")
    if count is not None:
        words.append(f"numnodes={count}")
    why = "not on the failed nodes" if excluded else "where it should start"
    why += (
        ", and exactly on the evaluated nodes"
        if pins
        else "; this clears the list of required nodes, which may contain one"
    )
    action = Action(kind=ActionKind.CONSTRAIN_NODES, nodes=tuple(required) if pins else (), excluded=tuple(excluded))
    return Command(argv=("scontrol", "update", f"jobid={_job(job)}", *words), action=action, who=Who.USER, why=why)


def restore_nodes(job: str, *, required: Sequence[str], excluded: Sequence[str] | None) -> Command:
    """Give a pending job the required and excluded nodes of its submission again; ``None`` leaves the excluded ones."""
    words = [f"excnodelist={_nodes(excluded)}"] if excluded is not None else []
    words.append(f"reqnodelist={_nodes(required)}")
    return Command(
        argv=("scontrol", "update", f"jobid={_job(job)}", *words),
        action=Action(kind=ActionKind.CONSTRAIN_NODES, nodes=tuple(required), excluded=tuple(excluded or ())),
        who=Who.USER,
        why="as the job requested at submission",
    )


def start_now(job: str) -> Command:
    """Take the 120 s away that a requeued job waits."""
    return Command(
        argv=("scontrol", "update", f"jobid={_job(job)}", "starttime=now"),
        action=Action(kind=ActionKind.START),
        who=Who.USER,
        why="without it the job waits 120 s before it can start; run it once squeue shows PENDING: the end of "
        "COMPLETING sets the 120 s again",
        when=PENDING,
    )


def shrink(job: str, remaining: Sequence[str]) -> Command:
    """Shrink a running job to some of its nodes."""
    return Command(
        argv=("scontrol", "update", f"jobid={_job(job)}", f"nodelist={_nodes(remaining)}"),
        action=Action(kind=ActionKind.SHRINK, nodes=tuple(remaining)),
        who=Who.USER,
        why="the job loses the other nodes at once and cannot get them back",
    )


def relaunch(nodes: Sequence[str], *, tasks: int, rank_file: str | None) -> Command:
    """Run the training step again inside the job, on these nodes.

    ``rank_file`` is the file with one host per rank; without it Slurm's own order is right.
    """
    unset = tuple(word for name in STALE for word in ("-u", name))
    argv = ["env", *unset]
    argv += [f"SLURM_HOSTFILE={rank_file}"] if rank_file else []
    argv += ["srun", "--no-kill", f"--ntasks={tasks}"]
    argv += ["--distribution=arbitrary"] if rank_file else [f"--nodes={len(nodes)}", f"--nodelist={_nodes(nodes)}"]
    return Command(
        argv=(*argv, PLACEHOLDER),
        action=Action(kind=ActionKind.RELAUNCH, nodes=tuple(nodes)),
        who=Who.USER,
        where=Where.IN_JOB,
        why="restarts the step from the last checkpoint; the variables of the batch script still name the old nodes",
    )


def build_requeue_commands(
    job: str,
    site: SlurmSite,
    *,
    failed: Sequence[str],
    reason: str,
    required: Sequence[str] = (),
    count: int | None = None,
    is_running: bool = True,
) -> tuple[Command, ...]:
    """Return the whole sequence through the queue: drain, requeue, constrain, start now."""
    drained = (drain(failed, reason),) if failed else ()
    again = (requeue(job),) if is_running else ()
    return (
        *drained,
        *again,
        constrain_nodes(job, site, excluded=failed, required=required, count=count),
        start_now(job),
    )


def _nodes(names: Sequence[str]) -> str:
    """Return a host list.

    Raises
    ------
    InputError
        A name is no node name: Slurm would interpret it differently.
    """
    odd = [name for name in names if not _NODE.fullmatch(name) or name.upper() == _EVERY_NODE]
    if odd:
        raise InputError(f"{odd[0][:40]!r} is not a valid node name", hint="sinfo -N lists the names")
    return fold(names)


def _job(job: str) -> str:
    """Return a job id.

    Raises
    ------
    InputError
        It is none.
    """
    if job != UNKNOWN_JOB and not _JOB.fullmatch(job):
        raise InputError(f"{job[:40]!r} is not a job id", hint="write it as 4711, 4711_3 or 4711+1")
    return job
