"""Builds the answer of ``opsk accuracy``, as far as its reader may see the jobs of others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from opsk.app.accuracy.jobs import ComparedJobs
from opsk.diagnosis.accuracy.comparison import ComparedJob, Quantity
from opsk.diagnosis.accuracy.summary import (
    FEW_JOBS,
    GROUPS,
    Figures,
    MissedJob,
    find_missed_jobs,
    group_jobs,
    summarise_jobs,
)
from opsk.errors import OpskError
from opsk.remapping.commands import find_caller_name, find_caller_rights
from opsk.slurm.commands.command import CommandClient
from opsk.slurm.commands.remap_commands import Who
from opsk.slurm.snapshot import JOBS, parse_private_data

OTHERS = "others"
"""The user of all jobs whose owners the reader may not see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Who reads the answer: the user's name, and whether the jobs of others are shown by name too."""

    user: str
    sees_all: bool


def find_reader(
    config: Callable[[], Mapping[str, str]] | None = None, rights: Callable[[], tuple[Who, ...]] | None = None
) -> Reader:
    """Return the caller: with ``PrivateData=jobs`` only operators see the jobs of others, as in ``squeue``.

    Where Slurm does not answer, the jobs of others are hidden from everyone but root.

    Parameters
    ----------
    config, rights
        Query slurmctld's configuration, and what the caller may do; by default the real ones.
    """
    allowed = (rights or (lambda: find_caller_rights(None)))()
    if Who.OPERATOR in allowed:
        return Reader(user=find_caller_name(), sees_all=True)
    try:
        private = parse_private_data((config or CommandClient().config)())
    except OpskError:
        return Reader(user=find_caller_name(), sees_all=False)
    return Reader(user=find_caller_name(), sees_all=JOBS not in private)


def hide_others(jobs: Iterable[ComparedJob], reader: Reader) -> tuple[ComparedJob, ...]:
    """Return the jobs without what names those of others, where the reader may not see it."""
    if reader.sees_all:
        return tuple(jobs)
    return tuple(
        job
        if job.user == reader.user
        else replace(job, job="", user=OTHERS, account="", name="", reason="")
        for job in jobs
    )  # fmt: skip


def build_accuracy_document(
    compared: ComparedJobs, reader: Reader, *, since: datetime, worst: int = 10, fit_since: datetime | None = None
) -> dict[str, Any]:
    """Return the answer as plain values.

    Parameters
    ----------
    since
        Start of the time span.
    worst
        Number of jobs that are listed.
    fit_since
        Since when the site predicts with the present fit that it has learned; ``None`` where it has none.
    """
    jobs = hide_others(compared.jobs, reader)
    return {
        "since": since,
        "predicted": compared.predicted,
        "compared": len(jobs),
        "is_few": len(jobs) < FEW_JOBS,
        "hides_others": not reader.sees_all,
        "overall": _build_figures(summarise_jobs(jobs)),
        "fit": {"since": fit_since, **_build_fit_figures(jobs, fit_since)},
        **{
            f"by_{group}": {key: _build_figures(figures) for key, figures in group_jobs(jobs, group).items()}
            for group in GROUPS
        },
        "worst": [_build_missed_job(missed) for missed in find_missed_jobs(jobs, worst)],
    }


def _build_fit_figures(jobs: Iterable[ComparedJob], fit_since: datetime | None) -> dict[str, Any]:
    """Return the figures of the jobs that were predicted with the present fit; nothing where there is none."""
    if fit_since is None:
        return {quantity.value: None for quantity in Quantity}
    return _build_figures(summarise_jobs(job for job in jobs if job.submitted_at >= fit_since))


def _build_figures(figures: Figures) -> dict[str, Any]:
    return {quantity.value: summary for quantity, summary in figures.items()}


def _build_missed_job(missed: MissedJob) -> dict[str, Any]:
    job, comparison = missed.job, missed.comparison
    return {
        "job": job.job or None,
        "submitted_at": job.submitted_at,
        "user": job.user or None,
        "name": job.name or None,
        "framework": job.framework,
        "gpu": job.gpu,
        "quantity": missed.quantity,
        "predicted": comparison.predicted,
        "measured": comparison.measured,
        "error": comparison.error,
        "is_in_range": comparison.is_in_range,
        "reason": job.reason or None,
    }
