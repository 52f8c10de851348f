"""Exports the XIDs of a node's GPUs and other kernel events, from NVML's events and the kernel log.

Events in the kernel's buffer from before the exporter's start count with their own time. A log that may not be read is
exported as unreadable, and XIDs come from NVML alone then. XIDs that both sources report are counted once.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from prometheus_client import Metric

from opsk.errors import OpskError
from opsk.hardware.xids import xid
from opsk.metrics import names as metric_names
from opsk.telemetry.gpu.samples import GpuSource
from opsk.telemetry.kernel_log import (
    KMSG,
    CrashEvent,
    DriverEvent,
    FallenOffBusEvent,
    HungTaskEvent,
    KernelEvent,
    KmsgReader,
    LinkState,
    MemoryErrorEvent,
    NicEvent,
    OomEvent,
    PanicEvent,
    PcieErrorEvent,
    SxidEvent,
    XidEvent,
    boot_unix_s,
)
from opsk_exporters.core.collector import NoDataError
from opsk_exporters.core.exposition import Families

WINDOW_S = 5.0
"""Two sources report one event within this time: the driver writes its line and its event at once."""
MAX_UNKNOWN = 16
"""Codes that the catalogue does not have, by name; more of them are counted together."""
MAX_GPUS = 64
"""GPUs by name; more of them are counted together: no node has so many."""
_MAX_WAITING = 256
_MAX_WAITING_KEYS = 1024
OTHER = "other"
_SOURCE = "kernel_log"
_MAX_SWITCHES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class XidCount:
    """How often a GPU reported a code since the tally began.

    Parameters
    ----------
    gpu
        UUID of the GPU, or its PCI address as long as no UUID is known for it; empty when no source named the GPU.
    code
        The XID as text, or ``other`` for one of too many unknown ones.
    class_
        The catalogue's class.
    count
        Events.
    last_unix_s
        When the last one was [s since 1970]; ``None`` when its source has no time.
    """

    gpu: str
    code: str
    class_: str
    count: int
    last_unix_s: float | None


@dataclass(slots=True)
class _Cell:
    """The count of one GPU and code."""

    class_: str
    count: int = 0
    last_unix_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An event that only one source has reported so far, and the interval in which it happened."""

    source: str
    from_unix_s: float
    to_unix_s: float


