"""Executes an option, resumes it after a crash, and undoes it as far as Slurm allows.

Each step first compares the cluster's state: what is done already is not done again, so that a remap can be resumed
wherever it stopped. The first command that Slurm refuses ends it. Commands go to Slurm directly, without a shell.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from opsk.errors import InputError, OpskError, SlurmError
from opsk.remapping.cluster_state import (
    OUR_REASON,
    ClusterState,
    InitialState,
    Step,
    StepCheck,
    build_preconditions,
    check_step,
    list_changes,
)
from opsk.remapping.commands import Run, is_allowed, run_command
from opsk.remapping.decision import Decision, read_launcher_report, write_document
from opsk.remapping.journal import Journal, JournalLine, PlannedRemap, Remapping, RunState, StepState
from opsk.slurm.commands.remap_commands import (
    ActionKind,
    Command,
    Who,
    build_state_query,
    release_job,
    restore_nodes,
    resume,
)
from opsk.slurm.records import JobRecord, NodeRecord

_MAX_WAIT_S = 180.0
"""A job that is requeued is COMPLETING while its processes are killed and epilogs run."""
_STABLE_POLLS = 5
"""How often in a row the state that is waited for must be seen. A job that starts again within half a second of being
pending gets the exit status of its first run from nodes that still end it, and fails."""
_POLL_S = 0.5
_MAX_LAUNCHER_WAIT_S = 120.0
_IRREVERSIBLE = {
    ActionKind.REQUEUE: "Slurm does not give a requeued job its nodes back",
    ActionKind.START: "the job was started again",
    ActionKind.SHRINK: "a job cannot get back nodes that it released",
    ActionKind.DECIDE: "the launcher runs the new map; give it another one with opsk remap --apply",
    ActionKind.RELEASE: "the job was released",
    ActionKind.RESUME: "the nodes are in use again",
}


class Cluster(Protocol):
    """The Slurm client's methods in use; see `opsk.slurm.client.SlurmClient`."""

    def job(self, job_id: str) -> JobRecord:
        """Return one job."""
        ...

    def nodes(self) -> tuple[NodeRecord, ...]:
        """Return all nodes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionResult:
    """The result of executing an option.

    ``done`` were run, or were done already; ``refused`` is the one that Slurm refused, with its message in ``said``;
    ``left`` are for someone else, for later, or for the job itself; ``rank_file`` was written; ``journal`` is the name
    to resume or to undo. An outdated plan has no ``refused`` and its reason in ``said``; ``is_outdated`` then.
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
    """The interfaces that execution needs.

    Parameters
    ----------
    journal
        Where everything is written down first.
    cluster
        Provides the cluster's state; ``None``: nothing is checked, for a job that is only described.
    run
        Runs commands.
    report
        Gets one line a step.
    owner
        Owner of the launcher that may be used (uid of the job's owner); ``None``: none may.
    clock, sleep
        Seconds since 1970, and waiting.
    """

    journal: Journal
    cluster: Cluster | None = None
    run: Run = run_command
    report: Callable[[str], None] = lambda line: None
    owner: int | None = None
    by: str = ""
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    launch_files: Mapping[str, Path] = field(default_factory=dict)


class StoppedError(OpskError):
    """A step cannot be done; the message gives the reason."""


