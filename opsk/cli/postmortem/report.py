"""Explains why a job failed, and prints, writes and lists the reports."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from opsk.app.postmortem import (
    build_postmortem_document,
    explain_evidence,
    gather_job_evidence,
    list_reports,
    write_job_bundle,
)
from opsk.cli.document import echo_json, echo_message
from opsk.errors import ExitStatus, InputError
from opsk.postmortem.evidence.index import Entry
from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.reasoning.owners import describe_owner
from opsk.postmortem.reasoning.places import describe_place
from opsk.postmortem.report import render_html, render_markdown
from opsk.postmortem.report.text import format_divergence, format_memory, format_source, list_moments
from opsk.postmortem.values import Cause, Evidence, Moment, Report, Role
from opsk.text import escape

_MAX_MOMENTS = 14
_PATH = click.Path(path_type=Path)
_JOB = re.compile(r"\d{1,10}(?:[_+.]\S{0,20})?")


def explain_job(
    names: tuple[str, ...], *, logs: tuple[Path, ...], kernel_logs: tuple[Path, ...], recorder: tuple[Path, ...],
    gathered: tuple[Path, ...], bundle: Path | None, anonymous: bool, html: Path | None, md: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Explain why a job failed, print the report and write it where it is requested; return the exit status.

    Raises
    ------
    InputError, SlurmError
        Nothing could be read, or a file cannot be written.
    click.UsageError
        There is nothing to explain.
    """
    job, logs = split_names(names, logs)
    if not job and not logs and not kernel_logs and not recorder and not gathered:
        raise click.UsageError("name a job, or logs with --log")
    files = [LogFile(path=path) for path in logs] + [_parse_kernel_log(str(text)) for text in kernel_logs]
    if job or recorder or gathered:
        evidence = gather_job_evidence(job, logs=files, gathered=gathered, recorder=recorder)
    else:
        evidence = _read_logs(files)
    for problem in evidence.unreadable if as_json else ():
        echo_message(problem)
    report = explain_evidence(evidence, echo_message)
    _write_report(report, html, md)
    if bundle is not None:
        write_job_bundle(bundle, report, gathered, anonymous=anonymous)
    if as_json:
        echo_json(build_postmortem_document(report))
    else:
        print_report(report)
    return ExitStatus.BAD_NEWS if report.root is not None else ExitStatus.ANSWER


def split_names(names: tuple[str, ...], logs: tuple[Path, ...]) -> tuple[str, tuple[Path, ...]]:
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


def _read_logs(files: Sequence[LogFile]) -> Evidence:
    """Return the evidence in logs.

    Raises
    ------
    InputError
        None could be read.
    """
    evidence = read_logs(files)
    is_silent = not any(each.last_iteration is not None or each.ended_well for each in evidence.ranks)
    if len(evidence.unreadable) >= len(files) and not evidence.findings and is_silent:
        raise InputError("; ".join(evidence.unreadable), hint="name log files that can be read")
    return evidence


def _parse_kernel_log(text: str) -> LogFile:
    """Return a kernel log, with its node where one is named before it."""
    node, mark, path = text.partition("=")
    if mark and not Path(text).exists():
        return LogFile(path=Path(path), kind="kernel", node=node)
    return LogFile(path=Path(text), kind="kernel")


def print_list(*, all_clusters: bool, as_json: bool) -> int:
    """List the reports."""
    listed = list_reports(all_clusters=all_clusters, warn=echo_message)
    if as_json:
        echo_json({"reports": listed.reports, "other_clusters": listed.other_clusters})
        return ExitStatus.ANSWER
    for entry in listed.reports:
        click.echo(_format_entry(entry, with_cluster=listed.is_mixed))
    if not listed.reports:
        click.echo(escape(f"no reports in {listed.folder}"))
    if listed.other_clusters:
        click.echo(f"{listed.other_clusters} of other clusters: see opsk postmortem --list --all-clusters")
    return ExitStatus.ANSWER


def _format_entry(entry: Entry, *, with_cluster: bool) -> str:
    """Return one report in one line."""
    written = time.strftime("%Y-%m-%d %H:%M", time.gmtime(entry.written_s))
    job = f"{entry.cluster}.{entry.job}" if with_cluster and entry.cluster else entry.job
    cause = f"{entry.root_class or 'no cause':<16} {entry.where}"
    return escape(f"{written}  {job:>10}  {entry.state:<14} {cause}  {entry.what[:80]}")


def print_report(report: Report) -> None:
    """Print a report."""
    for line in format_report(report):
        click.echo(line)


