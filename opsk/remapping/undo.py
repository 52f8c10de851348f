"""Undoes a remap as far as Slurm allows, and reports what cannot be undone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from opsk.errors import InputError, SlurmError
from opsk.remapping.actions import OUR_REASON, ClusterState, InitialState, Step
from opsk.remapping.commands import is_allowed
from opsk.remapping.execution import ExecutionContext, ExecutionResult, read_cluster_state
from opsk.remapping.journal import Line, Remapping
from opsk.slurm.commands.remap_commands import ActionKind, Command, Who, release_job, restore_nodes, resume
from opsk.slurm.records import JobRecord

_NEVER = {
    ActionKind.REQUEUE: "the job left its nodes: Slurm gives none back to a job that was requeued",
    ActionKind.START: "the job was started again",
    ActionKind.SHRINK: "nodes that a job gave back cannot be had again by it",
    ActionKind.DECIDE: "the launcher runs the new map; hand it another one with opsk remap --apply",
    ActionKind.RELEASE: "the job was let go",
    ActionKind.RESUME: "the nodes are in use again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """How one step is undone: with ``command``, or not, with ``why``."""

    step: Step
    command: Command | None = None
    why: str = ""


def undo_commands(remap: Remapping, now: ClusterState) -> tuple[Undo, ...]:
    """Return for each step that opsk did, the last first, how it is undone now."""
    steps = remap.steps
    done = [step for step in reversed(remap.planned.steps) if steps.get(step.number) in {"done", "started"}]
    return tuple(_find_undo(step, remap.planned.before, now) for step in done)


def _find_undo(step: Step, before: InitialState, now: ClusterState) -> Undo:
    kind = step.action.kind
    if kind is ActionKind.DRAIN:
        return _find_resume(step, before, now)
    job = now.job
    if kind is ActionKind.CONSTRAIN_NODES:
        if job is None or job.state != "PENDING":
            return Undo(step=step, why="the job is not pending any more: its nodes cannot be named anew")
        return Undo(step=step, command=_restore_nodes(step, before, job))
    if kind is ActionKind.REQUEUE_HOLD:
        if job is not None and job.state == "PENDING" and (job.reason or "").startswith("JobHeld"):
            return Undo(step=step, command=replace(release_job(str(job.label)), later=False))
        return Undo(step=step, why="the job is not held any more")
    return Undo(step=step, why=_NEVER.get(kind, "there is no way back"))


def _find_resume(step: Step, before: InitialState, now: ClusterState) -> Undo:
    """Return the command that resumes nodes which opsk drained and nobody else has drained since."""
    nodes = [name for name in step.action.nodes if name not in before.drained and now.is_drained(name)]
    ours = [name for name in nodes if (now.nodes[name].reason or "").startswith(OUR_REASON)]
    if not ours:
        why = f"drained by someone else: {', '.join(nodes[:4])}" if nodes else "not drained any more, or was so before"
        return Undo(step=step, why=why)
    return Undo(step=step, command=replace(resume(ours), later=False, why="opsk drained them"))


def _restore_nodes(step: Step, before: InitialState, job: JobRecord) -> Command:
    excluded = before.excluded if step.action.excluded else None
    return restore_nodes(str(job.label), required=before.required, excluded=excluded)


def undo(
    remap: Remapping, context: ExecutionContext, *, rights: tuple[Who, ...], shown: tuple[str, ...] | None = None
) -> ExecutionResult:
    """Undo a remap as far as Slurm and the caller's rights allow; ``left`` lists what stays, and why.

    Parameters
    ----------
    shown
        The commands that the caller approved; others, due to a changed cluster, are not run.

    Raises
    ------
    InputError
        Nothing of it was done, or it is undone already.
    SlurmError
        Slurm does not answer.
    """
    planned = remap.planned
    if remap.state not in {"applied", "failed", "applying", "undoing"} or not remap.steps:
        raise InputError(f"remap {planned.id} is {remap.state}: there is nothing to undo", hint="opsk remap --journal")
    now = read_cluster_state(context, planned.job)
    if now is None:
        raise SlurmError("Slurm is not asked here: nobody can tell what can be undone")
    _log(context, remap, "undoing")
    done: list[str] = []
    left: list[tuple[str, str]] = []
    for item in undo_commands(remap, now):
        if item.command is None:
            left.append((item.step.text, f"stays: {item.why}"))
        elif shown is not None and item.command.text not in shown:
            left.append((item.command.text, "not run: the job or its nodes have changed meanwhile"))
        elif not is_allowed(item.command, rights):
            left.append((item.command.text, f"by an {item.command.who}"))
        else:
            status, output = context.run(item.command.argv)
            if status:
                _log(context, remap, "failed", message=output)
                return _build_result(remap, rights, done, left, refused=item.command.text, message=output)
            context.report(item.command.text)
            _log(context, remap, "undone", number=item.step.number, message=item.command.text)
            done.append(item.command.text)
    _log(context, remap, "undone")
    return _build_result(remap, rights, done, left)


def _build_result(
    remap: Remapping, rights: tuple[Who, ...], done: list[str], left: list[tuple[str, str]], *,
    refused: str | None = None, message: str | None = None,
) -> ExecutionResult:  # fmt: skip
    return ExecutionResult(
        kind=remap.planned.kind, title=remap.planned.title, rights=rights, done=tuple(done), left=tuple(left),
        refused=refused, said=message, journal=remap.planned.id,
    )  # fmt: skip


def _log(
    context: ExecutionContext, remap: Remapping, state: str, *, number: int | None = None, message: str = ""
) -> None:
    context.journal.add(
        remap.planned.id, Line(at_s=context.clock(), state=state, by=context.by, number=number, said=message)
    )
