"""Reads the AMD GPUs of this node from ``class/drm`` of a sysfs tree, without a library and without root.

A GPU that sleeps is not woken: only what the kernel knows without accessing the hardware is read. Samples are those of
`opsk.telemetry.gpu.samples`, so that AMD's and NVIDIA's GPUs have the same metrics where the meaning is the same; what
only AMD has is kept separately. The UUID is ``GPU-`` and the chip's unique id, as ROCm writes it, or the PCI address of
a GPU without one. ``pcie_bw`` is not read: it takes the driver a second.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from opsk.telemetry.gpu.amd.files import MetricsTable, RasCount, parse_table, read_bad_pages, read_hardware, read_ras
from opsk.telemetry.gpu.samples import GpuDriverMissingError, GpuReading, GpuSample, LostGpu, Unreadable, normalise_pci
from opsk.telemetry.host.value_files import ERROR, ValueFiles, list_names, natural_sort_key
from opsk.units import KIB

_CARD = re.compile(r"card([0-9]+)")
_DRIVER = "amdgpu"
_VENDOR = "0x1002"
_UNIQUE_ID = re.compile(r"(?:0x)?0*([0-9a-fA-F]{1,16})")
_LONGEST_TABLE_BYTES = 16 * KIB
_ASLEEP = {"suspended", "suspending", "resuming"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdGpuSample:
    """One AMD GPU: what all GPUs have, and what only these have.

    Parameters
    ----------
    gpu
        The common part; ``minor`` is the number of the DRM card.
    card, render
        DRM devices (``card0``, ``renderD128``).
    device_id
        PCI ids of vendor and device (``1002:74a1``).
    runtime_status
        State of the kernel's power management (``active``, ``suspended``); ``None`` if unknown.
    asleep
        Whether the GPU sleeps: its hardware was not accessed.
    ras, bad_pages
        Errors by block, and pages of memory out of use by state (``reserved``, ``pending``, ``unreservable``).
    hive, xgmi_node
        XGMI hive, and the GPU's id in it; ``None`` without XGMI.
    xgmi_errors
        Error flags that reading ``xgmi_error`` found and cleared since this reader began; ``None`` without XGMI, and
        where RAS counts its errors.
    xgmi_read_bytes, xgmi_written_bytes
        Data over each XGMI link, by its number [bytes].
    compute_partition, memory_partition
        Modes (``SPX``, ``CPX``; ``NPS1``).
    host_memory_total_bytes, host_memory_used_bytes
        Memory of the host that the GPU can map (GTT), and what it maps [bytes].
    table_version
        Version of the firmware's table that was parsed.
    """

    gpu: GpuSample
    card: str
    render: str | None = None
    device_id: str | None = None
    runtime_status: str | None = None
    asleep: bool = False
    ras: tuple[RasCount, ...] = ()
    bad_pages: Mapping[str, int] = field(default_factory=dict)
    hive: str | None = None
    xgmi_node: str | None = None
    xgmi_errors: int | None = None
    xgmi_read_bytes: Mapping[int, int] = field(default_factory=dict)
    xgmi_written_bytes: Mapping[int, int] = field(default_factory=dict)
    compute_partition: str | None = None
    memory_partition: str | None = None
    host_memory_total_bytes: int | None = None
    host_memory_used_bytes: int | None = None
    table_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdGpuReading:
    """All AMD GPUs of a node at one moment: as any GPUs, and each with what only these have."""

    gpus: GpuReading
    devices: tuple[AmdGpuSample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Card:
    """One GPU before its hardware is read."""

    card: str
    device: str
    uuid: str
    pci: str | None


class SysfsAmdGpus:
    """Reads AMD GPUs of a sysfs tree; keep one, it remembers which GPUs there were.

    Parameters
    ----------
    sysfs
        Where sysfs is mounted.
    clock
        Monotonic seconds.
    """

    def __init__(self, sysfs: Path = Path("/sys"), clock: Callable[[], float] = time.monotonic) -> None:
        self._root = f"{sysfs}/class/drm"
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, LostGpu] = {}
        self._xgmi_errors: dict[str, int] = {}

    def gpus(self) -> GpuReading:
        """Return the common part of all GPUs; raises what `read` raises."""
        return self.read().gpus

    def read(self) -> AmdGpuReading:
        """Return all AMD GPUs, in order of PCI address.

        Raises
        ------
        GpuDriverMissingError
            The node has none, and had none since this reader began.
        """
        with self._lock:
            cards = self._cards()
            if not cards and not self._known:
                raise GpuDriverMissingError(f"{self._root}: no card of AMD's driver")
            return self._reading(cards)

    def _reading(self, cards: list[_Card]) -> AmdGpuReading:
        """Read the cards; those that do not answer, or are gone, are lost."""
        devices: list[AmdGpuSample] = []
        lost: list[LostGpu] = []
        unreadable: list[Unreadable] = []
        for index, card in enumerate(cards):
            files = ValueFiles(card.device)
            sample = self._device(card, index, files)
            remembered = LostGpu(
                uuid=card.uuid, index=index, pci=card.pci, minor=sample.gpu.minor, model=sample.gpu.model, why="is gone"
            )
            self._known[card.uuid] = remembered
            if not sample.asleep and _is_silent(sample.gpu) and ERROR in files.unreadable.values():
                lost.append(replace(remembered, why="answers no question"))
                continue
            devices.append(sample)
            unreadable += [Unreadable(gpu=card.uuid, what=name, error=why) for name, why in files.unreadable.items()]
        here = {card.uuid for card in cards}
        lost += [gone for uuid, gone in self._known.items() if uuid not in here]
        reading = GpuReading(
            read_at_s=self._clock(),
            gpus=tuple(device.gpu for device in devices),
            lost=tuple(lost),
            unreadable=tuple(unreadable),
        )
        return AmdGpuReading(gpus=reading, devices=tuple(devices))

    def _cards(self) -> list[_Card]:
        """Return the cards of AMD's driver, in order of PCI address."""
        cards: list[_Card] = []
        taken: set[str] = set()
        for card in sorted(filter(_CARD.fullmatch, list_names(self._root)), key=natural_sort_key):
            device = f"{self._root}/{card}/device"
            files = ValueFiles(device)
            uevent = dict(line.split("=", 1) for line in (files.text("uevent") or "").splitlines() if "=" in line)
            driver = _read_link_name(f"{device}/driver") or uevent.get("DRIVER")
            if driver != _DRIVER and (driver is not None or files.text("vendor") != _VENDOR):
                continue
            pci = normalise_pci(uevent.get("PCI_SLOT_NAME") or _read_link_name(device) or "")
            unique = _UNIQUE_ID.fullmatch(files.text("unique_id") or "")
            named = f"GPU-{unique[1].lower():0>16}" if unique and int(unique[1], 16) else None
            uuid = next(name for name in (named, pci, card) if name is not None and name not in taken)
            taken.add(uuid)
            cards.append(_Card(card=card, device=device, uuid=uuid, pci=pci))
        return sorted(cards, key=lambda card: (card.pci or "~", natural_sort_key(card.card)))

    def _device(self, card: _Card, index: int, files: ValueFiles) -> AmdGpuSample:
        """Read one GPU; ``files`` remembers what its hardware did not answer."""
        device = card.device
        asleep = _read_without_waking(card, index)
        if asleep.asleep:
            return asleep
        table = parse_table(files.read("gpu_metrics", _LONGEST_TABLE_BYTES) or b"")
        metrics = table or MetricsTable(version="")
        ras = read_ras(files, f"{device}/ras")
        return replace(
            asleep,
            gpu=read_hardware(asleep.gpu, files, device, metrics, ras),
            ras=ras,
            bad_pages=read_bad_pages(files),
            hive=files.text("xgmi_hive_info/xgmi_hive_id"),
            xgmi_node=files.text("xgmi_device_id"),
            xgmi_errors=self._xgmi(card.uuid, files, ras),
            xgmi_read_bytes=metrics.xgmi_read_bytes,
            xgmi_written_bytes=metrics.xgmi_written_bytes,
            compute_partition=files.text("current_compute_partition"),
            memory_partition=files.text("current_memory_partition"),
            host_memory_total_bytes=files.count("mem_info_gtt_total"),
            host_memory_used_bytes=files.count("mem_info_gtt_used"),
            table_version=table.version if table else None,
        )

    def _xgmi(self, uuid: str, files: ValueFiles, ras: tuple[RasCount, ...]) -> int | None:
        """Return the flags found so far: reading clears them, so it is done only where RAS does not count XGMI."""
        if any(count.block.startswith("xgmi") for count in ras):
            return None
        flags = files.count("xgmi_error")
        if flags is not None:
            self._xgmi_errors[uuid] = self._xgmi_errors.get(uuid, 0) + flags
        return self._xgmi_errors.get(uuid)


