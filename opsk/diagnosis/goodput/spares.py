"""Computes the value of each number of spares: nodes, nodes ("trays") inside of every HB domain, and whole HB domains.

Goodput is the product of two shares: the time with enough units in order (`opsk.diagnosis.goodput.spares`) and, in
that time, the time that gives new training (`opsk.diagnosis.goodput.goodput`). The product is exact for the model: the
job's own interruptions come at the same rate whatever state the others are in, and an interruption that leaves too few
units costs its restart once, after the wait.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr, gammaln, xlog1py, xlogy

from opsk.costmodel.table import FloatColumn
from opsk.diagnosis.goodput.parts import JobParts, compute_node_mtbf_s
from opsk.errors import InputError
from opsk.hardware.failure_rates import FailureRates
from opsk.workload.plan import Plan

_MAX_GROUPS_OUT = 12
"""More sets of leaves than this are never out at once in a measurable share of the time."""


def share_out_of_service(mtbf_s: float, repair_s: float) -> float:
    """Return the share of the time for which a unit is in repair [ratio]. 7,510 h and 132 h: 1.73 %."""
    return 0.0 if math.isinf(mtbf_s) else repair_s / (mtbf_s + repair_s)


def share_with_enough(needed: int, spares: FloatColumn | int, out: float) -> FloatColumn:
    """Return the share of the time with at least ``needed`` of ``needed + spares`` units in order, for each ``spares``.

    100 units of which each is out for 1 % of the time: 0.366 without a spare, 0.732 with one, 0.917 with two.
    """
    return _share_at_most(np.asarray(spares, dtype=float), needed + np.asarray(spares, dtype=float), out)


def share_with_enough_under_groups(
    needed: int, spares: FloatColumn, out: float, *, group_units: int, group_out: float
) -> FloatColumn:
    """Return `share_with_enough` where the ``group_units`` units under one set of leaves can be out together as well.

    With j groups out, spares must make up for all units of these: sum over j of P(j groups out) times the share with
    enough of the other units in order. Groups are those of the job's own units; one of spares alone is left out.
    """
    spare = np.asarray(spares, dtype=float)
    groups = -(-needed // group_units)
    chances = compute_shares_out(groups, group_out)
    shares = np.zeros(spare.shape)
    for number in range(min(_MAX_GROUPS_OUT, groups) + 1):
        left = spare - number * group_units
        others = _share_at_most(np.maximum(left, 0.0), needed + np.maximum(left, 0.0), out)
        shares += np.where(left >= 0, chances[number] * others, 0.0)
    return shares


def _share_at_most(number: FloatColumn, units: FloatColumn, out: float) -> FloatColumn:
    """Return the share of the time for which at most ``number`` of the units are in repair."""
    return np.asarray(bdtr(number, units.astype(np.int64), out), dtype=float)


def compute_shares_out(units: int, out: float) -> FloatColumn:
    """Return the share of the time for which 0, 1, … ``units`` units are in repair."""
    number = np.arange(units + 1, dtype=float)
    log_combinations = gammaln(units + 1) - gammaln(number + 1) - gammaln(units - number + 1)
    return np.asarray(np.exp(log_combinations + xlogy(number, out) + xlog1py(units - number, -out)), dtype=float)


def share_domain_out(*, nodes: int, spare_nodes: int, node_out: float, itself_out: float) -> float:
    """Return the share of the time for which an HB domain cannot give a job the nodes that it needs of it.

    That is when the domain itself is in repair, or more of the ``nodes`` held there than ``spare_nodes``. 64 GPUs of
    which each is out for 0.1 % of the time, without a spare: 6.2 %; Arfeen et al. 2025 (arXiv 2504.06095) print 94 %
    availability for TP 64.
    """
    return 1.0 - (1.0 - itself_out) * float(bdtr(spare_nodes, nodes, node_out))


MAX_SPARES = 4096
"""An upper limit, so that a search ends; nobody needs more."""
ALMOST_ALWAYS = 1.0 - 1e-6
"""Availability beyond which no further spare is tried."""
MAX_SPARE_SHARE = 0.25
"""Part of an HB domain's nodes that is tried as spares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The placement of a job in its units.

    Parameters
    ----------
    units
        Nodes, or HB domains where these span nodes, that the job needs.
    unit_gpus
        GPUs that it can use of each.
    used_nodes, spare_nodes
        Nodes of each HB domain that it needs, and holds in addition; 1 and 0 where a unit is a node.
    last_nodes
        Nodes that it needs of the last HB domain, which it may use in part; 0 is as many as of the others.
    """

    units: int
    unit_gpus: int
    used_nodes: int = 1
    spare_nodes: int = 0
    last_nodes: int = 0

    @property
    def held_nodes(self) -> int:
        """Nodes of one unit that the job holds."""
        return self.used_nodes + self.spare_nodes


def list_placements(parts: JobParts, plan: Plan, inside: int | None = None) -> tuple[Placement, ...]:
    """Return the possible placements, fewest spares inside of HB domains first; ``inside`` requests a number.

    A job that one domain holds with its spares stays there. A domain that spans nodes is used in whole groups of the
    tensor axis: of 72 GPUs with TP 16 a job uses 64, and two of 18 trays are spares at no cost. A job on several
    domains holds each of them whole.

    Raises
    ------
    InputError
        No domain has that many nodes to spare.
    """
    whole = parts.domain_nodes
    if inside is not None and not 0 <= inside < whole:
        raise InputError(format_too_many_inside(inside, whole), hint="it must be fewer than these")
    if not parts.spans_domains:
        return (Placement(units=parts.nodes, unit_gpus=parts.gpus_per_node),)
    tried = range(_max_inside(whole) + 1) if inside is None else range(inside, inside + 1)
    if parts.nodes < whole and parts.nodes + tried[0] <= whole:
        return tuple(
            Placement(units=1, unit_gpus=parts.gpus, used_nodes=parts.nodes, spare_nodes=spare)
            for spare in tried
            if parts.nodes + spare <= whole
        )
    placements: dict[int, Placement] = {}
    for spare in tried:
        gpus = (whole - spare) * parts.gpus_per_node
        gpus = gpus // plan.tp * plan.tp if plan.tp <= gpus else gpus
        used = -(-gpus // parts.gpus_per_node)
        units = -(-parts.gpus // gpus)
        last = -(-(parts.gpus - (units - 1) * gpus) // parts.gpus_per_node)
        placement = Placement(
            units=units, unit_gpus=gpus, used_nodes=used, spare_nodes=whole - used, last_nodes=last % used
        )
        placements.setdefault(used, placement)
    return tuple(placements.values())


def format_too_many_inside(inside: int, whole: int) -> str:
    """Return the message about too many spare nodes in HB domains of ``whole`` nodes."""
    return f"{inside} spare nodes in each HB domain: a domain is {whole} node{'s' if whole > 1 else ''}"


def _max_inside(whole: int) -> int:
    """Return the most spare nodes of an HB domain that are tried."""
    return min(math.ceil(whole * MAX_SPARE_SHARE), whole - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """The units of a placement: the share of time that each is out, and for how long on average [s].

    ``last_out`` is that of the last HB domain, of which the job may need fewer nodes. ``group_units`` share leaves, and
    are out together for ``group_out`` of the time.
    """

    placement: Placement
    out: float
    last_out: float
    repair_s: float
    group_units: int = 1
    group_out: float = 0.0


def build_units(placement: Placement, parts: JobParts, rates: FailureRates) -> Units:
    """Return how often a node, or an HB domain with its spare nodes, cannot provide what the job needs of it."""
    node_out = share_out_of_service(compute_node_mtbf_s(parts, rates), rates.node_repair_s)
    leaf_out = share_out_of_service(rates.switch_mtbf_s, rates.switch_repair_s)
    group_out = 1.0 - (1.0 - leaf_out) ** parts.group_leaves
    group_units = -(-parts.leaf_group_nodes // parts.domain_nodes)
    if not parts.spans_domains:
        repair_s = rates.node_repair_s
        return Units(
            placement=placement,
            out=node_out,
            last_out=node_out,
            repair_s=repair_s,
            group_units=group_units,
            group_out=group_out,
        )
    itself = share_out_of_service(rates.hb_domain_mtbf_s, rates.hb_domain_repair_s)
    held, needed = placement.held_nodes, (placement.used_nodes, placement.last_nodes or placement.used_nodes)
    out, last_out = (
        share_domain_out(nodes=held, spare_nodes=held - number, node_out=node_out, itself_out=itself)
        for number in needed
    )
    return Units(
        placement=placement,
        out=out,
        last_out=last_out,
        repair_s=max(rates.node_repair_s, rates.hb_domain_repair_s),
        group_units=group_units,
        group_out=group_out,
    )


def share_leaves_in_order(units: Units) -> float:
    """Return the share of the time with all leaves of the job in order; switches above them are routed round."""
    groups = -(-units.placement.units // units.group_units)
    return float((1.0 - units.group_out) ** groups)


def list_spare_counts(units: Units, max_spares: int | None, min_spares: int = 0) -> FloatColumn:
    """Return 0, 1, … spares: to ``max_spares`` or to almost always enough units, at least to ``min_spares``."""
    if max_spares is not None:
        return np.arange(min(max(max_spares, min_spares), MAX_SPARES) + 1, dtype=float)
    needed, out = units.placement.units, units.out
    if not 0.0 < out < 1.0:
        return np.arange(max(min_spares, 1) + 1, dtype=float)
    mean = (needed / (1.0 - out)) * out
    limit = min(int(mean + 8.0 * math.sqrt(mean + 1.0) + 8.0), MAX_SPARES)
    spares = np.arange(limit + 1, dtype=float)
    past = np.flatnonzero(share_with_enough(needed, spares, out) > ALMOST_ALWAYS)
    last = int(past[0]) if past.size else limit
    if units.group_out and 4 * units.group_units <= needed:  # spares for all that hangs on one set of leaves
        last += units.group_units
    return np.arange(min(max(last, min_spares + 1), MAX_SPARES) + 1, dtype=float)


def share_shrunk(units: Units, spares: int, plan: Plan, *, useful: float, restart_s: float) -> float:
    """Return goodput where a job with too few units continues with fewer replicas, instead of waiting [ratio].

    With u units left, floor(u x GPUs of a unit / GPUs of a replica) replicas train, as fast as their share of dp
    (the global batch stays). Each repair that brings a replica back costs a restart. Interruptions are taken to come as
    often as at full size: a little too often. While a leaf is out the job waits.
    """
    needed, total = units.placement.units, units.placement.units + spares
    shares = compute_shares_out(total, units.out)
    left = np.minimum(total - np.arange(total + 1), needed)
    replica_gpus = plan.tp * plan.pp * plan.cp
    replicas = np.minimum(left * units.placement.unit_gpus // replica_gpus, plan.dp)
    replicas[left == needed] = plan.dp
    share = float(np.sum(shares * replicas / plan.dp))
    grows = np.zeros(total + 1)
    grows[1:] = replicas[:-1] > replicas[1:]
    per_s = float(np.sum(shares * grows * np.arange(total + 1))) / units.repair_s if units.repair_s else 0.0
    return max(share * useful - per_s * restart_s, 0.0) * share_leaves_in_order(units)


def compute_spare_rows(units: Units, max_spares: int | None, min_spares: int = 0) -> Iterator[tuple[int, float]]:
    """Yield each number of spare units with the share of the time with enough units, and their leaves, in order."""
    spares = list_spare_counts(units, max_spares, min_spares)
    shares = _share_with_enough(units, units.placement.units, spares)
    if units.last_out != units.out and units.placement.units > 1:
        # a last domain that is out needs a spare more than the others do
        others = units.placement.units - 1
        one_less = np.where(spares > 0, _share_with_enough(units, others, np.maximum(spares - 1.0, 0.0)), 0.0)
        shares = (1.0 - units.last_out) * _share_with_enough(units, others, spares) + units.last_out * one_less
    yield from zip(spares.astype(int).tolist(), shares.tolist(), strict=True)


def _share_with_enough(units: Units, needed: int, spares: FloatColumn) -> FloatColumn:
    """Return the share of the time with enough of ``needed`` equal units in order, for each number of spares."""
    return share_with_enough_under_groups(
        needed, spares, units.out, group_units=units.group_units, group_out=units.group_out
    )
