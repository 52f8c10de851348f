"""Gathers the evidence on a job, explains it, and stores, lists and bundles the reports."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from opsk.app.inputs.job_work import find_job_documents
from opsk.config import SiteConfig, load_site
from opsk.errors import InputError, OpskError, SlurmError
from opsk.job_key import JobKey, cluster_part
from opsk.postmortem.evidence.as_user import find_person
from opsk.postmortem.evidence.bundle import Redaction, build_pseudonyms, write_bundle
from opsk.postmortem.evidence.gathering import EvidenceSources, gather_job
from opsk.postmortem.evidence.index import (
    HTML_REPORT,
    JSON_REPORT,
    Entry,
    list_entries,
    redact_for_owner,
    write_user_copies,
)
from opsk.postmortem.evidence.job_end import ACTIVE, ASK_EVERY_S, SUCCEEDED
from opsk.postmortem.evidence.mark_writer import mark_report
from opsk.postmortem.evidence.node_files import job_folder, list_job_folders, read_node_files, write_atomically
from opsk.postmortem.evidence.reporting import remove_note
from opsk.postmortem.logs import LogFile
from opsk.postmortem.reasoning import explain
from opsk.postmortem.reasoning.actions import find_meaning
from opsk.postmortem.reasoning.memory import add_prediction
from opsk.postmortem.reasoning.owners import describe_owner
from opsk.postmortem.reasoning.places import describe_place
from opsk.postmortem.report import render_html, render_markdown
from opsk.postmortem.values import (
    Cause,
    Evidence,
    FailureClass,
    Finding,
    JobFacts,
    Moment,
    Origin,
    Place,
    Recurrence,
    Report,
    Role,
)
from opsk.slurm.adapter import slurm_client
from opsk.slurm.cluster_name import cluster_name
from opsk.slurm.commands.accounting import AccountingClient
from opsk.slurm.records import JobRecord
from opsk.text import escape, to_json_values

KINDS = {"kernel.xid": "xid", "torch.watchdog_timeout": "nccl_watchdog"}
"""Kinds of evidence with a separate name; all others are named after their signature."""
_NUMBERS = ("code", "seq", "enqueued", "completed", "numel_in", "numel_out", "timeout_ms", "ran_ms", "exit", "status")
MAX_EVIDENCE = 2000
_ORDER = {Role.ROOT: 0, Role.CONFIRMATION: 1, Role.CASCADE: 2}

Warn = Callable[[str], None]
"""Receives a message on what could not be done, although the report is there."""

_log = logging.getLogger("opsk.postmortem")


def log_warning(message: str) -> None:
    """Write a warning to the log."""
    _log.warning("%s", escape(message))


def build_postmortem_document(report: Report) -> dict[str, Any]:
    """Return the JSON document of a report."""
    shown = _select_findings(report.evidence.findings)
    return {
        "state": report.state,
        "job": report.job,
        "root_cause": _build_cause(report.root) if report.root is not None else None,
        "alternatives": [_build_cause(cause) for cause in report.alternatives],
        "owner": describe_owner(report),
        "before": [_build_moment(moment) for moment in report.before],
        "timeline": [_build_moment(moment) for moment in report.timeline],
        "evidence": [build_evidence_row(finding) for finding in shown],
        "evidence_left_out": len(report.evidence.findings) - len(shown),
        "divergence": report.divergence,
        "ranks": report.evidence.ranks,
        "clock_skews": report.skews,
        "missing": report.missing,
        "actions": report.actions,
        "recurrence": report.recurrence,
        "facts": report.facts,
        "gathered": report.evidence.gathered,
        "unreadable": report.evidence.unreadable,
        "notes": report.evidence.notes,
    }


def _select_findings(findings: Sequence[Finding]) -> Sequence[Finding]:
    """Return all findings, or of too many the most relevant: the kernel's, time-outs, possible causes."""
    if len(findings) <= MAX_EVIDENCE:
        return findings
    weight = {
        id(finding): (finding.origin is not Origin.KERNEL, finding.signature not in KINDS, _ORDER.get(finding.role, 3))
        for finding in findings
    }
    selected = {id(finding) for finding in sorted(findings, key=lambda finding: weight[id(finding)])[:MAX_EVIDENCE]}
    return [finding for finding in findings if id(finding) in selected]


