"""Counts the XIDs of each GPU from two sources that report the same events.

NVML passes events to listeners; the kernel log has them as lines. An event that both report counts once: an event of
one source cancels one of the other within some seconds. An event that only one source reports counts as well.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from opsk.hardware.xids import xid

WINDOW_S = 5.0
"""Two sources report one event within this time: the driver writes its line and its event at once."""
MAX_UNKNOWN = 16
"""Codes that the catalogue does not have, by name; more of them are counted together."""
MAX_GPUS = 64
"""GPUs by name; more of them are counted together: no node has so many."""
_MAX_WAITING = 256
_MAX_WAITING_KEYS = 1024
OTHER = "other"


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
