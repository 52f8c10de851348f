"""Advances the devices of simulated nodes; the lab runs it as ``python -m opsk.lab.machine.clock FOLDER CONF``.

Once a second the counters grow by the power and traffic since the last time, and everything that an exporter reads is
written again: a GPU works as long as its job has a process on the node, otherwise it idles. It uses the memory and
power that are predicted for the job's plan, at the pace that the job's log shows. ``opsk lab break`` does the same in
between, so that what it breaks shows at once.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from opsk.lab.machine.gpus import LINK_BYTES_PER_S, build_gpu_state, compute_power_w
from opsk.lab.machine.machine import MachineFolder, SimulatedNode, load_machine, lock_folder, save_machine
from opsk.lab.machine.nvml_standin import write_state
from opsk.lab.machine.sysfs import write_sysfs
from opsk.lab.machine.work import Work, advice_file, find_work
from opsk.stop_signals import StopSignals

if TYPE_CHECKING:
    from opsk.lab.machine.job_loads import JobLoads

INTERVAL_S = 1.0
_PORT_BYTES_PER_S = 18e9
_IDLE_CPU_W, _CPU_W_PER_GPU = 180.0, 45.0
_JOB_CPUS_PER_GPU = 6.0


def list_machine_folders(top: Path) -> tuple[MachineFolder, ...]:
    """Return the nodes that a lab has made up, in order."""
    folders = [MachineFolder(root=entry) for entry in top.iterdir() if (entry / "machine.json").exists()]
    return tuple(sorted(folders, key=lambda folder: load_machine(folder).number))


def change(
    folder: MachineFolder, work: Work, edit: Callable[[SimulatedNode], SimulatedNode] = lambda machine: machine
) -> tuple[SimulatedNode, SimulatedNode]:
    """Advance a node to now, edit it, and write all of it; returns it before and after the edit."""
    with lock_folder(folder):
        before = advance(load_machine(folder), work, time.time())
        after = update_draw(edit(before), work)
        save_machine(folder, after)
        write_sysfs(folder, after, work)
        write_state(folder.nvml_state, build_gpu_state(after, work))
    return before, after


def advance(machine: SimulatedNode, work: Work, now_unix_s: float) -> SimulatedNode:
    """Return the node at another time: counters have grown by the power and traffic until now."""
    passed_s = max(0.0, now_unix_s - machine.at_unix_s)

    def grow(counts: tuple[float, ...], rates: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(count + rate * passed_s for count, rate in zip(counts, rates, strict=True))

    cpu_s = {
        job_id: machine.job_cpu_s.get(job_id, 0.0) + passed_s * _JOB_CPUS_PER_GPU * max(1, len(job.gpus))
        for job_id, job in work.jobs.items()
    }
    return replace(
        machine,
        at_unix_s=machine.at_unix_s + passed_s,
        energy_j=grow(machine.energy_j, machine.power_w),
        link_bytes=grow(machine.link_bytes, machine.link_bytes_per_s),
        port_bytes=grow(machine.port_bytes, machine.port_bytes_per_s),
        processors_j=machine.processors_j + machine.processors_w * passed_s,
        job_cpu_s=cpu_s,
    )


def update_draw(machine: SimulatedNode, work: Work) -> SimulatedNode:
    """Return the node with the power and traffic that its work and its faults cause from now on."""
    jobs = tuple(work.find_busy_job(gpu) for gpu in range(machine.gpus))
    busy = tuple(job is not None for job in jobs)
    paces = tuple(0.0 if job is None else job.pace for job in jobs)
    linked = not machine.is_domain_broken
    return replace(
        machine,
        power_w=tuple(compute_power_w(machine, gpu, job) for gpu, job in enumerate(jobs)),
        link_bytes_per_s=tuple(LINK_BYTES_PER_S * pace if linked else 0.0 for pace in paces),
        port_bytes_per_s=tuple(
            0.0 if machine.is_down(hca) else _PORT_BYTES_PER_S * sum(paces) / machine.gpus for hca in machine.hcas
        ),
        processors_w=_IDLE_CPU_W + _CPU_W_PER_GPU * sum(busy),
    )


def has_advice(folder: MachineFolder, work: Work) -> bool:
    """Return whether the submit hook left a record on a job of this node, which the lab's prolog wrote down."""
    files = (advice_file(folder.jobs, job.file.key) for job in work.jobs.values() if job.file is not None)
    return any(file.exists() and file.stat().st_size > len("\n") for file in files)


def main(top: Path, conf: Path) -> int:
    """Advance all nodes until a signal stops it."""
    stops = StopSignals()
    folders = list_machine_folders(top)
    loads: JobLoads | None = None
    while not stops.wait(INTERVAL_S):
        try:
            work: Mapping[str, Work] = find_work(folders, conf, time.time())
            if loads is None and any(has_advice(folder, work[folder.name]) for folder in folders):
                from opsk.lab.machine.job_loads import JobLoads  # imports the cost model: only for the first prediction

                loads = JobLoads()
            if loads is not None:
                work = loads.write_loads(folders, work, time.time())
            for folder in folders:
                change(folder, work[folder.name])
        except OSError as error:
            # A full disk may have room again; the lab continues meanwhile, and counters catch up.
            print(f"opsk lab: devices cannot be updated: {error}", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
