"""Merges several files of one node; a GPU is the same by UUID, else by PCI address, else by index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from opsk.fabric.node.node_topology import Gpu, Nic, NodeTopology, sort_topology

Device = TypeVar("Device", Gpu, Nic)


def merge_nodes(topologies: Sequence[NodeTopology]) -> NodeTopology:
    """Return one node of several files; what the first file says counts, later ones add what it does not say."""
    if len(topologies) == 1:
        return topologies[0]
    whole = topologies[0]
    for topology in topologies[1:]:
        whole = _merge_pair(whole, topology)
    contents: dict[str, object] = {}
    for topology in topologies:
        contents.setdefault(topology.dialect, topology.contents)
    return sort_topology(replace(whole, contents=contents))


def _merge_pair(first: NodeTopology, second: NodeTopology) -> NodeTopology:
    """Return the first with what the second adds."""
    problems = [*first.problems, *(entry for entry in second.problems if entry not in first.problems)]
    index_of = _match_gpus(first.gpus, second.gpus)
    gpus = {gpu.index: gpu for gpu in first.gpus}
    for gpu in second.gpus:
        index = index_of[gpu.index]
        renamed = replace(gpu, index=index)
        gpus[index] = _fill_gaps(gpus[index], renamed, problems, f"GPU {index}") if index in gpus else renamed
    name_of = _match_nics(first.nics, second.nics)
    nics = {nic.name: nic for nic in first.nics}
    for nic in second.nics:
        name = name_of[nic.name]
        nics[name] = _fill_gaps(nics[name], replace(nic, name=name), problems, f"NIC {name}") if name in nics else nic
    renamed_gpu_paths = {
        (min(index_of[a], index_of[b]), max(index_of[a], index_of[b])): path
        for (a, b), path in second.gpu_paths.items()
        if a in index_of and b in index_of
    }
    return replace(
        first,
        gpus=tuple(gpus.values()),
        nics=tuple(nics.values()),
        gpu_paths={**renamed_gpu_paths, **first.gpu_paths},
        nic_paths=_rename_paths(second.nic_paths, index_of, name_of) | dict(first.nic_paths),
        nic_pairs={
            **{(name_of.get(a, a), name_of.get(b, b)): path for (a, b), path in second.nic_pairs.items()},
            **first.nic_pairs,
        },
        p2p={**second.p2p, **first.p2p},
        source=", ".join(dict.fromkeys((*first.source.split(", "), *second.source.split(", ")))),
        dialect="+".join(dict.fromkeys((*first.dialect.split("+"), *second.dialect.split("+")))),
        host=first.host or second.host,
        problems=tuple(problems),
        other_domains=_other_domains(first, second),
    )


def _other_domains(first: NodeTopology, second: NodeTopology) -> tuple[str, ...]:
    """Return the NVLink domains that the second names beside the first's: GPUs keep one, the node may be two."""
    new = second.fabric_domains if first.fabric_domains else second.other_domains
    return tuple(dict.fromkeys((*first.other_domains, *(name for name in new if name not in first.fabric_domains))))


def _rename_paths(
    paths: Mapping[tuple[int, str], Any], index_of: Mapping[int, int], name_of: Mapping[str, str]
) -> dict[tuple[int, str], Any]:
    return {(index_of.get(gpu, gpu), name_of.get(nic, nic)): path for (gpu, nic), path in paths.items()}


def _match_gpus(first: Sequence[Gpu], second: Sequence[Gpu]) -> dict[int, int]:
    """Return under which index of the first each GPU of the second goes."""
    by_uuid = {gpu.uuid: gpu.index for gpu in first if gpu.uuid}
    by_pci = {gpu.pci: gpu.index for gpu in first if gpu.pci}
    known = {gpu.index for gpu in first}
    indices: dict[int, int] = {}
    taken: set[int] = set()
    for gpu in second:
        same = by_uuid.get(gpu.uuid) if gpu.uuid else None
        if same is None and gpu.pci:
            same = by_pci.get(gpu.pci)
        if same is None or same in taken:
            same = gpu.index if gpu.index not in taken else max(known | taken) + 1
        indices[gpu.index] = same
        taken.add(same)
    return indices


def _match_nics(first: Sequence[Nic], second: Sequence[Nic]) -> dict[str, str]:
    """Return under which name of the first each NIC of the second goes: by name, else by PCI address and port."""
    names = {nic.name for nic in first}
    by_pci = {(nic.pci, nic.port): nic.name for nic in first if nic.pci}
    return {
        nic.name: nic.name if nic.name in names or not nic.pci else by_pci.get((nic.pci, nic.port), nic.name)
        for nic in second
    }


_IDENTITY = {"uuid", "pci", "guid", "fabric_domain"}


def _fill_gaps(first: Device, second: Device, problems: list[str], what: str) -> Device:
    """Return the first with its gaps filled from the second; report identities that differ."""
    changes: dict[str, Any] = {}
    for entry in fields(first):
        mine, other = getattr(first, entry.name), getattr(second, entry.name)
        if mine is None and other is not None:
            changes[entry.name] = other
        elif entry.name in _IDENTITY and other is not None and mine != other:
            problems.append(f"{what} has {entry.name} {mine} in one file and {other} in another: two nodes, or changed")
    return replace(first, **changes)
