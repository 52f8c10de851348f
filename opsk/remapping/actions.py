"""Determines from the cluster's state whether each step of a remap is done; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from opsk.slurm.commands.remap_commands import Action, ActionKind
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

UNRECORDED = Action(kind=ActionKind.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command to run; ``when`` is the state that the job must be in first, empty where that does not matter."""

    number: int
    argv: tuple[str, ...]
    text: str
    when: str = ""
    action: Action = UNRECORDED


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialState:
    """The cluster's state before the remap, as far as it is needed to check steps and to undo them.

    Parameters
    ----------
    restarts
        How often the job had been started again.
    required, excluded
        Nodes that it required, and excluded.
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
class ClusterState:
    """The world now: the job (``None``: Slurm does not know it any more), and the nodes by name."""

    job: JobRecord | None
    nodes: Mapping[str, NodeRecord] = field(default_factory=dict)

    def is_drained(self, name: str) -> bool:
        """Return whether a node takes no new job because it is drained."""
        node = self.nodes.get(name)
        return node is not None and bool(_DRAINED & {node.state, *node.state_flags})

    def has_restarted(self, before: InitialState) -> bool:
        """Return whether the job has been started again since."""
        job = self.job
        if job is None or not job.is_active or _LEAVING & {job.state, *job.state_flags}:
            return False  # Slurm counts a restart while the first run is still COMPLETING
        return (job.restarts or 0) > before.restarts


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCheck:
    """The state of a step: ``is_done`` with why, or ``stop``: why it must not be run any more."""

    is_done: bool = False
    why: str = ""
    stop: str = ""


NOT_DONE = StepCheck()


def check_step(step: Step, before: InitialState, state: ClusterState) -> StepCheck:
    """Return whether a step is done already, or must not be done any more."""
    action, job = step.action, state.job
    if action.kind in {ActionKind.DRAIN, ActionKind.RESUME}:
        done = all(state.is_drained(node) is (action.kind is ActionKind.DRAIN) for node in action.nodes)
        return StepCheck(is_done=True, why=f"is so already: {', '.join(action.nodes[:4])}") if done else NOT_DONE
    check = _CHECKS.get(action.kind)
    if check is None:
        return NOT_DONE
    if job is None:
        return StepCheck(stop="Slurm does not know the job any more")
    if job.state in _ENDED and "REQUEUED" not in job.state_flags:
        return StepCheck(stop=f"the job has ended: {job.state}")
    return check(step, before, state, job)


def _check_requeue(step: Step, before: InitialState, state: ClusterState, job: JobRecord) -> StepCheck:
    if state.has_restarted(before):
        return StepCheck(is_done=True, why="the job was started again already")
    if job.state in _LEAVING or _LEAVING.intersection(job.state_flags):
        return StepCheck(is_done=True, why=f"the job is {job.state} already")
    return NOT_DONE


def _check_hold(step: Step, before: InitialState, state: ClusterState, job: JobRecord) -> StepCheck:
    is_held = job.state == "PENDING" and (job.reason or "").startswith("JobHeld")
    return StepCheck(is_done=True, why="the job is held already") if is_held else NOT_DONE


def _check_constrain(step: Step, before: InitialState, state: ClusterState, job: JobRecord) -> StepCheck:
    """Return whether the job has its nodes named; for one that was started again meanwhile it is too late."""
    requested, excluded = step.action.nodes, step.action.excluded
    if state.has_restarted(before) and job.nodes:
        wrong = set(job.nodes) & {*excluded, *before.failed}
        if wrong or (requested and set(job.nodes) != set(requested)):
            return StepCheck(stop=f"the job was started again meanwhile, on {', '.join(job.nodes[:8])}")
        return StepCheck(is_done=True, why="the job runs again, on nodes as they were wanted")
    if (
        set(job.required_nodes) == set(requested)
        and set(job.excluded_nodes) >= set(excluded)
        and (requested or excluded)
    ):
        return StepCheck(is_done=True, why="its nodes are named already")
    return NOT_DONE


def _check_start(step: Step, before: InitialState, state: ClusterState, job: JobRecord) -> StepCheck:
    return StepCheck(is_done=True, why="the job runs again") if state.has_restarted(before) else NOT_DONE


def _check_shrink(step: Step, before: InitialState, state: ClusterState, job: JobRecord) -> StepCheck:
    remaining = set(step.action.nodes)
    return StepCheck(is_done=True, why="the job has just these nodes") if set(job.nodes) == remaining else NOT_DONE


def _check_release(step: Step, before: InitialState, state: ClusterState, job: JobRecord) -> StepCheck:
    is_held = (job.reason or "").startswith("JobHeld")
    return NOT_DONE if is_held else StepCheck(is_done=True, why="the job is not held")


_CHECKS = {
    ActionKind.REQUEUE: _check_requeue,
    ActionKind.REQUEUE_HOLD: _check_hold,
    ActionKind.CONSTRAIN_NODES: _check_constrain,
    ActionKind.START: _check_start,
    ActionKind.SHRINK: _check_shrink,
    ActionKind.RELEASE: _check_release,
}
