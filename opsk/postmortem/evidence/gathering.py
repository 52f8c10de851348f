"""Gathers all evidence of one job: Slurm's record, output, node files, dumps and kernel logs, none of them required."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from opsk.errors import InputError, SlurmError
from opsk.job_key import JobKey
from opsk.postmortem.evidence.as_user import Person, find_person, read_as
from opsk.postmortem.evidence.flight_recorder import (
    Dump,
    build_findings,
    dump_from_json,
    find_recorder_files,
    read_dumps,
)
from opsk.postmortem.evidence.index import HTML_REPORT, find_user_copy
from opsk.postmortem.evidence.job_output import find_output_files, find_output_paths
from opsk.postmortem.evidence.node_files import NodeFiles, list_job_folders, read_node_files
from opsk.postmortem.evidence.node_findings import count_evidence, find_node_findings, list_problems
from opsk.postmortem.evidence.slurm_facts import SlurmRecord, fetch_slurm_record
from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.values import Evidence, Finding, JobFacts, Origin, Role
from opsk.process_folder import ProcessFolder
from opsk.slurm.client import SlurmClient
from opsk.slurm.cluster_name import cluster_name
from opsk.slurm.commands.accounting import AccountingClient
from opsk.telemetry.progress.records import EventKind
from opsk.telemetry.progress.runs import read_log
from opsk.units import MIB

MAX_BYTES = 32 * MIB
"""Larger logs are not read line by line for this."""
_MAX_LOGS = 4


def find_checkpoints(paths: Sequence[Path]) -> tuple[Finding, ...]:
    """Return the last checkpoint that each of the first logs reports."""
    findings = []
    for path in paths[:_MAX_LOGS]:
        try:
            if path.stat().st_size > MAX_BYTES:
                continue
            log = read_log(path)
        except (OSError, InputError):
            continue
        events = [event for event in log.events if event.kind is EventKind.CHECKPOINT]
        if not events:
            continue
        last = events[-1]
        time_s = next((each.at_unix_s for each in log.records if each.iteration == last.iteration), None)
        findings.append(Finding(
            signature="checkpoint.saved", role=Role.PROGRESS, origin=Origin.JOB_LOG, time_s=time_s, order=last.line,
            source=str(path), line=last.line, text=f"checkpoint after iteration {last.iteration}",
            fields={"iteration": str(last.iteration)} if last.iteration is not None else {}, count=len(events),
        ))  # fmt: skip
    return tuple(findings)


_EVIDENCE = TypeAdapter(Evidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceSources:
    """The sources of evidence of a job.

    Parameters
    ----------
    job_id
        As people write it (``4711_3``); empty for logs alone; ``is_number`` when it is Slurm's own number.
    cluster
        Cluster of the job, where it is known; else Slurm is queried.
    folder
        Folder of the nodes' evidence (``[postmortem] folder``); ``gathered`` are folders of one job's node files.
    logs
        Output to be read instead of the files that Slurm names; kernel logs may be among them.
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
    sources: EvidenceSources, *, accounting: AccountingClient | None = None, client: SlurmClient | None = None
) -> Evidence:
    """Return all evidence of a job; missing and unreadable parts are listed.

    Raises
    ------
    InputError
        Nothing is known of such a job.
    SlurmError
        Slurm does not answer, and nothing else is known.
    """
    record, problem = _fetch_record(sources, accounting, client)
    cluster = _find_cluster(sources, record, client)
    if record is not None:
        record = replace(record, facts=replace(record.facts, cluster=cluster))
    files = _read_node_files(sources, record, cluster)
    if problem is not None and not (files.files or sources.logs or sources.recorder):
        raise problem
    known = _build_facts(files, sources.job_id) if record is None else record
    paths = _find_output_paths(known, files)
    person = find_person(known.uid if known.uid is not None else known.facts.user)
    kernel = tuple(log for log in sources.logs if log.kind == "kernel")
    job_logs = tuple(log for log in sources.logs if log.kind != "kernel")
    output = _read_output(paths, known, person, job_logs, files)
    kernel_logs = read_logs(kernel) if kernel else Evidence()
    dumps = (*read_dumps(find_recorder_files(sources.recorder)), *_load_stored_dumps(files))
    recorder = build_findings([dump for dump in dumps if not dump.problem])
    recorder_problems = [dump.problem for dump in dumps if dump.problem]
    stored = tuple(finding for each in files.files for finding in find_node_findings(each))
    parts = (output, kernel_logs)
    gathered: dict[str, str] = {**count_evidence(files.files, len(known.facts.nodes)), **known.gathered}
    if files.files:
        count = len({str(each.get("node", "")) for each in files.files})
        gathered["node_files"] = f"{count} of {max(count, len(known.facts.nodes))} nodes"
    for part in parts:
        gathered |= part.gathered
    if len(dumps) > len(recorder_problems):
        gathered["flight_recorder"] = f"{len(dumps) - len(recorder_problems)} dumps"
    return Evidence(
        job=known.facts if sources.job_id else None,
        findings=(*known.findings, *stored, *recorder, *(finding for part in parts for finding in part.findings)),
        ranks=tuple(rank for part in parts for rank in part.ranks),
        gathered=gathered,
        unreadable=(
            *([problem.message] if problem is not None else []), *known.unreadable, *files.unreadable,
            *list_problems(files.files), *recorder_problems, *(line for part in parts for line in part.unreadable),
        ),
        notes=tuple(note for part in parts for note in part.notes),
    )  # fmt: skip


