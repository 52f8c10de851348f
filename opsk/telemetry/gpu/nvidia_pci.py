"""Lists the NVIDIA GPUs on the PCI bus, with or without a driver, and detects those that fell off it.

A node that has GPUs and no driver for them is broken; one without GPUs is not. GPUs that were bound to another driver
on purpose (virtual machines, nouveau on a console) do not count.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from opsk.telemetry.gpu.samples import normalise_pci

_VENDOR = "0x10de"
_CONTROLLER_3D = "0x0302"
"""Class of a GPU without a screen, which those of data centres are; with one it is 0x0300."""
_DISPLAY = "0x03"
_DRIVER = "nvidia"
_CACHE_S = 300.0
_NOBODY = b"\xff\xff"


def find_nvidia_gpus(sysfs: Path = Path("/sys")) -> tuple[str, ...]:
    """Return the PCI addresses of the GPUs that NVIDIA's driver has, or that wait for one."""
    return tuple(sorted(_find_gpus(sysfs / "bus" / "pci" / "devices")))


def is_responding(address: str, sysfs: Path = Path("/sys")) -> bool | None:
    """Return whether a device answers on the bus; ``None`` where that is unknown.

    A device that fell off reads as ones. After a reset of its slot, or a scan of the bus, its own values are back.
    """
    device = sysfs / "bus" / "pci" / "devices" / address
    try:
        with (device / "config").open("rb", buffering=0) as config:
            return config.read(2) not in (b"", _NOBODY)
    except FileNotFoundError:
        return False if device.parent.is_dir() else None
    except OSError:
        return None


class GpusOnBus:
    """Caches `find_nvidia_gpus` for a while: a bus has hundreds of devices, and they hardly change.

    Parameters
    ----------
    sysfs
        Where sysfs is mounted.
    clock
        Monotonic seconds.
    """

    def __init__(self, sysfs: Path = Path("/sys"), clock: Callable[[], float] = time.monotonic) -> None:
        self._sysfs = sysfs
        self._clock = clock
        self._looked_at: float | None = None
        self._gpus: tuple[str, ...] = ()

    def __call__(self) -> tuple[str, ...]:
        """Return the PCI addresses, at most ``_CACHE_S`` old."""
        now = self._clock()
        if self._looked_at is None or now - self._looked_at >= _CACHE_S:
            self._gpus, self._looked_at = find_nvidia_gpus(self._sysfs), now
        return self._gpus


def _find_gpus(folder: Path) -> Iterator[str]:
    """Yield the addresses; a device that cannot be read is skipped."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names alone: a Path for each of 500 devices is for nothing
    except OSError:
        return
    for name in names:
        address = normalise_pci(name)
        if address is None or _read_text(folder / name / "vendor") != _VENDOR:
            continue
        kind, driver = _read_text(folder / name / "class"), _read_driver(folder / name)
        virtual = os.path.lexists(folder / name / "physfn")
        waits = driver is None and kind.startswith(_CONTROLLER_3D)
        if not virtual and kind.startswith(_DISPLAY) and (driver == _DRIVER or waits):
            yield address


def _read_driver(device: Path) -> str | None:
    """Return the name of the driver that a device is bound to."""
    try:
        return Path(os.readlink(device / "driver")).name  # noqa: PTH115 - only the name in the link is needed
    except OSError:
        return None


def _read_text(path: Path) -> str:
    """Return the text of a small file; empty when it cannot be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
