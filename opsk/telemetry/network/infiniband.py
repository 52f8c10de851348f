"""Reads the RDMA ports of this node from ``class/infiniband`` of a sysfs tree, and computes their congestion.

Data counters count 4-byte words whatever the width of the link; they become bytes here and nowhere else. A file that
is missing, unreadable or not a number yields no value: never a zero. Ethernet ports (RoCE) are in the same tree; their
counters by priority (PFC pauses) are in no file of sysfs, only behind ethtool's ioctl, and are not read here.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from opsk import units
from opsk.errors import TelemetryError

_LONGEST_VALUE_BYTES = 4096
_RATE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) Gb/sec(?: \(([0-9]{1,3}X)(?: ([A-Z0-9]{1,16}))?\))?")
_LONGEST_INTERFACE = 64
"""Linux has names of 15 bytes; longer ones are no names of folders on some file systems."""
_LARGEST_LID = 2**32 - 1
"""Of InfiniBand 16 bits, of Omni-Path 32."""
_NUMBERED = re.compile(r"([0-9]{1,3}): ([\w ]+)")
_DATA_WORDS = {"port_xmit_data", "port_rcv_data", "port_xmit_data_64", "port_rcv_data_64"}
_LARGEST_COUNTER = 2**64 - 1
_GUID = re.compile(r"[0-9a-f]{4}(?::[0-9a-f]{4}){3}")
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_PCI_SLOT = re.compile(r"^PCI_SLOT_NAME=(\S+)$", re.MULTILINE)

COUNTER_BITS = {
    "symbol_error": 16,
    "link_error_recovery": 8,
    "link_downed": 8,
    "port_rcv_errors": 16,
    "port_rcv_remote_physical_errors": 16,
    "port_rcv_switch_relay_errors": 16,
    "port_xmit_discards": 16,
    "port_xmit_constraint_errors": 8,
    "port_rcv_constraint_errors": 8,
    "local_link_integrity_errors": 4,
    "excessive_buffer_overrun_errors": 4,
    "VL15_dropped": 16,
    "port_xmit_data": 32,
    "port_rcv_data": 32,
    "port_xmit_packets": 32,
    "port_rcv_packets": 32,
    "port_xmit_wait": 32,
}
"""Width of each field of the PortCounters attribute (IBA 16.1.3.5).

The kernel reads this attribute; only bytes and packets are read in 64 bits where the device can. These fields
stay at their largest value until someone clears them. A device or kernel with wider fields counts on past it.
"""
WORD_TICK_BYTES = 4
"""Bytes a tick where the site does not know it: IBA's shortest tick on a link of 4 lanes."""
_MIN_INTERVAL_S = 1.0
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PortSample:
    """One port at one moment; ``None``, or a missing key, is "not reported".

    Parameters
    ----------
    device, port
        RDMA device (``mlx5_0``) and its port number, from 1.
    link_layer
        ``InfiniBand`` or ``Ethernet``.
    netdev, bond
        Network interface of the port's first GID, and the bond that this interface is or belongs to.
    gid, port_guid
        First address of the port, and the port's GUID in it (16 hexadecimal digits); RoCE ports have no GUID.
    state, state_name, phys_state, phys_state_name
        Logical state (4, ``ACTIVE``) and physical state (5, ``LinkUp``).
    rate_bytes_per_s
        Speed as the driver states it, link coding included [bytes/s].
    speed
        Width and generation of the rate (``4X NDR``).
    lid, sm_lid
        Local identifiers of the port and of its subnet manager; ``None`` where there is none (0).
    counters, extended, hardware
        Values of ``counters``, ``counters_ext`` (old kernels) and ``hw_counters`` by file name: data counters in
        bytes, all others in events or packets, as the kernel counts them.
    counter_lifespan_s
        Refresh interval of the hardware counters [s].
    unreadable
        Files that exist but have no value now (``N/A``, ``EINVAL``), by path below the port.
    saturated
        Files of ``counters`` that stand at the largest value of their field, and may stay there however much happens.
    """

    device: str
    port: int
    link_layer: str | None = None
    netdev: str | None = None
    bond: str | None = None
    gid: str | None = None
    port_guid: str | None = None
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
    saturated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSample:
    """One RDMA device: what it is, and its ports in order.

    Parameters
    ----------
    device, board_id, firmware, hca_type
        Name, PSID, firmware and type, as the driver reports them.
    node_guid
        16 hexadecimal digits, as topology dumps have it.
    pci, numa_node
        PCI address of the function, and the NUMA node that it hangs on.
    virtual_function
        Whether it is a virtual function (SR-IOV); ``None`` where the device is on no PCI bus, or not shown.
    hardware, unreadable
        As in `PortSample`, for ``hw_counters`` of the device itself.
    """

    device: str
    board_id: str | None = None
    firmware: str | None = None
    hca_type: str | None = None
    node_guid: str | None = None
    pci: str | None = None
    numa_node: int | None = None
    virtual_function: bool | None = None
    hardware: Mapping[str, int] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()
    ports: tuple[PortSample, ...] = ()


