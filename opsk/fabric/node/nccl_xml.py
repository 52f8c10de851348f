"""Parses topology files of NCCL and RCCL (``NCCL_TOPO_DUMP_FILE``, or a file given to a VM).

Each ``pci`` element of class 0x0604 is a whole PCIe switch: NCCL lists upstream ports only, so bridges on a path are
switches on it. Host bridges are not listed: devices in one ``cpu`` element are at best ``PHB``. GUIDs are in the byte
order of the machine that wrote them, little-endian everywhere, and are reversed here; speeds are in Mbit/s.

Source: src/graph/xml.cc and topo.cc of NCCL 2.x; RCCL adds ``xgmi``, ``gcn`` and version 2.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from opsk.fabric.node import pci
from opsk.fabric.node.affinity import parse_cpu_mask
from opsk.fabric.node.node_topology import Gpu, GpuPath, Nic, NodeTopology, PathClass, sort_topology
from opsk.fabric.node.xml_tree import Element, read_xml
from opsk.units import mbit_per_s

_NVSWITCH_CLASS = "0680"
_BRIDGE_CLASS = "0604"
_EUI64 = 0x03


@dataclass(slots=True, kw_only=True)
class _PlacedElement:
    """A device element and where it hangs."""

    element: Element
    function: Element | None
    place: pci.PciPlace


@dataclass(slots=True, kw_only=True)
class _Tree:
    """Everything of one ``system`` element, in the order of the file."""

    gpus: list[_PlacedElement] = field(default_factory=list)
    nets: list[_PlacedElement] = field(default_factory=list)
    functions: list[_PlacedElement] = field(default_factory=list)
    cpus: dict[int, str | None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def read_nccl_xml(text: str, *, source: str) -> NodeTopology:
    """Return what a ``<system>`` file, or a ``<graphs>`` file, says.

    A graph file holds the rings and trees that NCCL chose, not what is there: it gives the GPUs' indices alone.

    Raises
    ------
    InputError
        When there is no such element, or the file declares entities.
    """
    root, problems = read_xml(text, source=source)
    contents = _count_contents(root)
    if root.tag == "graphs":
        indices = sorted({index for gpu in root.all("gpu") if (index := _number(gpu.get("dev"))) is not None})
        what = f"{source}: a graph file: the rings and trees that NCCL chose, not how the node is built"
        return NodeTopology(
            gpus=tuple(Gpu(index=index) for index in indices),
            source=source,
            dialect="nccl_graph",
            contents=contents,
            problems=(*problems, what),
        )
    tree = _collect_devices(root, source)
    gpus, places = _gpus(tree, source)
    nics = _nics(tree, source)
    topology = NodeTopology(
        gpus=tuple(gpus),
        nics=tuple(nic for nic, _ in nics),
        gpu_paths=_gpu_paths(tree, gpus, places, source),
        nic_paths={
            (gpu.index, nic.name): pci.path_class(places[gpu.index], place, ports=False)
            for gpu in gpus
            for nic, place in nics
        },
        nic_pairs={
            (first.name, second.name): pci.path_class(place, other, ports=False)
            for number, (first, place) in enumerate(nics)
            for second, other in nics[number + 1 :]
        },
        source=source,
        dialect="nccl",
        contents=contents,
    )
    return sort_topology(replace(topology, problems=(*problems, *tree.problems)))


def _count_contents(root: Element) -> dict[str, object]:
    """Count the elements of the file."""
    functions = list(root.all("pci"))
    classes = Counter(entry.get("class") or "" for entry in functions)
    return {
        "root": root.tag,
        "version": root.get("version"),
        "cpus": sum(1 for _ in root.all("cpu")),
        "gpu_elements": sum(1 for _ in root.all("gpu")),
        "net_elements": sum(1 for _ in root.all("net")),
        "nvlink_or_xgmi": sum(1 for _ in root.all("nvlink", "xgmi")),
        "pci": len(functions),
        "pci_by_class": {name: classes[name] for name in sorted(classes) if name},
    }


def _collect_devices(root: Element, source: str) -> _Tree:
    """Collect the devices of the first host of the file."""
    tree = _Tree()
    cpus = [entry for entry in root.children if entry.tag == "cpu"]
    hosts = list(dict.fromkeys(entry.get("host_hash") for entry in cpus))
    if len(hosts) > 1:
        tree.problems.append(f"{source}: describes {len(hosts)} hosts of one NVLink domain; the first alone is read")
    for number, cpu in enumerate(cpus):
        if cpu.get("host_hash") == hosts[0]:
            numa = _number(cpu.get("numaid"))
            place = pci.PciPlace(numa=numa if numa is not None and numa >= 0 else f"cpu {number}", host_bridge=number)
            tree.cpus[number] = parse_cpu_mask(cpu.get("affinity"))
            _descend(cpu, None, place, tree)
    return tree


def _descend(element: Element, function: Element | None, place: pci.PciPlace, tree: _Tree) -> None:
    """Collect what hangs below one element; ``function`` is the PCI function that it is in."""
    for child in element.children:
        if child.tag == "gpu":
            tree.gpus.append(_PlacedElement(element=child, function=function, place=place))
        elif child.tag == "net":
            tree.nets.append(_PlacedElement(element=child, function=function, place=place))
        elif child.tag == "nic":
            _descend(child, function, place, tree)
        elif child.tag == "pci":
            tree.functions.append(_PlacedElement(element=child, function=child, place=place))
            inner = place
            if pci.parse_class(child.get("class")) == _BRIDGE_CLASS or any(sub.tag == "pci" for sub in child.children):
                inner = pci.PciPlace(
                    numa=place.numa, host_bridge=place.host_bridge, bridges=(*place.bridges, id(child))
                )
            _descend(child, child, inner, tree)


def _gpus(tree: _Tree, source: str) -> tuple[list[Gpu], dict[int, pci.PciPlace]]:
    """Return the GPUs: the ``gpu`` elements, or in a file for a VM the PCI functions of a GPU's class."""
    entries = tree.gpus
    if not entries:
        entries = sorted(
            (
                entry
                for entry in tree.functions
                if pci.is_gpu(pci.parse_class(entry.element.get("class")), entry.element.get("vendor"))
            ),
            key=lambda entry: pci.parse_bus_id(entry.element.get("busid")) or "",
        )
        unknown = sum(1 for entry in tree.functions if not entry.element.get("class"))
        if unknown:
            tree.problems.append(f"{source}: {unknown} PCI functions without a class: cannot tell GPUs from NICs")
    gpus: list[Gpu] = []
    places: dict[int, pci.PciPlace] = {}
    for order, entry in enumerate(entries):
        index = _number(entry.element.get("dev")) if entry.element.tag == "gpu" else order
        if index is None or index in places:
            tree.problems.append(f"{source}:{entry.element.line}: GPU {index} stands there twice or without number")
            continue
        places[index] = entry.place
        cpus = tree.cpus.get(entry.place.host_bridge) if isinstance(entry.place.host_bridge, int) else None
        gpus.append(Gpu(index=index, pci=_bus_id(entry), numa=_numa(entry.place), cpus=cpus))
    return gpus, places


