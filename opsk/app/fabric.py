"""Builds the document of ``opsk fabric``: the cabling, and what each finding costs a job, in percent."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

from opsk.app.inputs.fabric_files import build_routes_document
from opsk.app.inputs.named_inputs import load_cluster, load_efficiency
from opsk.app.inputs.node_files import build_nodes_document, match_fabric_names
from opsk.config import load_site
from opsk.errors import ConfigError, InputError
from opsk.fabric.bandwidth import compute_oversubscription
from opsk.fabric.checks.repair import is_repairable
from opsk.fabric.fabric import Fabric, Fault
from opsk.fabric.graph import summarise_fabric
from opsk.fabric.hb_domains import find_hb_domains
from opsk.fabric.hosts.hosts import COMPUTE
from opsk.fabric.hosts.ports import natural_key
from opsk.fabric.networks import find_networks
from opsk.fabric.node.node_topology import NodeTopology
from opsk.fabric.rails import Rails
from opsk.hardware.catalog import cluster as catalogue_cluster
from opsk.hardware.spec import ClusterSpec
from opsk.hostlist import expand
from opsk.planning.placement.fault_cost import FaultCost, FaultPricer, Repairs
from opsk.planning.placement.step_model import as_cabled, reference_jobs
from opsk.text import read_fields
from opsk.workload.completion import Assumption

_STAND_INS = ((20e9, "summit"), (40e9, "superpod-a100"), (90e9, "superpod-h100"), (math.inf, "superpod-gb200"))
"""Where no cluster is named: a catalogue cluster of the generation whose HCAs are as fast [bytes/s, less than]."""
_MAX_CABLE_CHECKS = 2_000_000
"""Findings times cables that are priced, so that fabrics of 100,000 cables take seconds; 5 findings at least."""
_MIN_PRICED, _MAX_PRICED = 5, 500
_NAMELESS = ("unnamed_hca", "generic_host_name", "duplicate_host_name")
"""Kinds of findings whose HCAs cannot be used, since no scheduler can name their host."""
_NOTICEABLE, _VISIBLE, _SAME = 5e-3, 5e-4, 1e-6
"""Shares: above which adaptive routing is computed too; that one digit of percent shows; that are rounding."""
_OUTSIDE_BRACKETS = re.compile(r",(?![^\[]*\])")


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricRequest:
    """What ``opsk fabric`` adds to a dump.

    Parameters
    ----------
    node_files
        Nodes by host name, from files that describe nodes.
    tables
        Files with forwarding tables.
    cluster, adaptive
        The cluster whose jobs are priced, and whether its switches route adaptively.
    show_progress
        Passes the findings on, one by one, while their cost is computed.
    """

    node_files: Mapping[str, NodeTopology] = field(default_factory=dict)
    tables: Sequence[Path] = ()
    cluster: str | None = None
    adaptive: bool = False
    show_progress: Callable[[Sequence[Fault]], Iterable[Fault]] = iter


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The cost of a finding, and its cost with adaptive routing, where that was computed."""

    cost: FaultCost
    adaptive: FaultCost | None = None


def read_site_roles() -> dict[str, frozenset[str]]:
    """Return the names under each role of ``fabric_roles`` in opsk.toml; patterns with ``*`` are not expanded.

    Raises
    ------
    ConfigError
        When one is no host list.
    """
    return {role: _expand_role(role, text) for role, text in load_site().fabric_roles.items()}


def find_site_compute_nodes(fabric: Fabric, roles: Mapping[str, Collection[str]]) -> frozenset[str] | None:
    """Return the hosts of a fabric that the site calls compute nodes; ``None`` when it names none."""
    patterns = roles.get(COMPUTE)
    if patterns is None:
        return None
    hosts = {hca.node for hca in fabric.hcas.values() if hca.node is not None}
    return frozenset(host for host in hosts if any(fnmatchcase(host, pattern) for pattern in patterns))


def build_fabric_document(dump: Fabric, rails: Rails, request: FabricRequest) -> dict[str, Any]:
    """Return the JSON document of ``opsk fabric``."""
    nodes = match_fabric_names(request.node_files, rails)
    domains, domain_faults = find_hb_domains(rails.attachments, topologies=nodes)
    routes, route_faults = build_routes_document(request.tables, dump)
    faults = [*dump.faults, *rails.faults, *domain_faults, *route_faults]
    priced, assumed = price_faults(dump, rails, faults, request)
    return {
        "source": dump.source,
        "generated": dump.generated or None,
        "summary": summarise_fabric(dump),
        "rails": _build_rails(rails),
        "units": [{"unit": index, "nodes": unit} for index, unit in enumerate(rails.units)],
        "leaves": sorted(rails.leaves.values(), key=_get_leaf_sort_key),
        "hb_domains": domains,
        "nodes": build_nodes_document(nodes, rails),
        "oversubscription": compute_oversubscription(dump, rails),
        "hosts": _count_hosts(rails),
        "fabrics": find_networks(dump, rails, site_roles=read_site_roles(), topologies=nodes),
        "routes": routes,
        "faults": priced,
        "assumed": assumed,
    }


