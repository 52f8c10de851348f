"""Measures placement: ``python -m benchmarks.planning.placement``: 16,384 ranks on 10,000 nodes of 8 HCAs, three tiers.

The comparison with Slurm's order is in it. Nodes lie in a row, scattered over all pods, or scattered and numbered at
random by Slurm (the worst case: messages cross the core). Best of three. Then smaller jobs on the same fabric.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.found import Found, arguments, run
from benchmarks.planning.large_fabric import NODES, large_fabric
from benchmarks.process_use import own_peak_bytes, time_call
from opsk.fabric.rails import Rails, find_rails
from opsk.planning.placement.initial_placements import PlacementProblem
from opsk.planning.placement.placement import place
from opsk.planning.routing.fabric_routes import build_routes
from opsk.planning.routing.routes import Routes
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

SHORT_NODES = 512
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


GROWTH = (4, 8, 16, 32, 64, 128)
"""Replicas of smaller jobs, of 128 GPUs each."""
REPEATED = 3


def build_plan(dp: int) -> Plan:
    """Return the plan with so many replicas."""
    return replace(PLAN, dp=dp, global_batch=16 * dp)


def measure(asked: argparse.Namespace) -> Found:
    """Print and return the figures."""
    nodes, largest = (SHORT_NODES, build_plan(2)) if asked.short else (NODES, PLAN)
    rails = find_rails(fabric := large_fabric(nodes))
    routes, _, routes_s = time_call(lambda: build_routes(fabric, rails))
    print(f"routes, once a fabric: {routes_s:.2f} s")
    names, used = [f"n{number}" for number in range(nodes)], largest.gpus // 8
    dice = random.Random(1)
    scattered = dice.sample(names, used)
    cases: dict[str, tuple[list[str], list[str] | None]] = {
        "nodes in a row": (names[:used], None),
        "all nodes are candidates": (names, None),
        "scattered nodes": (scattered, None),
        "scattered, numbered at random": (scattered, dice.sample(scattered, used)),
    }
    worst_s = max(placed_s(label, largest, rails, routes, *case) for label, case in cases.items())
    points = list[tuple[float, float]]()
    for dp in (1, 2) if asked.short else GROWTH:
        plan = build_plan(dp)
        chosen = dice.sample(names, plan.gpus // 8)
        points.append((plan.gpus, placed_s("scattered nodes", plan, rails, routes, chosen, None)))
    print(f"peak memory {own_peak_bytes() / 1e6:.0f} MB")
    return Found(figures={"worst_s": worst_s, "routes_s": routes_s}, curves={"ranks": points})


def placed_s(
    label: str, plan: Plan, rails: Rails, routes: Routes, nodes: Sequence[str], slurm_nodes: Sequence[str] | None
) -> float:
    """Place a job some times; print the best wall time, and return the least CPU time [s]."""
    runs = [
        time_call(
            lambda: place(
                PlacementProblem(
                    model=MODEL,
                    plan=plan,
                    rails=rails,
                    nodes=nodes,
                    gpus_per_node=8,
                    routes=routes,
                    slurm_nodes=slurm_nodes,
                )
            )
        )
        for _ in range(REPEATED)
    ]
    placed, best_s, cpu_s = runs[0][0], min(wall for _, wall, _ in runs), min(cpu for _, _, cpu in runs)
    load, default = placed.traffic.max_link_load, placed.default_traffic.max_link_load
    print(
        f"{label}: {best_s:.2f} s ({cpu_s:.2f} s CPU) for {plan.gpus} ranks; busiest cable {load:.3f} s, "
        f"default {default:.3f} s"
    )
    return cpu_s


if __name__ == "__main__":
    run(measure, arguments(__doc__))
