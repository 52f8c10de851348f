"""On which machine did a row run? The catalogue's GPU and node, with what the row states in its place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from opsk.calibration.cells import Cells
from opsk.errors import InputError
from opsk.hardware import catalog
from opsk.hardware.spec import ClusterSpec, GpuSpec, NicSpec, NodeSpec
from opsk.units import GB, as_gbit_per_s, gbit_per_s

DIES_OF_A_PACKAGE = 2
_PACKAGE_FROM = 1.7
"""A row whose GPU has this many times the memory of the catalogue's counts packages of two dies (MI250X)."""


def gpu_of(cells: Cells) -> GpuSpec | None:
    """Return the GPU of a row, the variant whose memory is nearest to the stated one; notes what is wrong."""
    name, memory_gb = cells.text("gpu"), cells.quantity("gpu_mem_gb")
    if not name:
        cells.wrong.append("gpu is not stated")
        return None
    try:
        first, others = catalog.resolve_gpu(name)
    except InputError as error:
        cells.wrong.append(f"{error.message} ({error.hint})")
        return None
    if memory_gb is None:
        if others:
            cells.assume("cluster.gpu", first.name, f"{name} may also be {', '.join(others)}")
        return first
    variants = [first, *(catalog.gpu(other) for other in others)]
    nearest = min(variants, key=lambda spec: abs(spec.memory_bytes / GB - memory_gb))
    return _package(nearest) if memory_gb * GB > _PACKAGE_FROM * nearest.memory_bytes else nearest


@lru_cache(maxsize=4096)
def _package_of(name: str) -> GpuSpec:
    """Return two dies of a GPU as one device."""
    die = catalog.gpu(name)
    return replace(
        die,
        name=f"{name} package",
        memory_bytes=DIES_OF_A_PACKAGE * die.memory_bytes,
        usable_bytes=None if die.usable_bytes is None else DIES_OF_A_PACKAGE * die.usable_bytes,
        hbm_bytes_per_s=DIES_OF_A_PACKAGE * die.hbm_bytes_per_s,
        peak_flop_per_s={kind: DIES_OF_A_PACKAGE * peak for kind, peak in die.peak_flop_per_s.items()},
        tdp_w=DIES_OF_A_PACKAGE * die.tdp_w,
    )


def _package(die: GpuSpec) -> GpuSpec:
    """Return two dies of a GPU as one device, the same object for every row."""
    return _package_of(die.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machinery:
    """What a row's cluster is made of; equal ones are one cluster for the cost model."""

    gpu: str
    is_package: bool
    hb_gbps: float | None
    gpus_per_node: int
    nic_gbps: float
    nics: int
    hb_domain_gpus: int
    nodes: int


def cluster_of(cells: Cells, gpu: GpuSpec, gpus: int) -> ClusterSpec:
    """Return the cluster of a row that runs on ``gpus`` GPUs; a fabric is assumed only where it is used."""
    usual, found = _usual_node(gpu.name.removesuffix(" package"))
    per_node = cells.size("gpus_per_node")
    if per_node is None:
        per_node = usual.gpus
        if gpus > 1:
            cells.assume("cluster.gpus_per_node", per_node, f"as in a {usual.name}")
    domain = usual.hb_domain_gpus if usual.hb_domain_gpus != usual.gpus else per_node
    nic_gbps, nics = cells.quantity("nic_gbps"), cells.size("nics_per_node")
    if nic_gbps is None:
        nic_gbps = as_gbit_per_s(usual.nic_bytes_per_s_per_gpu)
        if gpus > max(per_node, domain):
            cells.assume(
                "cluster.nic_gbps", nic_gbps, f"as in a {usual.name}" if found else "InfiniBand HDR, 200 Gbit/s"
            )
    kind = Machinery(
        gpu=gpu.name.removesuffix(" package"),
        is_package=gpu.name.endswith(" package"),
        hb_gbps=cells.quantity("intra_node_gbps"),
        gpus_per_node=per_node,
        nic_gbps=nic_gbps,
        nics=nics or per_node,
        hb_domain_gpus=domain,
        nodes=-(-gpus // per_node),
    )
    return _built(kind)


@lru_cache(maxsize=4096)
def _usual_node(gpu: str) -> tuple[NodeSpec, bool]:
    """Return the catalogue's first node with a GPU, or one made up for a GPU that no node of it has."""
    for name in catalog.names("node"):
        node = catalog.node(name)
        if node.gpu.name == gpu:
            return node, True
    spec = catalog.gpu(gpu)
    domain = 8 if spec.hb_bytes_per_s else 1
    return NodeSpec(
        name="eight-GPU node", gpu=spec, gpus=8, nic=catalog.nic("hdr"), nics=8, hb_domain_gpus=domain
    ), False


@lru_cache(maxsize=4096)
def _built(kind: Machinery) -> ClusterSpec:
    """Return a cluster; rows with the same machinery share one object."""
    spec = _package_of(kind.gpu) if kind.is_package else catalog.gpu(kind.gpu)
    if kind.hb_gbps is not None:
        spec = replace(spec, hb_bytes_per_s=gbit_per_s(kind.hb_gbps))
    # the row's rate is a GPU's share of its node; fewer NICs carry more each
    nic = NicSpec(name="as stated", bytes_per_s=gbit_per_s(kind.nic_gbps) * kind.gpus_per_node / kind.nics)
    node = NodeSpec(
        name="as stated",
        gpu=spec,
        gpus=kind.gpus_per_node,
        nic=nic,
        nics=kind.nics,
        hb_domain_gpus=kind.hb_domain_gpus,
    )
    return ClusterSpec(name="as stated", node=node, nodes=kind.nodes, fabric="fat-tree")
