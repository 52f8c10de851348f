"""Builds the sample of one GPU, and of its MIG devices, from NVML's answers."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from opsk import units
from opsk.telemetry.gpu.nvml import fields as nvml_fields
from opsk.telemetry.gpu.nvml.activity import ActivityReader
from opsk.telemetry.gpu.nvml.caller import (
    GpuLostError,
    NvmlCaller,
    SessionLostError,
    clean_text,
    clean_whole,
    drop_blank,
)
from opsk.telemetry.gpu.nvml.fields import DEVICE_FIELDS, MEMORY_TEMPERATURE, FieldReader
from opsk.telemetry.gpu.nvml.links import FabricReader, NvLinkReader
from opsk.telemetry.gpu.samples import (
    EccCount,
    GpuMemory,
    GpuProcess,
    GpuSample,
    MigSample,
    PcieSample,
    Unreadable,
    normalise_pci,
)

_MAX_DEVICES = 64
_PROFILE = re.compile(r"\bMIG\s+([0-9]+[cg]\.\S+)", re.IGNORECASE)
_MEMORY_V2 = 0x02000028
CLOCKS = {0: "graphics", 1: "sm", 2: "memory", 3: "video"}
_ARCHITECTURES = {
    2: "kepler",
    3: "maxwell",
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada",
    9: "hopper",
    10: "blackwell",
    13: "rubin",
}
_LIMITS = {0: "shutdown", 1: "slowdown", 2: "memory_max", 3: "gpu_max"}
COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")
THROTTLE_REASONS = {
    0x1: "gpu_idle",
    0x2: "application_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
    0x200: "board_limit",
    0x400: "reliability",
}
"""Bits of NVML's clocks event reasons."""
_ASK_AGAIN_S = 300.0
"""Interval at which unsupported values are requested again: a mode may have changed."""
_BANKS = ("max", "high", "partial", "low", "none")
_SRAM = (
    ("uncorrected", "aggregate", "sram_parity", "aggregateUncParity"),
    ("uncorrected", "aggregate", "sram_secded", "aggregateUncSecDed"),
    ("corrected", "aggregate", "sram", "aggregateCor"),
    ("uncorrected", "volatile", "sram_parity", "volatileUncParity"),
    ("uncorrected", "volatile", "sram_secded", "volatileUncSecDed"),
    ("corrected", "volatile", "sram", "volatileCor"),
)
_SRAM_LOCATION = 7
_SPANS, _KINDS = ("volatile", "aggregate"), ("corrected", "uncorrected")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """The constant properties of a MIG device."""

    gi: int
    ci: int
    profile: str | None
    multiprocessors: int | None


