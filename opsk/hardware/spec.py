"""The machine as data: GPUs, NICs, node types and clusters, in SI units and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
    aliases
        Other spellings that scripts, Slurm GRES types and drivers use (``h100``, ``NVIDIA H100 80GB HBM3``).
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
    aliases: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)


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
    """

    name: str
    gpu: GpuSpec
    gpus: int
    nic: NicSpec
    nics: int
    hb_domain_gpus: int
    aliases: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def nic_bytes_per_s_per_gpu(self) -> float:
        """Fabric bandwidth of the node divided by its GPUs, one direction [bytes/s]."""
        return self.nic.bytes_per_s * self.nics / self.gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """One cluster as far as a prediction needs it.

    ``oversubscription`` is downlink over uplink bandwidth of a leaf (1.0 is full bisection). ``fabric`` names the
    wiring: ``rail-optimized``, ``fat-tree``, ``rail-only``, ``dragonfly``.
    """

    name: str
    node: NodeSpec
    nodes: int
    fabric: str
    switches: int | None = None
    oversubscription: float = 1.0
    sources: Mapping[str, str] = field(default_factory=dict)
