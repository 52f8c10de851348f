"""Applies a remap option, resumes and undoes remaps of the journal, and resumes drained nodes."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from opsk.app.remap.inputs import RemapInputs
from opsk.config import load_site
from opsk.errors import InputError, OpskError
from opsk.hostlist import expand
from opsk.job_key import JobKey
from opsk.planning.remap.values import Option, Terms
from opsk.remapping.cluster_state import OUR_REASON, ClusterState
from opsk.remapping.commands import find_caller_name, find_caller_rights, format_executor, is_allowed, run_command
from opsk.remapping.execution import (
    Cluster,
    ExecutionContext,
    ExecutionResult,
    Undo,
    execute,
    read_cluster_state,
    undo,
    undo_commands,
)
from opsk.remapping.journal import FileJournal, Journal, Remapping, default_folder
from opsk.remapping.preparation import PlanBasis, RunningLauncher, find_launcher, prepare_remap
from opsk.slurm.client import SlurmClient
from opsk.slurm.cluster_name import cluster_name
from opsk.slurm.commands.remap_commands import Who, resume
from opsk.slurm.records import JobRecord, NodeRecord
from opsk.text import escape

Ask = Callable[[str], bool]

_log = logging.getLogger("opsk.remap")


def open_journal(folder: Path | None) -> FileJournal:
    """Return the journal of this user, or the named one."""
    return FileJournal(folder or default_folder(os.environ))


def attach_store(journal: FileJournal, cluster: str, warn: Callable[[str], None] | None = None) -> Journal:
    """Return a journal that also writes to the site's store, where it has one.

    Parameters
    ----------
    cluster
        Cluster of the job, as the store names it.
    warn
        Receives a warning, instead of the log, when the store cannot be written.
    """
    warn = warn or _warn
    url = load_site().store.url
    if not url:
        return journal
    try:
        # SQL is imported only where there is a store.
        from opsk.remapping.store_journal import StoreJournal
        from opsk.store.database.engine import open_store
        from opsk.store.writing import DirectWriter

        return StoreJournal(journal, DirectWriter(open_store(url)), cluster or "cluster", warn)
    except OpskError as error:
        warn(f"the store has no record of this remap: {error.message}")
        return journal


def _warn(text: str) -> None:
    _log.warning("%s", escape(text))


def build_context(
    journal: Journal,
    cluster: Cluster | None,
    *,
    launcher: RunningLauncher | None = None,
    report: Callable[[str], None] | None = None,
) -> ExecutionContext:
    """Return the execution context for the caller of this command."""
    return ExecutionContext(
        journal=journal,
        cluster=cluster,
        run=run_command,
        report=report or (lambda line: None),
        owner=launcher.owner if launcher is not None else None,
        launch_files=launcher.files if launcher is not None else {},
        by=find_caller_name(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RemapSession:
    """The journal, the Slurm client, and the caller.

    Parameters
    ----------
    ask
        Asks the caller for confirmation; ``None`` skips it.
    report, warn
        Receive one line per step, and warnings; by default nobody, and the log.
    """

    journal: FileJournal
    slurm: SlurmClient
    ask: Ask | None = None
    report: Callable[[str], None] = lambda line: None
    warn: Callable[[str], None] = _warn


def apply_option(
    session: RemapSession, option: Option, inputs: RemapInputs, terms: Terms, *, failed: tuple[str, ...]
) -> ExecutionResult:
    """Execute an option as far as the caller's rights allow; ``failed`` are the failures by name."""
    rights = find_caller_rights(inputs.job, run_command)
    launcher = find_launcher(inputs.job, inputs.cluster)
    basis = PlanBasis(failed=failed, state=ClusterState(job=inputs.job, nodes=inputs.records), cluster=inputs.cluster)
    planned = prepare_remap(option, terms, basis, rights=rights, at_s=time.time(), launcher=launcher)
    if session.ask is not None and not session.ask(escape(f"{option.title}: run {len(planned.steps)} commands now?")):
        return _build_declined(option, rights)
    with session.journal.lock(planned.key):
        journal = attach_store(session.journal, inputs.cluster, session.warn)
        journal.begin(planned)
        slurm = session.slurm if inputs.job is not None else None
        context = build_context(journal, slurm, launcher=launcher, report=session.report)
        return execute(journal.read(planned.id), context, rights=rights)


def _build_declined(option: Option, rights: tuple[Who, ...]) -> ExecutionResult:
    left = tuple(
        (command.text, "by you" if is_allowed(command, rights) else format_executor(command))
        for command in option.commands
    )
    return ExecutionResult(kind=option.kind.value, title=option.title, rights=rights, left=left)


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoPlan:
    """The steps that would undo a remap now, the caller's rights, and warnings."""

    undos: tuple[Undo, ...]
    rights: tuple[Who, ...]
    warnings: tuple[str, ...]


