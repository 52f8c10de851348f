"""A machine and software of round numbers, so that expected times can be worked out by hand."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from opsk.costmodel.efficiency.efficiency import Efficiency, GpuEfficiency, LinkEfficiency, SoftwareColumns
from opsk.costmodel.machine import IDEAL_GENERATION, Machine, find_generation

FLOP_PER_S = 1e14
HBM_BYTES_PER_S = 1e12
HB_BYTES_PER_S = 1e11
NIC_BYTES_PER_S = 1e10
PCIE_BYTES_PER_S = 2e10
ENDLESS = 1e40

_NUMBERS: dict[str, float] = {
    "peak_flop_per_s": FLOP_PER_S,
    "matmul_flop_per_s": FLOP_PER_S,
    "attention_flop_per_s": FLOP_PER_S,
    "plain_flop_per_s": FLOP_PER_S,
    "matmul_size": 0.0,
    "plain_size": 0.0,
    "fp32_flop_per_s": FLOP_PER_S / 10,
    "generation": find_generation(IDEAL_GENERATION),
    "launch_factor": 0.0,
    "hbm_bytes_per_s": HBM_BYTES_PER_S,
    "hb_gpus": 8.0,
    "hb_bytes_per_s": HB_BYTES_PER_S,
    "nic_bytes_per_s": NIC_BYTES_PER_S,
    "hb_hop_s": 0.0,
    "nic_hop_s": 0.0,
    "node_gpus": 8.0,
    "nics": 8.0,
    "nccl_channels": 24.0,
    "is_rail_only": 0.0,
    "reduces_in_network": 0.0,
    "pcie_bytes_per_s": PCIE_BYTES_PER_S,
    "tdp_w": 400.0,
    "host_w": 100.0,
    "network_w": 10.0,
    "capacity_bytes": 80e9,
}
_SOFTWARE: dict[str, float] = {
    "elementwise_factor": 1.0,
    "compiled_fraction": 1.0,
}

IDEAL = Efficiency(
    gpu={
        "": GpuEfficiency(
            matmul_fraction=1.0,
            fp8_fraction=1.0,
            matmul_size=0.0,
            hbm_fraction=1.0,
        )
    },
    links=LinkEfficiency(hb_fraction=1.0, nic_fraction=1.0, hb_hop_s=0.0, nic_hop_s=0.0),
)
"""Efficiencies with which everything runs at its catalogue's rate, for `opsk.costmodel.predict`."""


def machine(**numbers: float) -> Machine:
    """Return 100 TFLOP/s beside 1 TB/s of memory, eight GPUs on 100 GB/s of NVLink and 10 of NIC each, no latency."""
    return Machine(**{name: np.asarray(value) for name, value in {**_NUMBERS, **numbers}.items()})


def endless_memory(**numbers: float) -> Machine:
    """Return a machine whose memory takes no time: what is left is arithmetic."""
    return machine(hbm_bytes_per_s=ENDLESS, **numbers)


def endless_arithmetic(**numbers: float) -> Machine:
    """Return a machine whose arithmetic takes no time: what is left is bytes."""
    rates = dict.fromkeys(("matmul_flop_per_s", "attention_flop_per_s", "plain_flop_per_s"), ENDLESS)
    return machine(**{**rates, **numbers})


def software(rows: int = 1, **numbers: float) -> SoftwareColumns:
    """Return software of so many plans without gaps and overheads that overlaps nothing, but for what is given."""
    names = [item.name for item in fields(SoftwareColumns)]
    return SoftwareColumns(**{name: np.full(rows, {**_SOFTWARE, **numbers}.get(name, 0.0)) for name in names})
