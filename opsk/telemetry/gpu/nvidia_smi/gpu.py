"""What does one GPU's part of ``nvidia-smi -q`` say, as a `GpuSample`? Names of all driver generations."""

from __future__ import annotations

import re

from opsk.telemetry.gpu.nvidia_smi.tree import Section
from opsk.telemetry.gpu.nvidia_smi.values import absent, flag, name, quantity, whole, word
from opsk.telemetry.gpu.samples import (
    EccCount,
    FabricSample,
    GpuMemory,
    GpuPower,
    GpuProcess,
    GpuSample,
    MigSample,
    PcieSample,
    RetiredPages,
    RowRemap,
    normalise_pci,
)

_REASONS = {
    "idle": "gpu_idle",
    "applications clocks setting": "application_clocks",
    "sw power cap": "sw_power_cap",
    "hw slowdown": "hw_slowdown",
    "hw thermal slowdown": "hw_thermal_slowdown",
    "hw power brake slowdown": "hw_power_brake",
    "hw power brake": "hw_power_brake",
    "sync boost": "sync_boost",
    "sw thermal slowdown": "sw_thermal_slowdown",
    "display clock setting": "display_clocks",
}
_VIOLATIONS = {
    "sw power capping": "sw_power_cap",
    "sync boost": "sync_boost",
    "sw thermal slowdown": "sw_thermal_slowdown",
    "hw thermal slowdown": "hw_thermal_slowdown",
    "hw power braking": "hw_power_brake",
}
_ECC_LINES = {
    "sram correctable": ("corrected", "sram"),
    "sram uncorrectable": ("uncorrected", "sram"),
    "sram uncorrectable parity": ("uncorrected", "sram_parity"),
    "sram uncorrectable sec-ded": ("uncorrected", "sram_secded"),
    "dram correctable": ("corrected", "dram"),
    "dram uncorrectable": ("uncorrected", "dram"),
}
_ECC_PLACES = {
    "device memory": "dram",
    "dram": "dram",
    "register file": "register_file",
    "l1 cache": "l1",
    "l2 cache": "l2",
    "texture memory": "texture",
    "cbu": "cbu",
    "sram": "sram",
    "total": "total",
}
"""Places of GPUs before Ampere, below ``Single Bit`` and ``Double Bit``."""
_LIMITS = {
    "gpu shutdown temp": "shutdown",
    "gpu slowdown temp": "slowdown",
    "gpu max operating temp": "gpu_max",
    "memory max operating temp": "memory_max",
}
"""Newer drivers state margins (``T.Limit``) instead: those are no temperatures."""
_TEMPERATURES = {"gpu current temp": "gpu", "memory current temp": "memory", "gpu t.limit temp": "margin"}
_CLOCKS = ("graphics", "sm", "memory", "video")
_UTILISATIONS = {"gpu": "gpu", "memory": "memory", "encoder": "encoder", "decoder": "decoder"}
_RECOVERY = {
    "none": "none",
    "reset": "gpu_reset",
    "gpu_reset": "gpu_reset",
    "gpu_reset_required": "gpu_reset",
    "reboot": "node_reboot",
    "node_reboot": "node_reboot",
    "node_reboot_required": "node_reboot",
    "drain_p2p": "drain_p2p",
    "drain_and_reset": "drain_and_reset",
    "recover_imex_domain": "recover_imex_domain",
    "bus_reset": "bus_reset",
    "system_reboot": "system_reboot",
}
_NO_CLUSTER = re.compile(r"[0-]+")
_SLOW_POWER = re.compile(r"\b(?:A100|A800|A30)\b")
"""GA100 tells its power of the moment; from the other Ampere GPUs on the old single value is a mean over 1 s."""
_MEAN_POWER = {"ampere", "ada", "hopper", "blackwell"}
_MOST = 4096


