"""What does each finding of ``opsk fabric`` cost a job that lands there, in percent, and on what assumptions?"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import click

from opsk.app.inputs.cluster import named_cluster
from opsk.app.inputs.efficiency import load_efficiency
from opsk.config import load_site
from opsk.fabric.checks.repair import is_repairable
from opsk.fabric.fabric import Fabric, Fault
from opsk.fabric.rails import Rails
from opsk.hardware.catalog import cluster as catalogue_cluster
from opsk.hardware.spec import ClusterSpec
from opsk.planning.placement.fault_cost import FaultCost, FaultPricer, Repairs
from opsk.planning.placement.reference_jobs import reference_jobs
from opsk.planning.placement.step_model import as_cabled
from opsk.workload.completion import Assumption

_STAND_INS = ((20e9, "summit"), (40e9, "superpod-a100"), (90e9, "superpod-h100"), (math.inf, "superpod-gb200"))
"""Where no cluster is named: a catalogue cluster of the generation whose HCAs are as fast [bytes/s, less than]."""
_CABLES_LOOKED_AT = 2_000_000
"""Findings times cables that are priced, so that fabrics of 100,000 cables answer within seconds too; 5 at least."""
_FEWEST, _MOST = 5, 500
_MANY = 20
_NAMELESS = ("unnamed_hca", "generic_host_name", "duplicate_host_name")
"""Kinds of findings whose HCAs cannot be used, since no scheduler can name their host."""
_NOTICEABLE, _VISIBLE, _SAME = 5e-3, 5e-4, 1e-6
"""Shares: above which adaptive routing is asked too; that one digit of percent shows; that are rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a finding costs, and what it costs where switches route adaptively, when that was asked too."""

    cost: FaultCost
    adaptive: FaultCost | None = None


def priced_faults(
    fabric: Fabric, rails: Rails, faults: Sequence[Fault], cluster: str | None, *, adaptive: bool = False
) -> tuple[list[dict[str, Any]], list[Assumption]]:
    """Return findings as programs get them, with what they cost, and what had to be assumed for that.

    Raises
    ------
    ConfigError, InputError
        The site's configuration or the named cluster cannot be read.
    """
    most = min(max(_CABLES_LOOKED_AT // max(len(fabric.cables), 1), _FEWEST), _MOST)
    priceable = [fault for fault in faults if is_repairable(fault)] if rails.attachments else []
    prices: dict[int, Price] = {}
    assumed: list[Assumption] = []
    if priceable:
        prices, assumed = _prices(fabric, rails, priceable[:most], cluster, adaptive)
    if len(priceable) > most:
        why = f"the fabric is large: {most} of the {len(priceable)} findings that could be put right are predicted"
        assumed.append(Assumption(field="faults.predicted", value=None, why=why))
    hcas = sum(not hca.sharp for hca in fabric.hcas.values())
    return [_shown(fault, prices.get(id(fault)), hcas) for fault in faults], assumed


def _prices(
    fabric: Fabric, rails: Rails, faults: Sequence[Fault], named: str | None, adaptive: bool
) -> tuple[dict[int, Price], list[Assumption]]:
    """Return the price of each finding that has one, by its identity, and what was assumed."""
    site = load_site()
    efficiency = load_efficiency(site.efficiency)
    spec, assumed = _cluster(rails, named or site.cluster)
    jobs = lru_cache(maxsize=None)(lambda nodes: reference_jobs(spec, nodes, spec.node.gpus, efficiency))
    adaptive = adaptive or site.adaptive_routing
    repairs = Repairs(fabric, rails)
    pricer = FaultPricer(repairs, jobs, spec.node.gpus, adaptive=adaptive)
    other = FaultPricer(repairs, jobs, spec.node.gpus, adaptive=True)
    found: dict[int, Price] = {}
    for fault in _with_progress(faults):
        cost = pricer.price(fault)
        if cost is not None:
            asks = cost.default > _NOTICEABLE and not adaptive and repairs.changes_routes(fault)
            again = other.price(fault) if asks else None
            found[id(fault)] = Price(cost=cost, adaptive=again)
    return found, assumed


def _with_progress(faults: Sequence[Fault]) -> Iterator[Fault]:
    """Yield the findings, with a bar for who watches a terminal when there are many."""
    if len(faults) < _MANY or not sys.stderr.isatty():
        yield from faults
        return
    with click.progressbar(faults, label="pricing findings", file=sys.stderr) as bar:
        yield from bar


def _shown(fault: Fault, price: Price | None, hcas: int) -> dict[str, Any]:
    """Return one finding for programs."""
    said = _words(price) if price else ""
    numbers = _numbers(price) if price else None
    if price is None and fault.kind in _NAMELESS and fault.devices:
        share = len(fault.devices) / hcas
        said, numbers = f"{share:.1%} of the HCAs serve no job by name", {"unusable_percent": 100 * share}
    words = "; ".join(part for part in (fault.cost, said) if part)
    return {**_fields(fault), "cost": words, "predicted": numbers}


def _cluster(rails: Rails, name: str | None) -> tuple[ClusterSpec, list[Assumption]]:
    """Return the cluster whose jobs are priced, and what was assumed."""
    if name:
        return as_cabled(named_cluster(name), rails), []
    spec, why = _stand_in(rails)
    return as_cabled(spec, rails), [Assumption(field="cluster", value=spec.name, why=why)]


def _stand_in(rails: Rails) -> tuple[ClusterSpec, str]:
    """Return the catalogue cluster with HCAs as fast as these."""
    rates = sorted(hca.bytes_per_s for row in rails.attachments.values() for hca in row)
    rate = rates[len(rates) // 2] if rates else 0.0
    name = next(name for most, name in _STAND_INS if rate < most)
    return catalogue_cluster(name), "no cluster is named: GPUs of the generation whose HCAs are as fast as these"


def _fields(fault: Fault) -> dict[str, Any]:
    return {item.name: getattr(fault, item.name) for item in dataclasses.fields(fault)}


def _words(price: Price) -> str:
    """Return one clause for people."""
    cost = price.cost
    if math.isinf(cost.default) or math.isinf(cost.placed):
        return f"predicted: 100 % lost, {cost.job} cannot run across it"
    said = f"predicted: steps {_percent(cost.default)} longer for {cost.job}"
    if cost.rail_local_fraction < cost.rail_local_without - _SAME:
        local, without = cost.rail_local_fraction, cost.rail_local_without
        said += f", {local:.1%} of its traffic on its rail instead of {without:.1%}"
    if not math.isclose(cost.default, cost.placed, abs_tol=_VISIBLE):
        said += f" in Slurm's order, {_percent(cost.placed)} as opsk places it"
    if price.adaptive and not math.isclose(cost.default, price.adaptive.default, abs_tol=_VISIBLE):
        said += f" ({_percent(price.adaptive.default)} where switches route adaptively)"
    return said


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= _VISIBLE or share <= 0 else "under 0.1 %"


def _numbers(price: Price) -> dict[str, Any]:
    """Return the prediction for programs; no number where a job cannot run at all."""
    cost, adaptive = price.cost, price.adaptive or price.cost
    return {
        "slowdown_percent": 100 * cost.default if math.isfinite(cost.default) else None,
        "placed_slowdown_percent": 100 * cost.placed if math.isfinite(cost.placed) else None,
        "adaptive_slowdown_percent": 100 * adaptive.default if math.isfinite(adaptive.default) else None,
        "can_run": math.isfinite(cost.default) and math.isfinite(cost.placed),
        "job": cost.job,
        "nodes": cost.nodes,
        "rail_local_fraction": cost.rail_local_fraction,
        "rail_local_fraction_without": cost.rail_local_without,
    }