def _read_without_waking(card: _Card, index: int) -> AmdGpuSample:
    """Read what the kernel knows of a GPU without accessing its hardware."""
    files = ValueFiles(card.device)
    status = files.text("power/runtime_status")
    vendor, device = files.text("vendor"), files.text("device")
    return AmdGpuSample(
        gpu=GpuSample(
            uuid=card.uuid,
            index=index,
            minor=int(card.card.removeprefix("card")),
            pci=card.pci,
            model=files.text("product_name"),
            serial=files.text("serial_number"),
            vbios=files.text("vbios_version"),
        ),
        card=card.card,
        render=next((name for name in list_names(f"{card.device}/drm") if name.startswith("renderD")), None),
        device_id=f"{vendor.removeprefix('0x')}:{device.removeprefix('0x')}" if vendor and device else None,
        runtime_status=status,
        asleep=status in _ASLEEP,
    )


def _is_silent(gpu: GpuSample) -> bool:
    """Return whether the hardware reported nothing: memory sizes come from the driver even without a chip."""
    power = gpu.power
    return not (gpu.utilisation or gpu.temperatures_c or gpu.clocks_hz or power.instant_w or power.average_w)


def _read_link_name(path: str) -> str | None:
    """Return the name that a link points to; the target need not be there."""
    try:
        return Path(path).readlink().name or None
    except OSError:
        return None