def sample_of(gpu: Section, index: int) -> GpuSample:
    """Return one GPU's sample; ``uuid`` is empty where the text does not show it (``-d`` shows parts only)."""
    model, architecture = word(gpu.value("product name")), _architecture(gpu)
    mig_mode = flag(gpu.value("mig mode", "current"))
    processes = _processes(gpu)
    reasons = _reasons(gpu)
    return GpuSample(
        uuid=word(gpu.value("gpu uuid")) or "",
        index=index,
        minor=whole(gpu.value("minor number")),
        pci=normalise_pci(gpu.title.split()[-1]) or normalise_pci(gpu.value("pci", "bus id") or ""),
        model=model,
        architecture=architecture,
        serial=word(gpu.value("serial number")),
        vbios=word(gpu.value("vbios version")),
        memory=memory_of(gpu.first("fb memory usage")),
        utilisation=_named(gpu.first("utilization"), _UTILISATIONS),
        clocks_hz=_named(gpu.first("clocks"), {clock: clock for clock in _CLOCKS}),
        clocks_max_hz=_named(gpu.first("max clocks"), {clock: clock for clock in _CLOCKS}),
        power=_power(gpu, model, architecture),
        temperatures_c=_named(gpu.first("temperature"), _TEMPERATURES),
        temperature_limits_c=_named(gpu.first("temperature"), _LIMITS),
        throttle_reasons=None if reasons is None else frozenset(key for key, active in reasons.items() if active),
        throttle_reasons_known=None if reasons is None else frozenset(reasons),
        violation_s=_named(gpu.first("clocks event reasons counters"), _VIOLATIONS),
        ecc_enabled=flag(gpu.value("ecc mode", "current")),
        ecc=_ecc(gpu),
        sram_threshold_exceeded=flag(gpu.value("ecc errors", "aggregate", "sram threshold exceeded")),
        row_remap=_row_remap(gpu.first("remapped rows")),
        retired_pages=_retired_pages(gpu.first("retired pages")),
        pcie=_pcie(gpu),
        mig_mode=mig_mode,
        mig=_mig(gpu, processes),
        processes=None if mig_mode or processes is None else tuple(process for process, _ in processes),
        recovery_action=_RECOVERY.get(name(gpu.value("gpu recovery action")) or ""),
        fabric=_fabric(gpu.first("fabric")),
        persistence=flag(gpu.value("persistence mode")),
        compute_mode=name(gpu.value("compute mode")),
    )


def memory_of(section: Section | None) -> GpuMemory | None:
    """Return memory use; ``None`` where any part of it is missing."""
    if section is None:
        return None
    total, used, free, reserved = (quantity(section.value(key)) for key in ("total", "used", "free", "reserved"))
    if total is None or used is None or free is None:
        return None
    return GpuMemory(
        total_bytes=int(total),
        used_bytes=int(used),
        free_bytes=int(free),
        reserved_bytes=None if reserved is None else int(reserved),
    )


def _architecture(gpu: Section) -> str | None:
    """Return the architecture in NVML's first word (``Ada Lovelace`` is ``ada``)."""
    found = word(gpu.value("product architecture"))
    return found.split()[0].casefold() if found else None


def _named(section: Section | None, names: dict[str, str]) -> dict[str, float]:
    """Return the quantities of a section that have a name in opsk."""
    if section is None:
        return {}
    found = {names[part.name]: quantity(part.text) for part in section.parts if part.name in names}
    return {key: value for key, value in found.items() if value is not None}


def _power(gpu: Section, model: str | None, architecture: str | None) -> GpuPower:
    """Return power: newer drivers tell mean and moment apart, older ones have one value whose kind the chip decides."""
    section = gpu.first("gpu power readings") or gpu.first("power readings") or Section()

    def watts(*keys: str) -> float | None:
        return quantity(section.any_value(*((key,) for key in keys)))

    single = watts("power draw")
    mean = architecture in _MEAN_POWER and not _SLOW_POWER.search(model or "")
    average, instant = watts("average power draw"), watts("instantaneous power draw")
    return GpuPower(
        instant_w=instant if instant is not None or mean else single,
        average_w=average if average is not None or not mean else single,
        limit_w=watts("current power limit", "enforced power limit", "power limit"),
        default_limit_w=watts("default power limit"),
    )


def _reasons(gpu: Section) -> dict[str, bool] | None:
    """Return which reasons hold the clocks down; some stand one level deeper."""
    section = gpu.first("clocks event reasons") or gpu.first("clocks throttle reasons")
    if section is None:
        return None
    found: dict[str, bool] = {}
    deeper = [inner for part in section.parts for inner in part.parts]
    for part in (*section.parts, *deeper):
        active = flag(part.text)
        if part.name in _REASONS and active is not None:
            found[_REASONS[part.name]] = active
    return found or None


def _ecc(gpu: Section) -> tuple[EccCount, ...]:
    """Return counts of memory errors, in the form of Ampere and newer or of older GPUs."""
    counts = []
    for span in ("volatile", "aggregate"):
        section = gpu.first("ecc errors", span) or Section()
        for part in section.parts:
            if part.name in _ECC_LINES:
                counts.append((*_ECC_LINES[part.name], span, whole(part.text)))
            kind = {"single bit": "corrected", "double bit": "uncorrected"}.get(part.name)
            if kind:
                counts += [
                    (kind, _ECC_PLACES[inner.name], span, whole(inner.text))
                    for inner in part.parts
                    if inner.name in _ECC_PLACES
                ]
    return tuple(
        EccCount(kind=kind, span=span, location=place, count=count)
        for kind, place, span, count in counts
        if count is not None
    )