def format_report(report: Report) -> list[str]:
    """Return the lines of a report; all foreign text is escaped."""
    shown = [
        *_format_head(report),
        *(f"note    {escape(note)}" for note in report.evidence.notes),
        *_format_reasons(report.root),
        *_format_alternatives(report),
        *_format_memory(report),
        *_format_divergence(report),
        *_format_timeline(report),
    ]
    return [*shown, *_format_missing(report), *_format_actions(report), *_format_unreadable(report)]


def _format_head(report: Report) -> list[str]:
    """Return state and cause."""
    name = f"job {escape(report.job.job_id)}  " if report.job is not None and report.job.job_id else ""
    owner = describe_owner(report)
    first = f"{name}{escape(report.state)}" + (f"; whose problem: {owner}" if owner else "")
    if report.root is None:
        nothing = {
            "ended well": "nothing failed",
            "COMPLETED": "nothing failed",
            "unknown": "no sign of a failure",
        }
        said = nothing.get(report.state, "" if owner else "the evidence does not show a cause")
        return [first, said] if said else [first]
    root = report.root
    return [
        first,
        f"cause   {root.failure}, {root.confidence:.0%} sure: {escape(root.what)}",
        f"where   {escape(describe_place(root.where))}",
        *(f"job     {_format_moment(moment, is_timed=moment.time_s is not None)}" for moment in report.before),
    ]


def _format_reasons(root: Cause | None) -> list[str]:
    """Return the reasoning for the cause, and its evidence."""
    if root is None:
        return []
    steps = [f"        {escape(step)}" for step in root.why]
    seen = [
        f"        {escape(format_source(finding))}: {escape(finding.text[:160])}"
        for finding in sorted(root.lines, key=lambda each: each.role is not Role.ROOT)[:3]
    ]
    return ["why", *steps, *(["evidence", *seen] if seen else [])]


def _format_alternatives(report: Report) -> list[str]:
    """Return the alternatives."""
    if not report.alternatives:
        return []
    rows = []
    for cause in report.alternatives:
        where = escape(describe_place(cause.where))
        rows.append(f"        {cause.confidence:4.0%}  {cause.failure}: {escape(cause.what[:110])} ({where})")
    return ["else", *rows]


def _format_memory(report: Report) -> list[str]:
    """Return the facts on exhausted memory."""
    text = format_memory(report.facts)
    return [f"memory  {escape(text)}"] if text else []


def _format_divergence(report: Report) -> list[str]:
    """Return where the ranks diverged."""
    text = format_divergence(report.divergence)
    return [f"hang    {escape(text)}"] if text else []


def _format_timeline(report: Report) -> list[str]:
    """Return the first moments; nothing where they say no more than the cause does."""
    moments = list_moments(report)
    if not moments:
        return []
    is_timed = any(moment.time_s is not None for moment in moments)
    rows = [f"        {_format_moment(moment, is_timed=is_timed)}" for moment in moments[:_MAX_MOMENTS]]
    left = len(moments) - _MAX_MOMENTS
    head = "when" if is_timed else "when    in the order of the log: no line has a time"
    return [head, *rows, *([f"        and {left} more: --json, --md or --html"] if left > 0 else [])]


def _format_moment(moment: Moment, *, is_timed: bool) -> str:
    """Return one moment."""
    when = f"{format_time(moment.time_s)}  " if is_timed else ""
    place = describe_place(moment.place)
    where = "" if place == "the job" else f"  ({escape(place)})"
    return f"{when}{escape(moment.what[:110])}{where}"


def format_time(time_s: float | None) -> str:
    """Format a time for people, in UTC as assumed for the logs."""
    if time_s is None or not 0 <= time_s < 1e11:
        return "no time on the line    "
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:23]


def _format_missing(report: Report) -> list[str]:
    """Return the missing evidence."""
    rows = []
    for item in report.missing:
        how = f" ({escape(item.how)})" if item.how else ""
        rows.append(f"        {escape(item.what)}: {escape(item.why)}{how}")
    return ["missing", *rows] if rows else []


def _format_actions(report: Report) -> list[str]:
    """Return the actions."""
    rows = []
    for action in report.actions:
        rows.append(f"        {action.audience}: {escape(action.what)}")
        if action.command:
            rows.append(f"            {escape(action.command)}")
    return ["do", *rows] if rows else []


def _format_unreadable(report: Report) -> list[str]:
    """Return the unreadable files."""
    return [f"unread  {escape(problem)}" for problem in report.evidence.unreadable]
