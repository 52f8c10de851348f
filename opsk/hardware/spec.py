"""Defines GPUs, NICs, node types and clusters as data, in SI units and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

FORMATS = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")
"""Number formats that ``GpuSpec.peak_flop_per_s`` may have a peak for."""

FABRICS = ("rail-optimized", "fat-tree", "rail-only", "dragonfly")
"""Topologies that ``ClusterSpec.fabric`` may name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpec:
    """One GPU (or one GCD of an MI250X, which is what software sees as a device).

    Parameters
    ----------
    name
        Catalogue name: ``h100-sxm``.
    memory_bytes
        Memory that the device reports to software [bytes] (nvidia-smi's total, not the label).
    hbm_bytes_per_s
        Peak memory bandwidth [bytes/s].
    peak_flop_per_s
        Dense peak by number format, keys ``fp32``, ``tf32``, ``fp16``, ``bf16``, ``fp8``, ``fp4`` [FLOP/s].
    hb_bytes_per_s
        NVLink or Infinity Fabric bandwidth of one GPU, one direction [bytes/s]; 0 without.
    pcie_bytes_per_s
        Host link, one direction [bytes/s].
    tdp_w
        Board power limit [W].
    usable_bytes
        Memory that processes can be given [bytes]: what CUDA reports as total and PyTorch's out-of-memory message
        calls the total capacity; the driver keeps the rest. ``None`` when it is not known.
    architecture
        Generation of the chip, whose kernels reach similar fractions of their peaks: ``ampere``, ``hopper``, ``cdna3``.
    sustained_share
        Share of its dense peak that a large product reaches for seconds, at the clock that the power limit leaves, by
        number format [ratio]; a format that is missing has that of the chip generation.
    launch_factor
        Time that the CPU of its node takes to launch a kernel over that of an x86 server [ratio].
    aliases
        Other names that scripts, Slurm GRES types and drivers use (``h100``, ``NVIDIA H100 80GB HBM3``).
    sources
        Field name to the page or paper it was read from.
    """

    name: str
    vendor: str
    memory_bytes: int
    hbm_bytes_per_s: float
    peak_flop_per_s: Mapping[str, float]
    hb_bytes_per_s: float
    pcie_bytes_per_s: float
    tdp_w: float
    usable_bytes: int | None = None
    architecture: str = ""
    sustained_share: Mapping[str, float] = field(default_factory=dict)
    launch_factor: float = 1.0
    aliases: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def capacity_bytes(self) -> int:
        """Memory that a job can fill [bytes]: ``usable_bytes``, or all of ``memory_bytes`` where that is not known."""
        return self.memory_bytes if self.usable_bytes is None else self.usable_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NicSpec:
    """One host channel adapter port: ``bytes_per_s`` is the data rate, one direction [bytes/s]."""

    name: str
    bytes_per_s: float
    aliases: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """One node type.

    Parameters
    ----------
    gpus, nics
        GPUs, and HCAs on the compute fabric, of one node.
    hb_domain_gpus
        GPUs that one NVLink/NVSwitch (or Infinity Fabric) domain joins; 72 for GB200 NVL72, 1 without such links.
    gpu
        The GPU as it is wired in this node: its ``hb_bytes_per_s`` and ``pcie_bytes_per_s`` may be below what the
        bare GPU can do (Summit gives two of a V100's six NVLinks to the CPU).
    storage_nic, storage_nics
        Ports to a storage fabric of its own; ``None`` and 0 where storage shares the compute fabric or is not known.
    power_w
        Maximum power of the whole node [W]; ``None`` when it is not known.
    """

    name: str
    gpu: GpuSpec
    gpus: int
    nic: NicSpec
    nics: int
    hb_domain_gpus: int
    storage_nic: NicSpec | None = None
    storage_nics: int = 0
    power_w: float | None = None
    aliases: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def nic_bytes_per_s_per_gpu(self) -> float:
        """Fabric bandwidth of the node divided by its GPUs, one direction [bytes/s]."""
        return self.nic.bytes_per_s * self.nics / self.gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """The properties of a cluster that a prediction needs.

    Parameters
    ----------
    fabric
        Topology of the compute fabric, one of ``FABRICS``.
    oversubscription
        Downlink over uplink bandwidth of a leaf; 1.0 is full bisection.
    switches
        All switches of the cluster's InfiniBand, as its owners count them (with the storage fabric where they do).
    leaves, spines, cores
        Switches of each tier of the compute fabric; ``None`` when it is not known, 0 cores in a two-tier fabric.
    cables
        All InfiniBand cables, as the owners count them.
    in_network_reduction
        Whether the switches of the fabric reduce (SHARP) and jobs use it.
    nodes_per_unit
        Nodes that share one set of leaves (a scalable unit); ``None`` when it is not known.
    """

    name: str
    node: NodeSpec
    nodes: int
    fabric: str
    switches: int | None = None
    oversubscription: float = 1.0
    leaves: int | None = None
    spines: int | None = None
    cores: int | None = None
    cables: int | None = None
    nodes_per_unit: int | None = None
    in_network_reduction: bool = False
    aliases: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def gpus(self) -> int:
        """GPUs of the whole cluster."""
        return self.nodes * self.node.gpus
