"""What does a candidate do to 500 running jobs, and they to it? ``python -m benchmarks.interference``: 10,000 nodes.

Target: under 0.1 s for a candidate whose ranks are seated, against all jobs, on a fabric of 10,000 nodes of 8 HCAs on
three tiers. Half of the jobs lie in a row, half are scattered over a pod or over all. Best of five, wall time and CPU
time. Laying the jobs' own traffic is done once, and one job at a time later.
"""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from opsk.hardware.catalog import cluster as catalogue_cluster
from opsk.hardware.spec import ClusterSpec
from opsk.planner.interference.contention import interference
from opsk.planner.interference.load import JobShape, Load, default_load, job_shape
from opsk.planner.interference.node_choice import choose_nodes
from opsk.planner.interference.running import RunningLoads
from opsk.planner.interference.wires import Wires, wires_of
from opsk.planner.network import routes_of
from opsk.planner.reference_jobs import DENSE
from opsk.planner.step_model import COMMUNICATION_ONLY, StepModel, as_cabled, step_model
from opsk.topology.design import rail_optimized_fabric
from opsk.topology.rails import find_rails
from opsk.workload.plan import Plan

NODES = 10_000
POD = 500
JOBS = 500
SIZES = (2, 4, 4, 8, 8, 16, 16, 32, 64)
Result = TypeVar("Result")


def plan_of(nodes: int) -> Plan:
    """Return TP8 PP2 where it divides, two micro-batches a replica: gradients are exchanged often and show."""
    pp = 2 if nodes >= 4 else 1
    dp = nodes // pp
    return Plan(tp=8, pp=pp, dp=dp, sequence_parallel=True, global_batch=2 * dp)


def best_of(times: int, what: Callable[[], Result]) -> tuple[Result, float, float]:
    """Return the result, the least wall time and the least CPU time [s]."""
    walls, processors = [], []
    for _ in range(times):
        wall, processor = time.perf_counter(), time.process_time()
        result = what()
        walls.append(time.perf_counter() - wall)
        processors.append(time.process_time() - processor)
    return result, min(walls), min(processors)


def main() -> None:
    print("-- as designed: 32 spines a pod, 16 cores each")
    measure(spines=32, cores_per_spine=16)
    print("-- everything in the way: 8 spines a pod, 2 cores each, and nothing of the communication is hidden")
    measure(spines=8, cores_per_spine=2, hidden=False)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


def measure(*, spines: int, cores_per_spine: int, hidden: bool = True) -> None:
    fabric = rail_optimized_fabric(
        nodes=NODES, hcas=8, leaves=2560, spines=spines, pods=20, cores_per_spine=cores_per_spine
    )
    rails = find_rails(fabric)
    routes = routes_of(fabric, rails)
    wires, wall, processor = best_of(1, lambda: wires_of(fabric, rails, routes))
    print(f"numbering {wires.links:,} links, once a fabric: {wall:.2f} s, {processor:.2f} s of CPU")
    steps = steps_of(as_cabled(catalogue_cluster("titan"), rails), hidden=hidden)
    dice = random.Random(1)
    loads, wall, processor = best_of(1, lambda: running_jobs(wires, steps, dice))
    print(f"laying {len(loads)} jobs' traffic, once: {wall:.1f} s, {processor:.1f} s of CPU")
    running, wall, processor = best_of(1, lambda: RunningLoads.of(wires.links, loads))
    print(
        f"preparing {running.job.size:,} entries: {wall:.3f} s, {processor:.3f} s of CPU; "
        f"{(running.present > 1).sum():,} links are asked for too much"
    )
    _, wall, processor = best_of(5, lambda: running.with_load(loads[0]))
    print(f"one job more: {wall:.3f} s, {processor:.3f} s of CPU")
    used = {node for load in loads for node in load.nodes}
    free = [f"n{number}" for number in range(NODES) if f"n{number}" not in used]
    for size in (16, 128):
        judge(wires, job_shape(DENSE, plan_of(size), 8, step=steps[size]), dice.sample(free, size), running)
        shape = job_shape(DENSE, plan_of(size), 8, step=steps[size])
        choice, wall, processor = best_of(1, lambda shape=shape: choose_nodes(wires, shape, free, running))
        print(f"  best and worst of {choice.considered} sets of nodes: {wall:.2f} s, {processor:.2f} s of CPU")


def steps_of(cluster: ClusterSpec, *, hidden: bool) -> dict[int, StepModel]:
    """Return the step of a job of each size."""
    if hidden:
        return {size: step_model(DENSE, plan_of(size), cluster) for size in {*SIZES, 128}}
    return dict.fromkeys({*SIZES, 128}, replace(COMMUNICATION_ONLY, other_s=2.0, is_whole=True))


def judge(wires: Wires, shape: JobShape, nodes: list[str], running: RunningLoads) -> None:
    """Judge one candidate."""
    candidate, wall, processor = best_of(1, lambda: default_load("", wires, shape, nodes))
    print(f"candidate of {len(nodes)} scattered nodes: laying its traffic {wall:.3f} s, {processor:.3f} s of CPU")
    found, wall, processor = best_of(5, lambda: interference(candidate, running))
    print(
        f"  against {len(running.loads)} jobs: {wall:.3f} s, {processor:.3f} s of CPU; shares {found.shared_links:,} "
        f"links with {len(found.neighbours)}, has {min(share.share for share in found.axes.values()):.2f} of their "
        f"rate left, step {found.alone_s:.1f} -> {found.step_s:.1f} s"
    )


def running_jobs(wires: Wires, steps: dict[int, StepModel], dice: random.Random) -> list[Load]:
    """Return jobs on disjoint nodes: every other one in a row, the rest scattered over a pod or over the machine."""
    free = [f"n{number}" for number in range(NODES)]
    loads = []
    for number in range(JOBS):
        size = dice.choice(SIZES)
        start = dice.randrange(len(free) - size)
        if number % 2 == 0:
            nodes = free[start : start + size]
        else:
            near = free[max(start - POD // 2, 0) :][:POD] if number % 4 == 1 else free
            nodes = dice.sample(near, min(size, len(near)))
        taken = set(nodes)
        free = [node for node in free if node not in taken]
        shape = job_shape(DENSE, plan_of(len(nodes)), 8, step=steps[len(nodes)])
        loads.append(default_load(str(number), wires, shape, nodes))
    return loads


if __name__ == "__main__":
    main()