def plan_undo(journal: FileJournal, slurm: SlurmClient, name: str) -> UndoPlan:
    """Return the commands that would undo a remap; nothing is run.

    Raises
    ------
    InputError
        There is no such remap, or it is of another cluster.
    SlurmError
        Slurm does not answer.
    """
    remap = journal.read(name)
    _refuse_other_cluster(remap, cluster_name(slurm))
    now = read_cluster_state(build_context(journal, slurm), remap.planned.job)
    undos = undo_commands(remap, now) if now is not None else ()
    texts = [step.command.text for step in undos if step.command is not None]
    return UndoPlan(
        undos=undos,
        rights=find_caller_rights(now.job if now is not None else None, run_command),
        warnings=tuple(text for text in (_format_undo(step, remap) for step in texts) if text not in texts),
    )


def resume_remap(
    session: RemapSession, name: str, *, is_undo: bool, shown: tuple[str, ...] | None = None
) -> ExecutionResult:
    """Resume or undo a remap after the caller's confirmation.

    ``shown`` are the commands of an undo that were shown earlier: others are not run.

    Raises
    ------
    InputError
        There is no such remap, or it is of another cluster.
    """
    remap = session.journal.read(name)
    cluster = cluster_name(session.slurm)
    _refuse_other_cluster(remap, cluster)
    # Remaps of opsk 0.1 name no cluster: their id then means this one.
    key = JobKey(cluster=remap.planned.cluster or cluster, job=remap.planned.job)
    with session.journal.lock(key):
        journal = attach_store(session.journal, key.cluster, session.warn)
        context = build_context(journal, session.slurm, report=session.report)
        now = read_cluster_state(context, remap.planned.job)
        job = now.job if now is not None else None
        rights = find_caller_rights(job, run_command)
        if launcher := find_launcher(job, cluster):
            context = build_context(journal, session.slurm, launcher=launcher, report=session.report)
        texts = _list_commands(remap, now, is_undo=is_undo)
        if session.ask is not None and not session.ask(escape(f"{'; '.join(texts) or 'nothing to run'}: continue?")):
            return ExecutionResult(kind=remap.planned.kind, title=remap.planned.title, rights=rights, journal=name)
        return undo(remap, context, rights=rights, shown=shown) if is_undo else execute(remap, context, rights=rights)


def _refuse_other_cluster(remap: Remapping, cluster: str) -> None:
    """Refuse a remap of another cluster: its job number names another job here.

    Raises
    ------
    InputError
        It is one.
    """
    planned = remap.planned
    if planned.cluster and cluster and planned.cluster != cluster:
        raise InputError(
            f"remap {planned.id} is of {planned.key}, but Slurm's commands use cluster {cluster} here",
            hint=f"run opsk where they use {planned.cluster}, or set SLURM_CONF to its slurm.conf",
        )


def _list_commands(remap: Remapping, now: ClusterState | None, *, is_undo: bool) -> list[str]:
    if is_undo:
        undos = undo_commands(remap, now) if now is not None else ()
        return [_format_undo(item.command.text, remap) for item in undos if item.command is not None]
    done = remap.steps
    return [step.text for step in remap.planned.steps if done.get(step.number) not in {"done", "skipped"}]


def _format_undo(text: str, remap: Remapping) -> str:
    """Return a command, with a note on side effects that are easily overlooked."""
    clears = "excnodelist= " in f"{text} " and not remap.planned.before.excluded
    return f"{text} (this also clears exclusions made since: no node was excluded before)" if clears else text


def resume_nodes(slurm: SlurmClient, hostlist: str, *, ask: Ask | None) -> ExecutionResult:
    """Resume nodes that opsk drained.

    Raises
    ------
    InputError
        A node is unknown, or was not drained by opsk.
    """
    records: Mapping[str, NodeRecord] = {node.name: node for node in slurm.nodes()}
    names = list(expand(hostlist))
    now = ClusterState(job=None, nodes=records)
    unknown = [name for name in names if name not in records]
    if unknown:
        raise InputError(f"Slurm has no node {unknown[0]}", hint="see sinfo -N")
    others = [
        name for name in names if now.is_drained(name) and not (records[name].reason or "").startswith(OUR_REASON)
    ]
    if others:
        why = records[others[0]].reason or "no reason"
        raise InputError(
            f"{others[0]} was not drained by opsk: {why}", hint=f"scontrol update nodename={others[0]} state=resume"
        )
    drained = [name for name in names if now.is_drained(name)]
    title = f"resume {', '.join(names[:8])}"
    if not drained:
        return ExecutionResult(kind="resume", title=title, left=(("", "not drained: nothing to do"),))
    command = resume(drained)
    no_job: JobRecord | None = None
    rights = find_caller_rights(no_job, run_command) if os.geteuid() else tuple(Who)
    if Who.ADMINISTRATOR not in rights:
        return ExecutionResult(kind="resume", title=title, rights=rights, left=((command.text, "by an administrator"),))
    if ask is not None and not ask(escape(f"{command.text}: run it now?")):
        return ExecutionResult(kind="resume", title=title, rights=rights, left=((command.text, "by you"),))
    status, message = run_command(command.argv)
    if status:
        return ExecutionResult(kind="resume", title=title, rights=rights, refused=command.text, said=message)
    return ExecutionResult(kind="resume", title=title, rights=rights, done=(command.text,))
