"""Finds the best nodes for a job before Slurm has chosen any, among all or among those that are free now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from opsk.errors import OpskError, PlanInfeasibleError
from opsk.fabric.fabric import Fabric
from opsk.fabric.rails import Rails
from opsk.hostlist import fold
from opsk.planning.interference.contention import Interference, interference
from opsk.planning.interference.links import FabricLinks
from opsk.planning.interference.load import (
    JobShape,
    PlacedJob,
    default_load,
    job_shape,
    place_on_default_nodes,
    placed_load,
)
from opsk.planning.interference.node_choice import NodeChoice, choose_nodes
from opsk.planning.interference.running_loads import RunningLoads
from opsk.planning.placement.initial_placements import PlacementProblem
from opsk.planning.placement.node_order import unit_of_nodes
from opsk.planning.placement.placement import Placement, place
from opsk.planning.placement.step_model import COMMUNICATION_ONLY, StepModel
from opsk.planning.routing.routes import Routes
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan
from opsk_jobcheck.cluster_state.node_constraints import ANY_NODES, NodeConstraints
from opsk_jobcheck.cluster_state.state import LiveState

CANDIDATE = "candidate"
MAX_RANKS_EVALUATED = 384
"""Ranks of all sets of nodes together that are evaluated for one answer, at least two sets: tens of milliseconds."""
MAX_SETS = 3
CLEAR_GAIN = 1.05
"""A step that is longer by this factor justifies requesting certain nodes."""
MAX_FABRICS = 4
_UNITS: dict[int, tuple[Rails, dict[int | None, tuple[str, ...]]]] = {}
"""Units of the most recent fabrics, by identity: a service uses one again and again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """The other jobs on the links of the job, on the nodes that were chosen.

    Parameters
    ----------
    choice
        The best and worst sets among the free nodes that were evaluated.
    compact_step_s
        Step on the most compact nodes of the whole fabric, with unshared links [s].
    """

    interference: Interference
    shape: JobShape
    choice: NodeChoice
    fabric_links: FabricLinks
    fabric: Fabric
    free: tuple[str, ...]
    compact_step_s: float

    @property
    def slowdowns(self) -> tuple[float, float]:
        """Return how much the running jobs slow the job down, on the best and the worst of the sets [ratio]."""
        here = self.interference.slowdown
        others = [candidate.step_s / candidate.alone_s - 1.0 for candidate in self.choice.worst if candidate.alone_s]
        return here, max([here, *others])


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Free nodes for a job, its ranks on them, and the shared links; ``leaf_groups`` is the number of their units."""

    placement: Placement
    leaf_groups: int
    sharing: Sharing


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementAdvice:
    """The best placement of the ranks on the known fabric.

    Parameters
    ----------
    placement
        Ranks on ``placement.nodes``, the most compact set of nodes of the fabric; ``None`` when ``why_not`` gives the
        reason.
    leaf_groups
        Number of scalable units that the chosen nodes lie in.
    slurm_flags
        Options to pass to Slurm to get such nodes (``--switches=1``).
    fabric_from
        The dump that the fabric was read from: the evidence for all of this.
    asked_nodes
        How many nodes the job needs.
    free_nodes
        Number of eligible nodes that are free now; ``None`` where Slurm was not asked, or where ``live_why_not`` says
        why it is unknown.
    is_free
        True when the chosen nodes are free now; else the most compact of all are shown.
    live
        Slurm's last answer, and its age.
    sharing
        The other users of the links of the chosen nodes.
    """

    placement: Placement | None = None
    leaf_groups: int = 0
    slurm_flags: tuple[str, ...] = ()
    rails: int = 0
    fabric_from: str = ""
    why_not: str = ""
    asked_nodes: int = 0
    free_nodes: int | None = None
    is_free: bool = False
    live: LiveState | None = None
    live_why_not: str = ""
    sharing: Sharing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRequest:
    """The ranks of a job, and what it requests for them.

    Parameters
    ----------
    gpus_per_node, node_gpus
        GPUs of a node that the job uses, and all that the node has.
    gpu_type
        The type as requested from Slurm.
    step
        The rest of the step, besides communication between nodes.
    """

    model: ModelShape
    plan: Plan
    gpus_per_node: int
    node_gpus: int = 0
    gpu_type: str | None = None
    constraints: NodeConstraints = ANY_NODES
    step: StepModel = COMMUNICATION_ONLY

    @property
    def used_gpus(self) -> int:
        """The GPUs of each node that the ranks use."""
        return min(self.gpus_per_node, self.plan.gpus)

    def count_nodes(self) -> int:
        """Return the number of nodes that the plan needs.

        Raises
        ------
        PlanInfeasibleError
            When its GPUs do not fill them evenly.
        """
        gpus, per_node = self.plan.gpus, self.gpus_per_node
        if gpus % per_node and gpus > per_node:
            raise PlanInfeasibleError((f"{gpus} GPUs do not fill nodes of {per_node} evenly",))
        return max(1, gpus // per_node)


def advise_placement(request: PlacementRequest, rails: Rails, routes: Routes | None = None) -> PlacementAdvice:
    """Return the placement on the most compact nodes of the fabric.

    Free nodes are not considered; see ``advise_live_placement`` where Slurm was asked.

    Raises
    ------
    PlanInfeasibleError
        When the fabric has fewer nodes than the plan needs, or nodes cannot be filled evenly.
    """
    count = request.count_nodes()
    units = group_nodes_by_unit(rails)
    chosen = select_compact_nodes(units, count)
    groups = sum(1 for members in units.values() if set(members) & set(chosen))
    return PlacementAdvice(
        placement=place(
            PlacementProblem(
                model=request.model,
                plan=request.plan,
                rails=rails,
                nodes=chosen,
                gpus_per_node=request.used_gpus,
                routes=routes,
                step=request.step,
            ),
            searching=False,
        ),
        leaf_groups=groups,
        slurm_flags=("--switches=1",) if groups == 1 and count > 1 and len(units) > 1 else (),
        rails=rails.rail_count,
        asked_nodes=count,
    )


def advise_live_placement(
    request: PlacementRequest, live: LiveState, fabric_links: FabricLinks, fabric: Fabric
) -> PlacementAdvice:
    """Return the placement on the best nodes that are free now, or on the most compact ones where too few are.

    Without enough free nodes (their number is ``free_nodes``) the most compact nodes of the fabric are shown.

    Raises
    ------
    PlanInfeasibleError
        When the fabric has fewer nodes than the plan needs, or nodes cannot be filled evenly.
    """
    rails, count = fabric_links.rails, request.count_nodes()
    free, why_not = find_free_nodes(request, live)
    base = PlacementAdvice(
        asked_nodes=count,
        free_nodes=len(free) if free is not None else None,
        live=live,
        live_why_not=why_not,
        rails=rails.rail_count,
    )
    chosen: Chosen | None = None
    if free is not None and len(free) >= count:
        chosen = choose_free_nodes(request, free, live, fabric_links, fabric)
        if chosen is None:
            base = replace(base, live_why_not="the nodes that are free are not on the fabric that opsk was shown")
    if chosen is None:
        fallback = advise_placement(request, rails, fabric_links.routes)
        return replace(
            base,
            placement=fallback.placement,
            leaf_groups=fallback.leaf_groups,
            slurm_flags=fallback.slurm_flags if live.topology in (None, "tree") else (),
        )
    units = len(group_nodes_by_unit(rails))
    return replace(
        base,
        placement=chosen.placement,
        leaf_groups=chosen.leaf_groups,
        slurm_flags=build_slurm_flags(live, chosen.sharing, groups=chosen.leaf_groups, units=units),
        is_free=True,
        sharing=chosen.sharing,
    )


def find_free_nodes(request: PlacementRequest, live: LiveState) -> tuple[tuple[str, ...] | None, str]:
    """Return the nodes that are free for a job now, or ``None`` and why they are unknown."""
    constraints = request.constraints
    if not live.is_fresh:
        return None, f"Slurm has not answered for {live.age_s / 60:.0f} min"
    if constraints.unclear:
        return None, constraints.unclear
    if constraints.reservation is not None:
        return None, "which nodes a reservation holds is not asked for"
    if constraints.only and len(constraints.only) < request.count_nodes():
        return None, "--nodelist names a part of the nodes only"
    free = live.free(constraints, gpus=request.used_gpus, gpu_type=request.gpu_type)
    if constraints.only:
        named = set(constraints.only)
        free = tuple(node for node in free if node in named)
    return free, ""


def choose_free_nodes(
    request: PlacementRequest, free: Sequence[str], live: LiveState, fabric_links: FabricLinks, fabric: Fabric
) -> Chosen | None:
    """Return the best nodes among those that are free now; ``None`` where too few of them are on the fabric.

    Raises
    ------
    PlanInfeasibleError
        When the plan's groups do not divide.
    """
    shape = job_shape(request.model, request.plan, request.used_gpus, step=request.step, node_gpus=request.node_gpus)
    compact = select_compact_nodes(group_nodes_by_unit(fabric_links.rails), request.count_nodes())
    running = live.wire.running if live.wire is not None else RunningLoads.of(fabric_links.links, ())
    sets = max(2, min(MAX_SETS, MAX_RANKS_EVALUATED // max(shape.plan.gpus, 1)))
    evaluated: dict[tuple[str, ...], PlacedJob] = {}
    choice = choose_nodes(
        fabric_links, shape, free, running, max_evaluated=sets, around=live.around, evaluated=evaluated
    )
    if not choice.best:
        return None
    best_placement = evaluated[choice.best[0].nodes]
    placement = place_on_default_nodes(request.model, fabric_links, shape, best_placement)
    if placement.is_default:
        load = replace(best_placement.load, name=CANDIDATE)
    else:
        load = placed_load(CANDIDATE, fabric_links, shape, placement)
    groups = len(set(unit_of_nodes(fabric_links.rails, placement.nodes).values()))
    compact_groups = len(set(unit_of_nodes(fabric_links.rails, compact).values())) if compact else groups
    return Chosen(
        placement=placement,
        leaf_groups=groups,
        sharing=Sharing(
            interference=interference(load, running),
            shape=shape,
            choice=choice,
            fabric_links=fabric_links,
            fabric=fabric,
            free=tuple(free),
            compact_step_s=_compact_step_s(fabric_links, shape, compact) if groups > compact_groups else load.step_s,
        ),
    )


def _compact_step_s(fabric_links: FabricLinks, shape: JobShape, compact: Sequence[str]) -> float:
    """Return the step on the most compact nodes; 0 where it cannot be predicted [s]."""
    try:
        return default_load(CANDIDATE, fabric_links, shape, compact).step_s
    except OpskError:
        return 0.0


def build_slurm_flags(live: LiveState, sharing: Sharing, *, groups: int, units: int) -> tuple[str, ...]:
    """Return the Slurm options that request the chosen nodes.

    Parameters
    ----------
    groups, units
        Number of units of the chosen nodes, and of the whole fabric.

    ``--switches`` works with a tree topology, ``--segment`` with a block topology. Nodes are requested by name only
    where others would be clearly slower: a job that names its nodes waits for exactly these.
    """
    nodes = sharing.shape.nodes
    if nodes > 1 and groups == 1 and units > 1:
        if live.topology == "block":
            return (f"--segment={nodes}",)
        if live.topology in (None, "tree"):
            return ("--switches=1",)
    choice = sharing.choice
    if live.topology != "block" and choice.worst and choice.worst[0].step_s > CLEAR_GAIN * choice.best[0].step_s:
        return (f"--nodelist={fold(choice.best[0].nodes)}",)
    return ()


def group_nodes_by_unit(rails: Rails) -> dict[int | None, tuple[str, ...]]:
    """Return the nodes of each scalable unit, in attachment order; a node belongs to the unit of most of its leaves."""
    cached = _UNITS.get(id(rails))
    if cached is None:
        if len(_UNITS) >= MAX_FABRICS:
            _UNITS.clear()
        cached = _UNITS[id(rails)] = (rails, _group_nodes_by_unit(rails))
    return cached[1]


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
