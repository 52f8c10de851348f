"""How do the screens change the cluster? With ``opsk remap`` and commands of Slurm, in threads, with a journal."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import numpy as np

from opsk.app.remap.apply import apply_option, journal_at
from opsk.app.remap.inputs import Gathered, RemapRequest, gather_remap
from opsk.app.remap.journal import resume_remap, undo_plan
from opsk.app.remap.terms import terms_of, until_end_s_of
from opsk.errors import InputError
from opsk.job_key import JobKey
from opsk.planning.placement.step_model import COMMUNICATION_ONLY
from opsk.planning.remap import preview as seats
from opsk.planning.remap.failure import wreck
from opsk.planning.remap.named import named_failure
from opsk.planning.remap.remap import remap
from opsk.planning.remap.terms import Terms
from opsk.planning.remap.values import Answer, Option
from opsk.remapping.execution import Applied
from opsk.remapping.journal import FileJournal, default_folder
from opsk.remapping.preparation import is_for_launcher, launcher_of
from opsk.remapping.running import caller_rights, is_mine, run_command
from opsk.slurm.choice import slurm_client
from opsk.slurm.client import SlurmClient
from opsk.slurm.commands.remap_commands import Command, Where, Who
from opsk_tui.data.feed_port import Choice, Outcome, Proposal, SeatPicture, Undoing

_MOST_KEPT = 16
RANK_FILE = "opsk-ranks.txt"
"""As `opsk remap` calls it: batch scripts look for it by this name in their own folder."""
_BY_COMMUNICATION = (
    "nobody tells what model the job trains, or its cluster: options are compared by communication alone, and no speed "
    "is predicted"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """What a proposal was made from: it is held against the world before anything is run."""

    found: Gathered
    terms: Terms
    answer: Answer


class SlurmActions:
    """Implements `opsk_tui.data.feed_port.Actions`.

    Parameters
    ----------
    journal
        Folder of the journal instead of the user's own.
    client
        Makes whoever asks Slurm.
    """

    def __init__(self, *, journal: Path | None = None, client: Callable[[], SlurmClient] = slurm_client) -> None:
        self._journal = journal
        self._client = client
        self._kept: dict[str, _Kept] = {}
        self._lock = Lock()

    async def propose(self, failed: Sequence[str], job_id: int, avoid: Collection[str] = ()) -> Proposal:
        """Return the options for a job after events that say what failed."""
        return await asyncio.to_thread(self._propose, tuple(failed), job_id, frozenset(avoid))

    async def apply(self, proposal: Proposal, choice: int, tell: Callable[[str], None]) -> Outcome:
        """Carry out one choice of a proposal."""
        return await asyncio.to_thread(self._apply, proposal, choice, tell)

    async def undoing(self, journal: str) -> Undoing:
        """Return what taking an applied option back would run."""
        return await asyncio.to_thread(self._undoing, journal)

    async def undo(self, journal: str, undoing: Undoing, tell: Callable[[str], None]) -> Outcome:
        """Take an applied option back, as far as Slurm allows."""
        return await asyncio.to_thread(self._undo, journal, undoing, tell)

    async def run(self, commands: Sequence[Command], tell: Callable[[str], None]) -> Outcome:
        """Run single commands; the first that Slurm refuses ends it."""
        return await asyncio.to_thread(_run, commands, tell)

    def _propose(self, failed: tuple[str, ...], job_id: int, avoid: frozenset[str]) -> Proposal:
        found = gather_remap(_request(str(job_id), avoid), self._client())
        terms = terms_of(found, str(job_id), rank_file=str(self._rank_file(found)), until_end_s=until_end_s_of(found))
        failure = named_failure(failed, found.machine)
        answer = remap(found.situation, failure, terms)
        broken = wreck(found.situation, failure)
        rights, launcher = caller_rights(found.job, run_command), launcher_of(found.job, found.cluster)
        has_launcher = launcher is not None and launcher.owner == os.geteuid()
        key = secrets.token_hex(8)
        with self._lock:
            self._kept[key] = _Kept(found=found, terms=terms, answer=answer)
            for old in list(self._kept)[:-_MOST_KEPT]:
                del self._kept[old]

        is_predicted = found.asked.step is not COMMUNICATION_ONLY

        def choice(option: Option) -> Choice:
            is_taken = has_launcher and is_for_launcher(option)
            picture = seats.preview(found.situation, broken, option)
            return Choice(
                option=option, goodput=option.goodput, before=_picture(picture.before), after=_picture(picture.after),
                mine=tuple(_may(command, rights, has_launcher=is_taken) for command in option.commands),
                is_predicted=is_predicted,
            )  # fmt: skip

        notes = [
            *([] if is_predicted else [_BY_COMMUNICATION]),
            *_broken_off(journal_at(self._journal), JobKey(cluster=found.cluster, job=terms.job)),
            *answer.notes,
            *(f"no {refusal.kind}: {refusal.why}" for refusal in answer.refused),
        ]
        notes += [f"assumed: {item.field} = {item.value} ({item.why})" for item in found.assumed]
        return Proposal(
            key=key, job_id=job_id, failed=failed, choices=tuple(choice(option) for option in answer.options),
            nothing_to_do=answer.nothing_to_do or "", notes=tuple(notes),
        )  # fmt: skip

    def _rank_file(self, found: Gathered) -> Path:
        """Return where the rank file goes: the job's own folder where that is the caller's, else the journal's."""
        job = found.job
        if job is not None and job.work_dir:
            folder = Path(job.work_dir)
            try:
                if folder.stat().st_uid == os.geteuid():
                    return folder / RANK_FILE
            except OSError:
                pass
        folder = self._journal or default_folder(os.environ)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        key = JobKey(cluster=found.cluster, job=str(job.id) if job is not None else "job")
        return folder / f"ranks-{key.file_name}.txt"

    def _apply(self, proposal: Proposal, choice: int, tell: Callable[[str], None]) -> Outcome:
        with self._lock:
            kept = self._kept.pop(proposal.key, None)
        if kept is None:
            raise InputError("this proposal was applied already, or is too old", hint="ask for the options again")
        applied = apply_option(
            kept.answer.options[choice], kept.found, kept.terms, failed=kept.answer.damage.failed,
            journal=journal_at(self._journal), slurm=self._client(), ask=None, tell=tell, warn=tell,
        )  # fmt: skip
        return _outcome(applied)

    def _undoing(self, journal: str) -> Undoing:
        found = undo_plan(journal_at(self._journal), self._client(), journal)
        commands = [each.command for each in found.undos if each.command is not None]
        stays = tuple(f"{each.step.text}: stays, {each.why}" for each in found.undos if each.command is None)
        return Undoing(
            commands=tuple(commands),
            mine=tuple(is_mine(command, found.rights) for command in commands),
            stays=(*found.warnings, *stays),
        )

    def _undo(self, journal: str, undoing: Undoing, tell: Callable[[str], None]) -> Outcome:
        applied = resume_remap(
            journal_at(self._journal), self._client(), journal, is_undo=True, ask=None, tell=tell, warn=tell,
            shown=tuple(command.text for command in undoing.commands),
        )  # fmt: skip
        return _outcome(applied, can_undo=False)