class XidTally:
    """Counts XIDs by GPU and code; any thread may call it.

    Two sources report the same events: NVML passes events to listeners; the kernel log has them as lines. An event that
    both report counts once: an event of one source cancels one of the other within some seconds. An event that only one
    source reports counts as well.

    Parameters
    ----------
    window_s
        Events of two sources are the same within this time [s].
    """

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._lock = threading.Lock()
        self._cells: dict[tuple[str, str], _Cell] = {}
        self._waiting: dict[tuple[str, int], deque[_Waiting]] = {}
        self._uuids: dict[str, str] = {}
        self._unknown: set[int] = set()
        self._gpus: set[str] = set()

    def learn_uuids(self, uuids: Mapping[str, str]) -> None:
        """Learn which UUID is at a PCI address; what was counted by the address is from now on the GPU's."""
        with self._lock:
            for pci, uuid in uuids.items():
                if self._uuids.get(pci) != uuid:
                    self._uuids[pci] = uuid
                    self._move(pci, uuid)

    def record(
        self,
        gpu_uuid: str | None,
        pci: str | None,
        code: int,
        at_unix_s: float | None,
        source: str,
        *,
        early_s: float = 0.0,
        late_s: float = 0.0,
    ) -> bool:
        """Count an event unless another source has reported it already; return whether it was counted.

        Parameters
        ----------
        gpu_uuid, pci
            The GPU, as far as the source knows.
        code
            The XID.
        at_unix_s
            When it happened [s since 1970]; ``None`` when the source has no time: such an event matches no other.
        source
            Name of the source.
        early_s, late_s
            The event may have happened this much earlier or later [s]: the kernel's clock drifts from the wall's.
        """
        with self._lock:
            if gpu_uuid and pci and self._uuids.get(pci) != gpu_uuid:
                self._uuids[pci] = gpu_uuid
                self._move(pci, gpu_uuid)
            gpu = gpu_uuid or self._uuids.get(pci or "") or pci or ""
            if at_unix_s is not None and self._is_twin(
                gpu, code, _Waiting(source, at_unix_s - early_s, at_unix_s + late_s)
            ):
                return False
            cell = self._cell(gpu, code)
            cell.count += 1
            if at_unix_s is not None:
                cell.last_unix_s = max(at_unix_s, cell.last_unix_s or at_unix_s)
            return True

    def counts(self) -> tuple[XidCount, ...]:
        """Return all counts, by GPU and code."""
        with self._lock:
            return tuple(
                XidCount(gpu=gpu, code=code, class_=cell.class_, count=cell.count, last_unix_s=cell.last_unix_s)
                for (gpu, code), cell in sorted(self._cells.items())
            )

    def _is_twin(self, gpu: str, code: int, event: _Waiting) -> bool:
        """Return whether another source has reported this event; if not, it waits for that source."""
        if len(self._waiting) > _MAX_WAITING_KEYS:
            self._waiting.clear()
        waiting = self._waiting.setdefault((gpu, code), deque(maxlen=_MAX_WAITING))
        for other in waiting:
            apart_s = max(other.from_unix_s - event.to_unix_s, event.from_unix_s - other.to_unix_s)
            if other.source != event.source and apart_s <= self._window_s:
                waiting.remove(other)
                return True
        waiting.append(event)
        return False

    def _cell(self, gpu: str, code: int) -> _Cell:
        """Return the cell of a GPU and code."""
        entry = xid(code)
        name = str(code)
        if not entry.known and code not in self._unknown:
            if len(self._unknown) < MAX_UNKNOWN:
                self._unknown.add(code)
            else:
                name = OTHER
        if gpu not in self._gpus:
            if len(self._gpus) < MAX_GPUS:
                self._gpus.add(gpu)
            else:
                gpu = OTHER
        return self._cells.setdefault((gpu, name), _Cell(entry.class_.value))

    def _move(self, pci: str, uuid: str) -> None:
        """Count for the GPU what was counted for its address."""
        if pci in self._gpus:
            self._gpus.remove(pci)
            self._gpus.add(uuid)
        for gpu, name in [key for key in self._cells if key[0] == pci]:
            old = self._cells.pop((gpu, name))
            cell = self._cells.setdefault((uuid, name), _Cell(old.class_))
            cell.count += old.count
            times = [at for at in (old.last_unix_s, cell.last_unix_s) if at is not None]
            cell.last_unix_s = max(times, default=None)
        for gpu, code in [key for key in self._waiting if key[0] == pci]:
            events = self._waiting.pop((gpu, code))
            self._waiting.setdefault((uuid, code), deque(maxlen=_MAX_WAITING)).extend(events)


class Listen(Protocol):
    """Starts passing NVML's XIDs to a tally."""

    def __call__(self, tally: XidTally, /) -> None:
        """Begin."""
        ...