def _nics(tree: _Tree, source: str) -> list[tuple[Nic, pci.PciPlace]]:
    """Return the NICs: the ``net`` elements, or in a file for a VM the PCI functions of a NIC's class."""
    nics: list[tuple[Nic, pci.PciPlace]] = []
    taken: set[str] = set()
    for entry in tree.nets or [
        entry for entry in tree.functions if pci.is_nic(pci.parse_class(entry.element.get("class")))
    ]:
        net = entry.element
        device = net.get("name") if net.tag == "net" else None
        address = _bus_id(entry)
        name = device or address or f"net{len(nics)}"
        if name in taken:
            tree.problems.append(f"{source}:{net.line}: NIC {name} stands there twice; the first is kept")
            continue
        taken.add(name)
        speed = _number(net.get("speed"))
        function_class = pci.parse_class(entry.function.get("class")) if entry.function else ""
        nic = Nic(
            name=name,
            device=device,
            pci=address,
            numa=_numa(entry.place),
            guid=_guid(net.get("guid")),
            port=_number(net.get("port")) or None,
            bytes_per_s=mbit_per_s(speed) if speed else None,
            link_layer=pci.get_link_layer(function_class),
        )
        nics.append((nic, entry.place))
    return nics


@dataclass(slots=True, kw_only=True)
class _Links:
    """NVLink and XGMI as the file states them, by GPU index."""

    to_switches: Counter[int] = field(default_factory=Counter)
    to_itself: Counter[int] = field(default_factory=Counter)
    cut: set[int] = field(default_factory=set)
    direct: dict[tuple[int, int], GpuPath] = field(default_factory=dict)