def _request(job: str, avoid: frozenset[str]) -> RemapRequest:
    """Return the question about a job of which Slurm, its advice and the site's configuration say the rest."""
    return RemapRequest(
        job=job, plan=None, nodes=None, spares=None, free=None, placement=None, fabric=(), routes=(), node_files=(),
        cluster=None, gpus_per_node=None, rank_order=None, release=None, avoid=avoid,
    )  # fmt: skip


def _broken_off(journal: FileJournal, key: JobKey) -> list[str]:
    """Say whether the last remap of this job is half done: options rest on what it has changed already."""
    last = next((remap for remap in journal.all() if remap.planned.key == key), None)
    if last is None or not last.is_open or last.state == "undoing":
        return []
    return [f"the last remap of this job is half done ({last.planned.title}): opsk remap --resume {last.planned.id}"]


def _may(command: Command, rights: tuple[Who, ...], *, has_launcher: bool) -> bool:
    """Return whether opsk runs a command for the caller; a new step is the launcher's, where the job has one."""
    return has_launcher if command.where is Where.IN_JOB else is_mine(command, rights)


def _picture(found: seats.SeatPicture) -> SeatPicture:
    return SeatPicture(
        nodes=found.nodes, columns=found.columns, ranks=np.asarray(found.ranks, dtype=np.int32), failed=found.failed
    )


def _outcome(applied: Applied, *, can_undo: bool = True) -> Outcome:
    return Outcome(
        done=applied.done,
        refused=applied.refused or "",
        said=applied.said or "",
        left=applied.left,
        journal=applied.journal or "",
        can_undo=can_undo and bool(applied.done) and not applied.is_outdated,
    )


def _run(commands: Sequence[Command], tell: Callable[[str], None]) -> Outcome:
    done: list[str] = []
    for command in commands:
        tell(command.text)
        status, said = run_command(command.argv)
        if status:
            return Outcome(done=tuple(done), refused=command.text, said=said or f"status {status}")
        done.append(command.text)
    return Outcome(done=tuple(done))