class XidCollector:
    """XIDs by GPU and code, SXids by NVSwitch and code, and other events of the kernel log by kind.

    Parameters
    ----------
    log
        The kernel log; ``None`` when it is not to be read.
    gpus
        The GPUs of the node: maps addresses to UUIDs.
    listen
        Starts passing NVML's XIDs; called once, after the kernel's buffer was read for the first time.
    clock
        Seconds since 1970.
    """

    name = "xids"

    def __init__(
        self,
        log: KmsgReader | None,
        gpus: GpuSource | None = None,
        listen: Listen | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.tally = XidTally()
        self._log = log
        self._gpus = gpus
        self._listen = listen
        self._clock = clock
        self._looked_at: float | None = None
        self._readable = False
        self._lost = 0
        self._kinds: Counter[str] = Counter()
        self._last: dict[str, float] = {}
        self._sxids: Counter[tuple[str, str, str]] = Counter()
        self._sxids_last: dict[tuple[str, str, str], float] = {}
        self._unknown_sxids: set[str] = set()
        self._switches: set[str] = set()

    def collect(self) -> Iterable[Metric]:
        """Read the new kernel events, and return all counts.

        Raises
        ------
        NoDataError
            The kernel log is not read, and no XID was reported.
        """
        self._learn_gpus()
        if self._log is not None:
            self._follow(self._log)
        if self._listen is not None:
            self._listen(self.tally)
            self._listen = None
        counts = self.tally.counts()
        if self._log is None and not counts:
            raise NoDataError("no XID was reported, and the kernel log is not read")
        families = Families()
        for count in counts:
            labels = {"gpu": count.gpu, "xid": count.code, "class": count.class_}
            families.counter(
                metric_names.GPU_XID_ERRORS_TOTAL,
                "XID errors of a GPU since the kernel's buffer began, from NVML events and the kernel log, once each.",
                count.count,
                **labels,
            )
            families.gauge(
                metric_names.GPU_XID_LAST_SEEN_TIMESTAMP_SECONDS,
                "When a GPU reported an XID for the last time, in seconds since 1970.",
                count.last_unix_s,
                **labels,
            )
        self._add_log(families)
        return families.all()

    def _learn_gpus(self) -> None:
        """Learn which UUID is at which address; a driver that does not answer leaves what is known."""
        if self._gpus is None:
            return
        with contextlib.suppress(OpskError):
            reading = self._gpus.gpus()
            healthy = {gpu.pci: gpu.uuid for gpu in reading.gpus if gpu.pci and gpu.uuid}
            lost = {gpu.pci: gpu.uuid for gpu in reading.lost if gpu.pci and gpu.uuid}
            self.tally.learn_uuids(lost | healthy)

    def _follow(self, log: KmsgReader) -> None:
        """Count the new events of the kernel log."""
        before, now = self._looked_at, self._clock()
        batch = log.poll()
        self._readable, self._lost = not batch.problem, batch.lost
        if self._readable:
            self._looked_at = now
        for event in batch.events:
            self._count(event, before, now)

    def _count(self, event: KernelEvent, before: float | None, now: float) -> None:
        """Count one event.

        The kernel's clock drifts from the wall's by seconds a day: what is new since the last poll happened since then,
        whatever its timestamp is.
        """
        at_unix_s, early_s, late_s = event.at.unix_s, 0.0, 0.0
        if before is not None:
            at_unix_s = now if at_unix_s is None else min(max(at_unix_s, before), now)
            early_s, late_s = at_unix_s - before, now - at_unix_s
        elif at_unix_s is not None:
            at_unix_s = min(at_unix_s, now)
        if isinstance(event, XidEvent):
            self.tally.record(event.gpu_uuid, event.pci, event.code, at_unix_s, _SOURCE, early_s=early_s, late_s=late_s)
        elif isinstance(event, SxidEvent):
            self._count_sxid(event, at_unix_s)
        kind = classify_event(event)
        if kind is not None:
            self._kinds[kind] += 1
            if at_unix_s is not None:
                self._last[kind] = max(at_unix_s, self._last.get(kind, at_unix_s))

    def close(self) -> None:
        """Close the kernel log."""
        if self._log is not None:
            self._log.close()

    def _count_sxid(self, event: SxidEvent, at_unix_s: float | None) -> None:
        """Count an error of an NVSwitch."""
        entry = event.entry
        stated = {True: "fatal", False: "non_fatal", None: "unknown"}[event.fatal]
        severity = entry.severity if entry.known else stated
        name = str(event.code)
        if not entry.known and not _has_room(self._unknown_sxids, name, MAX_UNKNOWN):
            name = OTHER
        key = (event.pci if _has_room(self._switches, event.pci, _MAX_SWITCHES) else OTHER, name, severity)
        self._sxids[key] += 1
        if at_unix_s is not None:
            self._sxids_last[key] = max(at_unix_s, self._sxids_last.get(key, at_unix_s))

    def _add_log(self, families: Families) -> None:
        """Add the other kernel events, and whether the log can be read."""
        for key, count in sorted(self._sxids.items()):
            labels = dict(zip(("pci", "sxid", "severity"), key, strict=True))
            families.counter(
                metric_names.NVSWITCH_SXID_ERRORS_TOTAL,
                "SXid errors of an NVSwitch since the kernel's buffer began, from the kernel log.",
                count,
                **labels,
            )
            families.gauge(
                metric_names.NVSWITCH_SXID_LAST_SEEN_TIMESTAMP_SECONDS,
                "When an NVSwitch reported an SXid for the last time, in seconds since 1970.",
                self._sxids_last.get(key),
                **labels,
            )
        for kind, count in sorted(self._kinds.items()):
            families.counter(
                "opsk_kernel_log_events_total",
                "Events of a kind in the kernel log since its buffer began; XIDs and SXids have series of their own.",
                count,
                kind=kind,
            )
            families.gauge(
                "opsk_kernel_log_event_last_seen_timestamp_seconds",
                "When an event of a kind was in the kernel log for the last time, in seconds since 1970.",
                self._last.get(kind),
                kind=kind,
            )
        if self._log is not None:
            families.gauge(
                metric_names.KERNEL_LOG_READABLE,
                "Whether the kernel log can be read (0: XIDs come from NVML events alone).",
                int(self._readable),
            )
            families.counter(
                "opsk_kernel_log_lost_records_total",
                "Records of the kernel log that were overwritten before they could be read.",
                self._lost if self._looked_at is not None else None,
            )


def _has_room(known: set[str], name: str, limit: int) -> bool:
    """Return whether a name has series of its own; it gets them while there is room."""
    if name not in known and len(known) < limit:
        known.add(name)
    return name in known


def classify_event(event: KernelEvent) -> str | None:
    """Return the word that an event is counted under; ``None`` for those that are not, or have series of their own."""
    match event:
        case FallenOffBusEvent():
            return "gpu_fallen_off_bus"
        case DriverEvent(kind=kind):
            return f"gpu_driver_{kind}"
        case PcieErrorEvent(kind="error", severity=severity):
            return f"pcie_{severity.value if severity else 'unknown'}"
        case PcieErrorEvent(kind="received" | "recovered"):
            return None
        case PcieErrorEvent(kind=kind):
            return f"pcie_{kind}"
        case MemoryErrorEvent(severity=severity):
            return f"host_memory_{severity.value if severity else 'unknown'}"
        case NicEvent(kind="link", state=state):
            return "nic_link_down" if state is LinkState.DOWN else None
        case NicEvent(kind="module"):
            return None
        case NicEvent(kind=kind):
            return f"nic_{kind}"
        case OomEvent(scope=scope):
            return f"oom_{scope.value if scope else 'unknown'}"
        case HungTaskEvent(kind=kind):
            return kind
        case CrashEvent():
            return "process_crash"
        case PanicEvent():
            return "panic"
        case _:
            return None


def make(
    *,
    kernel_log: Path | None = KMSG,
    gpus: GpuSource | None = None,
    listen: Listen | None = None,
) -> XidCollector:
    """Return the collector of XIDs.

    Parameters
    ----------
    kernel_log
        ``/dev/kmsg`` or a file like it; ``None`` when it is not to be read.
    gpus
        The GPUs of the node, shared with the other collectors.
    listen
        Starts passing NVML's XIDs: ``NvidiaDriver.listen``.
    """
    reader = None if kernel_log is None else KmsgReader(kernel_log, boot_unix_s=boot_unix_s())
    return XidCollector(reader, gpus, listen)
