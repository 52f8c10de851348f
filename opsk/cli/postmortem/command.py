"""Implements ``opsk postmortem``: finds the cause of a job's failure, with its evidence."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from opsk.cli.document import echo_json
from opsk.cli.postmortem.document import build_postmortem_document
from opsk.cli.postmortem.job import explain_evidence, gather_job_evidence, list_reports, write_automatic_report
from opsk.cli.postmortem.text import print_report
from opsk.config import load_site
from opsk.errors import ExitStatus, InputError
from opsk.job_key import JobKey
from opsk.postmortem.evidence.bundle import Redaction, build_pseudonyms, write_bundle
from opsk.postmortem.evidence.node_files import list_job_folders, read_node_files
from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.report import render_html, render_markdown
from opsk.postmortem.values import Evidence, Report
from opsk.text import escape, to_json_values


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


_LOG = click.Path(path_type=Path)
_JOB = re.compile(r"\d{1,10}(?:[_+.]\S{0,20})?")


@click.command()
@click.argument("names", nargs=-1, metavar="[JOB] [FILE...]")
@click.option(
    "--log",
    "logs",
    multiple=True,
    type=_LOG,
    metavar="FILE",
    help="Output of the job, or of one of its ranks; may be repeated, and others may follow it.",
)
@click.option(
    "--kernel-log",
    "kernel_logs",
    multiple=True,
    type=_LOG,
    metavar="[NODE=]FILE",
    help="Kernel log or journal of a node (dmesg, journalctl -k); may be repeated.",
)
@click.option(
    "--flight-recorder",
    "recorder",
    multiple=True,
    type=_LOG,
    metavar="PATH",
    help="Dumps of PyTorch's flight recorder: a folder or a file; may be repeated.",
)
@click.option(
    "--gathered",
    multiple=True,
    type=_LOG,
    metavar="DIR",
    help="Evidence that nodes kept of the job, where it is not in the site's folder; may be repeated.",
)
@click.option("--list", "as_list", is_flag=True, help="Show which reports there are.")
@click.option("--all-clusters", is_flag=True, help="With --list: reports on jobs of other clusters as well.")
@click.option("--automatic", is_flag=True, help="Write a report if the job failed; what the epilog's collector calls.")
@click.option("--note", type=_LOG, metavar="FILE", help="With --automatic: what to remove once the report is kept.")
@click.option(
    "--bundle", type=_LOG, metavar="FILE.tar.gz", help="Write report and evidence to hand on, without secrets."
)
@click.option("--anonymous", is_flag=True, help="In the bundle, give nodes and users made-up names.")
@click.option("--html", type=_LOG, metavar="FILE", help="Write the report as one HTML file as well.")
@click.option("--md", type=_LOG, metavar="FILE", help="Write the report as Markdown as well.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def postmortem(
    *,
    names: tuple[str, ...],
    logs: tuple[Path, ...],
    kernel_logs: tuple[Path, ...],
    recorder: tuple[Path, ...],
    gathered: tuple[Path, ...],
    as_list: bool,
    all_clusters: bool,
    automatic: bool,
    note: Path | None,
    bundle: Path | None,
    anonymous: bool,
    html: Path | None,
    md: Path | None,
    as_json: bool,
) -> int:
    """Say what killed JOB: what failed first, where, on what evidence, and what evidence is missing.

    Without JOB, logs alone are read: all of --log FILE... as a shell lists them. With it Slurm is asked, and all that
    is known of the job is gathered.

    Exit status: 0 nothing failed, or no cause can be told; 1 a cause was found; 2 nothing could be read.
    """
    if as_list:
        return list_reports(as_json=as_json, all_clusters=all_clusters)
    job, logs = _split_names(names, logs)
    if automatic and job:
        return write_automatic_report(job, note)
    if not job and not logs and not kernel_logs and not recorder and not gathered:
        raise click.UsageError("name a job, or logs with --log")
    if job or recorder or gathered:
        evidence = _gather_evidence(job, logs, kernel_logs, gathered, recorder, as_json=as_json)
    else:
        evidence = _read_evidence(logs, kernel_logs, as_json=as_json)
    report = explain_evidence(evidence)
    _write_report(report, html, md)
    if bundle is not None:
        write_job_bundle(bundle, report, gathered, anonymous=anonymous)
    if as_json:
        echo_json(build_postmortem_document(report))
    else:
        print_report(report)
    return ExitStatus.BAD_NEWS if report.root is not None else ExitStatus.ANSWER


def _split_names(names: tuple[str, ...], logs: tuple[Path, ...]) -> tuple[str, tuple[Path, ...]]:
    """Return the job and the logs: an argument after ``--log FILE`` that is no job number is a log, too."""
    jobs = [name for name in names if not Path(name).is_file() and (_JOB.fullmatch(name) or not logs)]
    if len(jobs) > 1:
        raise click.UsageError("name one job; logs go with --log")
    files = tuple(Path(name) for name in names if name not in jobs)
    return "".join(jobs), (*logs, *files)


def _write_report(report: Report, html: Path | None, md: Path | None) -> None:
    """Write the report to files.

    Raises
    ------
    InputError
        A file cannot be written.
    """
    for path, render in ((html, render_html), (md, render_markdown)):
        if path is None:
            continue
        try:
            path.write_text(render(report), encoding="utf-8", errors="replace")
        except OSError as error:
            raise InputError(escape(f"{path}: {error.strerror}"), hint="name another file") from error


def _gather_evidence(
    job: str, logs: tuple[Path, ...], kernel_logs: tuple[Path, ...], gathered: tuple[Path, ...],
    recorder: tuple[Path, ...], *, as_json: bool,
) -> Evidence:  # fmt: skip
    """Return all evidence on a job; unreadable files are reported.

    Raises
    ------
    InputError, SlurmError
        There is no evidence.
    """
    files = [LogFile(path=path) for path in logs] + [_parse_kernel_log(str(text)) for text in kernel_logs]
    evidence = gather_job_evidence(job, logs=files, gathered=gathered, recorder=recorder)
    if as_json:
        for problem in evidence.unreadable:
            click.echo(f"opsk: {escape(problem)}", err=True)
    return evidence


def _read_evidence(logs: tuple[Path, ...], kernel_logs: tuple[Path, ...], *, as_json: bool) -> Evidence:
    """Read all logs; unreadable ones are reported, and an error is raised only when none can be read.

    Raises
    ------
    InputError
        None could be read.
    """
    files = [LogFile(path=path) for path in logs] + [_parse_kernel_log(str(text)) for text in kernel_logs]
    evidence = read_logs(files)
    if len(evidence.unreadable) >= len(files) and not evidence.findings and not evidence.ranks:
        raise InputError("; ".join(evidence.unreadable), hint="name log files that can be read")
    if as_json:
        for problem in evidence.unreadable:
            click.echo(f"opsk: {escape(problem)}", err=True)
    return evidence


def _parse_kernel_log(text: str) -> LogFile:
    """Return a kernel log, with its node where one is named before it."""
    node, mark, path = text.partition("=")
    if mark and not Path(text).exists():
        return LogFile(path=Path(path), kind="kernel", node=node)
    return LogFile(path=Path(text), kind="kernel")
