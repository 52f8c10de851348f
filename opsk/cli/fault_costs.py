"""What does each finding of ``opsk fabric`` cost a job that lands there, in percent, and on what assumptions?"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from opsk.cli.cluster_choice import named_cluster
from opsk.cli.efficiency_choice import load_efficiency
from opsk.config import load_site
from opsk.hardware.catalog import cluster as catalogue_cluster
from opsk.hardware.spec import ClusterSpec
from opsk.planner.fault_cost import FaultCost, FaultPricer
from opsk.planner.reference_jobs import reference_jobs
from opsk.planner.step_model import as_cabled
from opsk.topology.cabling import read_cabling
from opsk.topology.fabric import Fabric, Fault
from opsk.topology.rails import Rails
from opsk.workload.completion import Assumption

_STAND_INS = ((20e9, "summit"), (40e9, "superpod-a100"), (90e9, "superpod-h100"), (math.inf, "superpod-gb200"))
"""Where no cluster is named: a catalogue cluster of the generation whose HCAs are as fast [bytes/s, less than]."""
_CABLES_LOOKED_AT = 2_000_000
"""Findings times cables that are priced, so that fabrics of 100,000 cables answer within seconds too; 5 at least."""
_FEWEST, _MOST = 5, 500


def priced_faults(
    fabric: Fabric, rails: Rails, faults: Sequence[Fault], cluster: str | None
) -> tuple[list[dict[str, Any]], list[Assumption]]:
    """Return findings as programs get them, with what they cost, and what had to be assumed for that.

    Raises
    ------
    ConfigError, InputError
        The site's configuration or the named cluster cannot be read.
    """
    pricer, assumed = _pricer(fabric, rails, cluster) if faults and rails.attachments else (None, [])
    most = min(max(_CABLES_LOOKED_AT // max(len(fabric.cables), 1), _FEWEST), _MOST)
    shown = []
    for fault, cost in zip(faults, _costs(pricer, faults, most), strict=True):
        words = "; ".join(part for part in (fault.cost, _words(cost) if cost else "") if part)
        shown.append({**_fields(fault), "cost": words, "predicted": _numbers(cost) if cost else None})
    unpriced = sum(1 for fault in faults if fault.nodes or fault.switches) - most
    if pricer and unpriced > 0:
        why = f"the fabric is large: the first {most} findings that can be put right are predicted"
        assumed.append(Assumption(field="faults.predicted", value=None, why=why))
    return shown, assumed


def _costs(pricer: FaultPricer | None, faults: Sequence[Fault], most: int) -> Iterator[FaultCost | None]:
    """Yield the cost of each finding."""
    left = most
    for fault in faults:
        cost = pricer.price(fault) if pricer and left > 0 else None
        left -= cost is not None
        yield cost


def _pricer(fabric: Fabric, rails: Rails, named: str | None) -> tuple[FaultPricer, list[Assumption]]:
    """Return what prices the findings of a fabric."""
    site = load_site()
    efficiency = load_efficiency(site.efficiency)
    name = named or site.cluster
    assumed = []
    if name:
        spec = named_cluster(name)
    else:
        spec, why = _stand_in(rails)
        assumed.append(Assumption(field="cluster", value=spec.name, why=why))
    spec = as_cabled(spec, rails)
    jobs = lru_cache(maxsize=None)(lambda nodes: reference_jobs(spec, nodes, spec.node.gpus, efficiency))
    return FaultPricer(fabric, rails, jobs, spec.node.gpus, cabling=read_cabling(fabric)), assumed


def _stand_in(rails: Rails) -> tuple[ClusterSpec, str]:
    """Return the catalogue cluster with HCAs as fast as these."""
    rates = sorted(hca.bytes_per_s for row in rails.attachments.values() for hca in row)
    rate = rates[len(rates) // 2] if rates else 0.0
    name = next(name for most, name in _STAND_INS if rate < most)
    return catalogue_cluster(name), "no cluster is named: GPUs of the generation whose HCAs are as fast as these"


def _fields(fault: Fault) -> dict[str, Any]:
    return {item.name: getattr(fault, item.name) for item in dataclasses.fields(fault)}


def _words(cost: FaultCost) -> str:
    """Return one clause for people."""
    if math.isinf(cost.default):
        return f"predicted: {cost.job} cannot run across it"
    longer = f"predicted: steps {_percent(cost.default)} longer for {cost.job}"
    if cost.rail_local_fraction < cost.rail_local_without - 1e-6:
        longer += f", {cost.rail_local_fraction:.1%} of its traffic on its rail instead of {cost.rail_local_without:.1%}"
    if math.isclose(cost.default, cost.placed, abs_tol=5e-4):
        return longer
    return f"{longer} in Slurm's order, {_percent(cost.placed)} as opsk places it"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 5e-4 or share <= 0 else "under 0.1 %"


def _numbers(cost: FaultCost) -> dict[str, Any]:
    """Return the prediction for programs; no number where a job cannot run at all."""
    return {
        "slowdown_percent": 100 * cost.default if math.isfinite(cost.default) else None,
        "placed_slowdown_percent": 100 * cost.placed if math.isfinite(cost.placed) else None,
        "can_run": math.isfinite(cost.default),
        "job": cost.job,
        "nodes": cost.nodes,
        "rail_local_fraction": cost.rail_local_fraction,
        "rail_local_fraction_without": cost.rail_local_without,
    }
