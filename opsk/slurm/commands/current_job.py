"""Reads the id, the nodes and the script of the job that a command runs in."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping

from opsk.errors import InputError, SlurmError
from opsk.hostlist import expand
from opsk.slurm.commands.command import build_command_environment
from opsk.units import MIB

MAX_SCRIPT_BYTES = MIB
_ID = re.compile(r"[0-9]{1,10}")


def find_own_job(environ: Mapping[str, str]) -> str:
    """Return the id of the job that this process runs in, empty outside of jobs."""
    job = environ.get("SLURM_JOB_ID", "")
    return job if _ID.fullmatch(job) else ""


def resolve_label(job: str, environ: Mapping[str, str]) -> str:
    """Return the id that Slurm resolves to one job only: the first of an array has the id of all of it.

    Raises
    ------
    InputError
        It is this process's own job, and a heterogeneous one.
    """
    if job != find_own_job(environ):
        return job
    if environ.get("SLURM_HET_SIZE", "1") not in ("", "0", "1"):
        raise InputError(f"job {job} is heterogeneous", hint="name a component, as 4711+1")
    array, task = environ.get("SLURM_ARRAY_JOB_ID", ""), environ.get("SLURM_ARRAY_TASK_ID", "")
    return f"{array}_{task}" if _ID.fullmatch(array) and _ID.fullmatch(task) else job


def read_node_list(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the nodes that the job had when it started, by its environment; empty where that lacks them."""
    try:
        return expand(environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST") or "")
    except InputError:
        return ()


def read_batch_script(job_id: int, environ: Mapping[str, str], *, deadline_s: float) -> bytes:
    """Return the script of a job, as slurmctld stores it.

    Raises
    ------
    SlurmError
        There is none (``salloc``, ``srun``), or Slurm does not answer.
    """
    try:
        done = subprocess.run(
            ("scontrol", "write", "batch_script", str(job_id), "-"), env=build_command_environment(environ),
            stdin=subprocess.DEVNULL, capture_output=True, timeout=deadline_s, check=False,
        )  # fmt: skip
    except OSError as error:
        raise SlurmError(f"scontrol: {error.strerror}", hint="put Slurm's client commands on PATH") from error
    except subprocess.TimeoutExpired as error:
        raise SlurmError(f"scontrol did not answer within {deadline_s:g} s", hint="see `scontrol ping`") from error
    if done.returncode or not done.stdout or len(done.stdout) > MAX_SCRIPT_BYTES:
        raise SlurmError(f"job {job_id} has no batch script that can be read", hint="name a PLAN.toml")
    return done.stdout
