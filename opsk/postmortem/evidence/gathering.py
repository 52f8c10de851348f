"""What is there to know of one job? Slurm's record, output, node files, dumps, kernel logs: joined, none needed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from opsk.errors import InputError, SlurmError
from opsk.job_key import JobKey
from opsk.own_folder import OwnFolder
from opsk.postmortem.evidence.as_user import Person, person_of, read_as
from opsk.postmortem.evidence.flight_recorder import Dump, dump_of_kept, read_dumps, recorder_files, signs_of
from opsk.postmortem.evidence.index import HTML_REPORT
from opsk.postmortem.evidence.job_output import output_files, told_paths
from opsk.postmortem.evidence.node_files import NodeFiles, folders_of_job, read_node_files
from opsk.postmortem.evidence.node_signs import looked_at, node_signs, problems_of
from opsk.postmortem.evidence.own_copy import own_copy
from opsk.postmortem.evidence.slurm_facts import SlurmRecord, slurm_record
from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.values import Evidence, JobFacts, Origin, Role, Sign
from opsk.slurm.client import SlurmClient
from opsk.slurm.cluster_name import cluster_name
from opsk.slurm.commands.accounting import AccountingClient
from opsk.telemetry.progress.records import EventKind
from opsk.telemetry.progress.runs import read_log
from opsk.units import MIB

MOST_BYTES = 32 * MIB
"""Larger logs are not read line by line for this."""
_MOST_LOGS = 4


def checkpoint_signs(paths: Sequence[Path]) -> tuple[Sign, ...]:
    """Return the last checkpoint that each of the first logs tells of."""
    found = []
    for path in paths[:_MOST_LOGS]:
        try:
            if path.stat().st_size > MOST_BYTES:
                continue
            log = read_log(path)
        except (OSError, InputError):
            continue
        events = [event for event in log.events if event.kind is EventKind.CHECKPOINT]
        if not events:
            continue
        last = events[-1]
        at = next((each.at_unix_s for each in log.records if each.iteration == last.iteration), None)
        found.append(Sign(
            signature="checkpoint.saved", role=Role.PROGRESS, origin=Origin.JOB_LOG, time_s=at, order=last.line,
            source=str(path), line=last.line, text=f"checkpoint after iteration {last.iteration}",
            fields={"iteration": str(last.iteration)} if last.iteration is not None else {}, count=len(events),
        ))  # fmt: skip
    return tuple(found)


_EVIDENCE = TypeAdapter(Evidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Where to look for what is known of a job.

    Parameters
    ----------
    job_id
        As people write it (``4711_3``); empty for logs alone; ``is_number`` when it is Slurm's own number.
    cluster
        Whose job it is, where that is known; else Slurm is asked.
    folder
        Where nodes keep evidence (``[postmortem] folder``); ``gathered`` are folders of one job's node files.
    logs
        Output to be read instead of what Slurm tells; kernel logs may be among them.
    recorder
        Dumps of PyTorch's flight recorder, or folders of them.
    """

    job_id: str = ""
    is_number: bool = False
    cluster: str = ""
    folder: Path | None = None
    gathered: tuple[Path, ...] = ()
    logs: tuple[LogFile, ...] = ()
    recorder: tuple[Path, ...] = ()


