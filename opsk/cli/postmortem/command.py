"""Implements ``opsk postmortem``, apart from ``report`` because a job that succeeded needs no explanation.

The epilog's collector starts it for each job.
"""

from __future__ import annotations

from pathlib import Path

import click

from opsk.app.automatic_report import write_automatic_report
from opsk.cli.document import echo_message

_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("names", nargs=-1, metavar="[JOB] [FILE...]")
@click.option("--log", "logs", multiple=True, type=_PATH, metavar="FILE",
              help="Output of the job or of one of its ranks; repeatable, and more FILEs may follow.")  # fmt: skip
@click.option("--kernel-log", "kernel_logs", multiple=True, type=_PATH, metavar="[NODE=]FILE",
              help="Kernel log or journal of a node (dmesg, journalctl -k); repeatable.")  # fmt: skip
@click.option("--flight-recorder", "recorder", multiple=True, type=_PATH, metavar="PATH",
              help="Dumps of PyTorch's flight recorder, a folder or a file; repeatable.")  # fmt: skip
@click.option("--gathered", multiple=True, type=_PATH, metavar="DIR",
              help="Evidence that nodes collected, if it is not in the site's folder; repeatable.")  # fmt: skip
@click.option("--list", "as_list", is_flag=True, help="List the stored reports.")
@click.option("--all-clusters", is_flag=True, help="With --list: include reports of other clusters.")
@click.option("--automatic", is_flag=True, help="Write a report if the job failed; the epilog's collector uses it.")
@click.option("--note", type=_PATH, metavar="FILE", help="With --automatic: the note to remove after the report.")
@click.option("--bundle", type=_PATH, metavar="FILE.tar.gz",
              help="Write report and evidence, without secrets, into an archive to share.")  # fmt: skip
@click.option("--anonymous", is_flag=True, help="With --bundle: replace the names of nodes and users.")
@click.option("--html", type=_PATH, metavar="FILE", help="Also write the report as one HTML file.")
@click.option("--md", type=_PATH, metavar="FILE", help="Also write the report as Markdown.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
def postmortem(
    *, names: tuple[str, ...], logs: tuple[Path, ...], kernel_logs: tuple[Path, ...], recorder: tuple[Path, ...],
    gathered: tuple[Path, ...], as_list: bool, all_clusters: bool, automatic: bool, note: Path | None,
    bundle: Path | None, anonymous: bool, html: Path | None, md: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Explain why JOB failed: what failed first, where, on what evidence, and what evidence is missing.

    With JOB, opsk asks Slurm and collects all the evidence on the job. Without it, only the given logs are read.

    Exit status: 0 nothing failed, or the cause is unknown; 1 a cause was found; 2 nothing could be read.
    """
    if automatic and len(names) == 1:
        return write_automatic_report(names[0], note, warn=echo_message)
    from opsk.cli.postmortem.report import explain_job, print_list

    if as_list:
        return print_list(all_clusters=all_clusters, as_json=as_json)
    return explain_job(
        names, logs=logs, kernel_logs=kernel_logs, recorder=recorder, gathered=gathered, bundle=bundle,
        anonymous=anonymous, html=html, md=md, as_json=as_json,
    )  # fmt: skip
