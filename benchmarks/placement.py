"""How fast are ranks placed? ``python -m benchmarks.placement``: 16,384 ranks on 10,000 nodes of 8 HCAs, three tiers.

Target: under 2 s, with the comparison with Slurm's order in it, for nodes in a row, nodes scattered over all pods, and
nodes that Slurm would number at random (the worst case: messages cross the core). Best wall time of three.
"""

from __future__ import annotations

import random
import resource
import time

from opsk.planner.network import routes_of
from opsk.planner.placement import place
from opsk.topology.design import rail_optimized_fabric
from opsk.topology.rails import find_rails
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

NODES = 10_000
USED = 2_048
MODEL = ModelShape(
    name="llama3-405b",
    layers=126,
    hidden=16384,
    ffn=53248,
    heads=128,
    kv_heads=8,
    head_dim=128,
    vocab=128256,
    seq=8192,
    gated_mlp=True,
    tied_embeddings=False,
)
PLAN = Plan(tp=8, pp=16, dp=128, sequence_parallel=True, global_batch=2048)


def main() -> None:
    fabric = rail_optimized_fabric(nodes=NODES, hcas=8, leaves=2560, spines=32, pods=20, cores_per_spine=16)
    rails = find_rails(fabric)
    start = time.perf_counter()
    routes = routes_of(fabric, rails)
    print(f"routes, once a fabric: {time.perf_counter() - start:.2f} s")
    names = [f"n{number}" for number in range(NODES)]
    dice = random.Random(1)
    scattered = dice.sample(names, USED)
    cases = {
        "nodes in a row": (names[:USED], None),
        "all nodes are candidates": (names, None),
        "scattered nodes": (scattered, None),
        "scattered, numbered at random": (scattered, dice.sample(scattered, USED)),
    }
    for label, (nodes, slurm_nodes) in cases.items():
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            placed = place(MODEL, PLAN, rails, nodes, 8, routes=routes, slurm_nodes=slurm_nodes)
            best = min(best, time.perf_counter() - start)
        load, default = placed.traffic.max_link_load, placed.default_traffic.max_link_load
        print(
            f"{label}: {best:.2f} s for {len(placed.ranks)} ranks; busiest cable {load:.3f} s, default {default:.3f} s"
        )
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
