"""What do the RDMA ports of this node say of themselves? Reads ``class/infiniband`` of a sysfs tree.

Data counters count 4-byte words whatever the width of the link; they become bytes here and nowhere else. A file that
is missing, unreadable or no number yields no value: never a zero. Ethernet ports (RoCE) stand in the same tree.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from opsk import units
from opsk.errors import TelemetryError

_LONGEST_VALUE_BYTES = 4096
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?) Gb/sec(?: \(([0-9]+X)(?: ([A-Z0-9]+))?\))?")
_NUMBERED = re.compile(r"([0-9]{1,3}): ([\w ]+)")
_DATA_WORDS = {"port_xmit_data", "port_rcv_data", "port_xmit_data_64", "port_rcv_data_64"}
_LARGEST_COUNTER = 2**64 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PortSample:
    """One port at one moment; ``None``, or a key that is not there, is "the node does not say".

    Parameters
    ----------
    device, port
        RDMA device (``mlx5_0``) and its port number, from 1.
    link_layer
        ``InfiniBand`` or ``Ethernet``.
    netdev
        Network interface of the port's first GID.
    state, state_name, phys_state, phys_state_name
        Logical state (4, ``ACTIVE``) and physical state (5, ``LinkUp``).
    rate_bytes_per_s
        Speed as the driver states it, link coding included [bytes/s].
    speed
        Width and generation behind the rate (``4X NDR``).
    lid, sm_lid
        Local identifiers of the port and of its subnet manager; ``None`` where there is none (0).
    counters, extended, hardware
        Values of ``counters``, ``counters_ext`` (old kernels) and ``hw_counters`` by file name: data counters in
        bytes, all others in events or packets, as the kernel counts them.
    counter_lifespan_s
        Hardware counters are refreshed this seldom [s].
    unreadable
        Files that are there but give no value now (``N/A``, ``EINVAL``), by path below the port.
    """

    device: str
    port: int
    link_layer: str | None = None
    netdev: str | None = None
    state: int | None = None
    state_name: str | None = None
    phys_state: int | None = None
    phys_state_name: str | None = None
    rate_bytes_per_s: float | None = None
    speed: str | None = None
    lid: int | None = None
    sm_lid: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    extended: Mapping[str, int] = field(default_factory=dict)
    hardware: Mapping[str, int] = field(default_factory=dict)
    counter_lifespan_s: float | None = None
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSample:
    """One RDMA device: what it is, and its ports in order."""

    device: str
    board_id: str | None = None
    firmware: str | None = None
    hca_type: str | None = None
    node_guid: str | None = None
    ports: tuple[PortSample, ...] = ()


class InfinibandSource(Protocol):
    """Whatever can tell about the RDMA devices of a node."""

    def devices(self) -> tuple[DeviceSample, ...]:
        """Return all devices, by name; none where the node has none.

        Raises
        ------
        TelemetryError
            The devices are there, and cannot be listed.
        """


class SysfsInfiniband:
    """Reads the RDMA devices of a sysfs tree.

    Parameters
    ----------
    sysfs
        Where sysfs is mounted.
    """

    def __init__(self, sysfs: Path = Path("/sys")) -> None:
        self._root = sysfs / "class" / "infiniband"

    def devices(self) -> tuple[DeviceSample, ...]:
        """Return all devices, by name; none where the kernel knows no RDMA."""
        return tuple(_device(str(self._root), name) for name in _names(str(self._root)))


def parse_rate(text: str) -> tuple[float, str | None] | None:
    """Read ``400 Gb/sec (4X NDR)``: speed [bytes/s], and width with generation; ``None`` when it says neither.

    ``400 Gb/sec (4X NDR)`` is (50e9, ``4X NDR``).
    """
    found = _RATE.match(text)
    if found is None:
        return None
    speed = " ".join(part for part in found.group(2, 3) if part)
    return units.gbit_per_s(float(found[1])), speed or None


def _device(root: str, name: str) -> DeviceSample:
    """Read one device."""
    files = _Files(f"{root}/{name}")
    ports = (_port(f"{root}/{name}/ports/{number}", name, number) for number in _port_numbers(f"{root}/{name}/ports"))
    return DeviceSample(
        device=name,
        board_id=files.text("board_id"),
        firmware=files.text("fw_ver"),
        hca_type=files.text("hca_type"),
        node_guid=files.text("node_guid"),
        ports=tuple(ports),
    )


def _port(path: str, device: str, number: int) -> PortSample:
    """Read one port."""
    files = _Files(path)
    state, state_name = files.numbered("state")
    phys_state, phys_state_name = files.numbered("phys_state")
    rate = parse_rate(files.text("rate") or "")
    hardware = files.counters("hw_counters")
    lifespan_ms = hardware.pop("lifespan", None)
    return PortSample(
        device=device,
        port=number,
        link_layer=files.text("link_layer"),
        netdev=files.text("gid_attrs/ndevs/0"),
        state=state,
        state_name=state_name,
        phys_state=phys_state,
        phys_state_name=phys_state_name,
        rate_bytes_per_s=rate[0] if rate else None,
        speed=rate[1] if rate else None,
        lid=files.identifier("lid"),
        sm_lid=files.identifier("sm_lid"),
        counters=files.counters("counters"),
        extended=files.counters("counters_ext"),
        hardware=hardware,
        counter_lifespan_s=None if lifespan_ms is None else units.milliseconds(lifespan_ms),
        unreadable=tuple(files.unreadable),
    )


class _Files:
    """Small files below one folder; remembers which of them are there and say nothing."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.unreadable: list[str] = []

    def text(self, name: str) -> str | None:
        """Return a file's text, stripped; ``None`` when it is missing, empty or unreadable."""
        try:
            descriptor = os.open(f"{self._folder}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            self.unreadable.append(name)
            return None
        try:
            return os.read(descriptor, _LONGEST_VALUE_BYTES).decode("utf-8", "replace").strip() or None
        except OSError:
            # A port without a GID answers EINVAL for its network interface: that is its way to say "none".
            if not name.startswith("gid_attrs/"):
                self.unreadable.append(name)
            return None
        finally:
            os.close(descriptor)

    def numbered(self, name: str) -> tuple[int | None, str | None]:
        """Read ``4: ACTIVE`` as its number and its word."""
        found = _NUMBERED.fullmatch(self.text(name) or "")
        return (int(found[1]), found[2]) if found else (None, None)

    def identifier(self, name: str) -> int | None:
        """Read a LID (``0x1a``); 0 is "none assigned"."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return int(text, 0) or None
        except ValueError:
            self.unreadable.append(name)
            return None

    def counters(self, folder: str) -> dict[str, int]:
        """Read every counter of a folder, data words as bytes."""
        values: dict[str, int] = {}
        try:
            names = _entries(f"{self._folder}/{folder}")
        except (FileNotFoundError, NotADirectoryError):
            return values
        except OSError:
            self.unreadable.append(folder)
            return values
        for name in names:
            value = _counter(self.text(f"{folder}/{name}"))
            if value is not None:
                values[name] = value * units.IB_DATA_WORD_BYTES if name in _DATA_WORDS else value
            elif f"{folder}/{name}" not in self.unreadable:
                self.unreadable.append(f"{folder}/{name}")
        return values


def _counter(text: str | None) -> int | None:
    """Read an unsigned 64-bit number; anything else is no value."""
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 20:
        return None
    value = int(text)
    return value if value <= _LARGEST_COUNTER else None


def _entries(folder: str) -> list[str]:
    """List a folder, sorted."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries)


def _names(folder: str) -> list[str]:
    """List a folder, sorted; empty where there is none."""
    try:
        return _entries(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise TelemetryError(
            f"{folder}: {error.strerror}", hint="the exporter needs to read sysfs; check its sandbox and user"
        ) from error


def _port_numbers(folder: str) -> list[int]:
    """List the ports of a device in order."""
    return sorted(int(name) for name in _names(folder) if name.isascii() and name.isdigit() and len(name) < 4)
