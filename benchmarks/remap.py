"""How fast is an answer after a failure? ``python -m benchmarks.remap``: 16,384 ranks on 10,000 x 8, three tiers.

Target: under 0.2 s for all options, once fabric, routes, and the job's placement with its loads are prepared; for a job
on nodes in a row, and for one on nodes scattered over all pods (every ring crosses the core). Wall and CPU time of the
first question of its kind, and of the best of three more.
"""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Sequence

from benchmarks.placement import MODEL, NODES, PLAN, USED
from opsk.hardware.catalog import cluster
from opsk.planner.network import routes_of
from opsk.planner.remap.named import Machine, named_failure
from opsk.planner.remap.remap import remap
from opsk.planner.remap.situation import Hosts, Situation, prepare
from opsk.planner.remap.terms import Terms
from opsk.planner.routes import Routes
from opsk.planner.step_model import as_cabled, step_model
from opsk.slurm.remap_commands import SlurmSite
from opsk.topology.design import rail_optimized_fabric
from opsk.topology.hb_domains import hb_domains
from opsk.topology.rails import Rails, find_rails

SPARES = 2
FREE = 1_000
REPEATED = 3


def main() -> None:
    fabric = rail_optimized_fabric(nodes=NODES, hcas=8, leaves=2560, spines=32, pods=20, cores_per_spine=16)
    rails = find_rails(fabric)
    routes = routes_of(fabric, rails)
    names = [f"n{number}" for number in range(NODES)]
    for label, order in (("nodes in a row", names), ("scattered nodes", random.Random(1).sample(names, NODES))):
        start = time.perf_counter()
        situation = _job(rails, routes, order)
        print(f"{label}: placement and loads, once a job: {time.perf_counter() - start:.2f} s")
        domains, _ = hb_domains(rails.attachments)
        machine = Machine(fabric=fabric, rails=rails, domains=domains, nodes=situation.job.nodes, node_gpus=8)
        leaf = rails.attachments[order[900]][3].leaf
        for word in (
            f"gpu:{order[5]}/3", f"node:{order[0]}", f"nic:{order[777]}/mlx5_2", f"leaf:{leaf}", f"hb:{order[1500]}",
        ):  # fmt: skip
            _ask(situation, machine, word)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


def _job(rails: Rails, routes: Routes, order: Sequence[str]) -> Situation:
    """Return the job on the first nodes, two spares, and free nodes behind them."""
    spec = as_cabled(cluster("superpod-h100"), rails)
    held = USED + SPARES
    return prepare(
        MODEL,
        PLAN,
        rails,
        [(order[rank // 8], rank % 8) for rank in range(PLAN.gpus)],
        Hosts(node_gpus=8, spares=order[USED:held], free=order[held : held + FREE], batch_host=order[0]),
        routes=routes,
        step=step_model(MODEL, PLAN, spec),
        cluster=spec,
    )


def _ask(situation: Situation, machine: Machine, word: str) -> None:
    """Print how long all options take."""
    failure = named_failure([word], machine)
    terms = Terms(job="4711", site=SlurmSite(release=(25, 11)))
    walls, cpus = [], []
    for _ in range(1 + REPEATED):
        wall, cpu = time.perf_counter(), time.process_time()
        answer = remap(situation, failure, terms)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    kinds = ", ".join(option.kind.value for option in answer.options)
    print(
        f"  {word}: first {walls[0]:.3f} s ({cpus[0]:.3f} s CPU), then {min(walls[1:]):.3f} s "
        f"({min(cpus[1:]):.3f} s CPU); {kinds}"
    )


if __name__ == "__main__":
    main()
