"""Defines the topology of one node: its GPUs, its NICs and the paths between them; every format is read into it.

What a format does not contain is ``None`` or missing here, never a guess: a GPU pair without an entry in ``gpu_paths``
is "not reported", not "far apart".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from opsk.fabric.hosts.ports import natural_key


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
