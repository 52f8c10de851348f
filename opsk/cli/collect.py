"""Implements ``opsk collect``: stores this node's evidence on jobs that start and end, for their post-mortem."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from opsk.cli.document import echo_message
from opsk.config import SiteConfig, load_site
from opsk.errors import ExitStatus, InputError
from opsk.postmortem.evidence.collector import Collector, NodePaths
from opsk.postmortem.evidence.reporting import DueReport
from opsk.slurm.cluster_name import VARIABLE
from opsk.telemetry.jobs.job_files import JobFile

_PATH = click.Path(path_type=Path)


@click.command()
@click.option("--started", "which", flag_value="started", help="Only take snapshots for jobs that started.")
@click.option("--ended", "which", flag_value="ended", help="Only store the evidence of jobs that ended.")
@click.option("--missed", "which", flag_value="missed",
              help="On one host with sacct: report on jobs whose nodes all failed, so that no epilog ran.")  # fmt: skip
@click.option("--folder", type=_PATH, help="Folder of the evidence; overrides folder under [postmortem].")
@click.option("--spool", type=_PATH, envvar="OPSK_SPOOL_FOLDER", help="Overrides spool under [postmortem].")
@click.option("--jobs-folder", type=_PATH, envvar="OPSK_JOBS_FOLDER", help="Folder that the prolog writes to.")
@click.option("--kernel-log", type=_PATH, envvar="OPSK_KERNEL_LOG", help="Overrides /dev/kmsg.")
@click.option("--sysfs", type=_PATH, envvar="OPSK_SYSFS", help="Where sysfs is mounted; overrides /sys.")
@click.option("--report/--no-report", default=None, help="Report on failed jobs.  [default: as the site configures]")
def collect(*, which: str | None, report: bool | None, **given: Path | None) -> int:
    """Store this node's evidence on jobs, for their post-mortem.

    opsk-prolog and opsk-epilog call it and do not wait for it.

    Exit status: 0 all is stored; 1 something is left for the next call; 2 nothing could be done.
    """
    site = load_site()
    paths = _resolve_paths(site, given)
    if which == "missed":
        return _report_missed_jobs(site, paths)
    wants_report = (report if report is not None else site.postmortem.automatic) and which != "started"
    done = Collector(paths).collect(
        started=which != "ended", ended=which != "started", report=_start_report if wants_report else None
    )
    for problem in done.problems:
        echo_message(problem)
    return ExitStatus.BAD_NEWS if done.problems else ExitStatus.ANSWER


def _resolve_paths(site: SiteConfig, given: Mapping[str, Path | None]) -> NodePaths:
    """Return the paths: from options, the site's settings of post-mortem and exporter, else the defaults.

    Raises
    ------
    InputError
        There is no folder for evidence.
    """
    folder = given["folder"] or site.postmortem.folder
    if folder is None:
        raise InputError("no folder for evidence", hint="set folder under [postmortem] in opsk.toml, or give --folder")
    defaults = NodePaths(folder=folder, spool=given["spool"] or site.postmortem.spool)
    exporter = {name: Path(value) for name, value in site.exporter.items() if isinstance(value, str) and "/" in value}
    sysfs = given["sysfs"] or exporter.get("sysfs", defaults.sysfs)
    return NodePaths(
        folder=folder, spool=defaults.spool,
        jobs_folder=given["jobs_folder"] or exporter.get("jobs_folder", defaults.jobs_folder),
        kernel_log=given["kernel_log"] or exporter.get("kernel_log", defaults.kernel_log),
        sysfs=sysfs, cgroups=exporter.get("cgroups", sysfs / "fs" / "cgroup"),
    )  # fmt: skip


def _report_missed_jobs(site: SiteConfig, paths: NodePaths) -> int:
    """Report on jobs that ended with all their nodes, without an epilog, where the site enables automatic reports.

    Raises
    ------
    InputError, SlurmError
        Nothing could be done.
    """
    if not site.postmortem.automatic:
        return ExitStatus.ANSWER
    # The prolog and the epilog need none of these.
    from opsk.app.automatic_report import write_automatic_report
    from opsk.postmortem.evidence.missed_jobs import format_messages, report_missed
    from opsk.slurm.adapter import slurm_client
    from opsk.slurm.cluster_name import cluster_name
    from opsk.slurm.commands.accounting import AccountingClient

    done = report_missed(
        paths.folder, paths.spool, AccountingClient(),
        lambda key: write_automatic_report(key.job, wait_s=0.0, cluster=key.cluster, warn=echo_message),
        grace_s=site.postmortem.missed_after_s, cluster=cluster_name(slurm_client()),
    )  # fmt: skip
    for line in format_messages(done):
        echo_message(line)
    return ExitStatus.BAD_NEWS if done.problems or done.left else ExitStatus.ANSWER


def _start_report(due: DueReport) -> None:
    """Start a report on a job in a process that outlives this one and holds the job's note until it ends.

    Raises
    ------
    OSError
        It cannot be started.
    """
    subprocess.Popen(
        [sys.executable, "-P", "-m", "opsk", "postmortem", due.note.job_id, "--automatic", "--note", str(due.path)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        env=_build_environment(due.note), pass_fds=(due.handle,),
    )  # fmt: skip


def _build_environment(note: JobFile) -> dict[str, str]:
    """Return the environment in which Slurm's commands find the cluster of the job, and opsk knows its name."""
    named = {"SLURM_CONF": note.conf, VARIABLE: note.cluster}
    return {**os.environ, **{name: value for name, value in named.items() if value}}
