"""Gathers the evidence of ``opsk postmortem JOB``, and stores its reports."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from opsk.app.inputs.job_work import find_job_documents
from opsk.cli.document import echo_json
from opsk.cli.postmortem.document import build_postmortem_document
from opsk.config import SiteConfig, load_site
from opsk.errors import InputError, OpskError, SlurmError
from opsk.job_key import JobKey, cluster_part
from opsk.postmortem.evidence.as_user import find_person
from opsk.postmortem.evidence.gathering import EvidenceSources, gather_job
from opsk.postmortem.evidence.index import HTML_REPORT, JSON_REPORT, Entry, list_entries
from opsk.postmortem.evidence.mark_writer import mark_report
from opsk.postmortem.evidence.node_files import job_folder, write_atomically
from opsk.postmortem.evidence.recurrence import Known, compute_recurrence
from opsk.postmortem.evidence.reporting import remove_note
from opsk.postmortem.evidence.index import redact_for_owner, write_user_copies
from opsk.postmortem.logs import LogFile
from opsk.postmortem.reasoning import explain
from opsk.postmortem.reasoning.memory import add_prediction
from opsk.postmortem.report import render_html
from opsk.postmortem.values import Evidence, FailureClass, JobFacts, Recurrence, Report
from opsk.slurm.adapter import slurm_client
from opsk.slurm.cluster_name import VARIABLE, cluster_name
from opsk.slurm.commands.accounting import AccountingClient
from opsk.slurm.records import JobRecord
from opsk.text import escape, to_json_values


def record_report(report: Report, folder: Path) -> None:
    """Count a report; a failure is printed, and no error."""
    try:
        mark_report(folder.parent, folder.name, report, time.time())
    except OSError as error:
        click.echo(f"opsk: {folder}: the report is not counted: {escape(str(error.strerror))}", err=True)


def copy_to_user(report: Report, folder: Path, forms: dict[str, Callable[[Report], str]]) -> None:
    """Give the user of a job a copy of its report in each form; a failure is printed, and no error.

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
        click.echo(f"opsk: {folder}: its user cannot read it: {escape(str(error.strerror))}", err=True)


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


_ACTIVE = frozenset(("RUNNING", "PENDING", "COMPLETING", "CONFIGURING", "SUSPENDED"))
_SUCCEEDED = frozenset(("COMPLETED",))
_ASK_EVERY_S = 2.0


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


def explain_evidence(evidence: Evidence) -> Report:
    """Return the report, with earlier failures of the place and the user from the store."""
    first = explain(evidence)
    known = _find_recurrence(first)
    return add_job_prediction(explain(evidence, recurrence=known) if known else first)


def _find_recurrence(report: Report) -> tuple[Recurrence, ...]:
    """Query the store for earlier failures; a site without a store has none."""
    site = load_site()
    if report.root is None or not site.store.url:
        return ()
    from opsk.app.site_store import open_site_store
    from opsk.postmortem.evidence.recurrence import read_known_failures

    try:
        engine = open_site_store(writing=False)
        try:
            known: Known = read_known_failures(
                engine, days=site.postmortem.days, before_s=_get_end_s(report), cluster=_get_cluster(report)
            )
        finally:
            engine.dispose()
    except OpskError as error:
        click.echo(f"opsk: earlier failures: {escape(error.message)}", err=True)
        return ()
    return compute_recurrence(report, known, days=site.postmortem.days)


def _get_cluster(report: Report) -> str | None:
    """Return the job's cluster: nodes of other clusters have the same names. ``None`` where it is unknown."""
    return (report.job.cluster or None) if report.job is not None else None


def _get_end_s(report: Report) -> float:
    """Return when the job ended; now where that is not known."""
    return report.job.end_s if report.job is not None and report.job.end_s is not None else time.time()


