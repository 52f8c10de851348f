"""Computes the rates of host links and host memory for states and activations that are offloaded.

Copies of at least 16 MiB from or to pinned memory, one direction; both at once get less each. Sources of all rates:
benchmarks/published/host_links.md and links.csv.
"""

from __future__ import annotations

from opsk.costmodel.elementwise import minimum, where
from opsk.costmodel.machine import Machine
from opsk.costmodel.table import FloatColumn

CHIP_LINK_BYTES_PER_S = 150e9
"""A link faster than this is not PCIe: NVLink-C2C has 450 GB/s a Grace, for one Hopper or two Blackwells."""
GRACE_LINK_BYTES_PER_S = 450e9
PCIE_FRACTION = 0.8
"""Data rate of copies over the link's: 24.8 of 31.5 GB/s on eight A100 with PCIe 4.0 x16 (nvbandwidth,
forums.developer.nvidia.com/t/352186), 12.5 to 13 of 15.75 on PCIe 3, 53 to 57 of 63 on PCIe 5."""
CHIP_LINK_FRACTION = 0.75
"""The same of NVLink-C2C: 270 to 420 of 450 GB/s (arXiv 2408.11556)."""
DDR_BYTES_PER_LINK_BYTE = 12.0
"""Peak memory bandwidth of a two-socket host over the rate of one of its PCIe x16 links: both grew together. 256 GB/s
(2 x 6 DDR4-2666) beside PCIe 3, 410 (2 x 8 DDR4-3200) beside PCIe 4, 614 (2 x 8 DDR5-4800) beside PCIe 5 are 16, 13 and
10 times the link."""
GRACE_MEMORY_BYTES_PER_S = 500e9
"""LPDDR5X of one Grace with 480 GB (data sheet)."""
OPTIMIZER_FRACTION = 0.13
"""Share of that bandwidth that whole training runs reach in a CPU optimizer, copies and waiting included.

Runs with ``offload_optimizer`` on nodes with eight A100 and 410 GB/s: Qwen-72B 1.8 billion parameters a second
(DeepSpeed issue 6834), Qwen2.5-3B at least 1.3 (pull request 7474), LLaMA-7B 0.33 to 0.4 (gist.github.com/chenyaofo/
d4cd6a20ab4b95cb3a49491747e2139a); at 42 bytes a parameter 75, 55 and 15 GB/s, whose middle is 0.13. The kernel alone
reaches half of the bandwidth (ZeRO-Offload, table 4: 3.9 to 4.5 billion on 256 GB/s). A factor of three either way is
open.
"""


def host_link_bytes_per_s(machine: Machine) -> FloatColumn:
    """Return the rate of copies between a GPU and its host, one direction [bytes/s]."""
    link = machine.pcie_bytes_per_s
    return link * where(link > CHIP_LINK_BYTES_PER_S, CHIP_LINK_FRACTION, PCIE_FRACTION)


def host_optimizer_bytes_per_s(machine: Machine) -> FloatColumn:
    """Return the host memory bandwidth for the optimizer of one GPU's states [bytes/s], all GPUs stepping at once.

    On superchips each Grace serves the GPUs that share its link.
    """
    link = machine.pcie_bytes_per_s
    of_node = DDR_BYTES_PER_LINK_BYTE * link / machine.node_gpus
    of_grace = GRACE_MEMORY_BYTES_PER_S * minimum(link / GRACE_LINK_BYTES_PER_S, 1.0)
    return OPTIMIZER_FRACTION * where(link > CHIP_LINK_BYTES_PER_S, of_grace, of_node)
