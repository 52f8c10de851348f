"""Submits a job script to Slurm as the user who runs the command."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opsk.errors import SlurmError

DEADLINE_S = 60.0
"""A job that waits for slurmctld's locks, or for a site's filter, is not lost because of ten seconds."""
_ID = re.compile(r"(\d+)(?:;\S*)?\s*")
_MAX_MESSAGE_CHARACTERS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """The job that Slurm took, and what ``sbatch`` printed besides its number (warnings, advice)."""

    job_id: str
    message: str = ""


def submit(script: Path, *, environment: Mapping[str, str] | None = None, deadline_s: float = DEADLINE_S) -> Submitted:
    """Submit a script.

    Parameters
    ----------
    environment
        Variables in place of this process's own. All of them count, unlike for queries to Slurm: ``SBATCH_ACCOUNT``
        and similar ones are the user's choice.

    Raises
    ------
    SlurmError
        ``sbatch`` is not there, refused, or did not answer in time.
    """
    try:
        done = subprocess.run(
            ["sbatch", "--parsable", str(script)],
            env=dict(os.environ if environment is None else environment),
            stdin=subprocess.DEVNULL, capture_output=True, timeout=deadline_s, check=False,
        )  # fmt: skip
    except OSError as error:
        raise SlurmError(f"sbatch: {error.strerror}", hint=f"where there is Slurm: sbatch {script}") from error
    except subprocess.TimeoutExpired as error:
        raise SlurmError(
            f"sbatch did not answer within {deadline_s:g} s",
            hint="it may have been taken all the same: see squeue --me",
        ) from error
    message = done.stderr.decode("utf-8", errors="replace").strip()[:_MAX_MESSAGE_CHARACTERS]
    match = _ID.fullmatch(done.stdout.decode("utf-8", errors="replace"))
    if done.returncode or match is None:
        raise SlurmError(
            f"sbatch did not take the job (status {done.returncode}): {message or 'it said nothing'}",
            hint=f"change what it says, then: sbatch {script}",
        )
    return Submitted(job_id=match[1], message=message)
