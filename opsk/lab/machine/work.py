"""Finds the jobs that keep a simulated node busy, and what they need of its GPUs, from the prolog's files and /proc."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from opsk.job_key import JobKey
from opsk.lab.machine.machine import MachineFolder, replace_file
from opsk.telemetry.jobs.job_files import JobFile, read_job_files

_PROC = Path("/proc")
_BATCH = ("", "-5", "4294967291")
"""How releases name the batch script's own step in its environment; older ones do not."""
_EXTERN = ("-4", "4294967292")
_STEP = re.compile(r"[0-9]{1,9}")
Steps = dict[str, tuple[int, ...]]


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


def advice_file(jobs: Path, job: JobKey) -> Path:
    """Return the path of what was predicted for a job at its submission; empty where nothing was."""
    return jobs / f"{job.file_name}.advice"


def read_load(jobs: Path, job: JobKey) -> GpuLoad | None:
    """Return the load of a job on a node's GPUs; ``None`` where there is none."""
    try:
        return _LOAD.validate_json(load_file(jobs, job).read_bytes())
    except (OSError, ValidationError):
        return None


def write_load(jobs: Path, job: JobKey, load: GpuLoad) -> None:
    """Write the load of a job on a node's GPUs."""
    replace_file(load_file(jobs, job), json.dumps(asdict(load)))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJob:
    """A job on a node.

    Parameters
    ----------
    gpus
        Slurm's numbers of its GPUs there.
    steps
        Its processes by step.
    load
        Load of its plan on these GPUs; ``None`` where it has none.
    file
        The prolog's file; ``None`` where there is none.
    """

    gpus: tuple[int, ...]
    steps: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    load: GpuLoad | None = None
    file: JobFile | None = None

    @property
    def pids(self) -> tuple[int, ...]:
        """All processes of the job that could use GPUs."""
        return tuple(pid for step, pids in self.steps.items() if step != "extern" for pid in pids)

    @property
    def pace(self) -> float:
        """Speed now over the predicted speed [ratio, 0 to 1]; 1 where nothing is predicted."""
        return 1.0 if self.load is None else self.load.pace

    def memory_bytes(self, gpu: int) -> float | None:
        """Return the memory that the job's plan needs of a GPU [bytes]; ``None`` where it has no plan."""
        return None if self.load is None else self._get_value(gpu, self.load.memory_bytes)

    def power_w(self, gpu: int) -> float | None:
        """Return the power of a GPU at the predicted pace [W]; ``None`` where that is not known."""
        return None if self.load is None else self._get_value(gpu, self.load.power_w)

    def _get_value(self, gpu: int, values: tuple[float, ...]) -> float | None:
        # A requeued job may have got other GPUs than its load was written for.
        return values[self.gpus.index(gpu)] if len(values) == len(self.gpus) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The jobs of one node by number."""

    jobs: Mapping[str, NodeJob] = field(default_factory=dict)

    def find_job(self, gpu: int) -> NodeJob | None:
        """Return the job that has a GPU."""
        return next((job for job in self.jobs.values() if gpu in job.gpus), None)

    def find_busy_job(self, gpu: int) -> NodeJob | None:
        """Return the job that a GPU works for: it does as long as its job has a process on this node."""
        job = self.find_job(gpu)
        return job if job is not None and job.pids else None

    def is_busy(self, gpu: int) -> bool:
        """Return whether a GPU works."""
        return self.find_busy_job(gpu) is not None


def find_work(folders: Iterable[MachineFolder], conf: Path, now_unix_s: float) -> dict[str, Work]:
    """Return the work of each node by name; /proc is searched only where there is a job.

    Parameters
    ----------
    conf
        The lab's slurm.conf: other clusters' jobs on this machine are none of ours.
    """
    folders = tuple(folders)
    files = {folder.name: read_job_files(folder.jobs, now_unix_s).files for folder in folders}
    steps = _find_steps(conf) if any(files.values()) else {}
    return {
        folder.name: Work(
            jobs={
                file.job_id: NodeJob(
                    gpus=file.gpus,
                    steps=steps.get((folder.name, file.job_id), {}),
                    load=read_load(folder.jobs, file.key),
                    file=file,
                )
                for file in files[folder.name]
            }
        )
        for folder in folders
    }


def _find_steps(conf: Path) -> dict[tuple[str, str], Steps]:
    """Return the processes of each node and job by step."""
    steps_of_jobs: dict[tuple[str, str], Steps] = {}
    mine = b"SLURM_CONF=" + str(conf).encode()
    for entry in _PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            words = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if mine not in words:
            continue
        variables = {
            name: value.decode("ascii", "replace")
            for name, _, value in (word.partition(b"=") for word in words)
            if name in (b"SLURMD_NODENAME", b"SLURM_JOB_ID", b"SLURM_STEP_ID")
        }
        node, job = variables.get(b"SLURMD_NODENAME"), variables.get(b"SLURM_JOB_ID")
        if node and job:
            steps = steps_of_jobs.setdefault((node, job), {})
            name = _step_name(variables.get(b"SLURM_STEP_ID", ""))
            steps[name] = tuple(sorted((*steps.get(name, ()), int(entry.name))))
    return steps_of_jobs


def _step_name(number: str) -> str:
    if number in _EXTERN:
        return "extern"
    return number if number not in _BATCH and _STEP.fullmatch(number) else "batch"
