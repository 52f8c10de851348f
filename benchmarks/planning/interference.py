"""Measures interference between a candidate and 500 running jobs: ``python -m benchmarks.planning.interference``.

A candidate whose ranks are seated, against all jobs, on a fabric of 10,000 nodes of 8 HCAs on three tiers. Half of the
jobs lie in a row, half are scattered over a pod or over all. Best of five, wall time and CPU time. Laying the jobs' own
traffic is done once, and one job at a time later.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from benchmarks.found import Found, arguments, run
from benchmarks.planning.large_fabric import NODES, large_fabric
from benchmarks.process_use import own_peak_bytes, time_call
from opsk.fabric.rails import find_rails
from opsk.hardware.catalog import cluster as catalogue_cluster
from opsk.hardware.spec import ClusterSpec
from opsk.planning.interference.contention import interference
from opsk.planning.interference.links import FabricLinks, build_links
from opsk.planning.interference.load import JobShape, Load, default_load, job_shape
from opsk.planning.interference.node_choice import choose_nodes
from opsk.planning.interference.running_loads import RunningLoads
from opsk.planning.placement.step_model import COMMUNICATION_ONLY, DENSE, StepModel, as_cabled, step_model
from opsk.planning.routing.fabric_routes import build_routes
from opsk.workload.plan import Plan

SHORT_NODES = 512
POD = 500
JOBS, SHORT_JOBS = 500, 16
GROWTH = (8, 4, 2, 1)
"""Running jobs over these, for how the cost grows."""
SIZES = (2, 4, 4, 8, 8, 16, 16, 32, 64)
Result = TypeVar("Result")


def build_plan(nodes: int) -> Plan:
    """Return TP8 PP2 where it divides, two micro-batches a replica: gradients are exchanged often and show."""
    pp = 2 if nodes >= 4 else 1
    dp = nodes // pp
    return Plan(tp=8, pp=pp, dp=dp, sequence_parallel=True, global_batch=2 * dp)


def time_best(times: int, what: Callable[[], Result]) -> tuple[Result, float, float]:
    """Return the result, the least wall time and the least CPU time [s]."""
    runs = [time_call(what) for _ in range(times)]
    return runs[-1][0], min(wall for _, wall, _ in runs), min(cpu for _, _, cpu in runs)


def measure(asked: argparse.Namespace) -> Found:
    """Print and return the figures."""
    nodes, jobs = (SHORT_NODES, SHORT_JOBS) if asked.short else (NODES, JOBS)
    print("-- as designed: 32 spines a pod, 16 cores each")
    found = judge_candidates(nodes, jobs, spines=32, cores_per_spine=16)
    print("-- everything in the way: 8 spines a pod, 2 cores each, and nothing of the communication is hidden")
    worse = judge_candidates(nodes, jobs, spines=8, cores_per_spine=2, hidden=False)
    found.figures = {key: max(value, worse.figures[key]) for key, value in found.figures.items()}
    print(f"peak memory {own_peak_bytes() / 1e6:.0f} MB")
    return found


def judge_candidates(nodes: int, jobs: int, *, spines: int, cores_per_spine: int, hidden: bool = True) -> Found:
    """Judge candidates on one fabric."""
    rails = find_rails(fabric := large_fabric(nodes, spines=spines, cores_per_spine=cores_per_spine))
    routes = build_routes(fabric, rails)
    fabric_links, wall, processor = time_best(1, lambda: build_links(fabric, rails, routes))
    print(f"numbering {fabric_links.links:,} links, once a fabric: {wall:.2f} s, {processor:.2f} s of CPU")
    steps = build_steps(as_cabled(catalogue_cluster("titan"), rails), hidden=hidden)
    dice, names = random.Random(1), [f"n{number}" for number in range(nodes)]
    loads, wall, processor = time_best(1, lambda: running_jobs(fabric_links, steps, dice, names, jobs))
    print(f"laying {len(loads)} jobs' traffic, once: {wall:.1f} s, {processor:.1f} s of CPU")
    running, wall, processor = time_best(1, lambda: RunningLoads.of(fabric_links.links, loads))
    print(
        f"preparing {running.job.size:,} entries: {wall:.3f} s, {processor:.3f} s of CPU; "
        f"{(running.present > 1).sum():,} links are asked for too much"
    )
    _, wall, processor = time_best(5, lambda: running.with_load(loads[0]))
    print(f"one job more: {wall:.3f} s, {processor:.3f} s of CPU")
    used = {node for load in loads for node in load.nodes}
    free = [name for name in names if name not in used]
    found = Found(figures={"candidate_s": 0.0})
    for size in (16, 128):
        shape = job_shape(DENSE, build_plan(size), 8, step=steps[size])
        chosen = dice.sample(free, size)
        found.figures["candidate_s"] = max(found.figures["candidate_s"], judge(fabric_links, shape, chosen, running))
        choice, wall, processor = time_best(1, lambda shape=shape: choose_nodes(fabric_links, shape, free, running))  # type: ignore[misc]
        print(f"  best and worst of {choice.considered} sets of nodes: {wall:.2f} s, {processor:.2f} s of CPU")
    found.curves["jobs"] = [
        (
            len(loads) // part,
            judge(fabric_links, shape, chosen, RunningLoads.of(fabric_links.links, loads[: len(loads) // part])),
        )
        for part in GROWTH
    ]
    return found


def build_steps(cluster: ClusterSpec, *, hidden: bool) -> dict[int, StepModel]:
    """Return the step of a job of each size."""
    if hidden:
        return {size: step_model(DENSE, build_plan(size), cluster) for size in {*SIZES, 128}}
    return dict.fromkeys({*SIZES, 128}, replace(COMMUNICATION_ONLY, other_s=2.0, is_whole=True))


def judge(fabric_links: FabricLinks, shape: JobShape, nodes: list[str], running: RunningLoads) -> float:
    """Judge one candidate; return the least CPU time [s]."""
    candidate, wall, processor = time_best(1, lambda: default_load("", fabric_links, shape, nodes))
    print(f"candidate of {len(nodes)} scattered nodes: laying its traffic {wall:.3f} s, {processor:.3f} s of CPU")
    found, wall, processor = time_best(5, lambda: interference(candidate, running))
    print(
        f"  against {len(running.loads)} jobs: {wall:.3f} s, {processor:.3f} s of CPU; shares {found.shared_links:,} "
        f"links with {len(found.neighbours)}, has {min(share.share for share in found.axes.values()):.2f} of their "
        f"rate left, step {found.alone_s:.1f} -> {found.step_s:.1f} s"
    )
    return processor


def running_jobs(
    fabric_links: FabricLinks, steps: dict[int, StepModel], dice: random.Random, names: Sequence[str], jobs: int
) -> list[Load]:
    """Return jobs on disjoint nodes: every other one in a row, the rest scattered over a pod or over the machine."""
    free = list(names)
    loads = []
    for number in range(jobs):
        size = dice.choice(SIZES)
        start = dice.randrange(len(free) - size)
        if number % 2 == 0:
            nodes = free[start : start + size]
        else:
            near = free[max(start - POD // 2, 0) :][:POD] if number % 4 == 1 else free
            nodes = dice.sample(near, min(size, len(near)))
        taken = set(nodes)
        free = [node for node in free if node not in taken]
        shape = job_shape(DENSE, build_plan(len(nodes)), 8, step=steps[len(nodes)])
        loads.append(default_load(str(number), fabric_links, shape, nodes))
    return loads


if __name__ == "__main__":
    run(measure, arguments(__doc__))
