"""What rates do a cluster's GPUs and links really give, peak times efficiency?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opsk.costmodel.efficiency import Efficiency
from opsk.costmodel.table import PRECISIONS, FloatColumn, IntColumn
from opsk.errors import InputError
from opsk.hardware.spec import ClusterSpec, GpuSpec
from opsk.workload.plan import Precision

_ATTENTION_FORMAT = {Precision.FP8: Precision.BF16}
"""Attention stays in 16 bits in the FP8 recipes (Transformer Engine's default)."""


NO_LINK_BYTES_PER_S = 1.0
"""Where there is no link: so slow that no plan which needs it looks possible, and still a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Rates of one GPU and its links: per-plan columns where the number format decides.

    ``peak_flop_per_s`` is the catalogue's dense peak (for MFU); ``matmul_``, ``attention_`` and ``scores_flop_per_s``
    are the reached rates of projections, fused attention and unfused attention products.
    """

    gpu: GpuSpec
    peak_flop_per_s: FloatColumn
    matmul_flop_per_s: FloatColumn
    attention_flop_per_s: FloatColumn
    scores_flop_per_s: FloatColumn
    hbm_bytes_per_s: float
    hb_gpus: float
    hb_bytes_per_s: float
    nic_bytes_per_s: float
    hb_hop_s: float
    nic_hop_s: float


def machine_of(cluster: ClusterSpec, precision: IntColumn, efficiency: Efficiency) -> Machine:
    """Return the reached rates of a cluster for a column of precisions.

    GPUs without NVLink or Infinity Fabric talk over PCIe inside their node.

    Raises
    ------
    InputError
        The GPU has no peak for a number format that a plan uses.
    """
    node, gpu = cluster.node, cluster.node.gpu
    peak = _peaks(gpu, precision)
    attention_peak = _peaks(gpu, precision, _ATTENTION_FORMAT)
    has_hb = gpu.hb_bytes_per_s > 0
    inside = gpu.hb_bytes_per_s if has_hb else gpu.pcie_bytes_per_s
    outside = node.nic_bytes_per_s_per_gpu / max(cluster.oversubscription, 1.0)
    return Machine(
        gpu=gpu,
        peak_flop_per_s=peak,
        matmul_flop_per_s=peak * efficiency.matmul_fraction,
        attention_flop_per_s=attention_peak * efficiency.attention_fraction,
        scores_flop_per_s=attention_peak * efficiency.matmul_fraction,
        hbm_bytes_per_s=gpu.hbm_bytes_per_s * efficiency.hbm_fraction,
        hb_gpus=float(node.hb_domain_gpus if has_hb else node.gpus),
        hb_bytes_per_s=max(inside * efficiency.hb_fraction, NO_LINK_BYTES_PER_S),
        nic_bytes_per_s=max(outside * efficiency.nic_fraction, NO_LINK_BYTES_PER_S),
        hb_hop_s=efficiency.hb_hop_s,
        nic_hop_s=efficiency.nic_hop_s,
    )


def _peaks(gpu: GpuSpec, precision: IntColumn, instead: dict[Precision, Precision] | None = None) -> FloatColumn:
    """Return the dense peak of every plan's number format [FLOP/s]."""
    formats = [(instead or {}).get(name, name) for name in PRECISIONS]
    known = np.array([gpu.peak_flop_per_s.get(name.value, 0.0) for name in formats])
    peaks: FloatColumn = known[precision]
    if not peaks.all():
        missing = sorted({formats[index].value for index in precision if not known[index]})
        have = ", ".join(sorted(gpu.peak_flop_per_s))
        raise InputError(f"{gpu.name} has no {', '.join(missing)} peak in the catalogue", hint=f"it has {have}")
    return peaks