def _links(tree: _Tree, gpus: Sequence[Gpu]) -> _Links:
    """Return the links of all GPUs."""
    index_of = {gpu.pci: gpu.index for gpu in gpus if gpu.pci}
    links = _Links()
    for entry in tree.gpus:
        index = index_of.get(_bus_id(entry) or "")
        if index is None:
            continue
        if not entry.element.whole:
            links.cut.add(index)
        for link in entry.element.children:
            if link.tag not in {"nvlink", "xgmi"}:
                continue
            count = _number(link.get("count")) or 0
            peer = index_of.get(pci.parse_bus_id(link.get("target")) or "")
            if pci.parse_class(link.get("tclass")) == _NVSWITCH_CLASS:
                links.to_switches[index] += count
            elif peer == index:
                links.to_itself[index] += count
            elif peer is not None:
                kind = PathClass.XGMI if link.tag == "xgmi" else PathClass.NV
                links.direct.setdefault((min(index, peer), max(index, peer)), GpuPath(kind=kind, links=count))
    return links


def _gpu_paths(
    tree: _Tree, gpus: Sequence[Gpu], places: dict[int, pci.PciPlace], source: str
) -> dict[tuple[int, int], GpuPath]:
    """Return the path between every two GPUs: NVLink or XGMI where the file says so, else over PCIe.

    A file for a VM says nothing of NVLink, so it tells no pair; nor do links that lead to the GPU itself, as a VM
    sees them, nor a GPU in whose element the file was cut.
    """
    if not tree.gpus:
        return {}
    links = _links(tree, gpus)
    if links.to_itself:
        who = ", ".join(map(str, sorted(links.to_itself)))
        tree.problems.append(f"{source}: NVLinks of GPU {who} lead to itself: which GPUs they join is not told")
    paths: dict[tuple[int, int], GpuPath] = {}
    order = sorted(places)
    for number, first in enumerate(order):
        for second in order[number + 1 :]:
            switched = min(links.to_switches[first], links.to_switches[second])
            if (first, second) in links.direct:
                paths[first, second] = links.direct[first, second]
            elif switched:
                paths[first, second] = GpuPath(kind=PathClass.NV, links=switched)
            elif not (links.to_itself[first] and links.to_itself[second]) and links.cut.isdisjoint((first, second)):
                paths[first, second] = GpuPath(kind=pci.path_class(places[first], places[second], ports=False))
    return paths


def _bus_id(entry: _PlacedElement) -> str | None:
    return pci.parse_bus_id(entry.function.get("busid")) if entry.function is not None else None


def _numa(place: pci.PciPlace) -> int | None:
    return place.numa if isinstance(place.numa, int) else None


def _guid(text: str | None) -> str | None:
    """Return a GUID as the fabric writes it; 0 is none.

    The fourth byte of an HCA's GUID is 03 (EUI-64 made of a MAC address): where it stands in its place already, the
    file was edited by hand and is not turned round.
    """
    match = re.fullmatch(r"(?:0x)?([0-9a-fA-F]{1,16})", (text or "").strip())
    if match is None or not int(match[1], 16):
        return None
    octets = bytes.fromhex(match[1].zfill(16))
    as_written = octets[3] == _EUI64 and octets[4] != _EUI64
    return (octets if as_written else octets[::-1]).hex()


def _number(text: str | None) -> int | None:
    """Return a small whole number; ``None`` when it is none."""
    return int(text) if text is not None and re.fullmatch(r"-?[0-9]{1,9}", text) else None
