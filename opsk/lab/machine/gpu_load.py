"""Reads and writes what a job's plan asks of its GPUs on one node, next to the prolog's file of the job."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from opsk.job_key import JobKey
from opsk.lab.machine.machine import replace_file


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLoad:
    """Memory and power of a job's GPUs on one node, as its plan has them.

    Parameters
    ----------
    memory_bytes
        Of each of the job's GPUs on the node, in the order of their numbers.
    power_w
        Of each of them at the predicted pace; empty where it is not known.
    pace
        Speed now over the predicted speed [ratio, 0 to 1]: 0 is a job that stands still.
    """

    memory_bytes: tuple[float, ...] = ()
    power_w: tuple[float, ...] = ()
    pace: float = 1.0


_LOAD = TypeAdapter(GpuLoad)


def load_file(jobs: Path, job: JobKey) -> Path:
    """Return the path of a job's load in a node's folder of jobs; its epilog removes all files of this name."""
    return jobs / f"{job.file_name}.load"


def read_load(jobs: Path, job: JobKey) -> GpuLoad | None:
    """Return the load of a job on a node's GPUs; ``None`` where there is none."""
    try:
        return _LOAD.validate_json(load_file(jobs, job).read_bytes())
    except (OSError, ValidationError):
        return None


def write_load(jobs: Path, job: JobKey, load: GpuLoad) -> None:
    """Write the load of a job on a node's GPUs."""
    replace_file(load_file(jobs, job), json.dumps(asdict(load)))
