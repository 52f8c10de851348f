"""Reads the MIG devices of a GPU.

Handles of MIG devices may move to other instances when the layout changes: the UUID is read each time, and the
properties of a UUID (its instances, its profile) once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from opsk import units
from opsk.telemetry.gpu.nvml.activity import ActivityReader
from opsk.telemetry.gpu.nvml.caller import NvmlCaller, clean_text, clean_whole
from opsk.telemetry.gpu.samples import GpuMemory, GpuProcess, MigSample

_MAX_DEVICES = 64
_PROFILE = re.compile(r"\bMIG\s+([0-9]+[cg]\.\S+)", re.IGNORECASE)
_MEMORY_V2 = 0x02000028


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """The constant properties of a MIG device."""

    gi: int
    ci: int
    profile: str | None
    multiprocessors: int | None


class MigReader:
    """The MIG devices of one GPU.

    Parameters
    ----------
    ask
        Calls NVML for the GPU.
    handle
        NVML's handle of the GPU.
    activity
        Activity of the GPU's instances.
    """

    def __init__(self, ask: NvmlCaller, handle: object, activity: ActivityReader) -> None:
        self._ask = ask
        self._handle = handle
        self._activity = activity
        self._facts: dict[str, _Facts] = {}

    def mode(self) -> bool | None:
        """Return whether MIG is on; ``None`` for a GPU without MIG."""
        modes = self._ask("mig mode", "nvmlDeviceGetMigMode", self._handle)
        return None if modes is None else modes[0] == 1

    def devices(self) -> tuple[MigSample, ...]:
        """Return all MIG devices, by index.

        Raises
        ------
        GpuLostError, SessionLostError
            As ``NvmlCaller``.
        """
        most = clean_whole(self._ask("mig devices", "nvmlDeviceGetMaxMigDeviceCount", self._handle)) or 0
        samples = []
        for index in range(min(most, _MAX_DEVICES)):
            handle = self._ask(f"mig {index}", "nvmlDeviceGetMigDeviceHandleByIndex", self._handle, index)
            sample = None if handle is None else self._device(handle, index)
            if sample is not None:
                samples.append(sample)
        present = {sample.uuid for sample in samples}
        self._facts = {uuid: facts for uuid, facts in self._facts.items() if uuid in present}
        instances = {sample.gi for sample in samples}
        self._activity.keep_only(instances)
        activities = {instance: self._activity.activity(instance) for instance in instances}
        return tuple(replace(sample, activity=activities[sample.gi]) for sample in samples)

    def _device(self, handle: object, index: int) -> MigSample | None:
        """Read one MIG device."""
        uuid = clean_text(self._ask(f"mig {index} uuid", "nvmlDeviceGetUUID", handle))
        facts = None if uuid is None else self._facts.get(uuid) or self._read_facts(handle, index)
        if uuid is None or facts is None:
            return None
        self._facts[uuid] = facts
        return MigSample(
            uuid=uuid,
            index=index,
            gi=facts.gi,
            ci=facts.ci,
            profile=facts.profile,
            multiprocessors=facts.multiprocessors,
            memory=read_memory(self._ask, f"mig {index} memory", handle),
            processes=read_processes(self._ask, f"mig {index} processes", handle),
        )

    def _read_facts(self, handle: object, index: int) -> _Facts | None:
        """Read the constant properties of a MIG device."""
        gi = clean_whole(self._ask(f"mig {index} gpu instance", "nvmlDeviceGetGpuInstanceId", handle))
        ci = clean_whole(self._ask(f"mig {index} compute instance", "nvmlDeviceGetComputeInstanceId", handle))
        if gi is None or ci is None:
            return None
        attributes = self._ask(f"mig {index} attributes", "nvmlDeviceGetAttributes_v2", handle)
        name = clean_text(self._ask(f"mig {index} name", "nvmlDeviceGetName", handle)) or ""
        match = _PROFILE.search(name)
        return _Facts(
            gi=gi,
            ci=ci,
            profile=match[1].lower() if match else format_profile(attributes),
            multiprocessors=clean_whole(getattr(attributes, "multiprocessorCount", None)),
        )


def format_profile(attributes: Any) -> str | None:
    """Return the name of a profile from its slices and memory: ``1g.10gb``, or ``1c.2g.20gb`` for a part of it."""
    slices = clean_whole(getattr(attributes, "gpuInstanceSliceCount", None))
    part = clean_whole(getattr(attributes, "computeInstanceSliceCount", None))
    mebibytes = clean_whole(getattr(attributes, "memorySizeMB", None))
    if not slices or not part or not mebibytes:
        return None
    name = f"{slices}g.{-(-mebibytes * units.MIB // units.GIB)}gb"
    return name if part == slices else f"{part}c.{name}"


def read_memory(ask: NvmlCaller, what: str, handle: object) -> GpuMemory | None:
    """Return the memory of a GPU or MIG device; the reserved part where NVML reports it separately."""
    info = ask(what, "nvmlDeviceGetMemoryInfo", handle, _MEMORY_V2)
    reserved = None if info is None else clean_whole(info.reserved)
    if info is None:
        info = ask(f"{what} (version 1)", "nvmlDeviceGetMemoryInfo", handle)
    if info is None:
        return None
    total, used, free = clean_whole(info.total), clean_whole(info.used), clean_whole(info.free)
    if total is None or used is None or free is None:
        return None
    return GpuMemory(total_bytes=total, used_bytes=used, free_bytes=free, reserved_bytes=reserved)


def read_processes(ask: NvmlCaller, what: str, handle: object) -> tuple[GpuProcess, ...] | None:
    """Return the compute processes; ``None`` when the driver does not report them."""
    function = "nvmlDeviceGetComputeRunningProcesses_v3"
    if not hasattr(ask.nvml, function):
        function = "nvmlDeviceGetComputeRunningProcesses"
    processes = ask(what, function, handle)
    if processes is None:
        return None
    return tuple(
        GpuProcess(
            pid=int(process.pid),
            used_bytes=clean_whole(process.usedGpuMemory),
            gpu_instance=clean_whole(getattr(process, "gpuInstanceId", None)),
            compute_instance=clean_whole(getattr(process, "computeInstanceId", None)),
        )
        for process in processes
    )
