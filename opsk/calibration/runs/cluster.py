"""Builds the cluster that a row ran on: the catalogue's GPU and node, overridden by what the row states."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from opsk.calibration.runs.columns import Cells
from opsk.errors import InputError
from opsk.hardware import catalog
from opsk.hardware.spec import ClusterSpec, GpuSpec, NicSpec, NodeSpec
from opsk.units import GB, as_gbit_per_s, gbit_per_s

DIES_OF_A_PACKAGE = 2
MAX_HINT = 120
_PACKAGE_FROM = 1.7
"""A row whose GPU has this many times the memory of the catalogue's counts packages of two dies (MI250X)."""
_DATE = re.compile(r"(20\d\d)(?:-(0[1-9]|1[0-2]))?(?:-\d\d)?", re.ASCII)
_RELEASE = re.compile(r":(\d\d)\.(0[1-9]|1[0-2])\b", re.ASCII)
_MIDDLE_OF_YEAR = "07"
_SAME_MEMORY = 0.08
"""Labels count in 10^9 or 2^30 bytes, and omit what the device reserves: up to this is the same size [ratio]."""
_USUAL_BY_MEMORY = {
    16: "v100-sxm2-16gb",
    24: "rtx-4090",
    32: "v100-sxm2-32gb",
    40: "a100-sxm-40gb",
    48: "l40s",
    96: "gh200-96gb",
    141: "h200-sxm",
    180: "b200-sxm",
    288: "b300-sxm",
}
"""The GPU that most published training with so much memory used, where a row does not say which [GB]."""
_PYTORCH = {
    "1.8": "2021-03",
    "1.9": "2021-06",
    "1.10": "2021-10",
    "1.11": "2022-03",
    "1.12": "2022-06",
    "1.13": "2022-10",
    "2.0": "2023-03",
    "2.1": "2023-10",
    "2.2": "2024-01",
    "2.3": "2024-04",
    "2.4": "2024-07",
    "2.5": "2024-10",
    "2.6": "2025-01",
    "2.7": "2025-04",
    "2.8": "2025-08",
    "2.9": "2025-10",
    "2.10": "2026-01",
}
"""When the releases of PyTorch came out (its releases on GitHub)."""
_USUAL_BEFORE_2024, _USUAL = "a100-sxm-80gb", "h100-sxm"
"""The same of 80 GB, which is also taken where not even the memory is stated."""
_SAME_GPU = 0.15
"""A variant of the same form factor with another memory, up to this, is preferred to one of another form [ratio]."""


def find_stated_month(cells: Cells) -> str:
    """Return when a row ran, by its date or the release of its container; empty where neither is stated."""
    if match := _DATE.match(cells.text("source_date")):
        return f"{match[1]}-{match[2] or _MIDDLE_OF_YEAR}"
    if match := _RELEASE.search(cells.text("container")):
        return f"20{match[1]}-{match[2]}"
    return ""


def find_pytorch_month(cells: Cells) -> str:
    """Return when the PyTorch of a row came out, empty where unknown: no run is older.

    Nightlies of a release count as the release, whose kernels they have.
    """
    return _PYTORCH.get(".".join(cells.text("torch_version").split(".")[:2]), "")


def find_gpu(cells: Cells) -> GpuSpec | None:
    """Return the GPU of a row, the variant whose memory is nearest to the stated one; errors are recorded."""
    name, memory_gb = cells.text("gpu"), cells.quantity("gpu_mem_gb")
    if not name:
        return _assume_gpu(cells, memory_gb)
    try:
        first, others = catalog.resolve_gpu(name)
    except InputError as error:
        cells.wrong.append(f"{error.message} ({error.hint.partition(';')[0][:MAX_HINT]})")
        return None
    if memory_gb is None:
        if others:
            cells.assume("cluster.gpu", first.name, f"{name} may also be {', '.join(others)}")
        return first
    variants = [first, *(catalog.gpu(other) for other in others)]
    form = _form(first)

    def distance(spec: GpuSpec) -> tuple[bool, bool, float]:
        miss = abs(spec.memory_bytes / GB / memory_gb - 1)
        return miss > _SAME_GPU, _form(spec) != form, miss

    nearest = min(variants, key=distance)
    if memory_gb * GB > _PACKAGE_FROM * nearest.memory_bytes:
        return _build_variant(nearest.name, dies=DIES_OF_A_PACKAGE, memory_gb=0.0)
    if distance(nearest)[2] > _SAME_MEMORY:
        cells.assume("cluster.gpu", nearest.name, f"with {memory_gb:g} GB, which no variant of the catalogue has")
        return _build_variant(nearest.name, dies=1, memory_gb=memory_gb)
    return nearest


def _assume_gpu(cells: Cells, memory_gb: float | None) -> GpuSpec:
    """Return a usual GPU where none is stated: what a run keeps in memory hardly depends on it."""
    year = find_stated_month(cells)[:4]
    usual = _USUAL_BEFORE_2024 if year and year < "2024" else _USUAL
    why = "no GPU is stated"
    if memory_gb is not None:
        nearest = min(_USUAL_BY_MEMORY, key=lambda size: abs(size - memory_gb))
        if abs(nearest - memory_gb) < abs(catalog.gpu(usual).memory_bytes / GB - memory_gb):
            usual = _USUAL_BY_MEMORY[nearest]
        why = f"{why}, but {memory_gb:g} GB"
    cells.assume("cluster.gpu", usual, why)
    return catalog.gpu(usual)


