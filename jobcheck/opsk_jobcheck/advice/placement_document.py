"""Renders placement, free nodes and interference as JSON, with the keys of ``opsk place`` and the live state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opsk.app.interference.document import build_result_document
from opsk.errors import InputError
from opsk.hostlist import fold
from opsk_jobcheck.advice.advice import Advice, PlacementAdvice

NOT_ASKED = "Slurm was not asked for running jobs (--live; the advisor does so by itself)"


def placement_document(advice: Advice) -> dict[str, Any] | None:
    """Return the placement without its ranks (``opsk place`` lists them), or the reason why there is none."""
    placed = advice.placement
    if placed.placement is None:
        return {"why_not": placed.why_not} if placed.why_not else None
    traffic, default = placed.placement.traffic, placed.placement.default_traffic
    sharing = placed.sharing
    return {
        "fabric": placed.fabric_from or None,
        "nodes": placed.placement.nodes,
        "hostlist": _fold_nodes(placed.placement.nodes),
        "leaf_groups": placed.leaf_groups,
        "rails": placed.rails,
        "slurm_flags": placed.slurm_flags,
        "rail_local_fraction": traffic.rail_local_fraction,
        "leaf_local_fraction": traffic.leaf_local_fraction,
        "max_link_load": traffic.max_link_load,
        "inter_node_bytes": traffic.inter_node_bytes,
        "versus_default": {
            "rail_local_fraction": default.rail_local_fraction,
            "leaf_local_fraction": default.leaf_local_fraction,
            "max_link_load": default.max_link_load,
        },
        "step_s": traffic.step_s,
        "compact_step_s": sharing.compact_step_s if sharing is not None else None,
        "asked_nodes": placed.asked_nodes or None,
        "is_free": placed.is_free,
        "free": _render_free_nodes(placed),
    }


def _fold_nodes(nodes: Sequence[str]) -> str | None:
    """Return a host list; ``None`` for names of a dump that are no valid Slurm node names."""
    try:
        return fold(nodes)
    except InputError:
        return None


def _render_free_nodes(placed: PlacementAdvice) -> dict[str, Any] | None:
    """Return the free nodes; ``None`` where Slurm was not asked."""
    live = placed.live
    if live is None:
        return None
    return {
        "nodes": placed.free_nodes,
        "why_not": placed.live_why_not or None,
        "age_s": live.age_s,
        "source": live.source,
        "topology": live.topology,
        "running_jobs": live.running,
        "hidden_nodes": live.hidden_nodes,
    }


def interference_document(advice: Advice) -> dict[str, Any]:
    """Return the keys of ``opsk place``, with a range of slow-downs; without running jobs only ``why``."""
    placed = advice.placement
    live, sharing = placed.live, placed.sharing
    if live is None:
        return {"jobs": [], "why": NOT_ASKED}
    if sharing is None:
        return {
            "jobs": [],
            "why": placed.live_why_not or "there are too few free nodes to say on which links it will be",
        }
    if live.wire is None:
        return {"jobs": [], "why": "what the running jobs send is still being worked out"}
    low, high = sharing.slowdowns
    document = build_result_document(
        sharing.interference,
        sharing.choice,
        sharing.shape,
        sharing.fabric,
        sharing.fabric_links,
        live.wire,
        len(sharing.free),
    )
    return {**document, "slowdown": {"low": low, "high": high}, "age_s": live.age_s, "why": None}