def gather_job(
    asked: Asked, *, accounting: AccountingClient | None = None, client: SlurmClient | None = None
) -> Evidence:
    """Return all that is known; what is not there, or cannot be read, is told.

    Raises
    ------
    InputError
        Nothing is known of such a job.
    SlurmError
        Slurm does not answer, and nothing else is known.
    """
    record, problem = _record(asked, accounting, client)
    cluster = _cluster(asked, record, client)
    if record is not None:
        record = replace(record, facts=replace(record.facts, cluster=cluster))
    files = _node_files(asked, record, cluster)
    if problem is not None and not (files.files or asked.logs or asked.recorder):
        raise problem
    said = _facts_of_files(files, asked.job_id) if record is None else record
    told = _told(said, files)
    person = person_of(said.uid if said.uid is not None else said.facts.user)
    kernel = tuple(log for log in asked.logs if log.kind == "kernel")
    own = tuple(log for log in asked.logs if log.kind != "kernel")
    output = _output(told, said, person, own, files)
    kernel_logs = read_logs(kernel) if kernel else Evidence()
    dumps = (*read_dumps(recorder_files(asked.recorder)), *_kept_dumps(files))
    recorder = signs_of([dump for dump in dumps if not dump.problem])
    recorder_problems = [dump.problem for dump in dumps if dump.problem]
    kept = tuple(sign for each in files.files for sign in node_signs(each))
    parts = (output, kernel_logs)
    gathered: dict[str, str] = {**looked_at(files.files, len(said.facts.nodes)), **said.gathered}
    if files.files:
        count = len({str(each.get("node", "")) for each in files.files})
        gathered["node_files"] = f"{count} of {max(count, len(said.facts.nodes))} nodes"
    for part in parts:
        gathered |= part.gathered
    if len(dumps) > len(recorder_problems):
        gathered["flight_recorder"] = f"{len(dumps) - len(recorder_problems)} dumps"
    return Evidence(
        job=said.facts if asked.job_id else None,
        signs=(*said.signs, *kept, *recorder, *(sign for part in parts for sign in part.signs)),
        ranks=tuple(rank for part in parts for rank in part.ranks),
        gathered=gathered,
        unreadable=(
            *([problem.message] if problem is not None else []), *said.unreadable, *files.unreadable,
            *problems_of(files.files), *recorder_problems, *(line for part in parts for line in part.unreadable),
        ),
    )  # fmt: skip


def _record(
    asked: Asked, accounting: AccountingClient | None, client: SlurmClient | None
) -> tuple[SlurmRecord | None, SlurmError | InputError | None]:
    """Return Slurm's record, or why there is none."""
    if not asked.job_id or accounting is None:
        return None, None
    try:
        return slurm_record(asked.job_id, accounting, client, is_number=asked.is_number), None
    except (SlurmError, InputError) as error:
        return None, error


def _cluster(asked: Asked, record: SlurmRecord | None, client: SlurmClient | None) -> str:
    """Return whose job it is: as asked for, by the accounting, or by slurmctld; empty where nobody tells."""
    known = asked.cluster or (record.facts.cluster if record is not None else "")
    return known or (cluster_name(client) if asked.job_id and client is not None else "")


def _node_files(asked: Asked, record: SlurmRecord | None, cluster: str) -> NodeFiles:
    """Return what nodes kept of the run that Slurm tells of."""
    folders = list(asked.gathered)
    number = record.number if record is not None else asked.job_id
    if asked.folder is not None and number.isdecimal():
        folders += folders_of_job(asked.folder, JobKey(cluster=cluster, job=number))
    facts = record.facts if record is not None else JobFacts()
    files = read_node_files(folders, start_s=facts.start_s, end_s=facts.end_s, cluster=cluster)
    copies = [copy for folder in folders if (copy := own_copy(folder, HTML_REPORT)) is not None]
    if files.files or os.geteuid() == 0 or not copies:
        return files
    told = f"what nodes kept is not yours to read; the report of when the job ended has it: {copies[0]}"
    return replace(files, unreadable=(told,))


def _facts_of_files(files: NodeFiles, job_id: str) -> SlurmRecord:
    """Return what the prolog wrote down, where Slurm does not answer: no state, no exit code."""
    notes: list[Mapping[str, Any]] = [note for each in files.files if isinstance(note := each.get("note"), dict)]
    note = notes[0] if notes else {}
    nodes = tuple(str(each.get("node", ""))[:200] for each in files.files)
    uid = known if isinstance(known := note.get("uid"), int) else None
    facts = JobFacts(job_id=job_id, number=job_id, user=_word(note, "user"), uid=uid, name=_word(note, "name"),
                     nodes=nodes, partition=_word(note, "partition"), account=_word(note, "account"),
                     cluster=_word(note, "cluster"))  # fmt: skip
    return SlurmRecord(
        facts=facts, number=job_id, uid=uid, work_dir=_word(note, "work_dir"),
        std_out=_word(note, "stdout"), std_err=_word(note, "stderr"),
    )  # fmt: skip


def _word(note: Mapping[str, Any], name: str) -> str:
    value = note.get(name)
    return value[:4096] if isinstance(value, str) else ""