def read_cluster_state(context: ExecutionContext, job: str, *, nodes: bool = True) -> ClusterState | None:
    """Return the cluster's state now; ``None`` where there is no cluster to query.

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
    return ClusterState(job=record, nodes={node.name: node for node in context.cluster.nodes()} if nodes else {})


def execute(remap: Remapping, context: ExecutionContext, *, rights: tuple[Who, ...] = ()) -> ExecutionResult:
    """Execute the remaining steps of a remap; a remap that was never started needs an unchanged cluster.

    Raises
    ------
    InputError
        It is over, or its rank file cannot be written.
    SlurmError
        Slurm does not answer at all.
    """
    planned, result = remap.planned, _start_result(remap, rights)
    if not remap.is_open or remap.state == "undoing":
        raise InputError(
            f"remap {planned.id} is {remap.state}: there is nothing to resume", hint="opsk remap --journal"
        )
    if not remap.steps:
        different = _find_changes(planned, context)
        if different:
            _log(context, planned, "outdated", message=different)
            return replace(result, said=different, is_outdated=True)
    result = replace(result, rank_file=_write_ranks(planned))
    _log(context, planned, "applying")
    done: list[str] = []
    for step in planned.steps:
        if remap.steps.get(step.number) in {"done", "skipped"}:
            done.append(step.text)
            continue
        try:
            _execute_step(step, planned, context)
        except StoppedError as error:
            _log(context, planned, "failed", step, message=error.message)
            _log(context, planned, "failed", message=error.message)
            rest = tuple((later.text, "not run") for later in planned.steps if later.number > step.number)
            return replace(result, done=tuple(done), refused=step.text, said=error.message, left=(*rest, *planned.left))
        done.append(step.text)
    _log(context, planned, "applied")
    return replace(result, done=tuple(done))


def _start_result(remap: Remapping, rights: tuple[Who, ...]) -> ExecutionResult:
    """Return the result of a remap of which nothing is done yet."""
    planned = remap.planned
    return ExecutionResult(kind=planned.kind, title=planned.title, rights=rights, left=planned.left, journal=planned.id)


def _find_changes(planned: PlannedRemap, context: ExecutionContext) -> str:
    """Return what has changed since the plan was made; empty for nothing."""
    now = read_cluster_state(context, planned.job)
    if now is None or not planned.world.job:
        return ""
    if now.job is None:
        return "Slurm no longer knows the job"
    there = build_preconditions(now.job, now.nodes, used=planned.world.nodes, failed=planned.before.failed)
    return "; ".join(list_changes(planned.world, there))


def _execute_step(step: Step, planned: PlannedRemap, context: ExecutionContext) -> None:
    """Do one step, unless it is done.

    Raises
    ------
    StoppedError
        It was refused, or must not be done any more.
    """
    if step.action.kind is ActionKind.DECIDE:
        _hand_over_map(step, planned, context)
        return
    check = _check(step, planned, context)
    if not check.is_done:
        _log(context, planned, "started", step)
        check = _await_state(step, planned, context)
    if check.is_done:
        context.report(f"{step.text}: {check.why}")
        _log(context, planned, "skipped", step, message=check.why)
        return
    context.report(step.text)
    status, output = context.run(step.argv)
    if status and not (context.cluster is not None and _check(step, planned, context).is_done):
        raise StoppedError(output or f"status {status}")
    _log(context, planned, "done", step)


def _check(step: Step, planned: PlannedRemap, context: ExecutionContext) -> StepCheck:
    """Return the state of a step.

    Raises
    ------
    StoppedError
        It must not be done any more, or its state cannot be determined.
    """
    try:
        now = read_cluster_state(context, planned.job, nodes=step.action.kind in {ActionKind.DRAIN, ActionKind.RESUME})
    except SlurmError as error:
        raise StoppedError(error.message, hint=error.hint) from error
    if now is None:
        return StepCheck()
    check = check_step(step, planned.before, now)
    if check.stop:
        raise StoppedError(check.stop)
    return check


def _await_state(step: Step, planned: PlannedRemap, context: ExecutionContext) -> StepCheck:
    """Wait until the job is in the state that a step needs, or the step is done without us.

    Raises
    ------
    StoppedError
        The state does not come.
    """
    waited_s, matching_polls = 0.0, 0
    while step.when:
        status, output = context.run(build_state_query(planned.job))
        state = output.strip()
        if status:
            raise StoppedError(output)
        matching_polls = matching_polls + 1 if state == step.when else 0
        if matching_polls == _STABLE_POLLS:
            break
        if not matching_polls and waited_s > _MAX_WAIT_S:
            raise StoppedError(f"job {planned.job} is still {state} after {_MAX_WAIT_S:.0f} s, not {step.when}")
        if not matching_polls and context.cluster is not None and (check := _check(step, planned, context)).is_done:
            return check
        context.sleep(_POLL_S)
        waited_s += _POLL_S
    return StepCheck()


def _hand_over_map(step: Step, planned: PlannedRemap, context: ExecutionContext) -> None:
    """Hand a map to the launcher in the job, and wait until it runs it.

    Raises
    ------
    StoppedError
        It does not take it.
    """
    decision, path, launched = _find_launcher_files(planned, context)
    _log(context, planned, "started", step)
    context.report(step.text)
    waited_s = 0.0
    try:
        while True:
            report = read_launcher_report(launched, owner=context.owner if context.owner is not None else -1)
            if report is not None and report.decision == decision.id:
                break
            if report is not None and decision.id in report.refused:
                raise StoppedError(f"the job's launcher refuses the map: {report.refused[decision.id]}")
            if not waited_s:
                write_document(path, decision)
            if waited_s > _MAX_LAUNCHER_WAIT_S:
                raise StoppedError(f"the launcher did not start the new map within {_MAX_LAUNCHER_WAIT_S:.0f} s")
            context.sleep(_POLL_S)
            waited_s += _POLL_S
    except InputError as error:
        raise StoppedError(error.message) from error
    _log(context, planned, "done", step)


def _find_launcher_files(planned: PlannedRemap, context: ExecutionContext) -> tuple[Decision, Path, Path]:
    if planned.decision is None or context.owner is None or set(context.launch_files) != {"decision", "launched"}:
        raise StoppedError("the job's launcher no longer answers")
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


def _log(
    context: ExecutionContext,
    planned: PlannedRemap,
    state: RunState | StepState,
    step: Step | None = None,
    *,
    message: str = "",
) -> None:
    number = step.number if step is not None else None
    context.journal.add(
        planned.id, JournalLine(at_s=context.clock(), state=state, by=context.by, number=number, said=message)
    )


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
            return Undo(step=step, why="the job is no longer pending: its nodes cannot be changed")
        return Undo(step=step, command=_restore_nodes(step, before, job))
    if kind is ActionKind.REQUEUE_HOLD:
        if job is not None and job.state == "PENDING" and (job.reason or "").startswith("JobHeld"):
            return Undo(step=step, command=replace(release_job(str(job.label)), later=False))
        return Undo(step=step, why="the job is no longer held")
    return Undo(step=step, why=_IRREVERSIBLE.get(kind, "this cannot be undone"))


def _find_resume(step: Step, before: InitialState, now: ClusterState) -> Undo:
    """Return the command that resumes nodes which opsk drained and nobody else has drained since."""
    nodes = [name for name in step.action.nodes if name not in before.drained and now.is_drained(name)]
    ours = [name for name in nodes if (now.nodes[name].reason or "").startswith(OUR_REASON)]
    if not ours:
        why = f"drained by someone else: {', '.join(nodes[:4])}" if nodes else "no longer drained, or drained before"
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
        raise SlurmError("without Slurm opsk cannot see what can be undone")
    result = _start_result(remap, rights)
    _log(context, planned, "undoing")
    done: list[str] = []
    left: list[tuple[str, str]] = []
    for item in undo_commands(remap, now):
        if item.command is None:
            left.append((item.step.text, f"stays: {item.why}"))
        elif shown is not None and item.command.text not in shown:
            left.append((item.command.text, "not run: the job or its nodes have changed since it was shown"))
        elif not is_allowed(item.command, rights):
            left.append((item.command.text, f"by an {item.command.who}"))
        else:
            status, output = context.run(item.command.argv)
            if status:
                _log(context, planned, "failed", message=output)
                return replace(result, done=tuple(done), left=tuple(left), refused=item.command.text, said=output)
            context.report(item.command.text)
            _log(context, planned, "undone", item.step, message=item.command.text)
            done.append(item.command.text)
    _log(context, planned, "undone")
    return replace(result, done=tuple(done), left=tuple(left))
