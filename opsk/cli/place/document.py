"""Builds the JSON document of ``opsk place``."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from typing import Any

from opsk.app.inputs.placement import PlacementInputs
from opsk.fabric.cabling import shorten_name
from opsk.fabric.fabric import Fabric, Fault
from opsk.fabric.hb_domains import HbDomain
from opsk.planning.placement.launch import build_launch, sharp_switches
from opsk.planning.placement.placement import AxisLoad, Placement, TrafficShare

_NUMBERS = ("rail_local_fraction", "leaf_local_fraction", "max_link_load", "inter_node_bytes", "tp_inter_node_bytes")


def build_place_document(inputs: PlacementInputs, placement: Placement) -> dict[str, Any]:
    """Return ranks, traffic, comparison with Slurm's default order, and the launcher's settings."""
    launch = build_launch(
        placement,
        inputs.rails,
        devices_known=not inputs.is_designed,
        domains=_build_domains(inputs),
        sharp=sharp_switches(inputs.fabric),
        release=inputs.release,
    )
    return {
        "model": inputs.model.name,
        "plan": inputs.plan,
        "job": inputs.job.label if inputs.job else None,
        "fabric": inputs.fabric.source,
        "rank_order": placement.order,
        "gpus_per_node": inputs.gpus_per_node,
        "nodes": placement.nodes,
        "spare_nodes": placement.spare_nodes,
        **build_traffic_document(inputs.fabric, placement),
        "needs_rank_file": placement.needs_rank_file,
        "rank_file": launch.rank_file,
        "host_file": launch.rank_file,
        "mpi_rank_file": launch.mpi_rank_file,
        "torchrun": launch.torchrun,
        "gpu_order": launch.gpu_order,
        "nccl_env": launch.nccl_env,
        "slurm_flags": launch.slurm_flags,
        "notes": launch.notes,
        "assumed": inputs.assumed,
        "problems": _list_problems(placement),
        "faults": _filter_faults(inputs, placement),
        "ranks": placement.ranks,
    }


def build_traffic_document(fabric: Fabric, placement: Placement) -> dict[str, Any]:
    """Return the traffic, the predicted step, and both for Slurm's default order."""
    return {
        **_read_numbers(placement.traffic),
        "busiest_cable": _build_cable(fabric, placement.traffic),
        "predicted": _build_prediction(fabric, placement),
        "versus_default": {
            **_read_numbers(placement.default_traffic),
            "difference": _compute_difference(placement.traffic, placement.default_traffic),
            "is_kept": placement.is_default,
        },
    }


def _build_prediction(fabric: Fabric, placement: Placement) -> dict[str, Any]:
    """Return the predicted step, or its communication alone, against Slurm's order and the lower bound."""
    ours, default = placement.traffic.step_s, placement.default_traffic.step_s
    return {
        "what": "step" if placement.is_whole_step else "communication",
        "step_s": ours,
        "default_step_s": default,
        "default_is_slower_by": default / ours - 1.0 if ours and math.isfinite(ours) else 0.0,
        "lower_bound_s": placement.least_step_s,
        "gap": placement.gap,
        "is_optimal": placement.is_optimal,
        "axes": {axis: _build_axis(fabric, load) for axis, load in placement.traffic.axes.items()},
        "default_axes": {axis: _build_axis(fabric, load) for axis, load in placement.default_traffic.axes.items()},
    }


def _build_axis(fabric: Fabric, load: AxisLoad) -> dict[str, Any]:
    """Return the busiest link of an axis, and its busy time."""
    names = [
        shorten_name(fabric.switches[guid].description) if guid in fabric.switches
        else fabric.hcas[guid].description if guid in fabric.hcas else guid
        for guid in load.link
    ]  # fmt: skip
    return {"busy_s": load.busy_s, "link": load.link, "names": names}


def _build_domains(inputs: PlacementInputs) -> list[HbDomain]:
    """Return the multi-node HB domains of the node files."""
    members: defaultdict[str, list[str]] = defaultdict(list)
    for node, name in (inputs.hb_domains or {}).items():
        members[name].append(node)
    return [HbDomain(name=name, nodes=tuple(nodes)) for name, nodes in members.items()]


def _read_numbers(traffic: TrafficShare) -> dict[str, float]:
    """Return the numbers of one order; an infinite load (leaves without a path) becomes ``null``."""
    return {name: getattr(traffic, name) for name in _NUMBERS}


def _compute_difference(ours: TrafficShare, default: TrafficShare) -> dict[str, float]:
    """Return ours minus the default's; ``null`` where one is infinite."""
    return {
        name: getattr(ours, name) - getattr(default, name)
        if math.isfinite(getattr(ours, name)) and math.isfinite(getattr(default, name))
        else math.nan
        for name in _NUMBERS
    }


def _build_cable(fabric: Fabric, traffic: TrafficShare) -> dict[str, Any] | None:
    """Return the busiest cable by guid and by name."""
    if traffic.busiest_cable is None:
        return None
    names = [shorten_name(fabric.switches[guid].description) for guid in traffic.busiest_cable]
    return {"from": traffic.busiest_cable[0], "to": traffic.busiest_cable[1], "names": names}


def _list_problems(placement: Placement) -> list[dict[str, str]]:
    """Return the problems that make the numbers unreliable."""
    problems = []
    if placement.unknown_nodes:
        some = ", ".join(placement.unknown_nodes[:4])
        problems.append(
            {
                "what": f"{len(placement.unknown_nodes)} nodes are not on the fabric ({some})",
                "hint": "their traffic counts as not local; record the fabric again while they are up",
            }
        )
    if not math.isfinite(placement.traffic.max_link_load):
        problems.append(
            {"what": "some leaves have no path to each other", "hint": "see `opsk fabric`, or use nodes of one unit"}
        )
    return problems


def _filter_faults(inputs: PlacementInputs, placement: Placement) -> list[Fault]:
    """Return the cabling faults of the job's nodes and leaves; unnamed HCAs there belong to others."""
    names = set(placement.nodes) | {rank.leaf for rank in placement.ranks if rank.leaf}
    return [
        fault
        for fault in inputs.rails.faults
        if fault.kind != "unnamed_hca" and names.intersection(re.findall(r"[\w.-]+", fault.where))
    ]
