"""Assigns each GPU of a node the nearest NIC on the compute fabric, by the node's own topology.

Where several NICs are equally near, GPUs are spread over them as evenly as possible, in the order of PCI addresses:
NCCL also takes the nearest ones in turn by the GPU's number (``ncclTopoGetLocalNet``).
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from opsk.fabric.hosts.ports import device_slot
from opsk.fabric.leaves.leaf import Attachment
from opsk.fabric.node.node_topology import Nic, NodeTopology, PathClass
from opsk.fabric.node.pci import INFINIBAND

_MAX_BITS = 1 << 16


def parse_cpu_mask(mask: str | None) -> str | None:
    """Return a mask as a list: ``00000000,0000ffff`` is ``0-15``; ``None`` for no mask or an empty one.

    Words of 32 bits, highest first, with or without ``0x``; an empty word (hwloc) is zero.
    """
    words = (mask or "").strip().lower().split(",")
    if not words or any(not re.fullmatch(r"(?:0x)?[0-9a-f]{0,8}", word) for word in words):
        return None
    if 32 * len(words) > _MAX_BITS:
        return None
    bits = int("".join(word.removeprefix("0x").zfill(8) for word in words), 16)
    ranges: list[str] = []
    bit = 0
    while bits >> bit:
        if not bits >> bit & 1:
            bit += 1
            continue
        first = bit
        while bits >> bit & 1:
            bit += 1
        ranges.append(str(first) if bit == first + 1 else f"{first}-{bit - 1}")
    return ",".join(ranges) or None


_MUCH_SLOWER = 2.0
"""A NIC this many times slower than the fastest is no NIC of the compute fabric."""

_COMPARABLE_NAME = re.compile(r"HCA-?[0-9]+|[A-Za-z]+[0-9]*_[0-9]+", re.IGNORECASE)
"""Names whose number is the place of the device: ``HCA-1`` and ``mlx5_0`` are one slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Affinity:
    """Which NIC serves which GPU: ``nics`` by its name in the node, ``paths`` how near it is.

    ``positions`` is the place among the node's attachments, for ``opsk.planning.routing.hca_ports.build_ports``;
    a GPU whose NIC is not on the fabric is missing there. ``guids`` has the HCA itself, whatever frame positions are
    counted in. ``problems`` lists what was not found, or only guessed.
    """

    nics: Mapping[int, str] = field(default_factory=dict)
    paths: Mapping[int, PathClass] = field(default_factory=dict)
    positions: Mapping[int, int] = field(default_factory=dict)
    guids: Mapping[int, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def assign_nics(topology: NodeTopology, fabric_devices: Collection[str] | None = None) -> dict[int, str]:
    """Return the name of the NIC that serves each GPU; a GPU without a reported path to any is missing.

    Parameters
    ----------
    fabric_devices
        Device names on the compute fabric, as the fabric calls them (``HCA-1`` and ``mlx5_0`` are the same). Without
        them the NICs that look like the compute fabric's are taken: InfiniBand, else the fast ones.
    """
    if fabric_devices is None:
        names = [nic.name for nic in find_fabric_nics(topology)]
    else:
        matched = _match_by_name(topology.nics, list(fabric_devices))
        names = [nic.name for nic in topology.nics if nic.name in matched]
    return _spread_gpus(topology, names)


def find_fabric_nics(topology: NodeTopology) -> tuple[Nic, ...]:
    """Return the NICs that a compute fabric would use, when no fabric is known.

    Among ports of known speed the fast ones; besides InfiniBand, others only when they are as fast: a management port
    is neither.
    """
    nics = tuple(nic for nic in topology.nics if nic.state in {None, "ACTIVE"}) or topology.nics
    fastest = max((nic.bytes_per_s or 0.0 for nic in nics), default=0.0)
    nics = tuple(nic for nic in nics if nic.bytes_per_s is None or nic.bytes_per_s * _MUCH_SLOWER > fastest)
    infiniband = [nic for nic in nics if nic.link_layer == INFINIBAND]
    if not infiniband:
        return nics
    enough = max((nic.bytes_per_s or 0.0 for nic in infiniband), default=0.0)
    return tuple(nic for nic in nics if nic in infiniband or (enough and (nic.bytes_per_s or 0.0) >= enough))


def compute_nic_affinity(topology: NodeTopology, attachments: Sequence[Attachment]) -> Affinity:
    """Return the affinity of one node's GPUs to its HCAs on the fabric.

    A NIC is the same as an HCA by GUID where both are known, else by name, else, with as many of both and no name to
    compare, by order.

    Parameters
    ----------
    attachments
        The node's HCAs on the compute fabric, in device order.
    """
    position_of, problems = _match_positions(topology, attachments)
    nics = _spread_gpus(topology, [nic.name for nic in topology.nics if nic.name in position_of])
    if attachments and topology.nics and not position_of:
        there = ", ".join(nic.name for nic in topology.nics[:4])
        problems.append(
            f"the NICs that the node names ({there}) are not those that the fabric names "
            f"({', '.join(entry.device for entry in attachments[:4])}): the order of devices is taken instead"
        )
    lost = [gpu.index for gpu in topology.gpus if gpu.index not in nics]
    if position_of and lost:
        problems.append(f"no path to a NIC on the fabric is told for GPU {', '.join(map(str, lost))}")
    unused = _find_missing(attachments, position_of)
    if position_of and unused:
        problems.append(f"on the fabric but not in the node's topology: {', '.join(unused)}")
    return Affinity(
        nics=nics,
        paths={gpu: topology.nic_paths[gpu, name] for gpu, name in nics.items()},
        positions={gpu: position_of[name] for gpu, name in nics.items()},
        guids={gpu: attachments[position_of[name]].guid for gpu, name in nics.items()},
        problems=tuple(problems),
    )


def _find_missing(attachments: Sequence[Attachment], position_of: Mapping[str, int]) -> list[str]:
    matched = set(position_of.values())
    return [entry.device for place, entry in enumerate(attachments) if place not in matched]


def _match_positions(topology: NodeTopology, attachments: Sequence[Attachment]) -> tuple[dict[str, int], list[str]]:
    """Return the position of each NIC that is on the fabric, by its name in the node."""
    guids = Counter(nic.guid for nic in topology.nics if nic.guid)
    by_guid: dict[str, int] = {}
    for place, entry in enumerate(attachments):
        by_guid.setdefault(entry.guid.split("/")[0].lower(), place)
    positions = {
        nic.name: by_guid[nic.guid]
        for nic in topology.nics
        if nic.guid and guids[nic.guid] == 1 and nic.guid in by_guid
    }
    problems: list[str] = []
    taken = set(positions.values())
    free = [place for place in range(len(attachments)) if place not in taken]
    left = [nic for nic in topology.nics if nic.name not in positions]
    named = _match_by_name(left, [attachments[place].device for place in free])
    positions |= {name: free[place] for name, place in named.items()}
    if not positions and attachments:
        nameless = [nic for nic in topology.nics if nic.device is None]
        if len(nameless) == len(topology.nics) == len(attachments):
            positions = {nic.name: place for place, nic in enumerate(topology.nics)}
            problems.append("the node's file names no NIC: they are matched with the fabric's by order")
    return positions, problems


def _match_by_name(nics: Sequence[Nic], devices: Sequence[str]) -> dict[str, int]:
    """Return the place among ``devices`` of each NIC with that name, or with a name of the same slot."""
    exact = {device: place for place, device in reversed([*enumerate(devices)])}
    slots = {device_slot(name): place for name, place in exact.items() if _COMPARABLE_NAME.fullmatch(name)}
    places: dict[str, int] = {}
    for nic in nics:
        if nic.device is None:
            continue
        if nic.device in exact:
            places[nic.name] = exact[nic.device]
        elif _COMPARABLE_NAME.fullmatch(nic.device) and device_slot(nic.device) in slots:
            places[nic.name] = slots[device_slot(nic.device)]
    return places


def _spread_gpus(topology: NodeTopology, names: Sequence[str]) -> dict[int, str]:
    """Return for each GPU one of its nearest NICs, so that no NIC serves more GPUs than it must.

    First the least loaded of the nearest; then, while a chain of GPUs can each move on to another of their nearest NICs
    so that a NIC with two more loses one, they do.
    """
    nearest: dict[int, tuple[str, ...]] = {}
    on_fabric = replace(topology, nics=tuple(nic for nic in topology.nics if nic.name in names))
    for gpu in topology.gpus:
        near = on_fabric.nearest_nics(gpu.index)
        if near is not None:
            nearest[gpu.index] = near[1]
    load: Counter[str] = Counter()
    serving: dict[int, str] = {}
    for gpu_index, names_near in nearest.items():
        serving[gpu_index] = min(names_near, key=lambda name: load[name])
        load[serving[gpu_index]] += 1
    while (chain := _find_relieving_chain(nearest, serving, load)) is not None:
        for gpu_index, name in chain:
            load[serving[gpu_index]] -= 1
            serving[gpu_index] = name
            load[name] += 1
    return serving


def _find_relieving_chain(
    nearest: Mapping[int, Sequence[str]], serving: Mapping[int, str], load: Mapping[str, int]
) -> list[tuple[int, str]] | None:
    """Return the moves, GPU to NIC, that take one GPU from a NIC to one that serves at least two fewer."""
    for start in sorted({*serving.values()}, key=lambda name: -load[name]):
        came_by: dict[str, tuple[int, str] | None] = {start: None}
        pending = deque([start])
        while pending:
            name = pending.popleft()
            if load[name] + 2 <= load[start]:
                return _trace_moves(came_by, name)
            for gpu, nic in serving.items():
                for other in nearest[gpu] if nic == name else ():
                    if other not in came_by:
                        came_by[other] = (gpu, name)
                        pending.append(other)
    return None


def _trace_moves(came_by: Mapping[str, tuple[int, str] | None], end: str) -> list[tuple[int, str]]:
    moves: list[tuple[int, str]] = []
    name = end
    while (step := came_by[name]) is not None:
        moves.append((step[0], name))
        name = step[1]
    return moves
