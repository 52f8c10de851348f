"""Before Slurm has chosen nodes: which nodes would suit the job best, and what would that do to its traffic?"""

from __future__ import annotations

from opsk.errors import PlanInfeasibleError
from opsk.planner.placement import place
from opsk.planner.routes import Routes
from opsk.planner.step_model import COMMUNICATION_ONLY, StepModel
from opsk.topology.rails import Rails
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan
from opsk_jobcheck.advice import PlacementAdvice


def advise_placement(
    model: ModelShape,
    plan: Plan,
    rails: Rails,
    *,
    gpus_per_node: int,
    routes: Routes | None = None,
    step: StepModel = COMMUNICATION_ONLY,
) -> PlacementAdvice:
    """Return the placement on the most compact nodes of the fabric.

    Which of them are free is left out: before the job is queued nobody knows which will be free when it starts.

    Raises
    ------
    PlanInfeasibleError
        When the fabric has fewer nodes than the plan needs, or nodes cannot be filled evenly.
    """
    if plan.gpus % gpus_per_node and plan.gpus > gpus_per_node:
        raise PlanInfeasibleError((f"{plan.gpus} GPUs do not fill nodes of {gpus_per_node} evenly",))
    count = max(1, plan.gpus // gpus_per_node)
    units = nodes_by_unit(rails)
    chosen = compact_nodes(units, count)
    groups = sum(1 for members in units.values() if set(members) & set(chosen))
    return PlacementAdvice(
        placement=place(
            model,
            plan,
            rails,
            chosen,
            gpus_per_node=min(gpus_per_node, plan.gpus),
            routes=routes,
            step=step,
            searching=False,
        ),
        leaf_groups=groups,
        slurm_flags=("--switches=1",) if groups == 1 and count > 1 and len(units) > 1 else (),
        rails=rails.rail_count,
    )


def nodes_by_unit(rails: Rails) -> dict[int | None, tuple[str, ...]]:
    """Return the nodes of each scalable unit, in attachment order; a node belongs to the unit of most of its leaves."""
    units: dict[int | None, list[str]] = {}
    for node, attachments in rails.attachments.items():
        votes = [
            leaf.unit for entry in attachments if (leaf := rails.leaves.get(entry.leaf)) and leaf.role == "compute"
        ]
        if votes:
            units.setdefault(max(set(votes), key=votes.count), []).append(node)
    return {unit: tuple(nodes) for unit, nodes in units.items()}


def compact_nodes(units: dict[int | None, tuple[str, ...]], count: int) -> tuple[str, ...]:
    """Return ``count`` nodes in as few units as possible: the smallest unit that holds them all, else largest first.

    Raises
    ------
    PlanInfeasibleError
        When all units together have fewer nodes.
    """
    total = sum(len(nodes) for nodes in units.values())
    if total < count:
        raise PlanInfeasibleError((f"the job needs {count} nodes, the fabric has {total}",))
    holding = [nodes for nodes in units.values() if len(nodes) >= count]
    if holding:
        return min(holding, key=len)[:count]
    chosen: list[str] = []
    for nodes in sorted(units.values(), key=len, reverse=True):
        chosen += nodes[: count - len(chosen)]
    return tuple(chosen)
