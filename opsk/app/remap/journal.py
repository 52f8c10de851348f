"""Resumes and undoes remaps of the journal, and resumes drained nodes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from opsk.app.remap.apply import Ask, attach_store, build_context
from opsk.errors import InputError
from opsk.hostlist import expand
from opsk.job_key import JobKey
from opsk.remapping.cluster_state import OUR_REASON, ClusterState
from opsk.remapping.commands import find_caller_rights, run_command
from opsk.remapping.execution import ExecutionResult, Undo, execute, read_cluster_state, undo, undo_commands
from opsk.remapping.journal import FileJournal, Remapping
from opsk.remapping.preparation import find_launcher
from opsk.slurm.client import SlurmClient
from opsk.slurm.cluster_name import cluster_name
from opsk.slurm.commands.remap_commands import Who, resume
from opsk.slurm.records import JobRecord, NodeRecord
from opsk.text import escape


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
    journal: FileJournal, slurm: SlurmClient, name: str, *, is_undo: bool, ask: Ask | None,
    report: Callable[[str], None] | None = None, warn: Callable[[str], None] | None = None,
    shown: tuple[str, ...] | None = None,
) -> ExecutionResult:  # fmt: skip
    """Resume or undo a remap after the caller's confirmation (``ask`` is ``None``: already given).

    ``shown`` are the commands of an undo that were shown earlier: others are not run.

    Raises
    ------
    InputError
        There is no such remap, or it is of another cluster.
    """
    remap = journal.read(name)
    cluster = cluster_name(slurm)
    _refuse_other_cluster(remap, cluster)
    # Remaps of opsk 0.1 name no cluster: their id then means this one.
    key = JobKey(cluster=remap.planned.cluster or cluster, job=remap.planned.job)
    with journal.lock(key):
        store_journal = attach_store(journal, key.cluster, warn)
        context = build_context(store_journal, slurm, report=report)
        now = read_cluster_state(context, remap.planned.job)
        job = now.job if now is not None else None
        rights = find_caller_rights(job, run_command)
        if launcher := find_launcher(job, cluster):
            context = build_context(store_journal, slurm, launcher=launcher, report=report)
        texts = _list_commands(remap, now, is_undo=is_undo)
        if ask is not None and not ask(escape(f"{'; '.join(texts) or 'nothing to run'}: go on?")):
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
            f"remap {planned.id} is of {planned.key}, and Slurm's commands ask cluster {cluster} here",
            hint=f"call opsk where they ask {planned.cluster}, or set SLURM_CONF to its slurm.conf",
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
    return f"{text} (no node was excluded before; exclusions made since are cleared too)" if clears else text


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
        raise InputError(f"Slurm knows no node {unknown[0]}", hint="see sinfo -N")
    others = [
        name for name in names if now.is_drained(name) and not (records[name].reason or "").startswith(OUR_REASON)
    ]
    if others:
        why = records[others[0]].reason or "no reason"
        raise InputError(
            f"{others[0]} was not drained by opsk: {why}", hint=f"scontrol update nodename={others[0]} state=resume"
        )
    drained = [name for name in names if now.is_drained(name)]
    title = f"take {', '.join(names[:8])} back"
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
