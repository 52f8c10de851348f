"""Compares the cluster with a remap: which steps are done, and what has changed since the plan was made; pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from opsk.slurm.commands.remap_commands import Action, ActionKind
from opsk.slurm.records import JobRecord, NodeRecord

_MAX_REPORTED = 8
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
    """The cluster now: the job (``None``: Slurm does not know it any more), and the nodes by name."""

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
        return StepCheck(is_done=True, why=f"already so: {', '.join(action.nodes[:4])}") if done else NOT_DONE
    check = _CHECKS.get(action.kind)
    if check is None:
        return NOT_DONE
    if job is None:
        return StepCheck(stop="Slurm no longer knows the job")
    if job.state in _ENDED and "REQUEUED" not in job.state_flags:
        return StepCheck(stop=f"the job has ended: {job.state}")
    return check(step, before, state, job)


def _check_requeue(step: Step, before: InitialState, state: ClusterState, job: JobRecord) -> StepCheck:
    if state.has_restarted(before):
        return StepCheck(is_done=True, why="the job has already been started again")
    if job.state in _LEAVING or _LEAVING.intersection(job.state_flags):
        return StepCheck(is_done=True, why=f"the job is already {job.state}")
    return NOT_DONE


def _check_hold(step: Step, before: InitialState, state: ClusterState, job: JobRecord) -> StepCheck:
    is_held = job.state == "PENDING" and (job.reason or "").startswith("JobHeld")
    return StepCheck(is_done=True, why="the job is already held") if is_held else NOT_DONE


def _check_constrain(step: Step, before: InitialState, state: ClusterState, job: JobRecord) -> StepCheck:
    """Return whether the job has its nodes named; for one that was started again meanwhile it is too late."""
    requested, excluded = step.action.nodes, step.action.excluded
    if state.has_restarted(before) and job.nodes:
        wrong = set(job.nodes) & {*excluded, *before.failed}
        if wrong or (requested and set(job.nodes) != set(requested)):
            return StepCheck(stop=f"the job has been started again on {', '.join(job.nodes[:8])}")
        return StepCheck(is_done=True, why="the job runs again, on the requested nodes")
    if (
        set(job.required_nodes) == set(requested)
        and set(job.excluded_nodes) >= set(excluded)
        and (requested or excluded)
    ):
        return StepCheck(is_done=True, why="its nodes are already set")
    return NOT_DONE


def _check_start(step: Step, before: InitialState, state: ClusterState, job: JobRecord) -> StepCheck:
    return StepCheck(is_done=True, why="the job runs again") if state.has_restarted(before) else NOT_DONE


def _check_shrink(step: Step, before: InitialState, state: ClusterState, job: JobRecord) -> StepCheck:
    remaining = set(step.action.nodes)
    return StepCheck(is_done=True, why="the job already has these nodes") if set(job.nodes) == remaining else NOT_DONE


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Preconditions:
    """What an option depends on.

    Parameters
    ----------
    job
        Its state, restarts and nodes, by these keys; empty where no job was read.
    nodes
        As text: whether the job's own nodes are usable, and the whole state and GPUs in use of others. Nodes
        that failed are left out: draining them changes nothing.
    """

    job: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, str] = field(default_factory=dict)

    @property
    def hash(self) -> str:
        """Sixteen hex digits that are the same as long as nothing that counts changes."""
        text = json.dumps([dict(self.job), dict(self.nodes)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def build_preconditions(
    job: JobRecord | None, nodes: Mapping[str, NodeRecord], *, used: Iterable[str] = (), failed: Iterable[str] = ()
) -> Preconditions:
    """Return what an option depends on, as it is now.

    Parameters
    ----------
    used
        Nodes that the job then uses.
    failed
        Nodes of the failure.
    """
    if job is None:
        return Preconditions()
    job_nodes, excluded = set(job.nodes), set(failed)
    names = sorted({*used, *job_nodes} - excluded)
    return Preconditions(
        job={"state": job.state, "restarts": str(job.restarts or 0), "nodes": ",".join(job.nodes)},
        nodes={name: _format_node(nodes[name], is_own=name in job_nodes) for name in names if name in nodes},
    )


def _format_node(node: NodeRecord, *, is_own: bool) -> str:
    if is_own:
        return "usable" if node.is_usable else "+".join([node.state, *sorted(node.state_flags)])
    used = f", {node.gpus_used} GPUs in use" if node.gpus_used else ""
    return "+".join([node.state, *sorted(node.state_flags)]) + used


def list_changes(before: Preconditions, now: Preconditions) -> tuple[str, ...]:
    """Return what is different, as text; empty where the job was not read."""
    changes = [
        f"the job's {name} was {before.job[name] or 'none'}, is {now.job.get(name) or 'none'}"
        for name in before.job
        if before.job[name] != now.job.get(name)
    ]
    changes += [
        f"{name} was {before.nodes[name]}, is {now.nodes.get(name, 'unknown to Slurm')}"
        for name in before.nodes
        if before.nodes[name] != now.nodes.get(name) and (name in now.nodes or now.nodes)
    ]
    more = f"and {len(changes) - _MAX_REPORTED} more"
    return tuple(changes[:_MAX_REPORTED]) + ((more,) if len(changes) > _MAX_REPORTED else ())
