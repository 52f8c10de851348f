"""What goes into a bundle that is handed on? The report in all forms, and what nodes kept of the job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from opsk.cli.postmortem_document import postmortem_document
from opsk.config import load_site
from opsk.errors import InputError
from opsk.job_key import JobKey
from opsk.postmortem.evidence.bundle import Redaction, made_up_names, write_bundle
from opsk.postmortem.evidence.node_files import folders_of_job, read_node_files
from opsk.postmortem.report import html_report, markdown_report
from opsk.postmortem.values import Report
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
        folders += folders_of_job(top, JobKey(cluster=cluster, job=number))
    kept = read_node_files(
        folders, start_s=job.start_s if job is not None else None, end_s=job.end_s if job is not None else None,
        cluster=cluster,
    )  # fmt: skip
    if anonymous and job is not None:
        report = replace(report, job=replace(job, uid=None))
    signs = report.evidence.signs
    nodes = [*(job.nodes if job is not None else ()), *(sign.place.node for sign in signs)]
    names = made_up_names(nodes, [job.user, job.account] if job is not None else []) if anonymous else {}
    texts = {
        "report.json": json.dumps(to_json_values(postmortem_document(report))),
        "report.md": markdown_report(report),
        "report.html": html_report(report),
    }
    for at, said in enumerate(kept.files, 1):
        note = said.get("note")
        shown = {**said, "note": {**note, "uid": None}} if anonymous and isinstance(note, dict) else dict(said)
        texts[f"nodes/{at}.json"] = json.dumps(shown)
    try:
        write_bundle(path, texts, Redaction(names=names))
    except OSError as error:
        raise InputError(escape(f"{path}: {error.strerror}"), hint="name another file") from error
