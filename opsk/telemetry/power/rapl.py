"""Reads the energy of the processors from RAPL's zones in ``class/powercap`` of a sysfs tree.

The kernel counts microjoules and wraps at ``max_energy_range_uj``, on servers every few minutes. Here they become
joules that only grow: the reader keeps the last value of each zone, so it must be called more often than a zone wraps.
AMD's processors have the same names (``intel-rapl``). A zone's ``energy_uj`` may be readable by root alone; such a zone
is listed without a value.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from pathlib import Path

from opsk import units
from opsk.telemetry.host.value_files import ValueFiles, list_names, natural_sort_key

_ZONE = re.compile(r"(?P<control>[A-Za-z][\w.-]*)(?::[0-9A-Za-z]+)+")
_LIMIT_NAMES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RaplZone:
    """One zone at one moment.

    Parameters
    ----------
    zone
        Name with those of the zones around it: ``package-0``, ``package-0/dram``, ``psys``.
    domain
        What it measures: ``package``, ``core``, ``uncore``, ``dram``, ``psys``, or the kernel's word without numbers.
    top
        Whether no other zone is around it.
    folder
        Name of its folder (``intel-rapl:0:1``).
    energy_j
        Energy since the counter began, across its turns [J]; ``None`` when it cannot be read.
    range_j
        The counter begins again after this much [J].
    limit_w
        Long-term power limit [W].
    unreadable
        Why there is no energy: ``permission``, ``error`` or ``malformed``; ``None`` when there is.
    """

    zone: str
    domain: str
    top: bool
    folder: str
    energy_j: float | None = None
    range_j: float | None = None
    limit_w: float | None = None
    unreadable: str | None = None


class RaplReader:
    """Reads the zones of a sysfs tree; keep one, it remembers how often the counters went around.

    Parameters
    ----------
    sysfs
        Where sysfs is mounted.
    """

    def __init__(self, sysfs: Path = Path("/sys")) -> None:
        self._root = f"{sysfs}/class/powercap"
        self._counts: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def zones(self) -> tuple[RaplZone, ...]:
        """Return all zones that count energy, packages before what is in them; none where there is no RAPL."""
        paths: dict[str, str] = {}
        zones: dict[str, RaplZone] = {}
        with self._lock:
            for folder in self._folders():
                files = ValueFiles(f"{self._root}/{folder}")
                name = files.text("name")
                if name is None:
                    continue
                parent = paths.get(folder.rpartition(":")[0])
                path = paths[folder] = f"{parent}/{name}" if parent else name
                if path in zones and _get_interface(zones[path].folder) != _get_interface(folder):
                    continue
                zone = self._zone(files, folder, f"{path}@{folder}" if path in zones else path)
                if zone is not None:
                    zones[zone.zone] = zone
        return tuple(zones.values())

    def _folders(self) -> list[str]:
        """Return folders of zones, parents first; what the memory-mapped interface shows again comes last."""
        folders = [name for name in list_names(self._root) if _ZONE.fullmatch(name)]
        return sorted(
            folders, key=lambda name: ("mmio" in _get_interface(name), name.count(":"), natural_sort_key(name))
        )

    def _zone(self, files: ValueFiles, folder: str, path: str) -> RaplZone | None:
        """Read one zone; ``None`` for one that counts no energy."""
        raw_uj = files.count("energy_uj")
        if raw_uj is None and "energy_uj" not in files.unreadable:
            return None
        range_uj = files.count("max_energy_range_uj") or None
        return RaplZone(
            zone=path,
            domain=_parse_domain(path.partition("@")[0].rpartition("/")[2]),
            top="/" not in path,
            folder=folder,
            energy_j=None if raw_uj is None else units.micro(self._total_uj(folder, raw_uj, range_uj)),
            range_j=None if range_uj is None else units.micro(range_uj),
            limit_w=_read_limit_w(files),
            unreadable=files.unreadable.get("energy_uj"),
        )

    def _total_uj(self, folder: str, raw_uj: int, range_uj: int | None) -> int:
        """Return the energy across turns of the counter, and remember where it is now."""
        last_uj, total_uj = self._counts.get(folder, (0, 0))
        gained_uj = raw_uj - last_uj
        if gained_uj < 0:
            # Without a range, or beyond it, it is unknown where the counter wrapped: only the current value is certain.
            gained_uj = raw_uj + max(0, (range_uj or 0) - last_uj)
        self._counts[folder] = (raw_uj, total_uj + gained_uj)
        return total_uj + gained_uj


def _get_interface(folder: str) -> str:
    """Return the interface that a zone belongs to: ``intel-rapl``, ``intel-rapl-mmio``."""
    return folder.partition(":")[0]


def _parse_domain(name: str) -> str:
    """Return what a zone measures: ``package`` for ``package-10`` and for ``package-0-die-1``."""
    match = re.match(r"[A-Za-z]+", name)
    return match[0].lower() if match else name


def _read_limit_w(files: ValueFiles) -> float | None:
    """Return the long-term power limit; a limit of 0 is none."""
    for number in range(_LIMIT_NAMES):
        if files.text(f"constraint_{number}_name") == "long_term":
            limit_uw = files.count(f"constraint_{number}_power_limit_uw")
            return units.micro(limit_uw) if limit_uw else None
    return None
