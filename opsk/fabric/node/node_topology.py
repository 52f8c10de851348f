"""Defines the topology of one node: its GPUs, its NICs and the paths between them, merged from several files.

What a format does not contain is ``None`` or missing here, never a guess: a GPU pair without an entry in ``gpu_paths``
is "not reported", not "far apart". A GPU is the same in two files by UUID, else by PCI address, else by index.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, TypeVar

from opsk.fabric.hosts.ports import natural_key

_IDENTITY = {"uuid", "pci", "guid", "fabric_domain"}


class PathClass(StrEnum):
    """How two devices of a node reach each other, nearest first, as ``nvidia-smi topo -m`` calls it.

    ``NV`` and ``XGMI``: NVLink or Infinity Fabric; ``PIX``: at most one PCIe switch; ``PXB``: several; ``PHB``: a host
    bridge; ``NODE``: between host bridges of one NUMA node; ``SYS``: between NUMA nodes.
    """

    NV = "NV"
    XGMI = "XGMI"
    PIX = "PIX"
    PXB = "PXB"
    PHB = "PHB"
    NODE = "NODE"
    SYS = "SYS"

    @property
    def rank(self) -> int:
        """Return the place in the order of nearness; NVLink and Infinity Fabric are equally near."""
        return _RANK[self]

    @property
    def is_hb(self) -> bool:
        """Return whether it is NVLink or Infinity Fabric, rather than PCIe."""
        return self in {PathClass.NV, PathClass.XGMI}


_RANK = {kind: 0 if kind.value in {"NV", "XGMI"} else index for index, kind in enumerate(PathClass)}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPath:
    """The path between two GPUs; ``links`` is how many NVLinks, ``bytes_per_s`` their data rate, one way."""

    kind: PathClass
    links: int | None = None
    bytes_per_s: float | None = None

    def __str__(self) -> str:
        """Return it as nvidia-smi prints it: ``NV18``, ``PIX``."""
        return f"{self.kind}{self.links}" if self.kind.is_hb and self.links else str(self.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU.

    ``index`` is the one that nvidia-smi counts by; ``pci`` is ``0000:18:00.0``; ``cpus`` the CPU list that is near;
    ``nvlinks`` the active links and ``nvlink_bytes_per_s`` what they carry together, one way. ``fabric_domain`` is
    ``ClusterUUID.CliqueId`` of multi-node NVLink, ``None`` where there is none.
    """

    index: int
    uuid: str | None = None
    pci: str | None = None
    numa: int | None = None
    cpus: str | None = None
    model: str | None = None
    mig: bool | None = None
    nvlinks: int | None = None
    nvlink_bytes_per_s: float | None = None
    fabric_domain: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """One NIC, or one port of it where the dialect tells ports apart.

    ``name`` is unique in the node: ``device`` (``mlx5_0``) where that is known, else the PCI address or the ``label``
    of a matrix (``NIC0``). ``guid`` is the node GUID or, in NCCL's files, the system image GUID: 16 hex digits.
    """

    name: str
    device: str | None = None
    label: str | None = None
    pci: str | None = None
    numa: int | None = None
    guid: str | None = None
    port: int | None = None
    bytes_per_s: float | None = None
    link_layer: str | None = None
    state: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTopology:
    """One node, as one or several files describe it.

    ``gpu_paths`` is keyed by (lower, higher) GPU index, ``nic_paths`` by (GPU index, NIC name), ``nic_pairs`` by the
    names of two NICs in their order. ``p2p`` holds what ``nvidia-smi topo -p2p`` says of a pair (``OK``, ``CNS``).
    ``contents`` counts what the source holds, by the words of its dialect. ``problems`` are sentences: what was not
    sound in the source, or is wrong with the node. ``other_domains`` are the NVLink domains that a further file names
    for GPUs which an earlier one says are in another.
    """

    gpus: tuple[Gpu, ...] = ()
    nics: tuple[Nic, ...] = ()
    gpu_paths: Mapping[tuple[int, int], GpuPath] = field(default_factory=dict)
    nic_paths: Mapping[tuple[int, str], PathClass] = field(default_factory=dict)
    nic_pairs: Mapping[tuple[str, str], PathClass] = field(default_factory=dict)
    p2p: Mapping[tuple[int, int], str] = field(default_factory=dict)
    source: str = ""
    dialect: str = ""
    host: str | None = None
    contents: Mapping[str, object] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    other_domains: tuple[str, ...] = ()

    @property
    def fabric_domains(self) -> tuple[str, ...]:
        """Return the multi-node NVLink domains that its GPUs name in any file; more than one is a fault."""
        return tuple(sorted({*self.other_domains, *(gpu.fabric_domain for gpu in self.gpus if gpu.fabric_domain)}))

    @property
    def fabric_domain(self) -> str | None:
        """Return ``ClusterUUID.CliqueId`` when all GPUs that name a domain name the same one."""
        domains = self.fabric_domains
        return domains[0] if len(domains) == 1 else None

    def path(self, first: int, second: int) -> GpuPath | None:
        """Return the path between two GPUs, in either order; ``None`` when no file reports it."""
        return self.gpu_paths.get((min(first, second), max(first, second)))

    def nearest_nics(self, gpu: int) -> tuple[PathClass, tuple[str, ...]] | None:
        """Return the nearest path of a GPU to any NIC, and the NICs at that distance; ``None`` when unknown."""
        paths = {nic.name: self.nic_paths[gpu, nic.name] for nic in self.nics if (gpu, nic.name) in self.nic_paths}
        if not paths:
            return None
        best = min(paths.values(), key=lambda path: path.rank)
        return best, tuple(name for name, path in paths.items() if path.rank == best.rank)

    def hb_groups(self) -> tuple[tuple[int, ...], ...] | None:
        """Return the GPUs in groups that NVLink or Infinity Fabric joins, directly or over others.

        ``None`` when no file reports them: neither a pair's path nor a GPU's number of links is known.
        """
        indices = [gpu.index for gpu in self.gpus]
        if len(indices) > 1 and not self.gpu_paths:
            if any(gpu.nvlinks is None for gpu in self.gpus):
                return None
            linked = tuple(gpu.index for gpu in self.gpus if gpu.nvlinks)
            alone = [(gpu.index,) for gpu in self.gpus if not gpu.nvlinks]
            return tuple(sorted([*alone, linked] if linked else alone))
        return _find_components(indices, [pair for pair, path in self.gpu_paths.items() if path.kind.is_hb])


def _find_components(members: Sequence[int], pairs: Iterable[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
    group = {member: {member} for member in members}
    for first, second in pairs:
        if group[first] is not group[second]:
            group[first] |= group[second]
            for member in group[second]:
                group[member] = group[first]
    return tuple(sorted({tuple(sorted(part)) for part in group.values()}))


def sort_topology(topology: NodeTopology) -> NodeTopology:
    """Return the node with GPUs by index, NICs by PCI address where all have one, and paths in order.

    NICs of a matrix keep the order of its columns: it is the order that the driver found them in.
    """
    nics = topology.nics
    if all(nic.pci for nic in nics):
        nics = tuple(sorted(nics, key=lambda nic: (nic.pci or "", nic.port or 0, natural_key(nic.name))))
    return replace(
        topology,
        gpus=tuple(sorted(topology.gpus, key=lambda gpu: gpu.index)),
        nics=nics,
        gpu_paths=dict(sorted(topology.gpu_paths.items())),
        nic_paths=dict(sorted(topology.nic_paths.items(), key=lambda item: (item[0][0], natural_key(item[0][1])))),
    )


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
