"""Implements ``opsk collect --missed``: reports on jobs that ended together with all their nodes, without an epilog."""

from __future__ import annotations

from pathlib import Path

import click

from opsk.cli.postmortem.job import write_automatic_report
from opsk.config import SiteConfig
from opsk.errors import ExitStatus
from opsk.postmortem.evidence.missed_jobs import format_messages, report_missed
from opsk.slurm.adapter import slurm_client
from opsk.slurm.cluster_name import cluster_name
from opsk.slurm.commands.accounting import AccountingClient
from opsk.text import escape


def report_missed_jobs(site: SiteConfig, folder: Path, spool: Path) -> int:
    """Report on missed jobs, where the site enables automatic reports.

    Raises
    ------
    InputError, SlurmError
        Nothing could be done.
    """
    if not site.postmortem.automatic:
        return ExitStatus.ANSWER
    done = report_missed(
        folder, spool, AccountingClient(), lambda key: write_automatic_report(key.job, wait_s=0.0, cluster=key.cluster),
        grace_s=site.postmortem.missed_after_s, cluster=cluster_name(slurm_client()),
    )  # fmt: skip
    for line in format_messages(done):
        click.echo(f"opsk: {escape(line)}", err=True)
    return ExitStatus.BAD_NEWS if done.problems or done.left else ExitStatus.ANSWER
