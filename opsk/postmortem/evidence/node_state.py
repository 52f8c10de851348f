"""Takes a snapshot of a node's GPUs, ports and the job's control group as plain values for JSON."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from opsk.errors import OpskError
from opsk.job_key import JobKey
from opsk.telemetry.gpu.nvml.source import NvmlGpus
from opsk.telemetry.gpu.samples import GpuReading, GpuSample, LostGpu
from opsk.telemetry.gpu.shared_source import SharedGpus
from opsk.telemetry.host.cgroups import CgroupReader
from opsk.telemetry.jobs.job_map import JobMapper
from opsk.telemetry.network.infiniband import PortSample, SysfsInfiniband

GPU_PATIENCE_S = 15.0
_TRAFFIC_WORDS = (
    "data",
    "packets",
    "wait",
    "unicast",
    "multicast",
    "rx_read",
    "rx_write",
    "rx_atomic",
    "np_",
    "rp_",
    "lifespan",
)
"""Parts of names of counters that count work, not trouble."""
_MAX_COUNTERS = 64

Values = dict[str, Any]


def read_node_state(
    key: JobKey, *, jobs_folder: Path, sysfs: Path = Path("/sys"), cgroups: Path = Path("/sys/fs/cgroup"),
    gpus: Callable[[], GpuReading] | None = None, clock: Callable[[], float] = time.time,
) -> Values:  # fmt: skip
    """Return the state of this node; unreadable parts have a problem instead.

    Parameters
    ----------
    key
        Cluster and number of the job.
    jobs_folder
        Folder in which its prolog recorded its resources.
    gpus
        Reads the GPUs; NVML by default.
    """
    reading, gpu_problem = _read_gpus(gpus)
    cgroup_reader = CgroupReader(cgroups)
    return {
        "at_s": clock(),
        "gpus": [] if reading is None else [*map(_convert_gpu, reading.gpus), *map(_convert_lost_gpu, reading.lost)],
        "gpu_problem": gpu_problem,
        "driver": None if reading is None else reading.driver,
        "job_gpus": _find_job_gpus(key, reading, cgroup_reader, jobs_folder),
        **_read_ports(sysfs),
        "cgroup": _read_cgroup(key.job, cgroup_reader),
    }


def _read_gpus(gpus: Callable[[], GpuReading] | None) -> tuple[GpuReading | None, str]:
    """Return the GPUs, or why they cannot be read; waiting for a driver that hangs is bounded."""
    if gpus is not None:
        try:
            return gpus(), ""
        except OpskError as error:
            return None, error.message
    shared = SharedGpus(NvmlGpus(), patience_s=GPU_PATIENCE_S)
    try:
        return shared.gpus(), ""
    except OpskError as error:
        return None, error.message
    finally:
        shared.close()


def _convert_gpu(gpu: GpuSample) -> Values:
    """Convert a GPU that answers."""
    ecc: dict[str, int] = {}
    for count in sorted(gpu.ecc, key=lambda each: each.location != "total"):
        name = f"{count.kind}_{count.span}"
        if count.location == "total":
            ecc[f"{name}_total"] = count.count
        elif count.location in ("dram", "sram") and f"{name}_total" not in ecc:
            ecc[name] = ecc.get(name, 0) + count.count
    ecc = {name.removesuffix("_total"): number for name, number in ecc.items()}
    remap = gpu.row_remap
    return {
        "uuid": gpu.uuid, "index": gpu.index, "pci": gpu.pci, "model": gpu.model, "ecc": ecc,
        "recovery_action": gpu.recovery_action, "throttle": sorted(gpu.throttle_reasons or ()),
        "violation_s": dict(gpu.violation_s), "remap_pending": remap and remap.pending,
        "remap_failure": remap and remap.failure, "temperatures_c": dict(gpu.temperatures_c),
        "links_down": sorted(link.link for link in gpu.nvlinks if link.state == "inactive"),
    }  # fmt: skip


def _convert_lost_gpu(gpu: LostGpu) -> Values:
    """Convert a GPU that does not answer."""
    return {"uuid": gpu.uuid, "index": gpu.index, "pci": gpu.pci, "model": gpu.model, "lost": gpu.why}


def _find_job_gpus(
    key: JobKey, reading: GpuReading | None, cgroups: CgroupReader, jobs_folder: Path
) -> list[str] | None:
    """Return UUIDs of the GPUs that Slurm gave to the job; ``None`` where they are unknown."""
    try:
        runs = JobMapper(cgroups, folder=jobs_folder).read(reading).jobs
    except (OSError, OpskError, ValueError):
        return None
    for run in runs:
        cluster = run.file.cluster if run.file is not None else None
        if key.job in (run.job_id, run.job) and cluster in (None, key.cluster or None):
            own = [gpu.parent or gpu.uuid for gpu in run.gpus if gpu.allocated]
            return own if own and run.gpus_from is not None else None
    return None


def _read_ports(sysfs: Path) -> Values:
    """Return the ports with their states and counters of trouble."""
    try:
        devices = SysfsInfiniband(sysfs).devices()
    except OpskError as error:
        return {"ports": [], "port_problem": error.message}
    return {"ports": [_convert_port(port) for device in devices for port in device.ports], "port_problem": ""}


def _convert_port(port: PortSample) -> Values:
    """Return one port."""
    counters = {**port.hardware, **port.counters}
    errors = {
        name: value for name, value in sorted(counters.items()) if not any(word in name for word in _TRAFFIC_WORDS)
    }
    return {
        "device": port.device, "netdev": port.netdev, "port": port.port, "layer": port.link_layer,
        "state": port.state_name, "phys_state": port.phys_state_name, "speed": port.speed, "guid": port.port_guid,
        "counters": dict(list(errors.items())[:_MAX_COUNTERS]),
    }  # fmt: skip


def _read_cgroup(job: str, reader: CgroupReader) -> Values | None:
    """Return the values of the job's control group; ``None`` when it has gone, as usual when the epilog runs."""
    try:
        group = next((each for each in reader.jobs() if each.job_id == job), None)
    except OSError:
        return None
    if group is None:
        return None
    return {
        "oom_kills": group.oom_kills, "memory_peak_bytes": group.memory_peak_bytes,
        "memory_limit_bytes": group.memory_limit_bytes, "limit_hits": group.limit_hits,
    }  # fmt: skip