def write_automatic_report(
    job: str, note: Path | None = None, *, wait_s: float | None = None, cluster: str = ""
) -> int:
    """Write the report on a failed job next to its evidence and into the store; nothing for other jobs.

    Parameters
    ----------
    note
        Note of the job in a node's spool; it is removed when the report is stored.
    wait_s
        How long to wait for the nodes and Slurm [s]; by default the site's setting.
    cluster
        Cluster of the job; by default from the environment, which the collector has from the job's prolog.

    Raises
    ------
    InputError, SlurmError
        There is no evidence on the job, or the report cannot be written.
    """
    site = load_site()
    folder = site.postmortem.folder
    if folder is None:
        raise InputError("no folder for reports", hint="[postmortem] folder in opsk.toml")
    cluster = cluster or os.environ.get(VARIABLE, "")
    evidence = _wait_for_evidence(job, site.postmortem.wait_s if wait_s is None else wait_s, cluster)
    state = evidence.job.state if evidence.job is not None else ""
    if state in _SUCCEEDED:
        _remove_note(note)
    if state in _SUCCEEDED or state in _ACTIVE:
        return 0
    report = explain_evidence(evidence)
    job_cluster = evidence.job.cluster if evidence.job is not None else ""
    write_report(report, job_folder(folder, JobKey(cluster=cluster or job_cluster, job=job)))
    if _store_report(report, site):
        _remove_note(note)
    return 1 if report.root is not None else 0


def _remove_note(note: Path | None) -> None:
    """Remove the note of a job that is done."""
    if note is not None:
        remove_note(note)


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
        time.sleep(_ASK_EVERY_S)


def _is_final(evidence: Evidence) -> bool:
    """Return whether the evidence is complete."""
    facts = evidence.job
    if facts is None or not facts.state or facts.state in _ACTIVE:
        return False
    if facts.state in _SUCCEEDED:
        return True
    return evidence.gathered.get("node_files", "").startswith(f"{len(facts.nodes)} of")


def write_report(report: Report, folder: Path) -> None:
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
    record_report(report, folder)
    copy_to_user(report, folder, {HTML_REPORT: render_html, JSON_REPORT: _format_json})


def _format_json(report: Report) -> str:
    return json.dumps(to_json_values(build_postmortem_document(report)), indent=1)


def _store_report(report: Report, site: SiteConfig) -> bool:
    """Write report and failure into the site's store, where it has one; a failure to do so is printed."""
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
        click.echo(f"opsk: the report is not in the store: {escape(error.message)}", err=True)
        return False
    return True


def list_reports(*, as_json: bool, all_clusters: bool = False) -> int:
    """List the reports, the last first; only those of this cluster where several clusters share the folder.

    Raises
    ------
    InputError
        The site has no folder for reports.
    """
    folder = load_site().postmortem.folder
    if folder is None:
        raise InputError("this site keeps no reports", hint="[postmortem] folder in opsk.toml")
    entries, problems = list_entries(folder)
    for problem in problems:
        click.echo(f"opsk: {escape(problem)}", err=True)
    is_shared = len({entry.cluster for entry in entries} - {""}) > 1
    cluster = cluster_part(cluster_name(slurm_client())) if is_shared and not all_clusters else ""
    reports = [entry for entry in entries if not cluster or entry.cluster in ("", cluster)]
    if as_json:
        echo_json({"reports": reports, "other_clusters": len(entries) - len(reports)})
        return 0
    for entry in reports:
        click.echo(_format_entry(entry, with_cluster=is_shared and not cluster))
    if not reports:
        click.echo(f"no reports in {folder}")
    if len(entries) > len(reports):
        click.echo(f"{len(entries) - len(reports)} of other clusters: see opsk postmortem --list --all-clusters")
    return 0


def _format_entry(entry: Entry, *, with_cluster: bool) -> str:
    """Return one report in one line."""
    written = time.strftime("%Y-%m-%d %H:%M", time.gmtime(entry.written_s))
    job = f"{entry.cluster}.{entry.job}" if with_cluster and entry.cluster else entry.job
    cause = f"{entry.root_class or 'no cause':<16} {entry.where}"
    return escape(f"{written}  {job:>10}  {entry.state:<14} {cause}  {entry.what[:80]}")