def _build_cause(cause: Cause) -> dict[str, Any]:
    """Return a cause; ``where`` is for people, ``place`` for programs."""
    return {
        "class": cause.failure,
        "what": cause.what,
        "where": describe_place(cause.where),
        "confidence": round(cause.confidence, 4),
        "place": build_place_row(cause.where),
        "why": cause.why,
        "evidence": [
            {"source": finding.source, "line": finding.line, "text": finding.text} for finding in cause.lines[:8]
        ],
    }


def _build_moment(moment: Moment) -> dict[str, Any]:
    """Return one entry of the timeline."""
    row: dict[str, Any] = {"time_s": moment.time_s, "what": moment.what, "role": moment.role}
    row |= build_place_row(moment.place)
    if moment.finding is not None:
        row |= {"source": moment.finding.source, "line": moment.finding.line, "text": moment.finding.text}
    return row


def build_evidence_row(finding: Finding) -> dict[str, Any]:
    """Return one piece of evidence."""
    row: dict[str, Any] = {
        "kind": KINDS.get(finding.signature, finding.signature),
        "role": finding.role,
        "origin": finding.origin,
        "class": finding.failure,
        "what": find_meaning(finding),
        "time_s": finding.time_s,
        "count": finding.count,
        "source": finding.source,
        "line": finding.line if finding.has_line else None,
        "text": finding.text,
    }
    row |= {name: _parse_number(name, value) for name, value in finding.fields.items() if name not in row}
    row |= build_place_row(finding.place)
    if "pci" in row:
        row["pci"] = str(row["pci"]).partition(".")[0]
    return row


def _parse_number(name: str, value: str) -> str | int:
    """Return a numeric field as an integer."""
    return int(value) if name in _NUMBERS and value.lstrip("-").isdecimal() and len(value) < 19 else value


def build_place_row(place: Place) -> dict[str, Any]:
    """Return the known fields of a place."""
    names = ("node", "rank", "local_rank", "node_rank", "gpu_index", "gpu_uuid", "pci", "hca", "peer")
    row = {name: value for name in names if (value := getattr(place, name)) not in ("", None)}
    return row | ({"ranks": list(place.ranks)} if place.ranks else {})


def record_report(report: Report, folder: Path, warn: Warn) -> None:
    """Count a report; a failure is a warning."""
    try:
        mark_report(folder.parent, folder.name, report, time.time())
    except OSError as error:
        warn(f"{folder}: the report is not counted: {error.strerror}")


def copy_to_user(report: Report, folder: Path, forms: dict[str, Callable[[Report], str]], warn: Warn) -> None:
    """Give the user of a job a copy of its report in each form; a failure is a warning.

    Parameters
    ----------
    forms
        File name to the function that renders it.
    """
    job = report.job
    person = find_person(job.uid if job.uid is not None else job.user) if job is not None else None
    if person is None or person.uid == 0:
        return
    shown = redact_for_owner(report)
    try:
        write_user_copies(folder, person.uid, {name: form(shown) for name, form in forms.items()})
    except OSError as error:
        warn(f"{folder}: the job's user has no copy: {error.strerror}")


def add_job_prediction(report: Report) -> Report:
    """Return a report with the predicted memory and what would fit, where advice or script are available."""
    job, root = report.job, report.root
    if job is None or root is None or root.failure is not FailureClass.GPU_MEMORY:
        return report
    record = _build_job_record(job)
    if record is None:
        return report
    try:
        document = next((item for item in find_job_documents(record) if isinstance(item.get("memory"), dict)), None)
    except OpskError:
        return report
    return add_prediction(report, document) if document is not None else report


def _build_job_record(job: JobFacts) -> JobRecord | None:
    """Return a job record with the fields needed to find its advice and its script."""
    number = job.job_id.partition("_")[0].partition("+")[0]
    if not number.isdecimal() or len(number) > 10:
        return None
    return JobRecord(
        id=int(number), label=job.job_id, user=job.user, name=job.name, state=job.state, nodes=job.nodes,
        node_count=len(job.nodes), admin_comment=job.admin_comment or None,
    )  # fmt: skip


