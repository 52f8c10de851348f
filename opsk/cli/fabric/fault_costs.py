"""Predicts what each finding of ``opsk fabric`` costs a job, in percent, and lists the assumptions."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import click

from opsk.app.inputs.cluster import load_cluster
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
_MAX_CABLE_CHECKS = 2_000_000
"""Findings times cables that are priced, so that fabrics of 100,000 cables take seconds; 5 findings at least."""
_MIN_PRICED, _MAX_PRICED = 5, 500
_MIN_FOR_PROGRESS = 20
_NAMELESS = ("unnamed_hca", "generic_host_name", "duplicate_host_name")
"""Kinds of findings whose HCAs cannot be used, since no scheduler can name their host."""
_NOTICEABLE, _VISIBLE, _SAME = 5e-3, 5e-4, 1e-6
"""Shares: above which adaptive routing is computed too; that one digit of percent shows; that are rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The cost of a finding, and its cost with adaptive routing, where that was computed."""

    cost: FaultCost
    adaptive: FaultCost | None = None


def price_faults(
    fabric: Fabric, rails: Rails, faults: Sequence[Fault], cluster: str | None, *, adaptive: bool = False
) -> tuple[list[dict[str, Any]], list[Assumption]]:
    """Return the JSON of findings with their cost, and the assumptions.

    Raises
    ------
    ConfigError, InputError
        The site's configuration or the named cluster cannot be read.
    """
    limit = min(max(_MAX_CABLE_CHECKS // max(len(fabric.cables), 1), _MIN_PRICED), _MAX_PRICED)
    priceable = [fault for fault in faults if is_repairable(fault)] if rails.attachments else []
    prices: dict[int, Price] = {}
    assumed: list[Assumption] = []
    if priceable:
        prices, assumed = _compute_prices(fabric, rails, priceable[:limit], cluster, adaptive)
    if len(priceable) > limit:
        why = f"the fabric is large: {limit} of the {len(priceable)} findings that could be put right are predicted"
        assumed.append(Assumption(field="faults.predicted", value=None, why=why))
    hcas = sum(not hca.sharp for hca in fabric.hcas.values())
    return [_build_fault(fault, prices.get(id(fault)), hcas) for fault in faults], assumed


def _compute_prices(
    fabric: Fabric, rails: Rails, faults: Sequence[Fault], name: str | None, adaptive: bool
) -> tuple[dict[int, Price], list[Assumption]]:
    """Return the price of each finding that has one, by its identity, and the assumptions."""
    site = load_site()
    efficiency = load_efficiency(site.efficiency)
    spec, assumed = _resolve_cluster(rails, name or site.cluster)
    jobs = lru_cache(maxsize=None)(lambda nodes: reference_jobs(spec, nodes, spec.node.gpus, efficiency))
    adaptive = adaptive or site.adaptive_routing
    repairs = Repairs(fabric, rails)
    pricer = FaultPricer(repairs, jobs, spec.node.gpus, adaptive=adaptive)
    other = FaultPricer(repairs, jobs, spec.node.gpus, adaptive=True)
    prices: dict[int, Price] = {}
    for fault in _show_progress(faults):
        cost = pricer.price(fault)
        if cost is not None:
            needs_adaptive = cost.default > _NOTICEABLE and not adaptive and repairs.changes_routes(fault)
            adaptive_cost = other.price(fault) if needs_adaptive else None
            prices[id(fault)] = Price(cost=cost, adaptive=adaptive_cost)
    return prices, assumed


def _show_progress(faults: Sequence[Fault]) -> Iterator[Fault]:
    """Yield the findings, with a progress bar on terminals when there are many."""
    if len(faults) < _MIN_FOR_PROGRESS or not sys.stderr.isatty():
        yield from faults
        return
    with click.progressbar(faults, label="pricing findings", file=sys.stderr) as bar:
        yield from bar


def _build_fault(fault: Fault, price: Price | None, hcas: int) -> dict[str, Any]:
    """Return one finding for programs."""
    text = _format_price(price) if price else ""
    numbers = _build_numbers(price) if price else None
    if price is None and fault.kind in _NAMELESS and fault.devices:
        share = len(fault.devices) / hcas
        text, numbers = f"{share:.1%} of the HCAs serve no job by name", {"unusable_percent": 100 * share}
    cost_text = "; ".join(part for part in (fault.cost, text) if part)
    return {**_read_fields(fault), "cost": cost_text, "predicted": numbers}


def _resolve_cluster(rails: Rails, name: str | None) -> tuple[ClusterSpec, list[Assumption]]:
    """Return the cluster whose jobs are priced, and the assumptions."""
    if name:
        return as_cabled(load_cluster(name), rails), []
    spec, why = _choose_stand_in(rails)
    return as_cabled(spec, rails), [Assumption(field="cluster", value=spec.name, why=why)]


def _choose_stand_in(rails: Rails) -> tuple[ClusterSpec, str]:
    """Return the catalogue cluster with HCAs as fast as these."""
    rates = sorted(hca.bytes_per_s for row in rails.attachments.values() for hca in row)
    rate = rates[len(rates) // 2] if rates else 0.0
    name = next(name for limit, name in _STAND_INS if rate < limit)
    return catalogue_cluster(name), "no cluster is named: GPUs of the generation whose HCAs are as fast as these"


def _read_fields(fault: Fault) -> dict[str, Any]:
    return {item.name: getattr(fault, item.name) for item in dataclasses.fields(fault)}


def _format_price(price: Price) -> str:
    """Return the price as one clause for people."""
    cost = price.cost
    if math.isinf(cost.default) or math.isinf(cost.placed):
        return f"predicted: 100 % lost, {cost.job} cannot run across it"
    text = f"predicted: steps {_format_percent(cost.default)} longer for {cost.job}"
    if cost.rail_local_fraction < cost.rail_local_without - _SAME:
        local, without = cost.rail_local_fraction, cost.rail_local_without
        text += f", {local:.1%} of its traffic on its rail instead of {without:.1%}"
    if not math.isclose(cost.default, cost.placed, abs_tol=_VISIBLE):
        text += f" in Slurm's order, {_format_percent(cost.placed)} as opsk places it"
    if price.adaptive and not math.isclose(cost.default, price.adaptive.default, abs_tol=_VISIBLE):
        text += f" ({_format_percent(price.adaptive.default)} where switches route adaptively)"
    return text


def _format_percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= _VISIBLE or share <= 0 else "under 0.1 %"


def _build_numbers(price: Price) -> dict[str, Any]:
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
