"""Chooses a job's nodes among those that are free now, and computes how it and running jobs slow each other down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from opsk.errors import OpskError
from opsk.fabric.fabric import Fabric
from opsk.hostlist import fold
from opsk.planning.interference.contention import Interference, interference
from opsk.planning.interference.links import FabricLinks
from opsk.planning.interference.load import JobShape, PlacedJob, default_load, place_on_default_nodes, placed_load
from opsk.planning.interference.node_choice import NodeChoice, choose_nodes
from opsk.planning.interference.running_loads import RunningLoads
from opsk.planning.placement.node_order import unit_of_nodes
from opsk.planning.placement.placement import Placement
from opsk.workload.model import ModelShape
from opsk_jobcheck.cluster_state.node_constraints import NodeConstraints
from opsk_jobcheck.cluster_state.state import LiveState

CANDIDATE = "candidate"
MAX_RANKS_EVALUATED = 384
"""Ranks of all sets of nodes together that are evaluated for one answer, at least two sets: tens of milliseconds."""
MAX_SETS = 3
CLEAR_GAIN = 1.05
"""A step that is longer by this factor justifies requesting certain nodes."""


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


def find_free_nodes(
    live: LiveState, constraints: NodeConstraints, *, count: int, gpus: int, gpu_type: str | None
) -> tuple[tuple[str, ...] | None, str]:
    """Return the nodes that are free for a job now, or ``None`` and why they are unknown."""
    if not live.is_fresh:
        return None, f"Slurm has not answered for {live.age_s / 60:.0f} min"
    if constraints.unclear:
        return None, constraints.unclear
    if constraints.reservation is not None:
        return None, "which nodes a reservation holds is not asked for"
    if constraints.only and len(constraints.only) < count:
        return None, "--nodelist names a part of the nodes only"
    free = live.free(constraints, gpus=gpus, gpu_type=gpu_type)
    if constraints.only:
        named = set(constraints.only)
        free = tuple(node for node in free if node in named)
    return free, ""


def choose_free_nodes(
    model: ModelShape,
    shape: JobShape,
    free: Sequence[str],
    live: LiveState,
    *,
    fabric_links: FabricLinks,
    fabric: Fabric,
    compact: Sequence[str],
) -> Chosen | None:
    """Return the best nodes among those that are free now; ``None`` where too few of them are on the fabric.

    Parameters
    ----------
    compact
        The most compact nodes of the whole fabric, for comparison.

    Raises
    ------
    PlanInfeasibleError
        When the plan's groups do not divide.
    """
    running = live.wire.running if live.wire is not None else RunningLoads.of(fabric_links.links, ())
    sets = max(2, min(MAX_SETS, MAX_RANKS_EVALUATED // max(shape.plan.gpus, 1)))
    evaluated: dict[tuple[str, ...], PlacedJob] = {}
    choice = choose_nodes(
        fabric_links, shape, free, running, max_evaluated=sets, around=live.around, evaluated=evaluated
    )
    if not choice.best:
        return None
    best_placement = evaluated[choice.best[0].nodes]
    placement = place_on_default_nodes(model, fabric_links, shape, best_placement)
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
