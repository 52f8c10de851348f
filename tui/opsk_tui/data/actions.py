"""Changes the cluster on behalf of the screens with ``opsk remap`` and Slurm commands, in threads, with a journal."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import numpy as np

from opsk.app.remap.execution import RemapSession, apply_option, open_journal, plan_undo, resume_remap
from opsk.app.remap.inputs import RemapInputs, RemapRequest, gather_remap
from opsk.app.remap.options import build_terms, compute_remaining_s
from opsk.errors import InputError
from opsk.job_key import JobKey
from opsk.planning.placement.step_model import COMMUNICATION_ONLY
from opsk.planning.remap import placement_view as seats
from opsk.planning.remap.failure import assess_impact, parse_failures
from opsk.planning.remap.remap import remap
from opsk.planning.remap.values import Answer, Option, Terms
from opsk.remapping.commands import find_caller_rights, is_allowed, run_command
from opsk.remapping.execution import ExecutionResult
from opsk.remapping.journal import FileJournal, default_folder
from opsk.remapping.preparation import find_launcher, is_for_launcher
from opsk.slurm.adapter import slurm_client
from opsk.slurm.client import SlurmClient
from opsk.slurm.commands.remap_commands import Command, Where, Who
from opsk_tui.data.feed_port import Outcome, PlacementView, Proposal, RemapChoice, Undoing

_MAX_PROPOSALS = 16
RANK_FILE = "opsk-ranks.txt"
"""The name of `opsk remap`: batch scripts look for this file in their own folder."""
_BY_COMMUNICATION = (
    "nobody tells what model the job trains, or its cluster: options are compared by communication alone, and no speed "
    "is predicted"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredProposal:
    """The inputs of a proposal, which are checked again before anything is run."""

    inputs: RemapInputs
    terms: Terms
    answer: Answer


class SlurmActions:
    """Implements `opsk_tui.data.feed_port.Actions`.

    Parameters
    ----------
    journal
        Folder of the journal instead of the user's own.
    client
        Creates the Slurm client.
    """

    def __init__(self, *, journal: Path | None = None, client: Callable[[], SlurmClient] = slurm_client) -> None:
        self._journal = journal
        self._client = client
        self._proposals: dict[str, _StoredProposal] = {}
        self._lock = Lock()

    async def propose(self, failed: Sequence[str], job_id: int, avoid: Collection[str] = ()) -> Proposal:
        """Return the options for a job after failure events."""
        return await asyncio.to_thread(self._propose, tuple(failed), job_id, frozenset(avoid))

    async def apply(self, proposal: Proposal, choice: int, report: Callable[[str], None]) -> Outcome:
        """Execute one choice of a proposal."""
        return await asyncio.to_thread(self._apply, proposal, choice, report)

    async def undoing(self, journal: str) -> Undoing:
        """Return the commands that would undo an applied option."""
        return await asyncio.to_thread(self._undoing, journal)

    async def undo(self, journal: str, undoing: Undoing, report: Callable[[str], None]) -> Outcome:
        """Undo an applied option, as far as Slurm allows."""
        return await asyncio.to_thread(self._undo, journal, undoing, report)

    async def run(self, commands: Sequence[Command], report: Callable[[str], None]) -> Outcome:
        """Run single commands; the first that Slurm refuses ends the sequence."""
        return await asyncio.to_thread(_run, commands, report)

    def _propose(self, failed: tuple[str, ...], job_id: int, avoid: frozenset[str]) -> Proposal:
        gathered = gather_remap(_request(str(job_id), avoid), self._client())
        terms = build_terms(
            gathered, str(job_id), rank_file=str(self._rank_file(gathered)), until_end_s=compute_remaining_s(gathered)
        )
        failure = parse_failures(failed, gathered.machine)
        answer = remap(gathered.situation, failure, terms)
        broken = assess_impact(gathered.situation, failure)
        rights, launcher = find_caller_rights(gathered.job, run_command), find_launcher(gathered.job, gathered.cluster)
        has_launcher = launcher is not None and launcher.owner == os.geteuid()
        key = secrets.token_hex(8)
        with self._lock:
            self._proposals[key] = _StoredProposal(inputs=gathered, terms=terms, answer=answer)
            for old in list(self._proposals)[:-_MAX_PROPOSALS]:
                del self._proposals[old]

        is_predicted = gathered.placement_inputs.step is not COMMUNICATION_ONLY

        def choice(option: Option) -> RemapChoice:
            is_taken = has_launcher and is_for_launcher(option)
            preview = seats.preview(gathered.situation, broken, option)
            return RemapChoice(
                option=option, goodput=option.goodput, before=_build_slot_map(preview.before),
                after=_build_slot_map(preview.after),
                mine=tuple(_may(command, rights, has_launcher=is_taken) for command in option.commands),
                is_predicted=is_predicted,
            )  # fmt: skip

        notes = [
            *([] if is_predicted else [_BY_COMMUNICATION]),
            *_find_abandoned(open_journal(self._journal), JobKey(cluster=gathered.cluster, job=terms.job)),
            *answer.notes,
            *(f"no {refusal.kind}: {refusal.why}" for refusal in answer.refused),
        ]
        notes += [f"assumed: {item.field} = {item.value} ({item.why})" for item in gathered.assumed]
        return Proposal(
            key=key, job_id=job_id, failed=failed, choices=tuple(choice(option) for option in answer.options),
            nothing_to_do=answer.nothing_to_do or "", notes=tuple(notes),
        )  # fmt: skip

    def _rank_file(self, gathered: RemapInputs) -> Path:
        """Return the path of the rank file: the job's own folder where that is the caller's, else the journal's."""
        job = gathered.job
        if job is not None and job.work_dir:
            folder = Path(job.work_dir)
            try:
                if folder.stat().st_uid == os.geteuid():
                    return folder / RANK_FILE
            except OSError:
                pass
        folder = self._journal or default_folder(os.environ)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        key = JobKey(cluster=gathered.cluster, job=str(job.id) if job is not None else "job")
        return folder / f"ranks-{key.file_name}.txt"

    def _apply(self, proposal: Proposal, choice: int, report: Callable[[str], None]) -> Outcome:
        with self._lock:
            stored = self._proposals.pop(proposal.key, None)
        if stored is None:
            raise InputError("this proposal was applied already, or is too old", hint="ask for the options again")
        applied = apply_option(
            self._session(report), stored.answer.options[choice], stored.inputs, stored.terms,
            failed=stored.answer.damage.failed,
        )  # fmt: skip
        return _outcome(applied)

    def _session(self, report: Callable[[str], None]) -> RemapSession:
        return RemapSession(journal=open_journal(self._journal), slurm=self._client(), report=report, warn=report)

    def _undoing(self, journal: str) -> Undoing:
        undo = plan_undo(open_journal(self._journal), self._client(), journal)
        commands = [step.command for step in undo.undos if step.command is not None]
        stays = tuple(f"{step.step.text}: stays, {step.why}" for step in undo.undos if step.command is None)
        return Undoing(
            commands=tuple(commands),
            mine=tuple(is_allowed(command, undo.rights) for command in commands),
            stays=(*undo.warnings, *stays),
        )

    def _undo(self, journal: str, undoing: Undoing, report: Callable[[str], None]) -> Outcome:
        applied = resume_remap(
            self._session(report), journal, is_undo=True,
            shown=tuple(command.text for command in undoing.commands),
        )  # fmt: skip
        return _outcome(applied, can_undo=False)


