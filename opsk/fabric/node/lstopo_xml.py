"""Parses the XML files of hwloc's ``lstopo`` for the GPUs and NICs of a node.

Versions 1 to 3 of the format: I/O devices are ``PCIDev`` objects below ``Bridge`` objects, their software names are
``OSDev`` objects below those. Each 1-1 bridge is one port of a switch, a 0-1 bridge is a host bridge. NVLink is a
matrix of bandwidths [MB/s] at the end of the file, not a number of links. A file taken without I/O devices holds none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from opsk.fabric.node import pci
from opsk.fabric.node.affinity import parse_cpu_mask
from opsk.fabric.node.node_topology import Gpu, GpuPath, Nic, NodeTopology, PathClass, sort_topology
from opsk.fabric.node.xml_tree import Element, read_xml
from opsk.units import GB

_PCI_TYPE = re.compile(r"([0-9a-fA-F]{4}) \[([0-9a-fA-F]{4}):([0-9a-fA-F]{4})\]")
_GPU_OSDEV = re.compile(r"(nvml|rsmi|cuda)([0-9]{1,3})")
_OPENFABRICS_OLD, _OPENFABRICS_BIT = 3, 32
_LINK_MATRICES = {"NVLinkBandwidth": PathClass.NV, "XGMIBandwidth": PathClass.XGMI}
_MB = GB / 1000
_NVSWITCH_CLASS = "0680"
_IPOIB_OCTETS = 20
"""Length of the hardware address of an IP interface over InfiniBand; Ethernet has 6."""


@dataclass(slots=True, kw_only=True)
class _Function:
    """One PCI function with the objects in it; ``address`` is ``None`` for an OSDev that hangs in no PCI object."""

    address: str | None
    kind: str
    vendor: str
    place: pci.PciPlace
    cpus: str | None
    line: int
    number: str | None = None
    names: dict[str, Element] = field(default_factory=dict)
    infos: dict[str, str] = field(default_factory=dict)

    def first(self, *prefixes: str) -> int | None:
        """Return the number behind the first of several OSDev prefixes that is there."""
        for prefix in prefixes:
            for name in self.names:
                match = _GPU_OSDEV.fullmatch(name)
                if match and match[1] == prefix:
                    return int(match[2])
        return None


def read_lstopo_xml(text: str, *, source: str) -> NodeTopology:
    """Return the node that a ``<topology>`` file describes.

    Raises
    ------
    InputError
        When there is no such element, or the file declares entities.
    """
    root, problems = read_xml(text, source=source)
    functions: list[_Function] = []
    for child in root.children:
        if child.tag == "object":
            _collect_functions(child, pci.PciPlace(), None, None, functions)
    graphics = [entry for entry in functions if _is_gpu(entry)]
    gpus = _gpus(graphics)
    nics = [(_nic(entry, root), entry) for entry in functions if _is_nic(entry, root)]
    gpu_paths = _gpu_paths(root, gpus, functions)
    if not functions:
        problems.append(f"{source}: no PCI devices in it: taken without I/O, or in a container that hides them")
    topology = NodeTopology(
        gpus=tuple(gpu for gpu, _ in gpus),
        nics=_drop_duplicates([nic for nic, _ in nics], problems, source),
        gpu_paths=gpu_paths,
        nic_paths={
            (gpu.index, nic.name): pci.path_class(function.place, other.place, ports=True)
            for gpu, function in gpus
            for nic, other in nics
        },
        nic_pairs={
            (first.name, second.name): pci.path_class(function.place, other.place, ports=True)
            for number, (first, function) in enumerate(nics)
            for second, other in nics[number + 1 :]
        },
        source=source,
        dialect="lstopo",
        host=next((info.get("value") for info in root.all("info") if info.get("name") == "HostName"), None),
        contents={"version": root.get("version") or "1", "pci_functions": len(functions)},
        problems=tuple(problems),
    )
    return sort_topology(topology)


def _drop_duplicates(nics: Sequence[Nic], problems: list[str], source: str) -> tuple[Nic, ...]:
    """Return the NICs without those whose name stands there before."""
    unique: dict[str, Nic] = {}
    twice = [nic.name for nic in nics if unique.setdefault(nic.name, nic) is not nic]
    problems += [f"{source}: NIC {name} stands there twice; the first is kept" for name in twice]
    return tuple(unique.values())


def _collect_functions(
    element: Element, place: pci.PciPlace, cpus: str | None, function: _Function | None, functions: list[_Function]
) -> None:
    """Collect the PCI functions below an object, and what hangs in each."""
    kind = element.get("type") or ""
    nodeset, cpuset = element.get("nodeset"), element.get("cpuset")
    if nodeset is not None:
        place = replace(place, numa=_single_node(nodeset))
        cpus = parse_cpu_mask(cpuset)
    if kind == "Bridge":
        mark = element.get("bridge_pci"), element.get("gp_index"), element.line
        if (element.get("bridge_type") or "").startswith("0-"):
            place = pci.PciPlace(numa=place.numa, host_bridge=mark)
        else:
            place = replace(place, bridges=(*place.bridges, mark))
    elif kind == "PCIDev":
        function = _function(element, place, cpus)
        functions.append(function)
    elif kind == "OSDev":
        name = element.get("name") or ""
        if function is None and _GPU_OSDEV.fullmatch(name):
            function = _Function(address=None, kind="", vendor="", place=place, cpus=cpus, line=element.line)
            functions.append(function)
        if function is not None:
            function.names[name] = element
            for info in element.children:
                if info.tag == "info":
                    function.infos.setdefault(info.get("name") or "", info.get("value") or "")
    for child in element.children:
        if child.tag == "object":
            _collect_functions(child, place, cpus, function, functions)
        elif child.tag == "info" and kind == "PCIDev" and function is not None:
            function.infos.setdefault(child.get("name") or "", child.get("value") or "")


def _function(element: Element, place: pci.PciPlace, cpus: str | None) -> _Function:
    match = _PCI_TYPE.match(element.get("pci_type") or "")
    return _Function(
        address=pci.parse_bus_id(element.get("pci_busid")),
        kind=match[1].lower() if match else "",
        vendor=match[2].lower() if match else "",
        place=place,
        cpus=cpus,
        line=element.line,
        number=element.get("gp_index"),
    )


def _single_node(nodeset: str) -> int | None:
    """Return the NUMA node of a set that holds one only."""
    nodes = parse_cpu_mask(nodeset)
    return int(nodes) if nodes is not None and nodes.isdecimal() else None


def _is_gpu(entry: _Function) -> bool:
    if any(_GPU_OSDEV.fullmatch(name) for name in entry.names):
        return True
    return pci.is_gpu(entry.kind, entry.vendor)


def _openfabrics(entry: _Function, root: Element) -> str | None:
    """Return the name of the RDMA device in a function."""
    for name, osdev in entry.names.items():
        kind = osdev.get("osdev_type") or ""
        number = int(kind) if re.fullmatch(r"[0-9]{1,6}", kind) else -1
        bits = (root.get("version") or "1").startswith("3")
        rdma = bool(number > 0 and number & _OPENFABRICS_BIT) if bits else number == _OPENFABRICS_OLD
        if rdma or any(info.get("name") in {"NodeGUID", "Port1State"} for info in osdev.children):
            return name
    return None


def _is_nic(entry: _Function, root: Element) -> bool:
    return entry.address is not None and (pci.is_nic(entry.kind) or _openfabrics(entry, root) is not None)


def _gpus(entries: Sequence[_Function]) -> list[tuple[Gpu, _Function]]:
    """Return the GPUs by NVML's or ROCm SMI's number; those without take the free ones in the order of addresses."""
    in_order = sorted(entries, key=lambda entry: (entry.address or "", entry.first("cuda") or 0, entry.line))
    reported = [entry.first("nvml", "rsmi") for entry in in_order]
    known = [number for number in reported if number is not None]
    if len(set(known)) < len(known):
        reported, known = [None] * len(reported), []
    free = (number for number in count() if number not in known)
    numbers = [next(free) if number is None else number for number in reported]
    return [
        (
            Gpu(
                index=number,
                uuid=entry.infos.get("NVIDIAUUID") or entry.infos.get("AMDUUID"),
                pci=entry.address,
                numa=entry.place.numa if isinstance(entry.place.numa, int) else None,
                cpus=entry.cpus,
                model=entry.infos.get("GPUModel") or entry.infos.get("PCIDevice"),
            ),
            entry,
        )
        for number, entry in zip(numbers, in_order, strict=True)
    ]


def _nic(entry: _Function, root: Element) -> Nic:
    rdma = _openfabrics(entry, root)
    device = rdma or next(iter(entry.names), None)
    guid = re.sub(r"[^0-9a-f]", "", entry.infos.get("NodeGUID", "").lower())
    lid = entry.infos.get("Port1LID", "")
    layer = pci.get_link_layer(entry.kind)
    has_lid = re.fullmatch(r"0x[0-9a-fA-F]{1,4}", lid) is not None and int(lid, 16) > 0
    if has_lid or entry.infos.get("Address", "").count(":") + 1 == _IPOIB_OCTETS:
        layer = pci.INFINIBAND
    return Nic(
        name=device or entry.address or "",
        device=device,
        pci=entry.address,
        numa=entry.place.numa if isinstance(entry.place.numa, int) else None,
        guid=guid if len(guid) == 16 and int(guid, 16) else None,
        link_layer=layer,
        state={"4": "ACTIVE", "1": "DOWN", "2": "INIT", "3": "ARMED"}.get(entry.infos.get("Port1State", "")),
        description=entry.infos.get("PCIDevice"),
    )


def _gpu_paths(
    root: Element, gpus: Sequence[tuple[Gpu, _Function]], functions: Sequence[_Function]
) -> dict[tuple[int, int], GpuPath]:
    """Return the path between every two GPUs; none at all in a file without a matrix of NVLink or XGMI bandwidth.

    Without one nobody knows whether hwloc could ask for it.
    """
    gpu_by_osdev = {
        f"OSDev:{osdev.get('gp_index')}": gpu.index
        for gpu, entry in gpus
        for name, osdev in entry.names.items()
        if _GPU_OSDEV.fullmatch(name)
    }
    gpu_by_osdev |= {f"PCIDev:{entry.number}": gpu.index for gpu, entry in gpus if entry.number}
    switches = {f"PCIDev:{entry.number}" for entry in functions if entry.kind == _NVSWITCH_CLASS and entry.number}
    joined: dict[tuple[int, int], GpuPath] = {}
    has_matrix = False
    for kind, names, values in _find_matrices(root):
        has_matrix = True
        up = {
            name: sum(value for other, value in zip(names, row, strict=True) if other in switches)
            for name, row in zip(names, values, strict=True)
            if name in gpu_by_osdev
        }
        for first, row in zip(names, values, strict=True):
            for second, value in zip(names, row, strict=True):
                if first in up and second in up and gpu_by_osdev[first] < gpu_by_osdev[second]:
                    rate = value or min(up[first], up[second])
                    if rate:
                        path = GpuPath(kind=kind, bytes_per_s=rate * _MB)
                        joined[gpu_by_osdev[first], gpu_by_osdev[second]] = path
    if not has_matrix:
        return {}
    return {
        (first.index, second.index): joined.get(
            (first.index, second.index), GpuPath(kind=pci.path_class(function.place, other.place, ports=True))
        )
        for first, function in gpus
        for second, other in gpus
        if first.index < second.index
    }


def _find_matrices(root: Element) -> Iterator[tuple[PathClass, list[str], list[list[int]]]]:
    """Return each whole matrix of bandwidths: what it is of, its objects as ``Type:number``, its rows."""
    for element in root.children:
        kind = _LINK_MATRICES.get(element.get("name") or "")
        if kind is None or not element.tag.startswith("distances2"):
            continue
        prefix = f"{element.get('type')}:" if element.tag == "distances2" else ""
        names = [f"{prefix}{word}" for word in _words(element, "indexes")]
        values = [int(word) for word in _words(element, "u64values") if re.fullmatch(r"[0-9]{1,15}", word)]
        if names and len(values) == len(names) ** 2:
            yield kind, names, [values[start : start + len(names)] for start in range(0, len(values), len(names))]


def _words(element: Element, tag: str) -> list[str]:
    return [word for child in element.children if child.tag == tag for word in child.text.split()]
