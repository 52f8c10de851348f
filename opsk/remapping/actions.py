"""What does a command of an option do to Slurm, is it done already, and how is it taken back? Pure: a look decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from opsk.hostlist import expand
from opsk.slurm.records import JobRecord, NodeRecord

OUR_REASON = "opsk:"
"""Begins the reason of every drain that opsk makes."""
_DRAINED = frozenset({"DRAIN", "DRAINED", "DRAINING"})
_LEAVING = frozenset({"PENDING", "COMPLETING", "REQUEUED"})
_ENDED = frozenset(
    {
        "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE",
        "PREEMPTED", "REVOKED",
    }
)  # fmt: skip


class ActionKind(StrEnum):
    """What a command does."""

    DRAIN = "drain"
    RESUME = "resume"
    REQUEUE = "requeue"
    HOLD_BACK = "hold_back"
    STEER = "steer"
    START = "start"
    SHRINK = "shrink"
    RELEASE = "release"
    DECIDE = "decide"
    """No command: opsk hands a new rank map to the launcher that runs in the job (`opsk.remapping.decision`)."""
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command to run; ``when`` is the state that the job must be in first, empty where that does not matter."""

    number: int
    argv: tuple[str, ...]
    text: str
    when: str = ""

    @property
    def action_kind(self) -> ActionKind:
        """What it does."""
        return classify_command(self.argv)


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What had to be known of the world before anything was done, to tell what is done, and to take it back.

    Parameters
    ----------
    restarts
        How often the job had been started again.
    required, excluded
        Nodes that it asked for, and did not want.
    drained
        Nodes that were drained already, by others.
    failed
        Nodes that it must not run on again.
    """

    restarts: int = 0
    required: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    drained: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The world now: the job (``None``: Slurm does not know it any more), and the nodes by name."""

    job: JobRecord | None
    nodes: Mapping[str, NodeRecord] = field(default_factory=dict)

    def is_drained(self, name: str) -> bool:
        """Return whether a node takes no new job because somebody drained it."""
        node = self.nodes.get(name)
        return node is not None and bool(_DRAINED & {node.state, *node.state_flags})

    def restarted(self, before: Before) -> bool:
        """Return whether the job has been started again since."""
        job = self.job
        if job is None or not job.is_active or _LEAVING & {job.state, *job.state_flags}:
            return False  # Slurm counts a restart while the first run is still COMPLETING
        return (job.restarts or 0) > before.restarts


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What the world says of a step: ``is_done`` with why, or ``stop``: why it must not be run any more."""

    is_done: bool = False
    why: str = ""
    stop: str = ""


NOT_DONE = Finding()


def classify_command(argv: Sequence[str]) -> ActionKind:
    """Return what a command does.

    Examples
    --------
    >>> deed_of(("scontrol", "requeue", "7")).value
    'requeue'
    """
    if argv[:1] == ("opsk-decide",):
        return ActionKind.DECIDE
    if len(argv) < 3 or argv[0] != "scontrol":
        return ActionKind.OTHER
    plain = {"requeue": ActionKind.REQUEUE, "requeuehold": ActionKind.HOLD_BACK, "release": ActionKind.RELEASE}.get(
        argv[1]
    )
    if plain is not None or argv[1] != "update":
        return plain or ActionKind.OTHER
    names = {word.partition("=")[0]: word.partition("=")[2] for word in argv[2:]}
    if "nodename" in names:
        return {"drain": ActionKind.DRAIN, "resume": ActionKind.RESUME}.get(names.get("state", ""), ActionKind.OTHER)
    for name, action_kind in (
        ("starttime", ActionKind.START),
        ("reqnodelist", ActionKind.STEER),
        ("nodelist", ActionKind.SHRINK),
    ):
        if name in names:
            return action_kind
    return ActionKind.OTHER


def value_of(argv: Sequence[str], name: str) -> str | None:
    """Return the value of ``name=value`` among a command's words."""
    return next((word.partition("=")[2] for word in argv if word.partition("=")[0] == name), None)


def nodes_in(argv: Sequence[str], name: str) -> tuple[str, ...]:
    """Return the nodes of ``name=LIST``."""
    return tuple(expand(value)) if (value := value_of(argv, name)) else ()


def look_at(step: Step, before: Before, look: Look) -> Finding:
    """Return whether a step is done already, or must not be done any more."""
    action_kind = step.action_kind
    if action_kind in {ActionKind.DRAIN, ActionKind.RESUME}:
        nodes = nodes_in(step.argv, "nodename")
        done = all(look.is_drained(node) is (action_kind is ActionKind.DRAIN) for node in nodes)
        return Finding(is_done=True, why=f"is so already: {', '.join(nodes[:4])}") if done else NOT_DONE
    if action_kind in {ActionKind.OTHER, ActionKind.DECIDE}:
        return NOT_DONE
    job = look.job
    if job is None:
        return Finding(stop="Slurm does not know the job any more")
    if job.state in _ENDED and "REQUEUED" not in job.state_flags:
        return Finding(stop=f"the job has ended: {job.state}")
    return _LOOKS[action_kind](step, before, look, job)


def _requeued(step: Step, before: Before, look: Look, job: JobRecord) -> Finding:
    if look.restarted(before):
        return Finding(is_done=True, why="the job was started again already")
    if job.state in _LEAVING or _LEAVING.intersection(job.state_flags):
        return Finding(is_done=True, why=f"the job is {job.state} already")
    return NOT_DONE


def _held(step: Step, before: Before, look: Look, job: JobRecord) -> Finding:
    held = job.state == "PENDING" and (job.reason or "").startswith("JobHeld")
    return Finding(is_done=True, why="the job is held already") if held else NOT_DONE


def _steered(step: Step, before: Before, look: Look, job: JobRecord) -> Finding:
    """Return whether the job has its nodes named; for one that was started again meanwhile it is too late."""
    wanted, excluded = nodes_in(step.argv, "reqnodelist"), nodes_in(step.argv, "excnodelist")
    if look.restarted(before) and job.nodes:
        wrong = set(job.nodes) & {*excluded, *before.failed}
        if wrong or (wanted and set(job.nodes) != set(wanted)):
            return Finding(stop=f"the job was started again meanwhile, on {', '.join(job.nodes[:8])}")
        return Finding(is_done=True, why="the job runs again, on nodes as they were wanted")
    if set(job.required_nodes) == set(wanted) and set(job.excluded_nodes) >= set(excluded) and (wanted or excluded):
        return Finding(is_done=True, why="its nodes are named already")
    return NOT_DONE


def _started(step: Step, before: Before, look: Look, job: JobRecord) -> Finding:
    return Finding(is_done=True, why="the job runs again") if look.restarted(before) else NOT_DONE


def _shrunk(step: Step, before: Before, look: Look, job: JobRecord) -> Finding:
    kept = set(nodes_in(step.argv, "nodelist"))
    return Finding(is_done=True, why="the job has just these nodes") if set(job.nodes) == kept else NOT_DONE


def _released(step: Step, before: Before, look: Look, job: JobRecord) -> Finding:
    held = (job.reason or "").startswith("JobHeld")
    return NOT_DONE if held else Finding(is_done=True, why="the job is not held")


_LOOKS = {
    ActionKind.REQUEUE: _requeued,
    ActionKind.HOLD_BACK: _held,
    ActionKind.STEER: _steered,
    ActionKind.START: _started,
    ActionKind.SHRINK: _shrunk,
    ActionKind.RELEASE: _released,
}
