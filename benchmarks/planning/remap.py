"""Measures remapping after a failure: ``python -m benchmarks.planning.remap``: 16,384 ranks on 10,000 x 8, three tiers.

For all options, once fabric, routes, and the job's placement with its loads are prepared; for a job on nodes in a row,
and for one on nodes scattered over all pods (every ring crosses the core). Wall and CPU time of the first question of
its kind, and of the best of three more. Then smaller jobs that lose a node.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence

from benchmarks.found import Found, arguments, run
from benchmarks.planning.large_fabric import NODES, large_fabric
from benchmarks.planning.placement import GROWTH, MODEL, PLAN, SHORT_NODES, build_plan
from benchmarks.process_use import own_peak_bytes, time_call
from opsk.fabric.fabric import Fabric
from opsk.fabric.hb_domains import find_hb_domains
from opsk.fabric.rails import Rails, find_rails
from opsk.hardware.catalog import cluster
from opsk.planning.placement.step_model import as_cabled, step_model
from opsk.planning.remap.failure import KnownParts, parse_failures
from opsk.planning.remap.remap import remap
from opsk.planning.remap.situation import Hosts, Situation, prepare
from opsk.planning.remap.values import Terms
from opsk.planning.routing.fabric_routes import build_routes
from opsk.planning.routing.routes import Routes
from opsk.slurm.commands.remap_commands import SlurmSite
from opsk.workload.plan import Plan

SPARES = 2
FREE = 1_000
REPEATED = 3


def measure(asked: argparse.Namespace) -> Found:
    """Print and return the figures."""
    nodes, plan = (SHORT_NODES, build_plan(2)) if asked.short else (NODES, PLAN)
    rails = find_rails(fabric := large_fabric(nodes))
    routes = build_routes(fabric, rails)
    names = [f"n{number}" for number in range(nodes)]
    scattered, used = random.Random(1).sample(names, nodes), plan.gpus // 8
    found = Found(figures={"worst_s": 0.0})
    for label, order in (("nodes in a row", names), ("scattered nodes", scattered)):
        situation, placed_s, _ = time_call(lambda order=order: _job(rails, routes, order, plan))  # type: ignore[misc]
        print(f"{label}: placement and loads, once a job: {placed_s:.2f} s")
        machine = _machine(fabric, rails, situation)
        leaf = rails.attachments[order[used // 2]][3].leaf
        for word in (
            f"gpu:{order[5]}/3", f"node:{order[0]}", f"nic:{order[used // 3]}/mlx5_2", f"leaf:{leaf}",
            f"hb:{order[used - 1]}",
        ):  # fmt: skip
            found.figures["worst_s"] = max(found.figures["worst_s"], _ask(situation, machine, word)[0])
    points, firsts = list[tuple[float, float]](), list[float]()
    for dp in (1, 2) if asked.short else GROWTH:
        situation = _job(rails, routes, scattered, build_plan(dp))
        first_s, again_s = _ask(situation, _machine(fabric, rails, situation), f"node:{scattered[0]}")
        points.append((build_plan(dp).gpus, again_s))
        firsts.append(first_s)
    found.figures["smaller_s"] = max(firsts)
    found.curves["ranks"] = points
    print(f"peak memory {own_peak_bytes() / 1e6:.0f} MB")
    return found


def _machine(fabric: Fabric, rails: Rails, situation: Situation) -> KnownParts:
    """Return what can fail, as a job sees it."""
    domains, _ = find_hb_domains(rails.attachments)
    return KnownParts(fabric=fabric, rails=rails, domains=domains, nodes=situation.job.nodes, node_gpus=8)


def _job(rails: Rails, routes: Routes, order: Sequence[str], plan: Plan) -> Situation:
    """Return the job on the first nodes, two spares, and free nodes behind them."""
    spec = as_cabled(cluster("superpod-h100"), rails)
    used = plan.gpus // 8
    held = used + SPARES
    return prepare(
        MODEL,
        plan,
        rails,
        [(order[rank // 8], rank % 8) for rank in range(plan.gpus)],
        Hosts(node_gpus=8, spares=order[used:held], free=order[held : held + FREE], batch_host=order[0]),
        routes=routes,
        step=step_model(MODEL, plan, spec),
        cluster=spec,
    )


def _ask(situation: Situation, machine: KnownParts, word: str) -> tuple[float, float]:
    """Print how long all options take; the CPU time of the first question, and the least of more [s]."""
    failure = parse_failures([word], machine)
    terms = Terms(job="4711", site=SlurmSite(release=(25, 11)))
    runs = [time_call(lambda: remap(situation, failure, terms)) for _ in range(1 + REPEATED)]
    kinds = ", ".join(option.kind.value for option in runs[0][0].options)
    _, first_s, first_cpu_s = runs[0]
    again_s, again_cpu_s = min(wall for _, wall, _ in runs[1:]), min(cpu for _, _, cpu in runs[1:])
    print(
        f"  {word}: first {first_s:.3f} s ({first_cpu_s:.3f} s CPU), then {again_s:.3f} s "
        f"({again_cpu_s:.3f} s CPU); {kinds}"
    )
    return first_cpu_s, again_cpu_s


if __name__ == "__main__":
    run(measure, arguments(__doc__))
