"""What of a remap can be taken back, and with which commands? As far as Slurm allows; the rest is said."""

from __future__ import annotations

from dataclasses import dataclass

from opsk.errors import InputError, SlurmError
from opsk.hostlist import fold
from opsk.remapping.actions import OUR_REASON, ActionKind, Before, Look, Step, nodes_in
from opsk.remapping.execution import Applied, ExecutionContext, look
from opsk.remapping.journal import Line, Remapping
from opsk.remapping.running import is_mine
from opsk.slurm.commands.remap_commands import Command, Who, release_job, resume

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
    """How one step is taken back: with ``command``, or not, with ``why``."""

    step: Step
    command: Command | None = None
    why: str = ""


def undo_commands(remap: Remapping, now: Look) -> tuple[Undo, ...]:
    """Return for each step that opsk did, the last first, how it is taken back now."""
    steps = remap.steps
    done = [step for step in reversed(remap.planned.steps) if steps.get(step.number) in {"done", "started"}]
    return tuple(_undo(step, remap.planned.before, now) for step in done)


def _undo(step: Step, before: Before, now: Look) -> Undo:
    action_kind = step.action_kind
    if action_kind is ActionKind.DRAIN:
        return _resume(step, before, now)
    job = now.job
    if action_kind is ActionKind.STEER:
        if job is None or job.state != "PENDING":
            return Undo(step=step, why="the job is not pending any more: its nodes cannot be named anew")
        return Undo(step=step, command=_steer_back(step, before, now))
    if action_kind is ActionKind.HOLD_BACK:
        if job is not None and job.state == "PENDING" and (job.reason or "").startswith("JobHeld"):
            released = release_job(str(job.label))
            return Undo(step=step, command=Command(argv=released.argv, who=released.who, why=released.why))
        return Undo(step=step, why="the job is not held any more")
    return Undo(step=step, why=_NEVER.get(action_kind, "there is no way back"))


def _resume(step: Step, before: Before, now: Look) -> Undo:
    """Resume what opsk drained and nobody else has taken out since."""
    nodes = [name for name in nodes_in(step.argv, "nodename") if name not in before.drained and now.is_drained(name)]
    ours = [name for name in nodes if (now.nodes[name].reason or "").startswith(OUR_REASON)]
    if not ours:
        why = f"drained by someone else: {', '.join(nodes[:4])}" if nodes else "not drained any more, or was so before"
        return Undo(step=step, why=why)
    command = resume(ours)
    return Undo(step=step, command=Command(argv=command.argv, who=command.who, why="opsk drained them"))


def _steer_back(step: Step, before: Before, now: Look) -> Command:
    words = [f"reqnodelist={fold(before.required) if before.required else ''}"]
    if nodes_in(step.argv, "excnodelist"):
        words.insert(0, f"excnodelist={fold(before.excluded) if before.excluded else ''}")
    assert now.job is not None
    return Command(
        argv=("scontrol", "update", f"jobid={now.job.label}", *words), who=Who.USER, why="as it asked for at first"
    )


def undo(
    remap: Remapping, context: ExecutionContext, *, rights: tuple[Who, ...], shown: tuple[str, ...] | None = None
) -> Applied:
    """Take a remap back as far as Slurm allows and the caller may; ``left`` says what stays, and why.

    Parameters
    ----------
    shown
        The commands that the caller agreed to; others, which a world that has changed asks for, are not run.

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
    now = look(context, planned.job)
    if now is None:
        raise SlurmError("Slurm is not asked here: nobody can tell what can be undone")
    _add(context, remap, "undoing")
    done: list[str] = []
    left: list[tuple[str, str]] = []
    for each in undo_commands(remap, now):
        if each.command is None:
            left.append((each.step.text, f"stays: {each.why}"))
        elif shown is not None and each.command.text not in shown:
            left.append((each.command.text, "not run: the job or its nodes have changed meanwhile"))
        elif not is_mine(each.command, rights):
            left.append((each.command.text, f"by an {each.command.who}"))
        else:
            status, said = context.run(each.command.argv)
            if status:
                _add(context, remap, "failed", said=said)
                return _told(remap, rights, done, left, refused=each.command.text, said=said)
            context.tell(each.command.text)
            _add(context, remap, "undone", number=each.step.number, said=each.command.text)
            done.append(each.command.text)
    _add(context, remap, "undone")
    return _told(remap, rights, done, left)


def _told(
    remap: Remapping, rights: tuple[Who, ...], done: list[str], left: list[tuple[str, str]], *,
    refused: str | None = None, said: str | None = None,
) -> Applied:  # fmt: skip
    return Applied(
        kind=remap.planned.kind, title=remap.planned.title, rights=rights, done=tuple(done), left=tuple(left),
        refused=refused, said=said, journal=remap.planned.id,
    )  # fmt: skip


def _add(context: ExecutionContext, remap: Remapping, state: str, *, number: int | None = None, said: str = "") -> None:
    context.journal.add(
        remap.planned.id, Line(at_s=context.clock(), state=state, by=context.by, number=number, said=said)
    )