def _form(spec: GpuSpec) -> str:
    """Return the form factor in a catalogue name: ``sxm``, ``pcie``, ``nvl`` or nothing."""
    return next((word for word in ("sxm", "pcie", "nvl") if word in spec.name), "")


@lru_cache(maxsize=4096)
def _build_variant(name: str, *, dies: int, memory_gb: float) -> GpuSpec:
    """Return so many dies of a GPU as one device, with its own memory where ``memory_gb`` is given."""
    die = catalog.gpu(name)
    usable = None if die.usable_bytes is None else dies * die.usable_bytes
    return replace(
        die,
        memory_bytes=int(memory_gb * GB) if memory_gb else dies * die.memory_bytes,
        usable_bytes=None if memory_gb else usable,
        hbm_bytes_per_s=dies * die.hbm_bytes_per_s,
        peak_flop_per_s={kind: dies * peak for kind, peak in die.peak_flop_per_s.items()},
        tdp_w=dies * die.tdp_w,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterKey:
    """The properties of a row's cluster; rows with equal keys share one cluster."""

    gpu: str
    dies: int
    memory_gb: float
    hb_gbps: float
    gpus_per_node: int
    nic_gbps: float
    nics: int
    hb_domain_gpus: int
    nodes: int


def build_cluster(cells: Cells, gpu: GpuSpec, gpus: int) -> ClusterSpec:
    """Return the cluster of a row that runs on ``gpus`` GPUs; a fabric is assumed only where it is used."""
    per_node = cells.size("gpus_per_node")
    named = _find_named_node(cells.text("system").lower(), gpu.name)
    usual, is_in_catalogue = named or _find_usual_node(gpu.name, per_node)
    if per_node is None:
        per_node = usual.gpus
        if gpus > 1:
            cells.assume("cluster.gpus_per_node", per_node, f"as in a {usual.name}")
    domain = per_node if usual.hb_domain_gpus == usual.gpus else usual.hb_domain_gpus
    nic_gbps, nics = cells.quantity("nic_gbps"), cells.size("nics_per_node")
    if nic_gbps is None:
        nic_gbps = as_gbit_per_s(usual.nic_bytes_per_s_per_gpu)
        if gpus > max(per_node, domain):
            cells.assume(
                "cluster.nic_gbps",
                nic_gbps,
                f"as in a {usual.name}" if is_in_catalogue else "InfiniBand HDR, 200 Gbit/s",
            )
    catalogue_gpu = catalog.gpu(gpu.name)
    dies = round(gpu.tdp_w / catalogue_gpu.tdp_w)
    kind = ClusterKey(
        gpu=gpu.name,
        dies=dies,
        memory_gb=0.0 if gpu.memory_bytes == dies * catalogue_gpu.memory_bytes else gpu.memory_bytes / GB,
        hb_gbps=cells.quantity("intra_node_gbps") or as_gbit_per_s(usual.gpu.hb_bytes_per_s),
        gpus_per_node=per_node,
        nic_gbps=nic_gbps,
        nics=nics or per_node,
        hb_domain_gpus=domain,
        nodes=-(-gpus // per_node),
    )
    return _build_from_key(kind)


def _find_named_node(words: str, gpu: str) -> tuple[NodeSpec, bool] | None:
    """Return the node of the catalogue, or of its cluster, that a row names, if it has this chip."""
    chip = gpu.partition("-")[0]
    for name, node in _named_clusters():
        if node.gpu.name.partition("-")[0] == chip and re.search(rf"\b{re.escape(name)}\b", words):
            return node, True
    return None


@lru_cache(maxsize=1)
def _named_clusters() -> tuple[tuple[str, NodeSpec], ...]:
    """Return the names of the catalogue's clusters with their nodes."""
    return tuple((name.replace("-", " "), catalog.cluster(name).node) for name in catalog.names("cluster"))


@lru_cache(maxsize=4096)
def _find_usual_node(gpu: str, per_node: int | None) -> tuple[NodeSpec, bool]:
    """Return the catalogue's first node with a GPU, or a default node for a GPU without one.

    A node whose GPUs are linked in part (Summit: three of six) says nothing about one of another size: there, the first
    node of that size is taken whose GPU is the same but for its memory.
    """
    nodes = [catalog.node(name) for name in catalog.names("node")]
    usual = next((node for node in nodes if node.gpu.name == gpu), None)
    if usual is not None and per_node not in (None, usual.gpus) and usual.hb_domain_gpus < usual.gpus:
        chip = _without_memory(gpu)
        usual = next((node for node in nodes if _without_memory(node.gpu.name) == chip and node.gpus == per_node), None)
    if usual is not None:
        return usual, True
    spec = catalog.gpu(gpu)
    domain = 8 if spec.hb_bytes_per_s else 1
    return NodeSpec(
        name="eight-GPU node", gpu=spec, gpus=8, nic=catalog.nic("hdr"), nics=8, hb_domain_gpus=domain
    ), False


def _without_memory(gpu: str) -> str:
    """Return a GPU's name without its memory: both V100 of an SXM2 board are ``v100-sxm2``."""
    return re.sub(r"-\d+gb$", "", gpu)


@lru_cache(maxsize=4096)
def _build_from_key(kind: ClusterKey) -> ClusterSpec:
    """Build a cluster; rows with the same key share one object."""
    is_usual = kind.dies == 1 and not kind.memory_gb
    spec = catalog.gpu(kind.gpu) if is_usual else _build_variant(kind.gpu, dies=kind.dies, memory_gb=kind.memory_gb)
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