def gather_job_evidence(
    job: str,
    *,
    logs: Sequence[LogFile] = (),
    gathered: Sequence[Path] = (),
    recorder: Sequence[Path] = (),
    is_number: bool = False,
    cluster: str = "",
) -> Evidence:
    """Return all evidence on a job.

    Raises
    ------
    InputError, SlurmError
        There is none.
    """
    request = EvidenceSources(
        job_id=job, is_number=is_number, cluster=cluster, folder=load_site().postmortem.folder,
        gathered=tuple(gathered), logs=tuple(logs), recorder=tuple(recorder),
    )  # fmt: skip
    if not job:
        return gather_job(request)
    return gather_job(request, accounting=AccountingClient(), client=slurm_client())


def explain_evidence(evidence: Evidence, warn: Warn = log_warning) -> Report:
    """Return the report, with earlier failures of the place and the user from the store."""
    first = explain(evidence)
    known = _find_recurrence(first, warn)
    return add_job_prediction(explain(evidence, recurrence=known) if known else first)


def _find_recurrence(report: Report, warn: Warn) -> tuple[Recurrence, ...]:
    """Query the store for earlier failures; a site without a store has none."""
    site = load_site()
    if report.root is None or not site.store.url:
        return ()
    from opsk.app.site_store import open_site_store
    from opsk.postmortem.evidence.recurrence import compute_recurrence, read_known_failures

    try:
        engine = open_site_store(writing=False)
        try:
            known = read_known_failures(
                engine, days=site.postmortem.days, before_s=_get_end_s(report), cluster=_get_cluster(report)
            )
        finally:
            engine.dispose()
    except OpskError as error:
        warn(f"earlier failures are unknown: {error.message}")
        return ()
    return compute_recurrence(report, known, days=site.postmortem.days)


def _get_cluster(report: Report) -> str | None:
    """Return the job's cluster: nodes of other clusters have the same names. ``None`` where it is unknown."""
    return (report.job.cluster or None) if report.job is not None else None


def _get_end_s(report: Report) -> float:
    """Return when the job ended; now where that is not known."""
    return report.job.end_s if report.job is not None and report.job.end_s is not None else time.time()


def report_ended_job(
    job: str, note: Path | None, folder: Path, *, wait_s: float, cluster: str, warn: Warn = log_warning
) -> int:
    """Write the report on a failed job next to its evidence and into the store; nothing for other jobs.

    `opsk.app.automatic_report` has looked whether the job has ended. Returns 1 where a cause was found, else 0.

    Parameters
    ----------
    note
        Note of the job in a node's spool; it is removed when the report is stored.
    folder
        Folder of the evidence on all jobs.
    wait_s
        How long to wait for the nodes and Slurm [s].

    Raises
    ------
    InputError, SlurmError
        There is no evidence on the job, or the report cannot be written.
    """
    evidence = _wait_for_evidence(job, wait_s, cluster)
    state = evidence.job.state if evidence.job is not None else ""
    if state in SUCCEEDED and note is not None:
        remove_note(note)
    if state in SUCCEEDED or state in ACTIVE:
        return 0
    report = explain_evidence(evidence, warn)
    job_cluster = evidence.job.cluster if evidence.job is not None else ""
    write_report(report, job_folder(folder, JobKey(cluster=cluster or job_cluster, job=job)), warn)
    if _store_report(report, load_site(), warn) and note is not None:
        remove_note(note)
    return 1 if report.root is not None else 0


def _wait_for_evidence(job: str, wait_s: float, cluster: str) -> Evidence:
    """Wait, at most ``wait_s``, until Slurm's record is final and all nodes have sent their evidence."""
    end = time.monotonic() + wait_s
    while True:
        evidence = problem = None
        try:
            evidence = gather_job_evidence(job, is_number=True, cluster=cluster)
        except (InputError, SlurmError) as error:
            problem = error
        late = time.monotonic() >= end
        if evidence is not None and (late or _is_final(evidence)):
            return evidence
        if late and problem is not None:
            raise problem
        time.sleep(ASK_EVERY_S)


