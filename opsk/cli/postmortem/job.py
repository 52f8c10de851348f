"""How does ``opsk postmortem JOB`` come by its evidence, and where do its reports go?"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from opsk.app.inputs.job_work import documents_of_job
from opsk.cli.document import echo_json
from opsk.cli.postmortem.document import postmortem_document
from opsk.config import SiteConfig, load_site
from opsk.errors import InputError, OpskError, SlurmError
from opsk.job_key import JobKey, cluster_part
from opsk.postmortem.evidence.as_user import person_of
from opsk.postmortem.evidence.gathering import Asked, gather_job
from opsk.postmortem.evidence.index import HTML_REPORT, JSON_REPORT, Entry, entries_of
from opsk.postmortem.evidence.marking import mark_report
from opsk.postmortem.evidence.node_files import job_folder, write_whole
from opsk.postmortem.evidence.own_copy import for_owner, give_copies
from opsk.postmortem.evidence.recurring import Known, recurrence_of
from opsk.postmortem.evidence.reporting import remove_note
from opsk.postmortem.logs import LogFile
from opsk.postmortem.reasoning import explain
from opsk.postmortem.reasoning.memory import with_prediction
from opsk.postmortem.report import html_report
from opsk.postmortem.values import Evidence, FailureClass, JobFacts, Recurrence, Report
from opsk.slurm.choice import slurm_client
from opsk.slurm.cluster_name import VARIABLE, cluster_name
from opsk.slurm.commands.accounting import AccountingClient
from opsk.slurm.records import JobRecord
from opsk.text import escape, to_json_values


def leave_mark(report: Report, folder: Path) -> None:
    """Have a report counted; that it cannot be is told, and no error."""
    try:
        mark_report(folder.parent, folder.name, report, time.time())
    except OSError as error:
        click.echo(f"opsk: {folder}: the report is not counted: {escape(str(error.strerror))}", err=True)


def give_to_user(report: Report, folder: Path, forms: dict[str, Callable[[Report], str]]) -> None:
    """Give the user of a job a copy of its report in each form; that it cannot be is told, and no error.

    Parameters
    ----------
    forms
        Name of the original to what writes it.
    """
    job = report.job
    person = person_of(job.uid if job.uid is not None else job.user) if job is not None else None
    if person is None or person.uid == 0:
        return
    shown = for_owner(report)
    try:
        give_copies(folder, person.uid, {name: form(shown) for name, form in forms.items()})
    except OSError as error:
        click.echo(f"opsk: {folder}: its user cannot read it: {escape(str(error.strerror))}", err=True)


def with_prediction_of_job(report: Report) -> Report:
    """Return a report with the terms of the predicted memory and what would fit, where advice or script are kept."""
    job, root = report.job, report.root
    if job is None or root is None or root.failure is not FailureClass.GPU_MEMORY:
        return report
    record = _record(job)
    if record is None:
        return report
    try:
        document = next((each for each in documents_of_job(record) if isinstance(each.get("memory"), dict)), None)
    except OpskError:
        return report
    return with_prediction(report, document) if document is not None else report


def _record(job: JobFacts) -> JobRecord | None:
    """Return what is needed of a job to find its advice and its script."""
    number = job.job_id.partition("_")[0].partition("+")[0]
    if not number.isdecimal() or len(number) > 10:
        return None
    return JobRecord(
        id=int(number), label=job.job_id, user=job.user, name=job.name, state=job.state, nodes=job.nodes,
        node_count=len(job.nodes), admin_comment=job.admin_comment or None,
    )  # fmt: skip


_STILL = frozenset(("RUNNING", "PENDING", "COMPLETING", "CONFIGURING", "SUSPENDED"))
_WELL = frozenset(("COMPLETED",))
_ASK_EVERY_S = 2.0


def job_evidence(
    job: str,
    *,
    logs: Sequence[LogFile] = (),
    gathered: Sequence[Path] = (),
    recorder: Sequence[Path] = (),
    is_number: bool = False,
    cluster: str = "",
) -> Evidence:
    """Return what is known of a job.

    Raises
    ------
    InputError, SlurmError
        Nothing is.
    """
    asked = Asked(
        job_id=job, is_number=is_number, cluster=cluster, folder=load_site().postmortem.folder,
        gathered=tuple(gathered), logs=tuple(logs), recorder=tuple(recorder),
    )  # fmt: skip
    if not job:
        return gather_job(asked)
    return gather_job(asked, accounting=AccountingClient(), client=slurm_client())


def explained(evidence: Evidence) -> Report:
    """Return the report, with what the store knows of the place and the user from before."""
    first = explain(evidence)
    known = _recurrence(first)
    return with_prediction_of_job(explain(evidence, recurrence=known) if known else first)


def _recurrence(report: Report) -> tuple[Recurrence, ...]:
    """Ask the store; a site without one knows nothing, and that is no error."""
    site = load_site()
    if report.root is None or not site.store.url:
        return ()
    from opsk.app.store_opening import site_store
    from opsk.postmortem.evidence.stored import known_failures

    try:
        engine = site_store(writing=False)
        try:
            known: Known = known_failures(
                engine, days=site.postmortem.days, before_s=_end_s(report), cluster=_cluster(report)
            )
        finally:
            engine.dispose()
    except OpskError as error:
        click.echo(f"opsk: earlier failures: {escape(error.message)}", err=True)
        return ()
    return recurrence_of(report, known, days=site.postmortem.days)


def _cluster(report: Report) -> str | None:
    """Return whose job it was: nodes of other clusters have the same names. ``None`` where nobody tells it."""
    return (report.job.cluster or None) if report.job is not None else None


def _end_s(report: Report) -> float:
    """Return when the job ended; now where that is not known."""
    return report.job.end_s if report.job is not None and report.job.end_s is not None else time.time()


def automatic_report(job: str, note: Path | None = None, *, wait_s: float | None = None, cluster: str = "") -> int:
    """Report on a job that failed: beside its evidence, and in the store; nothing of one that did not.

    Parameters
    ----------
    note
        Of the job in a node's spool; it stays there until all of that is done.
    wait_s
        How long nodes and Slurm have to say what they have to say [s]; by default as the site sets it.
    cluster
        Whose job it is; by default as the environment says, which the collector has from the job's prolog.

    Raises
    ------
    InputError, SlurmError
        Nothing is known of the job, or the report cannot be written.
    """
    site = load_site()
    folder = site.postmortem.folder
    if folder is None:
        raise InputError("no folder for reports", hint="[postmortem] folder in opsk.toml")
    cluster = cluster or os.environ.get(VARIABLE, "")
    evidence = _settled(job, site.postmortem.wait_s if wait_s is None else wait_s, cluster)
    state = evidence.job.state if evidence.job is not None else ""
    if state in _WELL:
        _done(note)
    if state in _WELL or state in _STILL:
        return 0
    report = explained(evidence)
    told = evidence.job.cluster if evidence.job is not None else ""
    keep_report(report, job_folder(folder, JobKey(cluster=cluster or told, job=job)))
    if _store(report, site):
        _done(note)
    return 1 if report.root is not None else 0


def _done(note: Path | None) -> None:
    """Forget that there is something to do."""
    if note is not None:
        remove_note(note)


def _settled(job: str, wait_s: float, cluster: str) -> Evidence:
    """Wait, but only so long, until Slurm's record is final and all nodes have said what they have to say."""
    end = time.monotonic() + wait_s
    while True:
        evidence = problem = None
        try:
            evidence = job_evidence(job, is_number=True, cluster=cluster)
        except (InputError, SlurmError) as error:
            problem = error
        late = time.monotonic() >= end
        if evidence is not None and (late or _is_final(evidence)):
            return evidence
        if late and problem is not None:
            raise problem
        time.sleep(_ASK_EVERY_S)


