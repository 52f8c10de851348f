"""Finds the best nodes for a job before Slurm has chosen any, and predicts the effect on its traffic."""

from __future__ import annotations

from dataclasses import replace

from opsk.errors import PlanInfeasibleError
from opsk.fabric.fabric import Fabric
from opsk.fabric.rails import Rails
from opsk.planning.interference.links import FabricLinks
from opsk.planning.interference.load import job_shape
from opsk.planning.placement.placement import place
from opsk.planning.placement.step_model import COMMUNICATION_ONLY, StepModel
from opsk.planning.routing.routes import Routes
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan
from opsk_jobcheck.advice.advice import PlacementAdvice
from opsk_jobcheck.advice.node_choice import Chosen, build_slurm_flags, choose_free_nodes, find_free_nodes
from opsk_jobcheck.cluster_state.node_constraints import NodeConstraints
from opsk_jobcheck.cluster_state.state import LiveState


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

    Free nodes are not considered; see ``advise_live_placement`` where Slurm was asked.

    Raises
    ------
    PlanInfeasibleError
        When the fabric has fewer nodes than the plan needs, or nodes cannot be filled evenly.
    """
    count = count_nodes(plan, gpus_per_node)
    units = group_nodes_by_unit(rails)
    chosen = select_compact_nodes(units, count)
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


def count_nodes(plan: Plan, gpus_per_node: int) -> int:
    """Return the number of nodes that a plan needs.

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
    fabric_links: FabricLinks,
    fabric: Fabric,
    live: LiveState,
    constraints: NodeConstraints,
    *,
    gpus_per_node: int,
    node_gpus: int,
    gpu_type: str | None = None,
    step: StepModel = COMMUNICATION_ONLY,
) -> PlacementAdvice:
    """Return the placement on the best nodes that are free now, or on the most compact ones where too few are.

    Without enough free nodes (their number is ``free_nodes``) the most compact nodes of the fabric are shown.

    Raises
    ------
    PlanInfeasibleError
        When the fabric has fewer nodes than the plan needs, or nodes cannot be filled evenly.
    """
    rails, count = fabric_links.rails, count_nodes(plan, gpus_per_node)
    gpus = min(gpus_per_node, plan.gpus)
    free, why_not = find_free_nodes(live, constraints, count=count, gpus=gpus, gpu_type=gpu_type)
    base = PlacementAdvice(
        asked_nodes=count,
        free_nodes=len(free) if free is not None else None,
        live=live,
        live_why_not=why_not,
        rails=rails.rail_count,
    )
    chosen: Chosen | None = None
    units = group_nodes_by_unit(rails)
    if free is not None and len(free) >= count:
        shape = job_shape(model, plan, gpus, step=step, node_gpus=node_gpus)
        chosen = choose_free_nodes(
            model,
            shape,
            free,
            live,
            fabric_links=fabric_links,
            fabric=fabric,
            compact=select_compact_nodes(units, count),
        )
        if chosen is None:
            base = replace(base, live_why_not="the nodes that are free are not on the fabric that opsk was shown")
    if chosen is None:
        fallback = advise_placement(
            model, plan, rails, gpus_per_node=gpus_per_node, routes=fabric_links.routes, step=step
        )
        return replace(
            base,
            placement=fallback.placement,
            leaf_groups=fallback.leaf_groups,
            slurm_flags=fallback.slurm_flags if live.topology in (None, "tree") else (),
        )
    return replace(
        base,
        placement=chosen.placement,
        leaf_groups=chosen.leaf_groups,
        slurm_flags=build_slurm_flags(live, chosen.sharing, groups=chosen.leaf_groups, units=len(units)),
        is_free=True,
        sharing=chosen.sharing,
    )


def group_nodes_by_unit(rails: Rails) -> dict[int | None, tuple[str, ...]]:
    """Return the nodes of each scalable unit, in attachment order; a node belongs to the unit of most of its leaves."""
    cached = _UNITS.get(id(rails))
    if cached is None:
        if len(_UNITS) >= MAX_FABRICS:
            _UNITS.clear()
        cached = _UNITS[id(rails)] = (rails, _group_nodes_by_unit(rails))
    return cached[1]


MAX_FABRICS = 4
_UNITS: dict[int, tuple[Rails, dict[int | None, tuple[str, ...]]]] = {}
"""Units of the most recent fabrics, by identity: a service uses one again and again."""


def _group_nodes_by_unit(rails: Rails) -> dict[int | None, tuple[str, ...]]:
    units: dict[int | None, list[str]] = {}
    for node, attachments in rails.attachments.items():
        votes = [
            leaf.unit for entry in attachments if (leaf := rails.leaves.get(entry.leaf)) and leaf.role == "compute"
        ]
        if votes:
            units.setdefault(max(set(votes), key=votes.count), []).append(node)
    return {unit: tuple(nodes) for unit, nodes in units.items()}


def select_compact_nodes(units: dict[int | None, tuple[str, ...]], count: int) -> tuple[str, ...]:
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
