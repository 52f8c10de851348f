"""Takes a snapshot of a node as plain values for JSON: GPUs, ports, the job's control group, the kernel's messages."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsk.errors import OpskError
from opsk.job_key import JobKey
from opsk.telemetry.gpu.nvml.source import NvmlGpus
from opsk.telemetry.gpu.samples import GpuReading, GpuSample, LostGpu
from opsk.telemetry.gpu.shared_source import SharedGpus
from opsk.telemetry.host.cgroups import CgroupReader
from opsk.telemetry.jobs.job_map import JobMapper
from opsk.telemetry.kernel_log import KMSG
from opsk.telemetry.network.infiniband import PortSample, SysfsInfiniband
from opsk.units import MIB

MAX_LINES, MAX_LINE_CHARS = 2000, 1000
_TAIL_BYTES = 8 * MIB
_RECORD_BYTES = 1 << 14
_MAX_RECORDS = 200_000
_MAX_OVERRUNS = 100
_JOURNAL_S = 10.0
_RECORD = re.compile(r"(\d{1,7}),\d{1,20},(\d{1,20}),[^;]{0,120};")
_KERNEL_FACILITY = 8
"""Records of priority 8 and more were written by programs, through /dev/kmsg itself."""
_INTEREST = re.compile(
    r"NVRM|nvidia|nvswitch|SXid|mlx\d|infiniband|\bib\d|oom|[Oo]ut of memory|hung_task|blocked for more|lockup"
    r"|panic|BUG:|[Mm]achine [Cc]heck|\bmce\b|EDAC|\bAER\b|PCIe|pcieport|segfault|general protection|Lustre|nfs"
    r"|I/O error|EXT4-fs|XFS|Link (?:up|down)|link (?:up|down)|thermal|throttl|No space"
)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLines:
    """Lines of the time of a job, the oldest first; ``problem`` is why there are none."""

    lines: tuple[str, ...] = ()
    left_out: int = 0
    source: str = ""
    problem: str = ""


def read_kernel_lines(path: Path, from_s: float, until_s: float, *, boot_unix_s: float) -> KernelLines:
    """Return the kernel's messages between two times [s since 1970]; from the journal where the log is not readable.

    Parameters
    ----------
    path
        ``/dev/kmsg``, or a file of its records.
    """
    try:
        records = list(_read_records(path))
    except OSError as error:
        if path != KMSG:
            return KernelLines(source=str(path), problem=f"{path}: {error.strerror}")
        return _read_journal(from_s, until_s, why=f"{path}: {error.strerror}")
    first_us, last_us = ((at - boot_unix_s) * 1e6 for at in (from_s, until_s))
    selected = (line for line in records if _is_kernel_record(line, first_us, last_us))
    return _limit_lines(selected, str(path))


def _is_kernel_record(line: str, first_us: float, last_us: float) -> bool:
    """Return whether a record is the kernel's and of this time."""
    match = _RECORD.match(line)
    return match is not None and int(match[1]) < _KERNEL_FACILITY and first_us <= int(match[2]) <= last_us


def _limit_lines(lines: Iterable[str], source: str) -> KernelLines:
    """Limit the number of lines: of too many, the last ones that may report failures remain."""
    selected = [line[:MAX_LINE_CHARS] for line in lines]
    number = len(selected)
    if number > MAX_LINES:
        selected = [line for line in selected if _INTEREST.search(line)][-MAX_LINES:]
    return KernelLines(lines=tuple(selected), left_out=number - len(selected), source=source)


def _read_records(path: Path) -> Iterator[str]:
    """Give the records of the kernel's buffer, or the last ones of a file; nothing is waited for."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if stat.S_ISCHR(status.st_mode):
            yield from _read_device(handle)
            return
        offset = max(0, status.st_size - _TAIL_BYTES)
        text = os.pread(handle, _TAIL_BYTES, offset).decode("utf-8", "replace")
        yield from text.split("\n")[1 if offset else 0 :]
    finally:
        os.close(handle)


def _read_device(handle: int) -> Iterator[str]:
    """Give one record a read; records that are overwritten meanwhile are passed over."""
    overruns = 0
    for _ in range(_MAX_RECORDS):
        try:
            record = os.read(handle, _RECORD_BYTES)
        except BlockingIOError:
            return
        except BrokenPipeError:
            overruns += 1
            if overruns > _MAX_OVERRUNS:
                return
            continue
        if not record:
            return
        yield record.decode("utf-8", "replace").partition("\n")[0]


def _read_journal(from_s: float, until_s: float, *, why: str) -> KernelLines:
    """Read the kernel's lines from the journal."""
    command = ("journalctl", "-k", "-q", "--no-pager", "-o", "short-iso-precise", f"--since=@{from_s:.0f}",
               f"--until=@{until_s:.0f}")  # fmt: skip
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_JOURNAL_S, check=False,
            env={"PATH": os.defpath, "LC_ALL": "C"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return KernelLines(problem=f"{why}; journalctl: {error}")
    if done.returncode != 0:
        return KernelLines(problem=f"{why}; journalctl: {done.stderr.decode('utf-8', 'replace').strip()[:200]}")
    return _limit_lines(done.stdout.decode("utf-8", "replace").splitlines(), "journalctl -k")


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
