"""Determines which GPUs a job was allocated, which it uses, and which processes belong to no job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opsk.telemetry.gpu import gres_order
from opsk.telemetry.gpu.samples import GpuProcess, GpuReading
from opsk.telemetry.host.cgroups import JobCgroup


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGpu:
    """A GPU, or MIG instance, that a job has or uses.

    Parameters
    ----------
    uuid, parent
        ``GPU-...``, or ``MIG-...`` with the GPU that it is a part of.
    allocated
        Whether Slurm gave it to the job; a job can use others where devices are not constrained.
    processes
        The job's processes on it; ``None`` where the driver or missing control groups do not show them.
    """

    uuid: str
    parent: str | None = None
    allocated: bool = True
    processes: int | None = None


def find_job_gpus(
    allocated: Iterable[str], source: str | None, cgroup: JobCgroup | None, reading: GpuReading
) -> tuple[JobGpu, ...]:
    """Return the GPUs that a job has, and those on which it only has processes."""
    processes = group_processes(reading)
    parents = gres_order.map_mig_parents(reading)
    pids = cgroup.pids if cgroup is not None else None
    used: dict[str, int | None] = {}
    for uuid, on_gpu in processes.items():
        used[uuid] = None if pids is None or on_gpu is None else sum(process.pid in pids for process in on_gpu)
    allocated_uuids = dict.fromkeys(allocated)
    more = [uuid for uuid, count in used.items() if count and uuid not in allocated_uuids]
    return tuple(
        JobGpu(
            uuid=uuid,
            parent=parents.get(uuid),
            allocated=uuid in allocated_uuids or source is None,
            processes=used.get(uuid),
        )
        for uuid in (*allocated_uuids, *more)
    )


def group_processes(reading: GpuReading) -> dict[str, tuple[GpuProcess, ...] | None]:
    """Return the processes of each GPU; of a GPU in MIG mode those of each instance."""
    by_gpu: dict[str, tuple[GpuProcess, ...] | None] = {}
    for gpu in reading.gpus:
        if gpu.mig:
            by_gpu |= {instance.uuid: instance.processes for instance in gpu.mig}
        else:
            by_gpu[gpu.uuid] = gpu.processes
    return by_gpu


def count_stranger_processes(cgroups: Sequence[JobCgroup | None], reading: GpuReading) -> dict[str, int]:
    """Count on each GPU the processes of no job; empty where no job has a control group to identify them by.

    ``cgroups`` is that of each job.
    """
    job_pids = [cgroup.pids for cgroup in cgroups if cgroup is not None]
    if cgroups and not job_pids:
        return {}
    known = frozenset().union(*job_pids)
    return {
        uuid: sum(process.pid not in known for process in on_gpu)
        for uuid, on_gpu in group_processes(reading).items()
        if on_gpu is not None
    }