def _request(job: str, avoid: frozenset[str]) -> RemapRequest:
    """Return the request for a job; Slurm, its advice and the site's configuration provide the rest."""
    return RemapRequest(job=job, avoid=avoid)


def _find_abandoned(journal: FileJournal, key: JobKey) -> list[str]:
    """Return a note where the last remap of this job is unfinished: options depend on its changes."""
    last = next((remap for remap in journal.all() if remap.planned.key == key), None)
    if last is None or not last.is_open or last.state == "undoing":
        return []
    return [f"the last remap of this job is half done ({last.planned.title}): opsk remap --resume {last.planned.id}"]


def _may(command: Command, rights: tuple[Who, ...], *, has_launcher: bool) -> bool:
    """Return whether opsk runs a command for the caller; a new step belongs to the launcher, where the job has one."""
    return has_launcher if command.where is Where.IN_JOB else is_allowed(command, rights)


def _build_slot_map(view: seats.PlacementView) -> PlacementView:
    return PlacementView(
        nodes=view.nodes, columns=view.columns, ranks=np.asarray(view.ranks, dtype=np.int32), failed=view.failed
    )


def _outcome(applied: ExecutionResult, *, can_undo: bool = True) -> Outcome:
    return Outcome(
        done=applied.done,
        refused=applied.refused or "",
        message=applied.said or "",
        left=applied.left,
        journal=applied.journal or "",
        can_undo=can_undo and bool(applied.done) and not applied.is_outdated,
    )


def _run(commands: Sequence[Command], report: Callable[[str], None]) -> Outcome:
    done: list[str] = []
    for command in commands:
        report(command.text)
        status, output = run_command(command.argv)
        if status:
            return Outcome(done=tuple(done), refused=command.text, message=output or f"status {status}")
        done.append(command.text)
    return Outcome(done=tuple(done))
