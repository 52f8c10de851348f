"""Builds the fabric of the benchmarks of fabrics and placement: three tiers of rails, of any size."""

from __future__ import annotations

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.fabric import Fabric

HCAS = 8
NODES = 10_000
NODES_OF_A_UNIT = 32
UNITS_OF_A_POD = 16


def large_fabric(nodes: int, *, spines: int = 32, cores_per_spine: int = 16) -> Fabric:
    """Return rail-optimised units of up to 32 nodes of 8 HCAs, 16 of them in a pod."""
    pods = -(-nodes // (NODES_OF_A_UNIT * UNITS_OF_A_POD))
    return rail_optimized_fabric(
        nodes=nodes,
        hcas=HCAS,
        leaves=pods * UNITS_OF_A_POD * HCAS,
        spines=spines,
        pods=pods,
        cores_per_spine=cores_per_spine,
    )