class MigReader:
    """The MIG devices of one GPU.

    Handles of MIG devices may move to other instances when the layout changes: the UUID is read each time, and the
    properties of a UUID (its instances, its profile) once.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """The constant properties of a GPU."""

    uuid: str
    minor: int | None
    pci: str | None
    model: str | None
    architecture: str | None
    serial: str | None
    vbios: str | None
    clocks_max_hz: Mapping[str, float]
    temperature_limits_c: Mapping[str, float]
    pcie_generation_max: int | None
    pcie_width_max: int | None
    throttle_reasons: frozenset[str] | None


def read_facts(ask: NvmlCaller, handle: object, uuid: str) -> GpuFacts:
    """Read the constant properties of a GPU.

    Raises
    ------
    GpuLostError, SessionLostError
        As ``NvmlCaller``.
    """
    architecture = clean_whole(ask("architecture", "nvmlDeviceGetArchitecture", handle))
    return GpuFacts(
        uuid=uuid,
        minor=clean_whole(ask("minor", "nvmlDeviceGetMinorNumber", handle)),
        pci=read_pci(ask, handle),
        model=clean_text(ask("model", "nvmlDeviceGetName", handle)),
        architecture=None if architecture is None else _ARCHITECTURES.get(architecture),
        serial=clean_text(ask("serial", "nvmlDeviceGetSerial", handle)),
        vbios=clean_text(ask("vbios", "nvmlDeviceGetVbiosVersion", handle)),
        clocks_max_hz=read_clocks(ask, "nvmlDeviceGetMaxClockInfo", handle),
        temperature_limits_c=_read_temperature_limits(ask, handle),
        pcie_generation_max=clean_whole(ask("pcie generation", "nvmlDeviceGetMaxPcieLinkGeneration", handle)),
        pcie_width_max=clean_whole(ask("pcie width", "nvmlDeviceGetMaxPcieLinkWidth", handle)),
        throttle_reasons=_read_known_reasons(ask, handle),
    )


def read_pci(ask: NvmlCaller, handle: object) -> str | None:
    """Return a GPU's PCI address in the kernel's form."""
    info = ask("pci", "nvmlDeviceGetPciInfo", handle)
    return normalise_pci(clean_text(getattr(info, "busId", None)) or "")


def read_clocks(ask: NvmlCaller, function: str, handle: object) -> dict[str, float]:
    """Return clocks by domain [Hz]; NVML has MHz."""
    megahertz = {name: clean_whole(ask(f"{function} {name}", function, handle, kind)) for kind, name in CLOCKS.items()}
    return {name: units.megahertz(value) for name, value in megahertz.items() if value is not None}


def decode_throttle_reasons(bits: int | None) -> frozenset[str] | None:
    """Return the reasons that are set; a bit without a name is left out."""
    return None if bits is None else frozenset(name for bit, name in THROTTLE_REASONS.items() if bits & bit)


def _read_known_reasons(ask: NvmlCaller, handle: object) -> frozenset[str] | None:
    """Read the reasons that the GPU can report at all."""
    bits = ask("known throttle reasons", "nvmlDeviceGetSupportedClocksEventReasons", handle)
    if bits is None:
        bits = ask("known throttle reasons (old)", "nvmlDeviceGetSupportedClocksThrottleReasons", handle)
    return decode_throttle_reasons(clean_whole(bits))


def _read_temperature_limits(ask: NvmlCaller, handle: object) -> dict[str, float]:
    """Read the temperature limits; from Ada on GPUs report their margin instead."""
    limits = {
        name: drop_blank(ask(f"{name} temperature", "nvmlDeviceGetTemperatureThreshold", handle, kind))
        for kind, name in _LIMITS.items()
    }
    return {name: float(value) for name, value in limits.items() if value}


class NvmlDevice:
    """One GPU that NVML has a handle of.

    Parameters
    ----------
    nvml
        The ``pynvml`` module.
    handle
        NVML's handle.
    uuid
        The GPU's UUID.
    clock
        Monotonic seconds.

    Raises
    ------
    GpuLostError, SessionLostError
        The GPU went away while it was read.
    """

    def __init__(self, nvml: Any, handle: object, uuid: str, clock: Callable[[], float]) -> None:
        self.handle = handle
        self._ask = NvmlCaller(nvml, uuid)
        self._clock = clock
        self.facts: GpuFacts = read_facts(self._ask, handle, uuid)
        self._fields = FieldReader(self._ask, DEVICE_FIELDS)
        self._links = NvLinkReader(self._ask, handle, self._fields, clock)
        self._activity = ActivityReader(self._ask, handle, clock)
        self._fabric = FabricReader(self._ask, handle)
        self._mig = MigReader(self._ask, handle, self._activity)
        self._mig_mode: bool | None = None
        self._asked_all_at = clock()

    def close(self) -> None:
        """Give back what NVML holds for the GPU."""
        self._activity.close()

    def failures(self) -> tuple[Unreadable, ...]:
        """Return what could not be read since the last call."""
        return self._ask.failures()

    def sample(self, index: int) -> GpuSample:
        """Read the GPU.

        Raises
        ------
        GpuLostError, SessionLostError
            The GPU is lost, or the driver went away.
        """
        ask, handle, facts = self._ask, self.handle, self.facts
        self._check()
        mig_mode = self._note_mode(self._mig.mode())
        values = self._fields.read(handle)
        sram, exceeded = self._sram()
        ecc_enabled = nvml_fields.get_flag(values, nvml_fields.ECC_MODE)
        mode = clean_whole(ask("compute mode", "nvmlDeviceGetComputeMode", handle))
        persistence = clean_whole(ask("persistence mode", "nvmlDeviceGetPersistenceMode", handle))
        return GpuSample(
            uuid=facts.uuid,
            index=index,
            minor=facts.minor,
            pci=facts.pci,
            model=facts.model,
            architecture=facts.architecture,
            serial=facts.serial,
            vbios=facts.vbios,
            memory=read_memory(ask, "memory", handle),
            utilisation=self._utilisation(),
            activity=None if mig_mode else self._activity.activity(),
            clocks_hz=read_clocks(ask, "nvmlDeviceGetClockInfo", handle),
            clocks_max_hz=facts.clocks_max_hz,
            power=nvml_fields.build_power(values),
            temperatures_c=self._temperatures(values),
            temperature_limits_c=facts.temperature_limits_c,
            throttle_reasons=decode_throttle_reasons(self._reasons()),
            throttle_reasons_known=facts.throttle_reasons,
            violation_s=nvml_fields.build_violations(values),
            ecc_enabled=ecc_enabled,
            ecc=() if ecc_enabled is False else nvml_fields.build_ecc(values) + sram,
            sram_threshold_exceeded=exceeded,
            row_remap=nvml_fields.build_row_remap(values, self._banks()),
            retired_pages=nvml_fields.build_retired_pages(values),
            nvlinks=self._links.links(values),
            pcie=self._pcie(values),
            mig_mode=mig_mode,
            mig=self._mig.devices() if mig_mode else (),
            # With MIG on each MIG device has its own processes; the GPU as a whole answers administrators only.
            processes=None if mig_mode else read_processes(ask, "processes", handle),
            recovery_action=nvml_fields.get_recovery_action(values),
            fabric=self._fabric.fabric(),
            persistence=None if persistence is None else persistence == 1,
            compute_mode=COMPUTE_MODES[mode] if mode is not None and mode < len(COMPUTE_MODES) else None,
        )

    def _check(self) -> None:
        """Check that the handle is still valid: a stale one may fail in any way, or belong to another GPU."""
        uuid = clean_text(self._ask("uuid", "nvmlDeviceGetUUID", self.handle))
        if uuid is None:
            raise GpuLostError(next((fault.error for fault in self._ask.failures()), "no_uuid"))
        if uuid != self.facts.uuid:
            raise SessionLostError("handles have moved")

    def _note_mode(self, mig_mode: bool | None) -> bool | None:
        """Request everything again when MIG was switched, and at an interval."""
        now = self._clock()
        if mig_mode != self._mig_mode:
            # The samples of the whole GPU from before are not valid afterwards.
            self._activity.close()
        if mig_mode != self._mig_mode or now - self._asked_all_at >= _ASK_AGAIN_S:
            self._mig_mode, self._asked_all_at = mig_mode, now
            self._ask.ask_all_again()
            self._fields.ask_all_again()
        return mig_mode

    def _utilisation(self) -> dict[str, float]:
        """Return the shares of the last sample period."""
        rates = self._ask("utilisation", "nvmlDeviceGetUtilizationRates", self.handle)
        shares = {"gpu": getattr(rates, "gpu", None), "memory": getattr(rates, "memory", None)}
        return {
            name: units.percent(share) for name, value in shares.items() if (share := clean_whole(value)) is not None
        }

    def _temperatures(self, values: dict[nvml_fields.Field, float]) -> dict[str, float]:
        """Return the temperatures; 0 from the memory sensor is "there is none"."""
        function = "nvmlDeviceGetTemperatureV" if hasattr(self._ask.nvml, "nvmlDeviceGetTemperatureV") else ""
        gpu = drop_blank(self._ask("temperature", function, self.handle, 0)) if function else None
        if gpu is None:
            gpu = drop_blank(self._ask("temperature (old)", "nvmlDeviceGetTemperature", self.handle, 0))
        margin = drop_blank(self._ask("temperature margin", "nvmlDeviceGetMarginTemperature", self.handle))
        memory = values.get((MEMORY_TEMPERATURE, 0)) or None
        temperatures = {"gpu": gpu, "memory": memory, "margin": margin}
        return {name: float(value) for name, value in temperatures.items() if value is not None}

    def _reasons(self) -> int | None:
        """Return the bits of the throttle reasons."""
        name = "nvmlDeviceGetCurrentClocksEventReasons"
        if not hasattr(self._ask.nvml, name):
            name = "nvmlDeviceGetCurrentClocksThrottleReasons"
        bits = clean_whole(self._ask("throttle reasons", name, self.handle))
        if bits is None:
            old = "nvmlDeviceGetCurrentClocksThrottleReasons"
            bits = clean_whole(self._ask("throttle reasons (old)", old, self.handle))
        return bits

    def _banks(self) -> dict[str, int]:
        """Return how many banks of memory have how many spare rows left."""
        histogram = self._ask("row remap banks", "nvmlDeviceGetRowRemapperHistogram", self.handle)
        counts = {name: clean_whole(getattr(histogram, name, None)) for name in _BANKS}
        return {name: value for name, value in counts.items() if value is not None}

    def _sram(self) -> tuple[tuple[EccCount, ...], bool | None]:
        """Return the SRAM error counts, and whether they exceed the threshold for service."""
        status = self._sram_status()
        if status is None:
            return self._sram_totals(), None
        counts = tuple(
            EccCount(kind=kind, span=span, location=location, count=value)
            for kind, span, location, name in _SRAM
            if (value := clean_whole(getattr(status, name))) is not None
        )
        return counts, bool(status.bThresholdExceeded)

    def _sram_status(self) -> Any:
        """Ask for the SRAM status (driver 550 and newer)."""
        nvml, what = self._ask.nvml, "nvmlDeviceGetSramEccErrorStatus"
        form = getattr(nvml, "c_nvmlEccSramErrorStatus_v1_t", None)
        if form is None:
            return None
        status = form()
        answer = self._ask("sram ecc", what, self.handle, ctypes.byref(status))
        return None if answer is None else status

    def _sram_totals(self) -> tuple[EccCount, ...]:
        """Ask for the SRAM counts one by one, as older drivers have them."""
        counts = []
        for span_number, span in enumerate(_SPANS):
            for kind_number, kind in enumerate(_KINDS):
                value = clean_whole(
                    self._ask(
                        f"sram {span} {kind}",
                        "nvmlDeviceGetMemoryErrorCounter",
                        self.handle,
                        kind_number,
                        span_number,
                        _SRAM_LOCATION,
                    )
                )
                if value is not None:
                    counts.append(EccCount(kind=kind, span=span, location="sram", count=value))
        return tuple(counts)

    def _pcie(self, values: dict[nvml_fields.Field, float]) -> PcieSample:
        """Return the PCIe link."""
        counters = nvml_fields.build_pcie_counters(values)
        if "replays" not in counters:
            replays = clean_whole(self._ask("pcie replays", "nvmlDeviceGetPcieReplayCounter", self.handle))
            counters |= {} if replays is None else {"replays": replays}
        return PcieSample(
            generation=clean_whole(
                self._ask("pcie generation now", "nvmlDeviceGetCurrPcieLinkGeneration", self.handle)
            ),
            generation_max=self.facts.pcie_generation_max,
            width=clean_whole(self._ask("pcie width now", "nvmlDeviceGetCurrPcieLinkWidth", self.handle)),
            width_max=self.facts.pcie_width_max,
            counters=counters,
        )
