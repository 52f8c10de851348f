"""Before Slurm has chosen nodes: which nodes would suit the job best, and what would that do to its traffic?"""

from __future__ import annotations

from dataclasses import replace

from opsk.errors import PlanInfeasibleError
from opsk.fabric.fabric import Fabric
from opsk.fabric.rails import Rails
from opsk.planning.interference.load import job_shape
from opsk.planning.interference.wires import Wires
from opsk.planning.placement.placement import place
from opsk.planning.placement.step_model import COMMUNICATION_ONLY, StepModel
from opsk.planning.routing.routes import Routes
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan
from opsk_jobcheck.advice.advice import PlacementAdvice
from opsk_jobcheck.advice.node_choice import Chosen, asking, choose_among_free, free_now
from opsk_jobcheck.cluster_state.state import LiveState
from opsk_jobcheck.cluster_state.wanted import NodesWanted


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

    Which of them are free is left out; see ``advise_live_placement`` where Slurm was asked.

    Raises
    ------
    PlanInfeasibleError
        When the fabric has fewer nodes than the plan needs, or nodes cannot be filled evenly.
    """
    count = nodes_needed(plan, gpus_per_node)
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
        asked_nodes=count,
    )


def nodes_needed(plan: Plan, gpus_per_node: int) -> int:
    """Return how many nodes a plan needs.

    Raises
    ------
    PlanInfeasibleError
        When its GPUs do not fill them evenly.
    """
    if plan.gpus % gpus_per_node and plan.gpus > gpus_per_node:
        raise PlanInfeasibleError((f"{plan.gpus} GPUs do not fill nodes of {gpus_per_node} evenly",))
    return max(1, plan.gpus // gpus_per_node)


def advise_live_placement(
    model: ModelShape,
    plan: Plan,
    wires: Wires,
    fabric: Fabric,
    live: LiveState,
    wanted: NodesWanted,
    *,
    gpus_per_node: int,
    node_gpus: int,
    gpu_type: str | None = None,
    step: StepModel = COMMUNICATION_ONLY,
) -> PlacementAdvice:
    """Return the placement on the best nodes that are free now, or what is known of them where they are too few.

    Without enough free nodes (``free_nodes`` says how many there are) the most compact nodes of the fabric are shown.

    Raises
    ------
    PlanInfeasibleError
        When the fabric has fewer nodes than the plan needs, or nodes cannot be filled evenly.
    """
    rails, count = wires.rails, nodes_needed(plan, gpus_per_node)
    gpus = min(gpus_per_node, plan.gpus)
    free, why_not = free_now(live, wanted, count=count, gpus=gpus, gpu_type=gpu_type)
    known = PlacementAdvice(
        asked_nodes=count,
        free_nodes=len(free) if free is not None else None,
        live=live,
        live_why_not=why_not,
        rails=rails.rail_count,
    )
    chosen: Chosen | None = None
    units = nodes_by_unit(rails)
    if free is not None and len(free) >= count:
        shape = job_shape(model, plan, gpus, step=step, node_gpus=node_gpus)
        chosen = choose_among_free(
            model, shape, free, live, wires=wires, fabric=fabric, compact=compact_nodes(units, count)
        )
        if chosen is None:
            known = replace(known, live_why_not="the nodes that are free are not on the fabric that opsk was shown")
    if chosen is None:
        at_large = advise_placement(model, plan, rails, gpus_per_node=gpus_per_node, routes=wires.routes, step=step)
        return replace(
            known,
            placement=at_large.placement,
            leaf_groups=at_large.leaf_groups,
            slurm_flags=at_large.slurm_flags if live.topology in (None, "tree") else (),
        )
    return replace(
        known,
        placement=chosen.placement,
        leaf_groups=chosen.leaf_groups,
        slurm_flags=asking(live, chosen.sharing, groups=chosen.leaf_groups, units=len(units)),
        is_free=True,
        sharing=chosen.sharing,
    )


def nodes_by_unit(rails: Rails) -> dict[int | None, tuple[str, ...]]:
    """Return the nodes of each scalable unit, in attachment order; a node belongs to the unit of most of its leaves."""
    kept = _UNITS.get(id(rails))
    if kept is None:
        if len(_UNITS) >= MOST_FABRICS:
            _UNITS.clear()
        kept = _UNITS[id(rails)] = (rails, _nodes_by_unit(rails))
    return kept[1]


MOST_FABRICS = 4
_UNITS: dict[int, tuple[Rails, dict[int | None, tuple[str, ...]]]] = {}
"""Units of the fabrics that were asked about last, by identity: a service asks about one, again and again."""


def _nodes_by_unit(rails: Rails) -> dict[int | None, tuple[str, ...]]:
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
