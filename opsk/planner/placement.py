"""Which rank runs on which GPU, and how much of the traffic then stays on its rail?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlace:
    """One rank: where it runs, which HCA and rail serve it (``None`` when the node has none)."""

    rank: int
    node: str
    local_rank: int
    gpu: int
    device: str | None
    rail: int | None
    leaf: str | None
    tp_rank: int
    pp_rank: int
    cp_rank: int
    dp_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficShare:
    """How the inter-node bytes of one step travel under a placement.

    ``rail_local_fraction``: share whose two ends are on one rail; ``leaf_local_fraction``: on the same leaf;
    ``max_link_load``: bytes of one step on the busiest switch-to-switch cable, one direction, over its bytes/s [s].
    """

    rail_local_fraction: float
    leaf_local_fraction: float
    max_link_load: float
    inter_node_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Ranks in rank order, what that does to the traffic, and what Slurm's default order would have done."""

    ranks: tuple[RankPlace, ...]
    traffic: TrafficShare
    default_traffic: TrafficShare
    nodes: tuple[str, ...]
