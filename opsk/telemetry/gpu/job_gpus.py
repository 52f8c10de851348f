"""Determines which GPUs a job was allocated, which it uses, and which processes belong to no job.

Slurm's GPU numbers are places in the order of the node's GRES. Four orders exist: NVML's (PCI), the device files'
minors, Slurm's, and CUDA's inside a job. Slurm's is

- the order of the files in gres.conf, as written, without AutoDetect;
- NVML's with ``AutoDetect=nvml``, MIG instances in the place of their GPU, and only those that gres.conf lists if it
  lists any;
- that of the device files' minors with ``AutoDetect=nvidia``;
- the same as NVML's where gres.conf is unknown.

A file is ``/dev/nvidia<minor>``, or ``/dev/nvidia-caps/nvidia-cap<minor>`` of a MIG instance. The driver lists the
minors of the latter in ``mig-minors``; they follow a rule: from 3 on, 135 for each GPU, in there 9 for each GPU
instance, in there the first for the instance itself and then one for each compute instance.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from opsk.errors import InputError
from opsk.hostlist import expand
from opsk.telemetry.gpu.samples import GpuProcess, GpuReading, GpuSample, LostGpu
from opsk.telemetry.host.cgroups import JobCgroup

_GPU_FILE = re.compile(r"nvidia(\d{1,4})")
_RENDER_FILE = re.compile(r"renderD(\d{1,6})")
_CARD_FILE = re.compile(r"card(\d{1,4})")
_CAP_FILE = re.compile(r"nvidia-cap(\d{1,6})")
_MIG_MINOR = re.compile(r"gpu(\d{1,6})/gi(\d{1,6})/(?:ci(\d{1,6})/)?access\s+(\d{1,6})\b")
_KEY = re.compile(r"(?<![A-Za-z])([A-Za-z]{1,40})\s{0,40}=\s{0,40}(\"[^\"]*\"|\S+)")
_BRACKETS = re.compile(r"([^\[\]]*)\[([0-9,\-]+)\]([^\[\]]*)")
_NUMBER = re.compile(r"[0-9]{1,6}")
_MAX_FILES = 4096
PLACES = (Path("/etc/slurm/gres.conf"), Path("/run/slurm/conf/gres.conf"), Path("/usr/local/etc/gres.conf"))
"""Where gres.conf is by default; the second is the copy of a node without configuration files of its own."""
_FIRST_RENDER = 128
_FIRST_CAP, _CAPS_PER_GPU, _CAPS_PER_INSTANCE = 3, 135, 9


@dataclass(frozen=True, slots=True, kw_only=True)
class GresDevice:
    """One GPU of Slurm's list: a whole GPU by its minor, or a MIG instance of it by GPU instance and compute instance.

    AMD's GPUs have the number of the DRM card as minor, or that of their render node; ``minor`` and ``render`` are
    ``None`` for a device file of another kind.
    """

    minor: int | None
    gi: int | None = None
    ci: int | None = None
    render: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GresConf:
    """The GPUs of one node in gres.conf, in the order written, and whether Slurm detects them itself.

    ``detect`` is ``nvml``, ``nvidia``, ..., or ``None`` where it is off.
    """

    devices: tuple[GresDevice, ...] = ()
    detect: str | None = None


def parse_gres_conf(text: str, node: str | None = None, mig_minors: str = "") -> GresConf:
    """Read gres.conf for one node; lines that cannot be read are left out.

    Parameters
    ----------
    text
        The file.
    node
        Slurm's name of this node; lines for others are left out, and with ``None`` those for any node are taken.
    mig_minors
        ``/proc/driver/nvidia-caps/mig-minors``; empty for the fixed rule.
    """
    caps = {int(m[4]): (int(m[1]), int(m[2]), int(m[3] or 0)) for m in _MIG_MINOR.finditer(mig_minors)}
    devices: list[GresDevice] = []
    detect: str | None = None
    for line in text.replace("\\\n", " ").splitlines():
        keys = {name.lower(): value.strip('"') for name, value in _KEY.findall(line.partition("#")[0])}
        if not _is_for(keys.get("nodename"), node):
            continue
        if "autodetect" in keys:
            detect = None if keys["autodetect"].lower() == "off" else keys["autodetect"].lower()
        if keys.get("name", "").lower() != "gpu":
            continue
        if "multiplefiles" in keys:
            members = [_parse_device(name, caps) for name in _expand_files(keys["multiplefiles"])]
            devices += [max(members, key=lambda device: device.gi is not None)] if members else []
        elif "file" in keys:
            devices += [_parse_device(name, caps) for name in _expand_files(keys["file"])]
    return GresConf(devices=tuple(devices), detect=detect)


def list_uuids_in_slurm_order(conf: GresConf | None, reading: GpuReading) -> tuple[str | None, ...]:
    """Return the UUIDs of the node's GPUs (of MIG instances, where Slurm allocates those) by Slurm's number.

    An entry is ``None`` where no GPU that answers, or that is known to be lost, matches.
    """
    known = _index_by_device(reading)
    if conf is not None and conf.devices and conf.detect is None:
        return tuple(known.get(device) for device in conf.devices)
    detected = _detect_order(reading, by_minor=conf is not None and conf.detect == "nvidia")
    if conf is None or not conf.devices:
        return detected
    listed = [known.get(device) for device in conf.devices]
    if any(uuid is None for uuid in listed):
        # A GPU that is listed and not found keeps its place only in the order as written.
        return tuple(listed)
    return tuple(uuid for uuid in detected if uuid in listed)


def map_mig_parents(reading: GpuReading) -> dict[str, str]:
    """Return the GPU of each MIG instance, by UUIDs."""
    return {instance.uuid: gpu.uuid for gpu in reading.gpus for instance in gpu.mig}


def resolve(devices: Sequence[str], gpus: Sequence[int], order: Sequence[str | None]) -> tuple[str | None, ...]:
    """Return UUIDs of a job's GPUs from the prolog's environment: UUIDs if there are any, else Slurm's numbers.

    Parameters
    ----------
    devices
        ``CUDA_VISIBLE_DEVICES`` of the prolog.
    gpus
        ``SLURM_JOB_GPUS``.
    order
        UUIDs by Slurm's number.
    """
    if devices and all(word.startswith(("GPU-", "MIG-")) for word in devices):
        return tuple(devices)
    numbers = gpus or tuple(int(word) for word in devices if _NUMBER.fullmatch(word))
    return tuple(order[number] if number < len(order) else None for number in numbers)


def resolve_mig_names(words: Iterable[str | None], reading: GpuReading) -> tuple[str | None, ...]:
    """Turn the older name of a MIG instance, ``MIG-GPU-<uuid>/<gi>/<ci>``, into its UUID where the GPU is known."""
    known = {f"MIG-{gpu.uuid}/{mig.gi}/{mig.ci}": mig.uuid for gpu in reading.gpus for mig in gpu.mig}
    return tuple(known.get(word, word) if word else None for word in words)


def _is_for(names: str | None, node: str | None) -> bool:
    """Return whether a line is for this node."""
    if names is None or node is None:
        return True
    try:
        return node in expand(names)
    except InputError:
        return False


def _expand_files(text: str) -> list[str]:
    """Return the files of ``/dev/nvidia[0-3],/dev/nvidia7``, in the order written."""
    parts: list[str] = []
    depth = start = 0
    for end, sign in enumerate(f"{text},"):
        depth += (sign == "[") - (sign == "]")
        if sign == "," and depth == 0:
            parts.append(text[start:end])
            start = end + 1
    files: list[str] = []
    for part in filter(None, parts):
        brackets = _BRACKETS.fullmatch(part)
        if brackets is None:
            files.append(part)
            continue
        for span in brackets[2].split(","):
            first, _, last = span.partition("-")
            if _NUMBER.fullmatch(first) and _NUMBER.fullmatch(last or first):
                numbers = range(int(first), min(int(last or first), int(first) + _MAX_FILES) + 1)
                files += [f"{brackets[1]}{number:0{len(first)}d}{brackets[3]}" for number in numbers]
    return files[:_MAX_FILES]


def _parse_device(path: str, caps: Mapping[int, tuple[int, int, int]]) -> GresDevice:
    """Parse the name of a device file."""
    name = path.rpartition("/")[2]
    if match := _GPU_FILE.fullmatch(name) or _CARD_FILE.fullmatch(name):
        return GresDevice(minor=int(match[1]))
    if match := _RENDER_FILE.fullmatch(name):
        return GresDevice(minor=None, render=int(match[1]))
    if match := _CAP_FILE.fullmatch(name):
        gpu, gi, ci = caps.get(int(match[1])) or _decode_cap_minor(int(match[1]))
        return GresDevice(minor=gpu, gi=gi, ci=ci)
    return GresDevice(minor=None)


def _decode_cap_minor(cap: int) -> tuple[int, int, int]:
    """Return GPU, GPU instance and compute instance of a capability's minor; the file of the former is for its first.

    >>> _by_rule(283)
    (2, 1, 0)
    """
    gpu, rest = divmod(cap - _FIRST_CAP, _CAPS_PER_GPU)
    gi, place = divmod(rest, _CAPS_PER_INSTANCE)
    return gpu, gi, max(0, place - 1)


def _index_by_device(reading: GpuReading) -> dict[GresDevice, str]:
    """Return UUIDs by device; the lost GPUs whose minor is remembered among them."""
    known: dict[GresDevice, str] = {}
    for lost in reading.lost:
        if lost.minor is not None and lost.uuid:
            known[GresDevice(minor=lost.minor)] = lost.uuid
    for gpu in reading.gpus:
        minor = gpu.index if gpu.minor is None else gpu.minor
        known[GresDevice(minor=minor)] = gpu.uuid
        known |= {GresDevice(minor=minor, gi=mig.gi, ci=mig.ci): mig.uuid for mig in gpu.mig}
    # Render nodes are numbered in the order of the cards that have one; a console's card has none.
    cards = sorted((device.minor or 0, uuid) for device, uuid in known.items() if device.gi is None)
    known |= {GresDevice(minor=None, render=_FIRST_RENDER + position): uuid for position, (_, uuid) in enumerate(cards)}
    return known


def _detect_order(reading: GpuReading, *, by_minor: bool) -> tuple[str | None, ...]:
    """Return UUIDs as Slurm would find them: by PCI address, or by minor; the instances in the place of a MIG GPU."""
    everyone: list[GpuSample | LostGpu] = [*reading.gpus, *reading.lost]
    # Indices shift when a GPU is lost; addresses do not.
    by_pci = all(gpu.pci is not None for gpu in everyone)

    def place(gpu: GpuSample | LostGpu) -> tuple[int, str]:
        if by_minor and gpu.minor is not None:
            return gpu.minor, ""
        return (0, gpu.pci or "") if by_pci else (gpu.index, "")

    return tuple(uuid for gpu in sorted(everyone, key=place) for uuid in _list_allocatable(gpu))


def _list_allocatable(gpu: GpuSample | LostGpu) -> tuple[str | None, ...]:
    """Return what Slurm can allocate of a GPU: itself, or its MIG instances, of which there may be none."""
    if isinstance(gpu, GpuSample) and (gpu.mig_mode or gpu.mig):
        return tuple(mig.uuid for mig in sorted(gpu.mig, key=lambda instance: instance.index))
    return (gpu.uuid,)


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
    parents = map_mig_parents(reading)
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