def _row_remap(section: Section | None) -> RowRemap | None:
    """Return remapped rows; ``None`` where the GPU has no such thing or does not say (MIG)."""
    if section is None or not section.parts:
        return None
    banks = section.first("bank remap availability histogram") or Section()
    found = RowRemap(
        corrected=whole(section.value("correctable error")),
        uncorrected=whole(section.value("uncorrectable error")),
        pending=flag(section.value("pending")),
        failure=flag(section.value("remapping failure occurred")),
        banks={part.name: count for part in banks.parts if (count := whole(part.text)) is not None},
    )
    return None if found == RowRemap() else found


def _retired_pages(section: Section | None) -> RetiredPages | None:
    """Return retired pages; ``None`` where the GPU has no such thing."""
    if section is None:
        return None
    found = RetiredPages(
        single_bit=whole(section.value("single bit ecc")),
        double_bit=whole(section.value("double bit ecc")),
        pending=flag(
            section.any_value(("pending page blacklist",), ("pending retirement",), ("pending",), ("pending page",))
        ),
    )
    return None if found == RetiredPages() else found


def _pcie(gpu: Section) -> PcieSample:
    """Return the PCIe link."""
    pci = gpu.first("pci") or Section()
    counters = {
        "replays": whole(pci.any_value(("replays since reset",), ("replay counter",))),
        "replay_rollovers": whole(pci.value("replay number rollovers")),
    }
    return PcieSample(
        generation=whole(pci.value("gpu link info", "pcie generation", "current")),
        generation_max=whole(pci.value("gpu link info", "pcie generation", "max")),
        width=whole(pci.value("gpu link info", "link width", "current")),
        width_max=whole(pci.value("gpu link info", "link width", "max")),
        counters={key: value for key, value in counters.items() if value is not None},
    )


def _processes(gpu: Section) -> list[tuple[GpuProcess, str]] | None:
    """Return compute processes with the instance that each runs on; ``None`` when the driver does not say.

    Ids of instances stand in lines of their own before the process that they are of.
    """
    section = gpu.first("processes")
    if section is None or (absent(section.text) is not None and section.text is not None):
        return None
    found: list[tuple[GpuProcess, str]] = []
    gpu_instance = compute_instance = None
    for part in section.parts[: 3 * _MOST]:
        if part.name == "gpu instance id":
            gpu_instance = whole(part.text)
        elif part.name == "compute instance id":
            compute_instance = whole(part.text)
        elif part.name == "process id" and (pid := whole(part.text)) is not None:
            used, kind = quantity(part.value("used gpu memory")), part.value("type") or "C"
            if "C" in kind:
                process = GpuProcess(
                    pid=pid,
                    used_bytes=None if used is None else int(used),
                    gpu_instance=gpu_instance,
                    compute_instance=compute_instance,
                )
                found.append((process, kind))
    return found


def _mig(gpu: Section, processes: list[tuple[GpuProcess, str]] | None) -> tuple[MigSample, ...]:
    """Return MIG devices; their UUIDs and profiles stand only in ``nvidia-smi -L``."""
    found = []
    for section in list(gpu.every("mig device"))[:_MOST]:
        index, gi, ci = (whole(section.value(key)) for key in ("index", "gpu instance id", "compute instance id"))
        if index is None or gi is None or ci is None:
            continue
        memory = memory_of(section.first("shared fb memory usage") or section.first("fb memory usage"))
        own = [
            process for process, _ in processes or () if (process.gpu_instance, process.compute_instance) == (gi, ci)
        ]
        found.append(
            MigSample(
                uuid=word(section.value("mig uuid")) or "",
                index=index,
                gi=gi,
                ci=ci,
                memory=memory,
                multiprocessors=whole(section.value("device attributes", "shared", "multiprocessor count")),
                processes=None if processes is None else tuple(own),
            )
        )
    return tuple(found)


def _fabric(section: Section | None) -> FabricSample | None:
    """Return the GPU's place in an NVLink domain; ``None`` where it has none."""
    state = name(section.value("state")) if section is not None else None
    if section is None or state is None:
        return None
    cluster = word(section.value("clusteruuid"))
    health = section.first("health") or Section()
    told = {
        "degraded_bandwidth": {"degraded": True, "full": False}.get(name(health.value("bandwidth")) or ""),
        "route_recovery": flag(health.value("route recovery in progress")),
        "route_unhealthy": flag(health.value("route unhealthy")),
        "access_timeout_recovery": flag(health.value("access timeout recovery")),
        "partition_missing": {True: False, False: True, None: None}[flag(health.value("partition assigned"))],
    }
    configuration = name(health.value("incorrect configuration"))
    if configuration is not None:
        told["incorrect_configuration"] = configuration != "none"
    return FabricSample(
        state=state,
        status=name(section.value("status")),
        cluster_uuid=None if cluster is None or _NO_CLUSTER.fullmatch(cluster) else cluster,
        clique=whole(section.value("cliqueid")),
        health={key: bad for key, bad in told.items() if bad is not None},
        configuration=None if configuration in (None, "none") else configuration,
        summary=name(health.value("summary")),
    )
