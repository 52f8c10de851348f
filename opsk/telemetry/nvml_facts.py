"""What does not change of a GPU while its driver is loaded, and the small words of NVML?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from opsk import units
from opsk.telemetry.gpu import normalise_pci
from opsk.telemetry.nvml_calls import Asker, present, text, whole

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


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """What does not change of a GPU."""

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


def read_facts(ask: Asker, handle: object, uuid: str) -> GpuFacts:
    """Read what does not change of a GPU.

    Raises
    ------
    GpuLostError, SessionLostError
        As ``Asker``.
    """
    architecture = whole(ask("architecture", "nvmlDeviceGetArchitecture", handle))
    return GpuFacts(
        uuid=uuid,
        minor=whole(ask("minor", "nvmlDeviceGetMinorNumber", handle)),
        pci=pci_of(ask, handle),
        model=text(ask("model", "nvmlDeviceGetName", handle)),
        architecture=None if architecture is None else _ARCHITECTURES.get(architecture),
        serial=text(ask("serial", "nvmlDeviceGetSerial", handle)),
        vbios=text(ask("vbios", "nvmlDeviceGetVbiosVersion", handle)),
        clocks_max_hz=clocks(ask, "nvmlDeviceGetMaxClockInfo", handle),
        temperature_limits_c=_temperature_limits(ask, handle),
        pcie_generation_max=whole(ask("pcie generation", "nvmlDeviceGetMaxPcieLinkGeneration", handle)),
        pcie_width_max=whole(ask("pcie width", "nvmlDeviceGetMaxPcieLinkWidth", handle)),
        throttle_reasons=_known_reasons(ask, handle),
    )


def pci_of(ask: Asker, handle: object) -> str | None:
    """Return a GPU's PCI address in the kernel's form."""
    info = ask("pci", "nvmlDeviceGetPciInfo", handle)
    return normalise_pci(text(getattr(info, "busId", None)) or "")


def clocks(ask: Asker, function: str, handle: object) -> dict[str, float]:
    """Return clocks by domain [Hz]; NVML has MHz."""
    found = {name: whole(ask(f"{function} {name}", function, handle, kind)) for kind, name in CLOCKS.items()}
    return {name: units.megahertz(value) for name, value in found.items() if value is not None}


def throttle_reasons(bits: int | None) -> frozenset[str] | None:
    """Return the reasons that are set; a bit without a name is left out."""
    return None if bits is None else frozenset(name for bit, name in THROTTLE_REASONS.items() if bits & bit)


def _known_reasons(ask: Asker, handle: object) -> frozenset[str] | None:
    """Return the reasons that the GPU can give at all."""
    bits = ask("known throttle reasons", "nvmlDeviceGetSupportedClocksEventReasons", handle)
    if bits is None:
        bits = ask("known throttle reasons (old)", "nvmlDeviceGetSupportedClocksThrottleReasons", handle)
    return throttle_reasons(whole(bits))


def _temperature_limits(ask: Asker, handle: object) -> dict[str, float]:
    """Return the temperatures at which something happens; from Ada on GPUs tell their margin instead."""
    limits = {
        name: present(ask(f"{name} temperature", "nvmlDeviceGetTemperatureThreshold", handle, kind))
        for kind, name in _LIMITS.items()
    }
    return {name: float(value) for name, value in limits.items() if value}
