"""Reports on a job that has just ended, if it failed; of one that succeeded it only reads the state.

The epilog's collector runs this for each job, and most jobs succeed: what explains a failure is loaded for those alone
that failed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from opsk.config import load_site
from opsk.errors import InputError
from opsk.postmortem.evidence.job_end import SUCCEEDED, wait_for_end
from opsk.postmortem.evidence.reporting import remove_note
from opsk.slurm.adapter import slurm_client
from opsk.slurm.cluster_name import VARIABLE
from opsk.slurm.commands.accounting import AccountingClient


def write_automatic_report(
    job: str, note: Path | None = None, *, wait_s: float | None = None, cluster: str = "", warn: Callable[[str], None]
) -> int:
    """Write the report on a failed job next to its evidence and into the store; nothing for other jobs.

    Returns 1 where a cause was found, else 0.

    Parameters
    ----------
    job
        Slurm's own number of the job.
    note
        Note of the job in a node's spool; it is removed when the report is stored.
    wait_s
        How long to wait for the nodes and Slurm [s]; by default the site's setting.
    cluster
        Cluster of the job; by default from the environment, which the collector has from the job's prolog.
    warn
        Receives a message on what could not be done, although the report is there.

    Raises
    ------
    InputError, SlurmError
        There is no evidence on the job, or the report cannot be written.
    """
    site = load_site()
    folder = site.postmortem.folder
    if folder is None:
        raise InputError("no folder for reports", hint="set folder under [postmortem] in opsk.toml")
    wait_s = site.postmortem.wait_s if wait_s is None else wait_s
    end_s = time.monotonic() + wait_s
    if wait_for_end(job, AccountingClient(), slurm_client(), within_s=wait_s) in SUCCEEDED:
        if note is not None:
            remove_note(note)
        return 0
    from opsk.app.postmortem import report_ended_job

    cluster = cluster or os.environ.get(VARIABLE, "")
    left_s = max(end_s - time.monotonic(), 0.0)
    return report_ended_job(job, note, folder, wait_s=left_s, cluster=cluster, warn=warn)
