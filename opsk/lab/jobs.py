"""Runs a script in the lab as the calling user, and follows it to its end."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opsk.errors import SlurmError
from opsk.lab.programs import build_search_path
from opsk.lab.record import LabRecord
from opsk.lab.status import build_slurm_environment

_ID = re.compile(r"(\d+)(?:;\S*)?\s*")
_FIELD = re.compile(r"(?:^|\s)(JobId|ArrayJobId|ArrayTaskId|JobState|Reason|ExitCode|NodeList|StdOut)=(\S*)")
_POLL_S = 0.25
_CHUNK = 1 << 16
_UNFINISHED = frozenset(
    {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "RESIZING", "REQUEUED", "STAGE_OUT", "STOPPED"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """How one job (or one task of an array) ended: Slurm's state, and exit status or signal as ``status:signal``."""

    id: str
    state: str
    exit_code: str
    nodes: str


def submit(record: LabRecord, words: Sequence[str]) -> str:
    """Submit with sbatch and return the job id; stderr of sbatch, advice included, goes to the terminal.

    Raises
    ------
    SlurmError
        When sbatch refuses; it has printed the reason itself.
    """
    result = subprocess.run(
        ["sbatch", "--parsable", *words], env=_environment(record), stdout=subprocess.PIPE, text=True, check=False
    )
    match = _ID.fullmatch(result.stdout)
    if result.returncode != 0 or match is None:
        raise SlurmError(f"sbatch refused the job (status {result.returncode})")
    return match[1]


def follow(
    record: LabRecord, job_id: str, *, write: Callable[[bytes], None], notice: Callable[[str], None]
) -> tuple[JobEnd, ...]:
    """Forward the output of a job until it has ended.

    Parameters
    ----------
    write
        Gets the bytes of the job's standard output.
    notice
        Is called once with the reason why the job waits, if it does.

    Raises
    ------
    SlurmError
        When slurmctld no longer knows the job or does not answer.
    """
    read: dict[str, int] = {}
    noticed = False
    while True:
        jobs = _query_job(record, job_id)
        unfinished = [job for job in jobs if job["JobState"] in _UNFINISHED]
        for output in dict.fromkeys(job.get("StdOut", "") for job in jobs):
            read[output] = _forward_output(output, read.get(output, 0), write)
        if not unfinished:
            return tuple(_build_end(job) for job in jobs)
        waits = [job["Reason"] for job in unfinished if job["JobState"] == "PENDING"]
        if waits and not noticed and waits[0] not in ("None", "Priority"):
            noticed = True
            notice(f"job {job_id} waits: {waits[0]}")
        time.sleep(_POLL_S)


def _query_job(record: LabRecord, job_id: str) -> list[dict[str, str]]:
    """Return the fields of the job, one record a task of an array."""
    answered = subprocess.run(
        ["scontrol", "--oneliner", "show", "job", job_id],
        env=_environment(record), capture_output=True, text=True, check=False,
    )  # fmt: skip
    jobs = [dict(_FIELD.findall(line)) for line in answered.stdout.splitlines() if line.startswith("JobId=")]
    if answered.returncode != 0 or not jobs:
        raise SlurmError(f"scontrol show job {job_id}: {' '.join(answered.stderr.split())[:200]}")
    return jobs


def _forward_output(path: str, offset: int, write: Callable[[bytes], None]) -> int:
    """Write new content of a file, and return the offset up to which it was read; only of regular files."""
    if not os.path.isfile(path):  # noqa: PTH113
        return offset
    with open(path, "rb") as output:  # noqa: PTH123
        output.seek(offset)
        while chunk := output.read(_CHUNK):
            write(chunk)
            offset += len(chunk)
    return offset


def _build_end(job: dict[str, str]) -> JobEnd:
    task = f"{job['ArrayJobId']}_{job['ArrayTaskId']}" if "ArrayTaskId" in job else job["JobId"]
    return JobEnd(id=task, state=job["JobState"], exit_code=job["ExitCode"], nodes=job.get("NodeList", ""))


def _environment(record: LabRecord) -> dict[str, str]:
    """Return the caller's own environment, pointed at the lab; settings for another cluster are left out."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
    return own | {"PATH": build_search_path()} | build_slurm_environment(record)
