"""Resumes and undoes remaps of the journal, and takes drained nodes back."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from opsk.app.remap.apply import Ask, build_context, told_store
from opsk.errors import InputError
from opsk.hostlist import expand
from opsk.job_key import JobKey
from opsk.remapping.actions import OUR_REASON, Look
from opsk.remapping.execution import Applied, execute, look
from opsk.remapping.journal import FileJournal, Remapping
from opsk.remapping.preparation import launcher_of
from opsk.remapping.running import caller_rights, run_command
from opsk.remapping.undoing import Undo, undo, undo_commands
from opsk.slurm.client import SlurmClient
from opsk.slurm.cluster_name import cluster_name
from opsk.slurm.commands.remap_commands import Who, resume
from opsk.slurm.records import JobRecord, NodeRecord
from opsk.text import escape


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoPlan:
    """What taking a remap back would do now, step by step, the caller's rights, and what is easily overlooked."""

    undos: tuple[Undo, ...]
    rights: tuple[Who, ...]
    warnings: tuple[str, ...]


def undo_plan(journal: FileJournal, slurm: SlurmClient, name: str) -> UndoPlan:
    """Return what undoing a remap would run; nothing is run.

    Raises
    ------
    InputError
        There is no such remap, or it is of another cluster.
    SlurmError
        Slurm does not answer.
    """
    remap = journal.read(name)
    _refuse_of_another(remap, cluster_name(slurm))
    now = look(build_context(journal, slurm), remap.planned.job)
    undos = undo_commands(remap, now) if now is not None else ()
    texts = [each.command.text for each in undos if each.command is not None]
    return UndoPlan(
        undos=undos,
        rights=caller_rights(now.job if now is not None else None, run_command),
        warnings=tuple(text for text in (_undo_text(each, remap) for each in texts) if text not in texts),
    )


def resume_remap(
    journal: FileJournal, slurm: SlurmClient, name: str, *, is_undo: bool, ask: Ask | None,
    tell: Callable[[str], None] | None = None, warn: Callable[[str], None] | None = None,
    shown: tuple[str, ...] | None = None,
) -> Applied:  # fmt: skip
    """Go on with a remap, or undo it, once the caller has seen what that is (``ask`` is ``None``: has seen it).

    ``shown`` are the commands of an undo that he has seen, where that was another moment: others are not run.

    Raises
    ------
    InputError
        There is no such remap, or it is of another cluster.
    """
    remap = journal.read(name)
    cluster = cluster_name(slurm)
    _refuse_of_another(remap, cluster)
    # What opsk 0.1 began names no cluster: who asks for it by its id means this one.
    key = JobKey(cluster=remap.planned.cluster or cluster, job=remap.planned.job)
    with journal.held(key):
        kept = told_store(journal, key.cluster, warn)
        context = build_context(kept, slurm, tell=tell)
        now = look(context, remap.planned.job)
        job = now.job if now is not None else None
        rights = caller_rights(job, run_command)
        if launcher := launcher_of(job, cluster):
            context = build_context(kept, slurm, launcher=launcher, tell=tell)
        texts = _texts(remap, now, is_undo=is_undo)
        if ask is not None and not ask(escape(f"{'; '.join(texts) or 'nothing to run'}: go on?")):
            return Applied(kind=remap.planned.kind, title=remap.planned.title, rights=rights, journal=name)
        return undo(remap, context, rights=rights, shown=shown) if is_undo else execute(remap, context, rights=rights)


def _refuse_of_another(remap: Remapping, cluster: str) -> None:
    """Refuse a remap of another cluster: its job's number is that of another job here.

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


def _texts(remap: Remapping, now: Look | None, *, is_undo: bool) -> list[str]:
    if is_undo:
        found = undo_commands(remap, now) if now is not None else ()
        return [_undo_text(each.command.text, remap) for each in found if each.command is not None]
    done = remap.steps
    return [step.text for step in remap.planned.steps if done.get(step.number) not in {"done", "skipped"}]


def _undo_text(text: str, remap: Remapping) -> str:
    """Return a command with what it takes away where that is easily overlooked."""
    clears = "excnodelist= " in f"{text} " and not remap.planned.before.excluded
    return f"{text} (no node was excluded before; exclusions made since are cleared too)" if clears else text


def resume_nodes(slurm: SlurmClient, words: str, *, ask: Ask | None) -> Applied:
    """Take nodes back that opsk drained.

    Raises
    ------
    InputError
        A node is not known, or somebody else drained it.
    """
    records: Mapping[str, NodeRecord] = {node.name: node for node in slurm.nodes()}
    names = list(expand(words))
    now = Look(job=None, nodes=records)
    strange = [name for name in names if name not in records]
    if strange:
        raise InputError(f"Slurm knows no node {strange[0]}", hint="see sinfo -N")
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
        return Applied(kind="resume", title=title, left=(("", "not drained: nothing to do"),))
    command = resume(drained)
    no_job: JobRecord | None = None
    rights = caller_rights(no_job, run_command) if os.geteuid() else tuple(Who)
    if Who.ADMINISTRATOR not in rights:
        return Applied(kind="resume", title=title, rights=rights, left=((command.text, "by an administrator"),))
    if ask is not None and not ask(escape(f"{command.text}: run it now?")):
        return Applied(kind="resume", title=title, rights=rights, left=((command.text, "by you"),))
    status, said = run_command(command.argv)
    if status:
        return Applied(kind="resume", title=title, rights=rights, refused=command.text, said=said)
    return Applied(kind="resume", title=title, rights=rights, done=(command.text,))