class InfinibandSource(Protocol):
    """A source of the RDMA devices of a node."""

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
        self._classes = f"{sysfs}/class"

    def devices(self) -> tuple[DeviceSample, ...]:
        """Return all devices, by name; none where the kernel has no RDMA."""
        return tuple(_read_device(self._classes, name) for name in _list_names(f"{self._classes}/infiniband"))


def parse_rate(text: str) -> tuple[float, str | None] | None:
    """Read ``400 Gb/sec (4X NDR)``: speed [bytes/s], and width with generation; ``None`` when it has neither.

    ``400 Gb/sec (4X NDR)`` is (50e9, ``4X NDR``).
    """
    match = _RATE.match(text)
    if match is None:
        return None
    speed = " ".join(part for part in match.group(2, 3) if part)
    return units.gbit_per_s(float(match[1])), speed or None


def parse_guid(text: str | None) -> str | None:
    """Read ``9439:e5ff:fe00:0012`` as 16 hexadecimal digits; ``None`` when it is no GUID, or none is set (0)."""
    if text is None or not _GUID.fullmatch(text := text.lower()):
        return None
    guid = text.replace(":", "")
    return guid if guid.strip("0") else None


def _read_device(classes: str, name: str) -> DeviceSample:
    """Read one device."""
    root = f"{classes}/infiniband/{name}"
    files = _Files(root)
    ports = (
        _read_port(classes, f"{root}/ports/{number}", name, number) for number in _list_port_numbers(f"{root}/ports")
    )
    hardware = files.counters("hw_counters")
    hardware.pop("lifespan", None)
    pci = _find_pci_address(Path(root, "device"))
    return DeviceSample(
        device=name,
        board_id=files.text("board_id"),
        firmware=files.text("fw_ver"),
        hca_type=files.text("hca_type"),
        node_guid=parse_guid(files.text("node_guid")),
        pci=pci,
        numa_node=_parse_whole_number(files.text("device/numa_node")),
        virtual_function=os.path.lexists(f"{root}/device/physfn") if pci is not None else None,
        hardware=hardware,
        ports=tuple(ports),
        unreadable=tuple(files.unreadable),
    )


def _read_port(classes: str, path: str, device: str, number: int) -> PortSample:
    """Read one port."""
    files = _Files(path)
    state, state_name = files.read_numbered("state")
    phys_state, phys_state_name = files.read_numbered("phys_state")
    rate = parse_rate(files.text("rate") or "")
    link_layer, netdev = files.text("link_layer"), files.text("gid_attrs/ndevs/0")
    gid = files.text("gids/0")
    hardware = files.counters("hw_counters")
    lifespan_ms = hardware.pop("lifespan", None)
    counters, extended = files.counters("counters"), files.counters("counters_ext")
    return PortSample(
        device=device,
        port=number,
        link_layer=link_layer,
        netdev=netdev,
        bond=_find_bond(f"{classes}/net", netdev),
        gid=gid if gid and gid.strip("0:") else None,
        port_guid=parse_guid(gid[-19:]) if gid and link_layer == "InfiniBand" else None,
        state=state,
        state_name=state_name,
        phys_state=phys_state,
        phys_state_name=phys_state_name,
        rate_bytes_per_s=rate[0] if rate else None,
        speed=rate[1] if rate else None,
        lid=files.identifier("lid"),
        sm_lid=files.identifier("sm_lid"),
        counters=counters,
        extended=extended,
        hardware=hardware,
        counter_lifespan_s=None if lifespan_ms is None else units.milliseconds(lifespan_ms),
        unreadable=tuple(files.unreadable),
        saturated=tuple(files.saturated),
    )


