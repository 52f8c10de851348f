"""How is an option carried out, gone on with after a crash, and taken back? Words to Slurm, no shell in between.

Each step looks at the world first: what is done already is not done again, so that a remap can be gone on with wherever
it was left. The first command that Slurm refuses ends it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from opsk.errors import InputError, OpskError, SlurmError
from opsk.remapping.actions import ActionKind, Finding, Look, Step, look_at
from opsk.remapping.decision import Decision, read_launched, write_document
from opsk.remapping.journal import Journal, Line, PlannedRemap, Remapping, RunState, StepState
from opsk.remapping.running import Run, run_command
from opsk.remapping.world import changes, world_of
from opsk.slurm.commands.remap_commands import Who, state_of
from opsk.slurm.records import JobRecord, NodeRecord

_MOST_WAITED_S = 180.0
"""A job that is requeued is COMPLETING while its processes are killed and epilogs run."""
_LOOKS = 5
"""How often in a row the state that is waited for must be seen. A job that starts again within half a second of being
pending gets the exit status of its first run from nodes that still end it, and fails."""
_POLL_S = 0.5
_MOST_FOR_LAUNCHER_S = 120.0


class Cluster(Protocol):
    """What is asked of Slurm; see `opsk.slurm.client.SlurmClient`."""

    def job(self, job_id: str) -> JobRecord:
        """Return one job."""
        ...

    def nodes(self) -> tuple[NodeRecord, ...]:
        """Return all nodes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What became of the commands of an option.

    ``done`` were run, or were done already; ``refused`` is the one that Slurm refused, with its words in ``said``;
    ``left`` are for someone else, for later, or for the job itself; ``rank_file`` was written; ``journal`` is the name
    to go on with or to undo. A plan that is out of date has no ``refused`` and why in ``said``; ``is_outdated`` then.
    """

    kind: str
    title: str
    rights: tuple[Who, ...] = ()
    done: tuple[str, ...] = ()
    refused: str | None = None
    said: str | None = None
    left: tuple[tuple[str, str], ...] = ()
    rank_file: str | None = None
    journal: str | None = None
    is_outdated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionContext:
    """What carrying out needs of the world outside.

    Parameters
    ----------
    journal
        Where everything is written down first.
    cluster
        Is asked what is so; ``None``: nothing is checked, for a job that is only described.
    run
        Runs commands.
    tell
        Gets one line a step.
    owner
        Whose launcher may be spoken to (uid of the job's owner); ``None``: nobody's.
    clock, sleep
        Seconds since 1970, and waiting.
    """

    journal: Journal
    cluster: Cluster | None = None
    run: Run = run_command
    tell: Callable[[str], None] = lambda line: None
    owner: int | None = None
    by: str = ""
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    launch_files: Mapping[str, Path] = field(default_factory=dict)


class StoppedError(OpskError):
    """A step cannot be done; the message says why."""


def look(context: ExecutionContext, job: str, *, nodes: bool = True) -> Look | None:
    """Return the world now; ``None`` where nobody is there to be asked.

    Raises
    ------
    SlurmError
        Slurm does not answer.
    """
    if context.cluster is None:
        return None
    try:
        record: JobRecord | None = context.cluster.job(job)
    except InputError:
        record = None
    return Look(job=record, nodes={node.name: node for node in context.cluster.nodes()} if nodes else {})


def execute(remap: Remapping, context: ExecutionContext, *, rights: tuple[Who, ...] = ()) -> Applied:
    """Do what is left of a remap; of one that was never begun, only where the world is as it was.

    Raises
    ------
    InputError
        It is over, or its rank file cannot be written.
    SlurmError
        Slurm does not answer at all.
    """
    planned = remap.planned
    if not remap.is_open or remap.state == "undoing":
        raise InputError(
            f"remap {planned.id} is {remap.state}: nothing is left to go on with", hint="opsk remap --journal"
        )
    if not remap.steps:
        different = _outdated(planned, context)
        if different:
            _note(context, planned, "outdated", said=different)
            return _result(planned, (), rights, said=different, is_outdated=True)
    written = _write_ranks(planned)
    _note(context, planned, "applying")
    done: list[str] = []
    for step in planned.steps:
        if remap.steps.get(step.number) in {"done", "skipped"}:
            done.append(step.text)
            continue
        try:
            _do(step, planned, context)
        except StoppedError as error:
            _note(context, planned, "failed", step, said=error.message)
            _note(context, planned, "failed", said=error.message)
            rest = tuple((later.text, "not run any more") for later in planned.steps if later.number > step.number)
            return _result(planned, done, rights, refused=step.text, said=error.message, rest=rest, rank_file=written)
        done.append(step.text)
    _note(context, planned, "applied")
    return _result(planned, done, rights, rank_file=written)


def _result(
    planned: PlannedRemap, done: list[str] | tuple[str, ...], rights: tuple[Who, ...], *, refused: str | None = None,
    said: str | None = None, rest: tuple[tuple[str, str], ...] = (), rank_file: str | None = None,
    is_outdated: bool = False,
) -> Applied:  # fmt: skip
    return Applied(
        kind=planned.kind, title=planned.title, rights=rights, done=tuple(done), refused=refused, said=said,
        left=(*rest, *planned.left), rank_file=rank_file, journal=planned.id, is_outdated=is_outdated,
    )  # fmt: skip


def _outdated(planned: PlannedRemap, context: ExecutionContext) -> str:
    """Return what has changed since the plan was made; empty for nothing."""
    now = look(context, planned.job)
    if now is None or not planned.world.job:
        return ""
    if now.job is None:
        return "Slurm does not know the job any more"
    there = world_of(now.job, now.nodes, used=planned.world.nodes, failed=planned.before.failed)
    return "; ".join(changes(planned.world, there))


def _do(step: Step, planned: PlannedRemap, context: ExecutionContext) -> None:
    """Do one step, unless it is done.

    Raises
    ------
    StoppedError
        It was refused, or must not be done any more.
    """
    if step.action_kind is ActionKind.DECIDE:
        _decide(step, planned, context)
        return
    found = _found(step, planned, context)
    if not found.is_done:
        _note(context, planned, "started", step)
        found = _await(step, planned, context)
    if found.is_done:
        context.tell(f"{step.text}: {found.why}")
        _note(context, planned, "skipped", step, said=found.why)
        return
    context.tell(step.text)
    status, said = context.run(step.argv)
    if status and not (context.cluster is not None and _found(step, planned, context).is_done):
        raise StoppedError(said or f"status {status}")
    _note(context, planned, "done", step)


def _found(step: Step, planned: PlannedRemap, context: ExecutionContext) -> Finding:
    """Return what the world says of a step.

    Raises
    ------
    StoppedError
        It must not be done any more, or nobody can tell whether it is done.
    """
    try:
        now = look(context, planned.job, nodes=step.action_kind in {ActionKind.DRAIN, ActionKind.RESUME})
    except SlurmError as error:
        raise StoppedError(error.message, hint=error.hint) from error
    if now is None:
        return Finding()
    found = look_at(step, planned.before, now)
    if found.stop:
        raise StoppedError(found.stop)
    return found


def _await(step: Step, planned: PlannedRemap, context: ExecutionContext) -> Finding:
    """Wait until the job is in the state that a step needs, or the step is done without us.

    Raises
    ------
    StoppedError
        The state does not come.
    """
    waited_s, seen = 0.0, 0
    while step.when:
        status, said = context.run(state_of(planned.job))
        state = said.strip()
        if status:
            raise StoppedError(said)
        seen = seen + 1 if state == step.when else 0
        if seen == _LOOKS:
            break
        if not seen and waited_s > _MOST_WAITED_S:
            raise StoppedError(f"job {planned.job} is still {state} after {_MOST_WAITED_S:.0f} s, not {step.when}")
        if not seen and context.cluster is not None and (found := _found(step, planned, context)).is_done:
            return found
        context.sleep(_POLL_S)
        waited_s += _POLL_S
    return Finding()


def _decide(step: Step, planned: PlannedRemap, context: ExecutionContext) -> None:
    """Hand a map to the launcher in the job, and wait until it runs it.

    Raises
    ------
    StoppedError
        It does not take it.
    """
    decision, path, launched = _addresses(planned, context)
    _note(context, planned, "started", step)
    context.tell(step.text)
    waited_s = 0.0
    try:
        while True:
            said = read_launched(launched, owner=context.owner if context.owner is not None else -1)
            if said is not None and said.decision == decision.id:
                break
            if said is not None and decision.id in said.refused:
                raise StoppedError(f"the launcher in the job refuses: {said.refused[decision.id]}")
            if not waited_s:
                write_document(path, decision)
            if waited_s > _MOST_FOR_LAUNCHER_S:
                raise StoppedError(f"the launcher did not start the new map within {_MOST_FOR_LAUNCHER_S:.0f} s")
            context.sleep(_POLL_S)
            waited_s += _POLL_S
    except InputError as error:
        raise StoppedError(error.message) from error
    _note(context, planned, "done", step)


def _addresses(planned: PlannedRemap, context: ExecutionContext) -> tuple[Decision, Path, Path]:
    if planned.decision is None or context.owner is None or set(context.launch_files) != {"decision", "launched"}:
        raise StoppedError("the job's launcher is not known any more")
    return planned.decision, context.launch_files["decision"], context.launch_files["launched"]


def _write_ranks(planned: PlannedRemap) -> str | None:
    """Write the file with one host per rank, where the option needs it.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    if not planned.ranks:
        return None
    try:
        Path(planned.rank_file).write_text(planned.ranks, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"{planned.rank_file}: {error.strerror}; nothing was run", hint="name another --rank-file"
        ) from error
    return planned.rank_file


def _note(
    context: ExecutionContext,
    planned: PlannedRemap,
    state: RunState | StepState,
    step: Step | None = None,
    *,
    said: str = "",
) -> None:
    number = step.number if step is not None else None
    context.journal.add(planned.id, Line(at_s=context.clock(), state=state, by=context.by, number=number, said=said))
