"""Which of the nodes that are free now should a job have, and what do it and the running jobs then cost each other?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from opsk.errors import OpskError
from opsk.fabric.fabric import Fabric
from opsk.hostlist import fold
from opsk.planning.interference.contention import Interference, interference
from opsk.planning.interference.load import JobShape, Seated, default_load, placed_load, placement_of_seated
from opsk.planning.interference.node_choice import NodeChoice, choose_nodes
from opsk.planning.interference.running import RunningLoads
from opsk.planning.interference.wires import Wires
from opsk.planning.placement.node_order import unit_of_nodes
from opsk.planning.placement.placement import Placement
from opsk.workload.model import ModelShape
from opsk_jobcheck.cluster_state.state import LiveState
from opsk_jobcheck.cluster_state.wanted import NodesWanted

CANDIDATE = "candidate"
RANKS_JUDGED = 384
"""Ranks of all sets of nodes together that are judged for one answer, two sets in any case: tens of milliseconds."""
MOST_SETS = 3
CLEARLY = 1.05
"""A step that is longer by this factor is worth asking for certain nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Who else is on the links of the job, if it gets the nodes that were chosen.

    Parameters
    ----------
    choice
        The best and worst sets among the free nodes that were judged.
    compact_step_s
        Step on the most compact nodes of the whole fabric, with links for itself [s].
    """

    found: Interference
    shape: JobShape
    choice: NodeChoice
    wires: Wires
    fabric: Fabric
    free: tuple[str, ...]
    compact_step_s: float

    @property
    def slowdowns(self) -> tuple[float, float]:
        """Return by how much the running jobs slow the job down, on the best and the worst of the sets [ratio]."""
        here = self.found.slowdown
        others = [one.step_s / one.alone_s - 1.0 for one in self.choice.worst if one.alone_s]
        return here, max([here, *others])


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Free nodes for a job, its ranks on them, and what that shares; ``leaf_groups`` is the number of their units."""

    placement: Placement
    leaf_groups: int
    sharing: Sharing


def free_now(
    live: LiveState, wanted: NodesWanted, *, count: int, gpus: int, gpu_type: str | None
) -> tuple[tuple[str, ...] | None, str]:
    """Return the nodes that are free for a job now, or ``None`` and why that cannot be told."""
    if not live.is_fresh:
        return None, f"Slurm has not answered for {live.age_s / 60:.0f} min"
    if wanted.unclear:
        return None, wanted.unclear
    if wanted.reservation is not None:
        return None, "which nodes a reservation holds is not asked for"
    if wanted.only and len(wanted.only) < count:
        return None, "--nodelist names a part of the nodes only"
    free = live.free(wanted, gpus=gpus, gpu_type=gpu_type)
    if wanted.only:
        named = set(wanted.only)
        free = tuple(node for node in free if node in named)
    return free, ""


def choose_among_free(
    model: ModelShape,
    shape: JobShape,
    free: Sequence[str],
    live: LiveState,
    *,
    wires: Wires,
    fabric: Fabric,
    compact: Sequence[str],
) -> Chosen | None:
    """Return the best nodes among those that are free now; ``None`` where the fabric shows too few of them.

    Parameters
    ----------
    compact
        The most compact nodes of the whole fabric, to compare with.

    Raises
    ------
    PlanInfeasibleError
        When the plan's groups do not divide.
    """
    running = live.wire.running if live.wire is not None else RunningLoads.of(wires.links, ())
    sets = max(2, min(MOST_SETS, RANKS_JUDGED // max(shape.plan.gpus, 1)))
    seated: dict[tuple[str, ...], Seated] = {}
    choice = choose_nodes(wires, shape, free, running, at_most=sets, around=live.around, seated=seated)
    if not choice.best:
        return None
    on_best = seated[choice.best[0].nodes]
    placement = placement_of_seated(model, wires, shape, on_best)
    if placement.is_default:
        load = replace(on_best.load, name=CANDIDATE)
    else:
        load = placed_load(CANDIDATE, wires, shape, placement)
    groups = len(set(unit_of_nodes(wires.rails, placement.nodes).values()))
    at_best = len(set(unit_of_nodes(wires.rails, compact).values())) if compact else groups
    return Chosen(
        placement=placement,
        leaf_groups=groups,
        sharing=Sharing(
            found=interference(load, running),
            shape=shape,
            choice=choice,
            wires=wires,
            fabric=fabric,
            free=tuple(free),
            compact_step_s=_compact_step_s(wires, shape, compact) if groups > at_best else load.step_s,
        ),
    )


def _compact_step_s(wires: Wires, shape: JobShape, compact: Sequence[str]) -> float:
    """Return the step on the most compact nodes; 0 where it cannot be told [s]."""
    try:
        return default_load(CANDIDATE, wires, shape, compact).step_s
    except OpskError:
        return 0.0


def asking(live: LiveState, sharing: Sharing, *, groups: int, units: int) -> tuple[str, ...]:
    """Return what to ask of Slurm for the chosen nodes.

    Parameters
    ----------
    groups, units
        Units that the chosen nodes lie in, and units of the whole fabric.

    ``--switches`` means something where Slurm knows a tree, ``--segment`` where it knows blocks. Names of nodes are
    asked for only where others would be clearly slower: a job that names its nodes waits for just these.
    """
    nodes = sharing.shape.nodes
    if nodes > 1 and groups == 1 and units > 1:
        if live.topology == "block":
            return (f"--segment={nodes}",)
        if live.topology in (None, "tree"):
            return ("--switches=1",)
    choice = sharing.choice
    if live.topology != "block" and choice.worst and choice.worst[0].step_s > CLEARLY * choice.best[0].step_s:
        return (f"--nodelist={fold(choice.best[0].nodes)}",)
    return ()