def _fetch_record(
    sources: EvidenceSources, accounting: AccountingClient | None, client: SlurmClient | None
) -> tuple[SlurmRecord | None, SlurmError | InputError | None]:
    """Return Slurm's record, or why there is none."""
    if not sources.job_id or accounting is None:
        return None, None
    try:
        return fetch_slurm_record(sources.job_id, accounting, client, is_number=sources.is_number), None
    except (SlurmError, InputError) as error:
        return None, error


def _find_cluster(sources: EvidenceSources, record: SlurmRecord | None, client: SlurmClient | None) -> str:
    """Return the job's cluster: as requested, by the accounting, or by slurmctld; empty where it is unknown."""
    known = sources.cluster or (record.facts.cluster if record is not None else "")
    return known or (cluster_name(client) if sources.job_id and client is not None else "")


def _read_node_files(sources: EvidenceSources, record: SlurmRecord | None, cluster: str) -> NodeFiles:
    """Return the nodes' evidence of the run in Slurm's record."""
    folders = list(sources.gathered)
    number = record.number if record is not None else sources.job_id
    if sources.folder is not None and number.isdecimal():
        folders += list_job_folders(sources.folder, JobKey(cluster=cluster, job=number))
    facts = record.facts if record is not None else JobFacts()
    files = read_node_files(folders, start_s=facts.start_s, end_s=facts.end_s, cluster=cluster)
    copies = [copy for folder in folders if (copy := find_user_copy(folder, HTML_REPORT)) is not None]
    if files.files or os.geteuid() == 0 or not copies:
        return files
    message = f"what nodes kept is not yours to read; the report of when the job ended has it: {copies[0]}"
    return replace(files, unreadable=(message,))


def _build_facts(files: NodeFiles, job_id: str) -> SlurmRecord:
    """Return the facts that the prolog recorded, where Slurm does not answer: no state, no exit code."""
    notes: list[Mapping[str, Any]] = [note for each in files.files if isinstance(note := each.get("note"), dict)]
    note = notes[0] if notes else {}
    nodes = tuple(str(each.get("node", ""))[:200] for each in files.files)
    uid = known if isinstance(known := note.get("uid"), int) else None
    facts = JobFacts(job_id=job_id, number=job_id, user=_read_text(note, "user"), uid=uid,
                     name=_read_text(note, "name"), nodes=nodes, partition=_read_text(note, "partition"),
                     account=_read_text(note, "account"), cluster=_read_text(note, "cluster"))  # fmt: skip
    return SlurmRecord(
        facts=facts, number=job_id, uid=uid, work_dir=_read_text(note, "work_dir"),
        std_out=_read_text(note, "stdout"), std_err=_read_text(note, "stderr"),
    )  # fmt: skip


def _read_text(note: Mapping[str, Any], name: str) -> str:
    value = note.get(name)
    return value[:4096] if isinstance(value, str) else ""