def _told(said: SlurmRecord, files: NodeFiles) -> tuple[Path, ...]:
    """Return where the job wrote, by Slurm's record, else by what its prolog was told."""
    found = told_paths(said.facts, work_dir=said.work_dir, std_out=said.std_out, std_err=said.std_err)
    if found or said.std_out:  # a folder alone is no place; accounting of 22.05 keeps nothing else
        return found
    for each in files.files:
        note = each.get("note")
        if isinstance(note, dict):
            found = told_paths(
                said.facts, work_dir=_word(note, "work_dir"), std_out=_word(note, "stdout"),
                std_err=_word(note, "stderr"),
            )  # fmt: skip
            if found:
                return found
    return ()


def _output(
    told: Sequence[Path], said: SlurmRecord, person: Person | None, named: tuple[LogFile, ...], files: NodeFiles
) -> Evidence:
    """Return what the job's output says, read with the rights of the caller, or by root with those of its user."""
    if named:
        return read_logs(named, not_after_s=said.facts.end_s)
    if not told:
        if not said.facts.job_id:
            return Evidence()
        unknown = "the job's output: Slurm does not tell where it is; name it with --log"
        return replace(_kept_tails(files), unreadable=(unknown,))
    uid, is_root = person.uid if person is not None else None, os.geteuid() == 0

    def read() -> bytes:
        paths = output_files(told, said.number or said.facts.job_id, uid, since_s=said.facts.start_s)
        if not paths:
            return _EVIDENCE.dump_json(Evidence())
        evidence = read_logs(
            [LogFile(path=path, kind="job") for path in paths], not_after_s=said.facts.end_s,
            processes=1 if is_root else None,
        )  # fmt: skip
        return _EVIDENCE.dump_json(replace(evidence, signs=(*evidence.signs, *checkpoint_signs(paths))))

    try:
        found = _EVIDENCE.validate_json(read_as(person, read))
    except (InputError, ValidationError) as error:
        why = error.message if isinstance(error, InputError) else "the job's output: its reader answered nonsense"
        return replace(_kept_tails(files), unreadable=(why,))
    if found.ranks:
        return found
    told_words = ", ".join(str(path) for path in told[:2])
    kept = _kept_tails(files)
    return replace(kept, unreadable=(*kept.unreadable, f"{told_words}: no output there that may be read"))


def _kept_dumps(files: NodeFiles) -> tuple[Dump, ...]:
    """Return the dumps of the flight recorder that nodes read."""
    told = [each.get("recorder") for each in files.files]
    rows = [row for rows in told if isinstance(rows, list) for row in rows if isinstance(row, dict)]
    return tuple(dump for row in rows if (dump := dump_of_kept(row)) is not None)


def _kept_tails(files: NodeFiles) -> Evidence:
    """Return what the ends of logs say that nodes kept, where the logs themselves are gone."""
    tails: dict[str, Mapping[str, Any]] = {}
    for each in files.files:
        for log in each.get("logs", ()) if isinstance(each.get("logs"), list) else ():
            if isinstance(log, dict) and isinstance(log.get("tail"), str):
                tails.setdefault(str(log.get("path", ""))[:4096], log)
    if not tails:
        return Evidence()
    with OwnFolder("opsk-tails") as folder:
        named: dict[str, str] = {}
        for number, (path, log) in enumerate(list(tails.items())[:1024]):
            copy = Path(folder, str(number), Path(path).name[:200].replace("/", "_") or "log")
            copy.parent.mkdir()
            errors = [line for line in log.get("errors", ()) if isinstance(line, str) and line not in log["tail"]]
            copy.write_text("\n".join([*errors, log["tail"]]), encoding="utf-8", errors="replace")
            named[str(copy)] = f"{path} (kept by the node)"
        found = read_logs([LogFile(path=Path(copy), kind="job") for copy in named], processes=1)
    return Evidence(
        signs=tuple(_renamed(sign, named) for sign in found.signs),
        ranks=tuple(replace(rank, source=named.get(rank.source, rank.source)) for rank in found.ranks),
        gathered={"log_tails": f"{len(tails)} logs"},
        unreadable=found.unreadable,
    )


def _renamed(sign: Sign, named: Mapping[str, str]) -> Sign:
    return replace(sign, source=named.get(sign.source, sign.source))