def price_faults(
    fabric: Fabric, rails: Rails, faults: Sequence[Fault], request: FabricRequest
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
        prices, assumed = _compute_prices(fabric, rails, priceable[:limit], request)
    if len(priceable) > limit:
        why = f"the fabric is large: {limit} of the {len(priceable)} findings that could be put right are predicted"
        assumed.append(Assumption(field="faults.predicted", value=None, why=why))
    hcas = sum(not hca.sharp for hca in fabric.hcas.values())
    return [_build_fault(fault, prices.get(id(fault)), hcas) for fault in faults], assumed


def _compute_prices(
    fabric: Fabric, rails: Rails, faults: Sequence[Fault], request: FabricRequest
) -> tuple[dict[int, Price], list[Assumption]]:
    """Return the price of each finding that has one, by its identity, and the assumptions."""
    site = load_site()
    efficiency = load_efficiency(site.find_efficiency_file())
    spec, assumed = _resolve_cluster(rails, request.cluster or site.cluster)
    jobs = lru_cache(maxsize=None)(lambda nodes: reference_jobs(spec, nodes, spec.node.gpus, efficiency))
    adaptive = request.adaptive or site.adaptive_routing
    repairs = Repairs(fabric, rails)
    pricer = FaultPricer(repairs, jobs, spec.node.gpus, adaptive=adaptive)
    other = FaultPricer(repairs, jobs, spec.node.gpus, adaptive=True)
    prices: dict[int, Price] = {}
    for fault in request.show_progress(faults):
        cost = pricer.price(fault)
        if cost is not None:
            needs_adaptive = cost.default > _NOTICEABLE and not adaptive and repairs.changes_routes(fault)
            adaptive_cost = other.price(fault) if needs_adaptive else None
            prices[id(fault)] = Price(cost=cost, adaptive=adaptive_cost)
    return prices, assumed


def _build_fault(fault: Fault, price: Price | None, hcas: int) -> dict[str, Any]:
    """Return one finding for programs."""
    text = _format_price(price) if price else ""
    numbers = _build_numbers(price) if price else None
    if price is None and fault.kind in _NAMELESS and fault.devices:
        share = len(fault.devices) / hcas
        text, numbers = f"{share:.1%} of the HCAs serve no job by name", {"unusable_percent": 100 * share}
    cost_text = "; ".join(part for part in (fault.cost, text) if part)
    return {**read_fields(fault), "cost": cost_text, "predicted": numbers}


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


def _expand_role(role: str, text: str) -> frozenset[str]:
    names: set[str] = set()
    for part in _OUTSIDE_BRACKETS.split(text):
        try:
            names |= {part.strip()} if "*" in part else set(expand(part.strip()))
        except InputError as error:
            raise ConfigError(f"fabric_roles.{role}: {error.message}", hint=error.hint) from error
    return frozenset(names - {""})


def _get_leaf_sort_key(leaf: Any) -> tuple[Any, ...]:
    """Sort leaves by unit, then by rail; leaves of neither come last."""
    return (
        leaf.unit is None,
        leaf.unit or 0,
        leaf.rail is None,
        leaf.rail or 0,
        natural_key(leaf.description),
        leaf.guid,
    )


def _build_rails(rails: Rails) -> list[dict[str, Any]]:
    """Return each rail with its leaves, device names, number of nodes, and bandwidth."""
    devices: defaultdict[int, Counter[str]] = defaultdict(Counter)
    nodes: defaultdict[int, set[str]] = defaultdict(set)
    total: Counter[int] = Counter()
    for node, ports in rails.attachments.items():
        for port in ports:
            if port.rail is not None:
                devices[port.rail][port.device] += 1
                nodes[port.rail].add(node)
                total[port.rail] += round(port.bytes_per_s)
    by_unit = sorted(rails.leaves.values(), key=_get_leaf_sort_key)
    return [
        {
            "rail": rail,
            "leaves": [leaf.guid for leaf in by_unit if rail in leaf.carries],
            "leaf_of_unit": {str(leaf.unit): leaf.description for leaf in by_unit if rail in leaf.carries},
            "devices": dict(sorted(devices[rail].items(), key=lambda item: (-item[1], item[0]))),
            "nodes": len(nodes[rail]),
            "bytes_per_s": total[rail],
        }
        for rail in range(rails.rail_count)
    ]


def _count_hosts(rails: Rails) -> dict[str, int]:
    """Return how many hosts have each role."""
    return dict(sorted(Counter(rails.host_roles.values()).items()))