def _find_output_paths(record: SlurmRecord, files: NodeFiles) -> tuple[Path, ...]:
    """Return the paths of the job's output, by Slurm's record, else by the prolog's note."""
    paths = find_output_paths(record.facts, work_dir=record.work_dir, std_out=record.std_out, std_err=record.std_err)
    if paths or record.std_out:  # a folder alone names no file; accounting of 22.05 has nothing else
        return paths
    for each in files.files:
        note = each.get("note")
        if isinstance(note, dict):
            paths = find_output_paths(
                record.facts, work_dir=_read_text(note, "work_dir"), std_out=_read_text(note, "stdout"),
                std_err=_read_text(note, "stderr"),
            )  # fmt: skip
            if paths:
                return paths
    return ()


def _read_output(
    output_paths: Sequence[Path],
    record: SlurmRecord,
    person: Person | None,
    named: tuple[LogFile, ...],
    files: NodeFiles,
) -> Evidence:
    """Return the evidence in the job's output, read with the rights of the caller, or by root with the user's."""
    if named:
        return read_logs(named, not_after_s=record.facts.end_s)
    if not output_paths:
        if not record.facts.job_id:
            return Evidence()
        problem = "the job's output: Slurm does not tell where it is; name it with --log"
        return replace(_scan_stored_tails(files), unreadable=(problem,))
    uid, is_root = person.uid if person is not None else None, os.geteuid() == 0

    def read() -> bytes:
        paths = find_output_files(output_paths, record.number or record.facts.job_id, uid, since_s=record.facts.start_s)
        if not paths:
            return _EVIDENCE.dump_json(Evidence())
        evidence = read_logs(
            [LogFile(path=path, kind="job") for path in paths], not_after_s=record.facts.end_s,
            processes=1 if is_root else None,
        )  # fmt: skip
        return _EVIDENCE.dump_json(replace(evidence, findings=(*evidence.findings, *find_checkpoints(paths))))

    try:
        read_evidence = _EVIDENCE.validate_json(read_as(person, read))
    except (InputError, ValidationError) as error:
        why = error.message if isinstance(error, InputError) else "the job's output: its reader answered nonsense"
        return replace(_scan_stored_tails(files), unreadable=(why,))
    if read_evidence.ranks:
        return read_evidence
    locations = ", ".join(str(path) for path in output_paths[:2])
    tails = _scan_stored_tails(files)
    return replace(tails, unreadable=(*tails.unreadable, f"{locations}: no output there that may be read"))


def _load_stored_dumps(files: NodeFiles) -> tuple[Dump, ...]:
    """Return the dumps of the flight recorder that nodes read."""
    documents = [each.get("recorder") for each in files.files]
    rows = [row for rows in documents if isinstance(rows, list) for row in rows if isinstance(row, dict)]
    return tuple(dump for row in rows if (dump := dump_from_json(row)) is not None)


def _scan_stored_tails(files: NodeFiles) -> Evidence:
    """Return the evidence in the stored ends of logs, where the logs themselves are gone."""
    tails: dict[str, Mapping[str, Any]] = {}
    for each in files.files:
        for log in each.get("logs", ()) if isinstance(each.get("logs"), list) else ():
            if isinstance(log, dict) and isinstance(log.get("tail"), str):
                tails.setdefault(str(log.get("path", ""))[:4096], log)
    if not tails:
        return Evidence()
    with ProcessFolder("opsk-tails") as folder:
        sources: dict[str, str] = {}
        for number, (path, log) in enumerate(list(tails.items())[:1024]):
            copy = Path(folder, str(number), Path(path).name[:200].replace("/", "_") or "log")
            copy.parent.mkdir()
            errors = [line for line in log.get("errors", ()) if isinstance(line, str) and line not in log["tail"]]
            copy.write_text("\n".join([*errors, log["tail"]]), encoding="utf-8", errors="replace")
            sources[str(copy)] = f"{path} (kept by the node)"
        evidence = read_logs([LogFile(path=Path(copy), kind="job") for copy in sources], processes=1)
    return Evidence(
        findings=tuple(_rename_source(finding, sources) for finding in evidence.findings),
        ranks=tuple(replace(rank, source=sources.get(rank.source, rank.source)) for rank in evidence.ranks),
        gathered={"log_tails": f"{len(tails)} logs"},
        unreadable=evidence.unreadable,
    )


def _rename_source(finding: Finding, named: Mapping[str, str]) -> Finding:
    return replace(finding, source=named.get(finding.source, finding.source))