def _find_bond(interfaces: str, netdev: str | None) -> str | None:
    """Return the bond that an interface is, or is a member of."""
    if netdev is None or len(netdev) > _LONGEST_INTERFACE or set(netdev) & {"/", "\0"} or netdev in (".", ".."):
        return None
    interface = Path(interfaces, netdev)
    if (interface / "bonding").is_dir():
        return netdev
    try:
        master = (interface / "master").readlink().name
    except OSError:
        return None
    return master if Path(interfaces, master, "bonding").is_dir() else None


def _find_pci_address(device: Path) -> str | None:
    """Return the PCI address of a device, from its link, or in a copy of sysfs its ``uevent``; ``None`` off PCI."""
    try:
        address = device.readlink().name
    except OSError:
        match = _PCI_SLOT.search(_Files(str(device)).text("uevent") or "")
        address = match[1] if match else ""
    return address if _PCI_ADDRESS.fullmatch(address) else None


def _parse_whole_number(text: str | None) -> int | None:
    """Read a number from 0 up; -1 is the kernel's "none"."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None


class _Files:
    """Small files below one folder; records which are unreadable or saturated."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.unreadable: list[str] = []
        self.saturated: list[str] = []

    def text(self, name: str) -> str | None:
        """Return a file's text, stripped; ``None`` when it is missing, empty or unreadable."""
        try:
            descriptor = os.open(f"{self._folder}/{name}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            self.unreadable.append(name)
            return None
        try:
            return os.read(descriptor, _LONGEST_VALUE_BYTES).decode("utf-8", "replace").strip() or None
        except OSError:
            # A port without a GID answers EINVAL for it and its network interface: that means "none".
            if not name.startswith("gid"):
                self.unreadable.append(name)
            return None
        finally:
            os.close(descriptor)

    def read_numbered(self, name: str) -> tuple[int | None, str | None]:
        """Read ``4: ACTIVE`` as its number and its word."""
        match = _NUMBERED.fullmatch(self.text(name) or "")
        return (int(match[1]), match[2]) if match else (None, None)

    def identifier(self, name: str) -> int | None:
        """Read a LID (``0x1a``); 0 is "none assigned"."""
        text = self.text(name)
        if text is None:
            return None
        try:
            value = int(text, 0)
        except ValueError:
            value = -1
        if 0 <= value <= _LARGEST_LID:
            return value or None
        self.unreadable.append(name)
        return None

    def counters(self, folder: str) -> dict[str, int]:
        """Read every counter of a folder, data words as bytes."""
        values: dict[str, int] = {}
        try:
            names = _list_entries(f"{self._folder}/{folder}")
        except (FileNotFoundError, NotADirectoryError):
            return values
        except OSError:
            self.unreadable.append(folder)
            return values
        for name in names:
            value = _parse_counter(self.text(f"{folder}/{name}"))
            if value is not None:
                values[name] = value * units.IB_DATA_WORD_BYTES if name in _DATA_WORDS else value
                if folder == "counters" and value in (2 ** COUNTER_BITS.get(name, 64) - 1, _LARGEST_COUNTER):
                    self.saturated.append(f"{folder}/{name}")
            elif f"{folder}/{name}" not in self.unreadable:
                self.unreadable.append(f"{folder}/{name}")
        return values


def _parse_counter(text: str | None) -> int | None:
    """Read an unsigned 64-bit number; anything else is no value."""
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 20:
        return None
    value = int(text)
    return value if value <= _LARGEST_COUNTER else None


def _list_entries(folder: str) -> list[str]:
    """List a folder, sorted."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries)


def _list_names(folder: str) -> list[str]:
    """List a folder, sorted; empty where there is none."""
    try:
        return _list_entries(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise TelemetryError(
            f"{folder}: {error.strerror}", hint="the exporter needs to read sysfs; check its sandbox and user"
        ) from error


def _list_port_numbers(folder: str) -> list[int]:
    """List the ports of a device in order."""
    return sorted(int(name) for name in _list_names(folder) if name.isascii() and name.isdigit() and len(name) < 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """The two counters of a port at one moment, and the ratio over the interval that ended then."""

    at: float
    wait_ticks: int
    sent_bytes: int
    ratio: float | None = None


class CongestionMeter:
    """Keeps the last sample of each port.

    ``port_xmit_wait`` counts ticks in which a port had data to send and sent none: no credit from the other end, or
    another lane's turn (IBA 16.1.3.5). A tick is the time that the link takes for a number of bytes, which the device
    chooses. ibdiagnet multiplies ticks by that number and calls the product lost bytes; the congestion here is the
    share of lost bytes in all bytes that the port could have moved while it had any to move:

        lost / (lost + sent),  lost = ticks x bytes a tick

    NVIDIA states 8 bytes a tick for Quantum switches, 32 bytes a tick and lane for Switch-IB, and nothing for HCAs
    ("Congestion Assessment on InfiniBand Links", ibdiagnet user manual 2.13, read 2026-11). IBA's own tick is one byte
    a lane: on a link of 4 lanes one data word, 4 bytes, which is the default here unless the site knows better
    (``perfquery -c LID PORT`` shows the tick; bytes are tick + 1). Whatever the tick is: 0 is no congestion, more is
    worse, and ports of one kind compare. Between kinds of device, or as a share of time, only a known tick makes it
    comparable.

    Parameters
    ----------
    tick_bytes
        Bytes that the link moves in one tick of ``port_xmit_wait`` [bytes].
    clock
        Monotonic seconds.
    """

    def __init__(self, tick_bytes: float = WORD_TICK_BYTES, clock: Clock = time.monotonic) -> None:
        self._tick_bytes = tick_bytes
        self._clock = clock
        self._last: dict[tuple[str, int], _Sample] = {}

    def ratio(self, port: PortSample) -> float | None:
        """Return the congestion of a port since the previous sample, from 0 to 1.

        ``None`` at the first sample, after a counter was reset, where a counter is missing or stands at its largest
        value, and on Ethernet, which has no credits. A port that had nothing to send was not congested: 0. Two samples
        within a second, of two scrapers, are one: the second gets the result of the first.
        """
        key = (port.device, port.port)
        sample = self._take_sample(port)
        if sample is None:
            self._last.pop(key, None)
            return None
        last = self._last.get(key)
        if last is not None and sample.at - last.at < _MIN_INTERVAL_S:
            return last.ratio
        ratio = None if last is None else self._compute_ratio(last, sample)
        self._last[key] = _Sample(at=sample.at, wait_ticks=sample.wait_ticks, sent_bytes=sample.sent_bytes, ratio=ratio)
        return ratio

    def forget_others(self, seen: set[tuple[str, int]]) -> None:
        """Drop the samples of ports that are gone: one that comes back starts again."""
        for key in self._last.keys() - seen:
            del self._last[key]

    def _take_sample(self, port: PortSample) -> _Sample | None:
        """Return the counters of a port; ``None`` where they are not usable."""
        wait, sent = port.counters.get("port_xmit_wait"), port.counters.get("port_xmit_data")
        stuck = "counters/port_xmit_wait" in port.saturated or "counters/port_xmit_data" in port.saturated
        if wait is None or sent is None or stuck or port.link_layer == "Ethernet":
            return None
        return _Sample(at=self._clock(), wait_ticks=wait, sent_bytes=sent)

    def _compute_ratio(self, last: _Sample, sample: _Sample) -> float | None:
        """Return the ratio of an interval; ``None`` when a counter went back."""
        lost = (sample.wait_ticks - last.wait_ticks) * self._tick_bytes
        sent = sample.sent_bytes - last.sent_bytes
        if lost < 0 or sent < 0:
            return None
        return lost / (lost + sent) if lost else 0.0
