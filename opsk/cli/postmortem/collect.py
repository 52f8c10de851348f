"""Implements ``opsk collect``: stores this node's evidence on jobs that start and end, for their post-mortem."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click

from opsk.config import SiteConfig, load_site
from opsk.errors import ExitStatus, InputError
from opsk.postmortem.evidence.collector import Collector, NodePaths
from opsk.postmortem.evidence.reporting import DueReport
from opsk.slurm.cluster_name import VARIABLE
from opsk.telemetry.jobs.job_files import JobFile
from opsk.text import escape

_PATH = click.Path(path_type=Path)


@click.command()
@click.option("--started", "which", flag_value="started", help="Only snapshot the node for jobs that began.")
@click.option("--ended", "which", flag_value="ended", help="Only keep the evidence of jobs that ended.")
@click.option("--missed", "which", flag_value="missed",
              help="On one host that has sacct: report on jobs that ended with all their nodes.")  # fmt: skip
@click.option("--folder", type=_PATH, help="Where evidence goes, instead of [postmortem] folder.")
@click.option("--spool", type=_PATH, envvar="OPSK_SPOOL_FOLDER", help="Instead of [postmortem] spool.")
@click.option("--jobs-folder", type=_PATH, envvar="OPSK_JOBS_FOLDER", help="Where the prolog writes.")
@click.option("--kernel-log", type=_PATH, envvar="OPSK_KERNEL_LOG", help="Instead of /dev/kmsg.")
@click.option("--sysfs", type=_PATH, envvar="OPSK_SYSFS", help="Where sysfs is mounted, instead of /sys.")
@click.option("--report/--no-report", default=None, help="Report on jobs that failed; by default as the site says.")
def collect(
    *, which: str | None, folder: Path | None, spool: Path | None, jobs_folder: Path | None, kernel_log: Path | None,
    sysfs: Path | None, report: bool | None,
) -> int:  # fmt: skip
    """Keep what this node knows of jobs: called by opsk-prolog and opsk-epilog, which do not wait for it.

    Exit status: 0 all is kept; 1 something is left for the next time; 2 nothing could be done.
    """
    site = load_site()
    paths = _resolve_paths(site, folder, spool, jobs_folder, kernel_log, sysfs)
    if which == "missed":
        from opsk.cli.postmortem.collect_missed import report_missed_jobs

        return report_missed_jobs(site, paths.folder, paths.spool)
    wants_report = (report if report is not None else site.postmortem.automatic) and which != "started"
    done = Collector(paths).collect(
        started=which != "ended", ended=which != "started", report=_start_report if wants_report else None
    )
    for problem in done.problems:
        click.echo(f"opsk: {escape(problem)}", err=True)
    return ExitStatus.BAD_NEWS if done.problems else ExitStatus.ANSWER


def _resolve_paths(
    site: SiteConfig, folder: Path | None, spool: Path | None, jobs_folder: Path | None, kernel_log: Path | None,
    sysfs: Path | None,
) -> NodePaths:  # fmt: skip
    """Return the paths: from options, the site's settings of post-mortem and exporter, else the defaults.

    Raises
    ------
    InputError
        There is no folder for evidence.
    """
    chosen = folder or site.postmortem.folder
    if chosen is None:
        raise InputError("no folder for evidence", hint="[postmortem] folder in opsk.toml, or --folder")
    defaults = NodePaths(folder=chosen, spool=spool or site.postmortem.spool)
    exporter = {name: Path(value) for name, value in site.exporter.items() if isinstance(value, str) and "/" in value}
    sysfs = sysfs or exporter.get("sysfs", defaults.sysfs)
    return NodePaths(
        folder=chosen, spool=defaults.spool,
        jobs_folder=jobs_folder or exporter.get("jobs_folder", defaults.jobs_folder),
        kernel_log=kernel_log or exporter.get("kernel_log", defaults.kernel_log),
        sysfs=sysfs, cgroups=exporter.get("cgroups", sysfs / "fs" / "cgroup"),
    )  # fmt: skip


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
