"""Which GPUs does a job have, which does it use, and who uses one that is of no job?"""

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
        The job's processes on it; ``None`` where the driver, or the lack of control groups, does not tell.
    """

    uuid: str
    parent: str | None = None
    allocated: bool = True
    processes: int | None = None


def gpus_of(
    allocated: Iterable[str], source: str | None, cgroup: JobCgroup | None, reading: GpuReading
) -> tuple[JobGpu, ...]:
    """Return the GPUs that a job has, and those on which it only has processes."""
    processes = processes_of(reading)
    parents = gres_order.parents(reading)
    pids = cgroup.pids if cgroup is not None else None
    used: dict[str, int | None] = {}
    for uuid, found in processes.items():
        used[uuid] = None if pids is None or found is None else sum(process.pid in pids for process in found)
    own = dict.fromkeys(allocated)
    more = [uuid for uuid, count in used.items() if count and uuid not in own]
    return tuple(
        JobGpu(
            uuid=uuid,
            parent=parents.get(uuid),
            allocated=uuid in own or source is None,
            processes=used.get(uuid),
        )
        for uuid in (*own, *more)
    )


def processes_of(reading: GpuReading) -> dict[str, tuple[GpuProcess, ...] | None]:
    """Return the processes of each GPU; of a GPU in MIG mode those of each instance."""
    found: dict[str, tuple[GpuProcess, ...] | None] = {}
    for gpu in reading.gpus:
        if gpu.mig:
            found |= {instance.uuid: instance.processes for instance in gpu.mig}
        else:
            found[gpu.uuid] = gpu.processes
    return found


def strangers(cgroups: Sequence[JobCgroup | None], reading: GpuReading) -> dict[str, int]:
    """Count on each GPU the processes of no job; nothing where no job has a control group to tell them by.

    ``cgroups`` is that of each job.
    """
    told = [cgroup.pids for cgroup in cgroups if cgroup is not None]
    if cgroups and not told:
        return {}
    known = frozenset().union(*told)
    return {
        uuid: sum(process.pid not in known for process in found)
        for uuid, found in processes_of(reading).items()
        if found is not None
    }