def _is_final(evidence: Evidence) -> bool:
    """Tell whether nothing more is to come."""
    facts = evidence.job
    if facts is None or not facts.state or facts.state in _STILL:
        return False
    if facts.state in _WELL:
        return True
    return evidence.gathered.get("node_files", "").startswith(f"{len(facts.nodes)} of")


def keep_report(report: Report, folder: Path) -> None:
    """Write a report into the folder of its job, as JSON and as HTML, and give its user a copy of each.

    Raises
    ------
    InputError
        It cannot be written.
    """
    try:
        write_whole(folder / HTML_REPORT, html_report(report))
        write_whole(folder / JSON_REPORT, _text(report))  # last: the index goes by it
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}", hint="see [postmortem] folder in opsk.toml") from error
    leave_mark(report, folder)
    give_to_user(report, folder, {HTML_REPORT: html_report, JSON_REPORT: _text})


def _text(report: Report) -> str:
    return json.dumps(to_json_values(postmortem_document(report)), indent=1)


def _store(report: Report, site: SiteConfig) -> bool:
    """Write report and failure into the site's store, where it has one; that it cannot is told."""
    if not site.store.url:
        return True
    from opsk.app.store_opening import site_store
    from opsk.postmortem.evidence.stored import store_report

    try:
        engine = site_store()
        try:
            store_report(engine, report, _text(report), time.time())
        finally:
            engine.dispose()
    except OpskError as error:
        click.echo(f"opsk: the report is not in the store: {escape(error.message)}", err=True)
        return False
    return True


def list_reports(*, as_json: bool, all_clusters: bool = False) -> int:
    """Show which reports there are, the last first; those of this cluster, where several keep theirs in one folder.

    Raises
    ------
    InputError
        The site keeps none.
    """
    folder = load_site().postmortem.folder
    if folder is None:
        raise InputError("this site keeps no reports", hint="[postmortem] folder in opsk.toml")
    every, problems = entries_of(folder)
    for problem in problems:
        click.echo(f"opsk: {escape(problem)}", err=True)
    is_shared = len({entry.cluster for entry in every} - {""}) > 1
    cluster = cluster_part(cluster_name(slurm_client())) if is_shared and not all_clusters else ""
    found = [entry for entry in every if not cluster or entry.cluster in ("", cluster)]
    if as_json:
        echo_json({"reports": found, "other_clusters": len(every) - len(found)})
        return 0
    for entry in found:
        click.echo(_line(entry, with_cluster=is_shared and not cluster))
    if not found:
        click.echo(f"no reports in {folder}")
    if len(every) > len(found):
        click.echo(f"{len(every) - len(found)} of other clusters: see opsk postmortem --list --all-clusters")
    return 0


def _line(entry: Entry, *, with_cluster: bool) -> str:
    """Return one report in one line."""
    at = time.strftime("%Y-%m-%d %H:%M", time.gmtime(entry.written_s))
    job = f"{entry.cluster}.{entry.job}" if with_cluster and entry.cluster else entry.job
    cause = f"{entry.root_class or 'no cause':<16} {entry.where}"
    return escape(f"{at}  {job:>10}  {entry.state:<14} {cause}  {entry.what[:80]}")
