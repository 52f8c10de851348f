"""Waits until a job has ended, by Slurm's accounting or slurmctld."""

from __future__ import annotations

import time

from opsk.errors import InputError, SlurmError
from opsk.slurm.client import SlurmClient
from opsk.slurm.commands.accounting import AccountingClient, find_last_ended

ACTIVE = frozenset(("RUNNING", "PENDING", "COMPLETING", "CONFIGURING", "SUSPENDED"))
SUCCEEDED = frozenset(("COMPLETED",))
ASK_EVERY_S = 2.0


def wait_for_end(job: str, accounting: AccountingClient, client: SlurmClient, *, within_s: float) -> str:
    """Return a job's state once it has ended; after ``within_s`` as it is, and "" where Slurm does not know it.

    Parameters
    ----------
    job
        Slurm's own number of the job.
    """
    end_s = time.monotonic() + within_s
    while True:
        state = _read_state(job, accounting, client)
        if (state and state not in ACTIVE) or time.monotonic() >= end_s:
            return state
        time.sleep(ASK_EVERY_S)


def _read_state(job: str, accounting: AccountingClient, client: SlurmClient) -> str:
    """Return the job's state by the accounting, else by slurmctld; "" where neither knows it."""
    try:
        run = find_last_ended(accounting.runs(job, is_number=True))
    except (InputError, SlurmError):
        run = None
    if run is not None:
        return run.state
    try:
        return client.job(job).state
    except (InputError, SlurmError):
        return ""
