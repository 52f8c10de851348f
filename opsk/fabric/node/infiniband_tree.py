"""Reads the NICs of a node from a copy of ``/sys/class/infiniband``.

A copy is a map of paths to texts, whatever folder it was taken from: a device is recognised by its ``ports``. The tree
of the running node is read by ``opsk.telemetry.network.infiniband``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from opsk.errors import InputError
from opsk.fabric.node import pci
from opsk.fabric.node.node_topology import Nic, NodeTopology, sort_topology
from opsk.units import gbit_per_s

PORT_FILES = frozenset({"link_layer", "rate", "state", "phys_state"})
"""Files of a port that are read."""

DEVICE_FILES = frozenset({"node_guid", "node_desc", "hca_type", "board_id", "numa_node", "uevent"})
"""Files of a device that are read; ``numa_node`` and ``uevent`` below its ``device``."""

_PORT_FILE = re.compile(r"(?:(.*)/)?([^/]+)/ports/([0-9]{1,3})/(link_layer|rate|state|phys_state)")
_RATE = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,3})?) Gb/sec")
_STATE = re.compile(r"[0-9]{1,3}: ?([A-Za-z_]+)")
_GUID = re.compile(r"[0-9a-f]{4}(?::?[0-9a-f]{4}){3}", re.IGNORECASE)
_SLOT = re.compile(r"PCI_SLOT_NAME=(\S+)")
_TTAR_PATH = re.compile(r"^Path: (\S.*)$")
_TTAR_LINES = re.compile(r"^Lines: ([0-9]{1,7})$")


@dataclass(slots=True, kw_only=True)
class _Device:
    """The files of one device, and of its ports by number."""

    files: dict[str, str] = field(default_factory=dict)
    ports: dict[int, dict[str, str]] = field(default_factory=dict)


def holds_ttar(text: str) -> bool:
    """Say whether a text is a ttar archive, the Prometheus projects' text form of a tree."""
    return text.lstrip("\ufeff \n").startswith(("# Archive created by ttar", "# ttar -")) or bool(
        re.match(r"(?:Path|Directory|SymlinkTo): \S.*\n(?:Lines|Mode|SymlinkTo): ", text)
    )


def read_ttar(text: str) -> dict[str, str]:
    """Return the files of a ttar archive by path; one that is cut gives what came before."""
    files: dict[str, str] = {}
    lines = iter(text.splitlines())
    path: str | None = None
    for line in lines:
        if match := _TTAR_PATH.match(line):
            path = match[1].strip()
        elif path is not None and (match := _TTAR_LINES.match(line)):
            content = [entry for _, entry in zip(range(int(match[1])), lines, strict=False)]
            # ttar writes EOF behind a last line that ends without a line feed.
            files.setdefault(path, "\n".join(content).removesuffix("EOF"))
            path = None
    return files


def read_infiniband_tree(files: Mapping[str, str], *, source: str) -> NodeTopology:
    """Return the NICs, one a port, of a copy of the tree.

    Raises
    ------
    InputError
        When no RDMA device is in it.
    """
    devices = _devices(files)
    if not devices:
        raise InputError(
            f"{source}: no RDMA device in it", hint="give /sys/class/infiniband of the node, or a tar file of it"
        )
    problems: list[str] = []
    nics = [
        _nic(name, device, number, problems, source)
        for name, device in sorted(devices.items())
        for number in sorted(device.ports)
    ]
    topology = NodeTopology(
        nics=tuple(nics),
        source=source,
        dialect="sysfs_infiniband",
        host=_host(devices.values()),
        contents={"devices": len(devices), "ports": len(nics)},
        problems=tuple(problems),
    )
    return sort_topology(topology)


def _devices(files: Mapping[str, str]) -> dict[str, _Device]:
    """Return the devices by name, with the files that are read."""
    devices: dict[str, _Device] = {}
    folders: dict[str, str] = {}
    for path, text in sorted(files.items()):
        match = _PORT_FILE.fullmatch(path)
        if match is None:
            continue
        folder, name, number, what = match.groups()
        if folders.setdefault(name, folder or "") != (folder or ""):
            continue  # the same device, seen through class/ and through devices/
        devices.setdefault(name, _Device()).ports.setdefault(int(number), {})[what] = text.strip()
    for name, device in devices.items():
        root = f"{folders[name]}/{name}" if folders[name] else name
        for what in DEVICE_FILES:
            for place in (f"{root}/{what}", f"{root}/device/{what}"):
                if place in files:
                    device.files.setdefault(what, files[place].strip())
    return devices


def _nic(name: str, device: _Device, number: int, problems: list[str], source: str) -> Nic:
    """Return one port as a NIC; the first port has the device's name, others ``mlx4_0:2``, as NCCL writes it."""
    port = device.ports[number]
    rate = _RATE.match(port.get("rate", ""))
    state = _STATE.fullmatch(port.get("state", ""))
    guid = device.files.get("node_guid", "")
    digits = guid.replace(":", "").lower() if _GUID.fullmatch(guid) else ""
    slot = _SLOT.search(device.files.get("uevent", ""))
    numa = device.files.get("numa_node", "")
    full = name if number == min(device.ports) else f"{name}:{number}"
    missing = [what for what in ("rate", "state") if what in port and not (rate if what == "rate" else state)]
    if missing:
        problems.append(f"{source}: {full}: cannot read {' and '.join(missing)}")
    return Nic(
        name=full,
        device=full,
        pci=pci.parse_bus_id(slot[1]) if slot else None,
        numa=int(numa) if re.fullmatch(r"[0-9]{1,4}", numa) else None,
        guid=digits if digits and int(digits, 16) else None,
        port=number,
        bytes_per_s=gbit_per_s(float(rate[1])) if rate else None,
        link_layer=port.get("link_layer") or None,
        state=state[1] if state else None,
        description=device.files.get("node_desc") or device.files.get("hca_type") or None,
    )


def _host(devices: Iterable[_Device]) -> str | None:
    """Return the host that the node descriptions name (``node7 mlx5_0``), when they name one."""
    hosts = {words[0] for device in devices if len(words := device.files.get("node_desc", "").split()) == 2}
    return hosts.pop() if len(hosts) == 1 else None