def _is_final(evidence: Evidence) -> bool:
    """Return whether the evidence is complete."""
    facts = evidence.job
    if facts is None or not facts.state or facts.state in ACTIVE:
        return False
    if facts.state in SUCCEEDED:
        return True
    return evidence.gathered.get("node_files", "").startswith(f"{len(facts.nodes)} of")


def write_report(report: Report, folder: Path, warn: Warn = log_warning) -> None:
    """Write a report into the folder of its job, as JSON and HTML, and give its user a copy of each.

    Raises
    ------
    InputError
        It cannot be written.
    """
    try:
        write_atomically(folder / HTML_REPORT, render_html(report))
        write_atomically(folder / JSON_REPORT, _format_json(report))  # last: the index depends on it
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}", hint="see [postmortem] folder in opsk.toml") from error
    record_report(report, folder, warn)
    copy_to_user(report, folder, {HTML_REPORT: render_html, JSON_REPORT: _format_json}, warn)


def _format_json(report: Report) -> str:
    return json.dumps(to_json_values(build_postmortem_document(report)), indent=1)


def _store_report(report: Report, site: SiteConfig, warn: Warn) -> bool:
    """Write report and failure into the site's store, where it has one; a failure is a warning."""
    if not site.store.url:
        return True
    from opsk.app.site_store import open_site_store
    from opsk.postmortem.evidence.recurrence import store_report

    try:
        engine = open_site_store()
        try:
            store_report(engine, report, _format_json(report), time.time())
        finally:
            engine.dispose()
    except OpskError as error:
        warn(f"the report is not in the store: {error.message}")
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportList:
    """Reports, the last first, and the number of those of other clusters; ``is_mixed`` where it lists several."""

    reports: list[Entry]
    other_clusters: int
    is_mixed: bool
    folder: Path


def list_reports(*, all_clusters: bool = False, warn: Warn = log_warning) -> ReportList:
    """Return the reports of the site; only those of this cluster where several clusters share the folder.

    Raises
    ------
    InputError
        The site has no folder for reports.
    """
    folder = load_site().postmortem.folder
    if folder is None:
        raise InputError("this site keeps no reports", hint="set folder under [postmortem] in opsk.toml")
    entries, problems = list_entries(folder)
    for problem in problems:
        warn(problem)
    is_shared = len({entry.cluster for entry in entries} - {""}) > 1
    cluster = cluster_part(cluster_name(slurm_client())) if is_shared and not all_clusters else ""
    reports = [entry for entry in entries if not cluster or entry.cluster in ("", cluster)]
    return ReportList(
        reports=reports,
        other_clusters=len(entries) - len(reports),
        is_mixed=is_shared and not cluster,
        folder=folder,
    )


def write_job_bundle(path: Path, report: Report, gathered: Sequence[Path], *, anonymous: bool) -> None:
    """Write the bundle of a report.

    Raises
    ------
    InputError
        It cannot be written.
    """
    job = report.job
    folders = list(gathered)
    top = load_site().postmortem.folder
    number = (job.number or job.job_id) if job is not None else ""
    cluster = job.cluster if job is not None else ""
    if top is not None and number.isdecimal():
        folders += list_job_folders(top, JobKey(cluster=cluster, job=number))
    node_files = read_node_files(
        folders, start_s=job.start_s if job is not None else None, end_s=job.end_s if job is not None else None,
        cluster=cluster,
    )  # fmt: skip
    if anonymous and job is not None:
        report = replace(report, job=replace(job, uid=None))
    findings = report.evidence.findings
    nodes = [*(job.nodes if job is not None else ()), *(finding.place.node for finding in findings)]
    names = build_pseudonyms(nodes, [job.user, job.account] if job is not None else []) if anonymous else {}
    texts = {
        "report.json": json.dumps(to_json_values(build_postmortem_document(report))),
        "report.md": render_markdown(report),
        "report.html": render_html(report),
    }
    for index, content in enumerate(node_files.files, 1):
        note = content.get("note")
        shown = {**content, "note": {**note, "uid": None}} if anonymous and isinstance(note, dict) else dict(content)
        texts[f"nodes/{index}.json"] = json.dumps(shown)
    try:
        write_bundle(path, texts, Redaction(names=names))
    except OSError as error:
        raise InputError(escape(f"{path}: {error.strerror}"), hint="name another file") from error
