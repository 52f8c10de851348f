"""Computes the power of a GPU in each of its states, of its share of the host, and of its share of the network.

Published measurements agree on the order and the extremes, and less on the values between: see `STATE_FRACTIONS`.
"""

from __future__ import annotations

from dataclasses import dataclass

from opsk.costmodel.network_cost import clos_network, network_power_w, rail_only_network
from opsk.hardware.spec import ClusterSpec, NodeSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFractions:
    """Power of a GPU in a state over its board limit [ratio].

    Parameters
    ----------
    computing
        Large matrix products: tensor cores busy, clocks reduced by the power limit.
    memory_bound
        Norms, activation functions, dropout, optimizer: memory busy, tensor cores not.
    communicating
        A collective that nothing hides: copy kernels, links and some memory traffic.
    waiting
        A kernel that spins for another rank, in the pipeline's bubble or for a straggler: high clocks, no work.
    idle
        No kernel at all, with a context and full clocks.
    """

    computing: float = 1.0
    memory_bound: float = 0.6
    communicating: float = 0.6
    waiting: float = 0.25
    idle: float = 0.15


STATE_FRACTIONS = StateFractions()
"""Chosen by hand from published measurements, not fitted:

- ends: GPUs that train OLMo draw between 15 % (all wait for a checkpoint) and 85 % (mean while training) of the 700 W
  of an H100 (Morrison et al. 2025, arXiv 2503.05804); peaks of A100 in training reach the limit (Patel et al. 2023,
  arXiv 2308.12908, POLCA; from memory);
- ``communicating``: from 128 to 2,048 H100 the throughput of FSDP falls by 37.22 % to communication and the power of a
  GPU by 5.87 % (Fernandez et al. 2024, arXiv 2411.13055): 1 - 0.0587 / 0.3722 = 0.84 of computing. A100 fall to 50 % of
  the limit and less (POLCA, from memory). The value lies between;
- ``waiting``: GPT-1T on Summit and Crusher, where the network sets the pace, 66 of 300 W and 151 of 560 W: 22 and 27 %
  (Yin et al. 2023, doi 10.1007/s11227-023-05479-7, in a reader's note);
- ``memory_bound``: from memory of stream-like kernels on A100 and H100, 55 to 65 %.
"""

HOST_FRACTION = 0.6
"""Host power while training, over what the node's rating leaves beside its GPUs' limits [ratio].

A node of 8 H100 rated 10.2 kW draws 8.4 kW with its GPUs near their limit of 5.6 kW: (8.4 - 5.6) / (10.2 - 5.6) = 0.61
(Latif et al. 2024, arXiv 2412.08602). It holds processors, memory, fans, NICs, NVSwitches and losses of power supplies.
"""
UNKNOWN_HOST_FRACTION = 0.5
"""Host power over the limit of its GPUs where the node's rating is not known [ratio]: between the 0.49 of a DGX H100
(10.2 kW) and the 0.62 of a DGX A100 (6.5 kW) by ``HOST_FRACTION``; nodes cooled by liquid need less."""

SWITCH_PORTS = 64
"""Ports of one switch (400 Gbit/s generation); older switches have 36 or 40."""
_SOURCE_BYTES_PER_S = 50e9
"""Link rate that the watts of `opsk.costmodel.network_cost.PartPrices` are of: 400 Gbit/s, one direction [bytes/s]."""
_MAX_ENDPOINTS = 2 * (SWITCH_PORTS // 2) ** 5
"""Endpoints of five tiers of such switches; larger networks are not built."""


def host_w(node: NodeSpec) -> float:
    """Return the power of one GPU's share of its host while training [W].

    A DGX H100: 0.6 x (10,200 - 8 x 700) / 8 = 345 W.
    """
    gpus_w = node.gpus * node.gpu.tdp_w
    if node.power_w is None:
        return UNKNOWN_HOST_FRACTION * node.gpu.tdp_w
    return HOST_FRACTION * max(node.power_w - gpus_w, 0.0) / node.gpus


def network_w(cluster: ClusterSpec) -> float:
    """Return the power of one GPU's share of the compute network's switches and transceivers [W].

    Their power hardly depends on the load, so a job is charged for its NICs' share of the whole network, also where it
    stays inside a node. 127 nodes with 8 NICs of 400 Gbit/s: 48 switches and 4,064 transceivers, 91.9 kW, 90 W a GPU.

    Source: 18 W a switch port and 9 W a transceiver of 400 Gbit/s (rail-only paper, arXiv 2307.12169, section V.E);
    other rates are taken to need power in proportion, which holds for HDR and XDR parts within some 20 % (from memory).
    Left out: oversubscription, dragonflies (counted as fat trees), storage and management networks.
    """
    node = cluster.node
    endpoints = min(cluster.nodes * node.nics, _MAX_ENDPOINTS)
    if endpoints < 1 or cluster.nodes == 1:
        return 0.0
    if cluster.fabric == "rail-only" and endpoints % node.nics == 0:
        parts = rail_only_network(endpoints=endpoints, rails=node.nics, radix=SWITCH_PORTS)
    else:
        parts = clos_network(endpoints=endpoints, radix=SWITCH_PORTS)
    rate = node.nic.bytes_per_s / _SOURCE_BYTES_PER_S
    return rate * network_power_w(parts) / endpoints * node.nics / node.gpus
