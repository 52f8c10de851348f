"""How does a report that root keeps reach the user of the job, and who counts reports? Both are told, and no more."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import click

from opsk.postmortem.evidence.as_user import person_of
from opsk.postmortem.evidence.marking import mark_report
from opsk.postmortem.evidence.own_copy import for_owner, give_copies
from opsk.postmortem.values import Report
from opsk.text import escape


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
