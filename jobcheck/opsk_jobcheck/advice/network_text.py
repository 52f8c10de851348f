"""Renders the lines of advice on the network and on the jobs that share its links, one line each."""

from __future__ import annotations

from opsk.app.interference.document import LinkNames
from opsk.planning.interference.contention import Neighbour
from opsk.planning.interference.load import LoadKind
from opsk.text import format_share
from opsk_jobcheck.advice.advice import Advice, PlacementAdvice
from opsk_jobcheck.advice.node_choice import CLEAR_GAIN, Sharing
from opsk_jobcheck.cluster_state.state_header import OLD_S

NEGLIGIBLE = 0.005
"""Slow-downs below this are shown as none: the prediction is not that precise."""


def render_network(advice: Advice) -> str | None:
    """Return the placement of the job and its effect on traffic; ``None`` where there is nothing to report."""
    placed = advice.placement
    if placed.placement is None:
        return placed.why_not or None
    nodes = len(placed.placement.nodes)
    traffic, default = placed.placement.traffic, placed.placement.default_traffic
    if nodes == 1 or traffic.inter_node_bytes == 0:
        return "; ".join(filter(None, ("all traffic stays inside one node", _free_text(placed))))
    cabled = f", as cabled in {placed.fabric_from.rpartition('/')[2]}" if placed.fabric_from else ""
    rails = f"{placed.rails} rail{'' if placed.rails == 1 else 's'}"
    words = (
        _nodes_text(placed, nodes),
        "" if placed.is_free else _free_text(placed),
        f"{format_share(traffic.rail_local_fraction)} of the traffic between nodes stays on its rail "
        f"({format_share(default.rail_local_fraction)} in Slurm's default order), "
        f"{format_share(traffic.leaf_local_fraction)} on its leaf ({rails}{cabled})",
    )
    return "; ".join(filter(None, words))


def _nodes_text(placed: PlacementAdvice, nodes: int) -> str:
    """Return how compact the nodes are, whether they are free now, and the Slurm options that request them."""
    flags_text = f": ask for {' '.join(placed.slurm_flags)}" if placed.slurm_flags else ""
    whose = f"{nodes} of {placed.free_nodes} free nodes" if placed.is_free else f"{nodes} nodes"
    groups = "one leaf group" if placed.leaf_groups == 1 else f"{placed.leaf_groups} leaf groups"
    fit = f"fit under {groups}" if placed.leaf_groups == 1 else f"need {groups}"
    if placed.is_free and placed.leaf_groups > 1:
        fit = f"lie in {groups}{_slower_text(placed)}"
    return f"{whose} {fit}{_age_text(placed)}{flags_text}"


def _slower_text(placed: PlacementAdvice) -> str:
    """Return how much longer a step takes than on the most compact nodes of the whole fabric."""
    sharing = placed.sharing
    if sharing is None or not sharing.compact_step_s:
        return ""
    longer = sharing.interference.alone_s / sharing.compact_step_s - 1.0
    if longer < NEGLIGIBLE:
        return ", no slower than the most compact ones"
    waiting = " (--switches=1 waits for those)" if placed.live and placed.live.topology in (None, "tree") else ""
    return f", {longer:.0%} slower than the most compact ones{waiting}"


def _free_text(placed: PlacementAdvice) -> str:
    """Return how many of the nodes that the job needs are free, or why that is unknown."""
    if placed.live is None:
        return ""
    if placed.free_nodes is None:
        return f"free nodes not known: {placed.live_why_not}"
    if placed.is_free:
        return ""
    if placed.live_why_not:
        return placed.live_why_not
    age = _age_text(placed)
    if placed.free_nodes >= placed.asked_nodes:
        return f"free now{age}" if placed.asked_nodes == 1 else f"{placed.free_nodes} nodes are free now{age}"
    are = "node is" if placed.asked_nodes == 1 else "nodes are"
    return f"{placed.free_nodes} of {placed.asked_nodes} {are} free now{age}"


def _age_text(placed: PlacementAdvice) -> str:
    """Return how old the state is, where it is not recent."""
    live = placed.live
    return f" (as of {live.age_s / 60:.0f} min ago)" if live is not None and live.age_s >= OLD_S else ""


def render_sharing(advice: Advice, *, even_if_harmless: bool = False) -> str | None:
    """Return who shares the job's links and what that costs both; ``None`` where it costs neither anything.

    Parameters
    ----------
    even_if_harmless
        Also name the jobs that share links without any cost.
    """
    sharing = advice.placement.sharing
    if sharing is None:
        return None
    low, high = sharing.slowdowns
    met = sharing.interference.neighbours
    theirs = max((neighbour.slowdown_of_job for neighbour in met if neighbour.load.has_steps), default=0.0)
    if max(high, theirs) < NEGLIGIBLE and not (met and even_if_harmless):
        return None
    if not met:
        better = _better_nodes_text(advice, sharing)
        return f"no link with anybody on these nodes; on others up to {high:.0%} slower{better}"
    more = f" and {len(met) - 1} more" if len(met) > 1 else ""
    them = f", {'they' if more else 'it'} up to {theirs:.0%}" if theirs >= NEGLIGIBLE else ""
    return (
        f"{_traffic_name(met[0])}{more} on {_link_name(met[0], sharing)}: "
        f"{_effect_text(low, high)}{them}{_better_nodes_text(advice, sharing)}"
    )


def _effect_text(low: float, high: float) -> str:
    """Return how much slower the job will be, on these nodes and on the worst that Slurm may allocate."""
    if high < NEGLIGIBLE:
        return "no slower"
    if f"{low:.0%}" == f"{high:.0%}":
        return f"{high:.0%} slower"
    return f"up to {high:.0%} slower" if low < NEGLIGIBLE else f"{low:.0%} to {high:.0%} slower"


def _better_nodes_text(advice: Advice, sharing: Sharing) -> str:
    """Return the nodes to request, where others are clearly slower."""
    asked = [flag for flag in advice.placement.slurm_flags if flag.startswith("--nodelist=")]
    worst = sharing.choice.worst
    if not asked or not worst or worst[0].step_s <= CLEAR_GAIN * sharing.choice.best[0].step_s:
        return ""
    return f" → {asked[0]}"


def _traffic_name(neighbour: Neighbour) -> str:
    """Return the name of a neighbour's traffic."""
    name = neighbour.load.name
    match neighbour.load.kind:
        case LoadKind.STORAGE:
            return "storage traffic" if name == "storage" else f"storage traffic of job {name}"
        case LoadKind.BACKGROUND:
            return "traffic that no job explains"
        case _:
            return f"traffic of job {name}"


def _link_name(one: Neighbour, sharing: Sharing) -> str:
    """Return the name of the link with the highest common load: a leaf's uplinks, a node's HCA, or two switches."""
    fabric_links = sharing.fabric_links
    ends = fabric_links.ends(one.busiest)
    names = LinkNames(sharing.fabric, fabric_links).link(one.busiest)["names"]
    if fabric_links.is_hca(one.busiest):
        return f"the HCA {names[1] if ends[0] in fabric_links.rails.leaves else names[0]}"
    for guid, name in zip(ends, names, strict=True):
        if guid in fabric_links.rails.leaves:
            return f"{name}'s uplinks"
    return f"the cables between {names[0]} and {names[1]}"
