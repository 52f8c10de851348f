"""Computes the cost of a cabling fault to a job by comparing the same job on the same nodes with and without the fault.

The job is as large as a scalable unit allows, up to sixteen nodes, and includes the faulty part; it runs inside the
unit and half in another one. The result is the worst of these, in Slurm's own order of nodes and as placed by opsk.
Errors and retries on a bad cable, and other jobs on the same links, are not modelled.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from opsk.fabric.cabling import Cabling, read_cabling
from opsk.fabric.checks.repair import is_repairable, repair_fault
from opsk.fabric.fabric import Cable, Fabric, Fault
from opsk.fabric.hosts.ports import natural_key
from opsk.fabric.leaves.leaf import Attachment
from opsk.fabric.rails import Rails, find_rails
from opsk.planning.placement.initial_placements import PlacementProblem, Prepared, prepare
from opsk.planning.placement.node_order import slurm_order, unit_of_nodes
from opsk.planning.placement.step_model import ReferenceJob
from opsk.planning.routing.fabric_routes import build_routes
from opsk.planning.routing.routes import Routes

JOB_NODES = 16
JobsFor = Callable[[int], Sequence[ReferenceJob]]
"""Returns the jobs to try on a number of nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultCost:
    """The cost of a fault: how much longer a step takes, as a share; ``default`` in Slurm's order, ``placed`` by opsk.

    Infinite where the job cannot run across it at all. ``job`` is the label of the job, on ``nodes``; the rail-local
    shares are those of Slurm's order with the fault, and without it.
    """

    default: float
    placed: float
    job: str
    nodes: tuple[str, ...]
    rail_local_fraction: float
    rail_local_without: float


Change = tuple[frozenset[tuple[str, int, str, int, float]], frozenset[tuple[str, int, str, int, float]]]
"""Cables that a repair adds and takes away, by their ends and rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairedFabric:
    """A fabric with one fault repaired; ``has_other_routes`` where cables between switches changed."""

    fabric: Fabric
    rails: Rails
    has_other_routes: bool
    change: Change


class Repairs:
    """The fabric with each of its faults repaired; faults that the same repair fixes share the result."""

    def __init__(self, fabric: Fabric, rails: Rails) -> None:
        self.fabric, self.rails = fabric, rails
        self._cabling: Cabling | None = None
        self._known = {id(cable) for cable in fabric.cables}
        self._by_fault: dict[int, RepairedFabric | None] = {}
        self._by_change: dict[Change, RepairedFabric] = {}

    def without(self, fault: Fault) -> RepairedFabric | None:
        """Return the repaired fabric; ``None`` where the fault cannot be repaired."""
        if id(fault) not in self._by_fault:
            self._by_fault[id(fault)] = self._repair(fault)
        return self._by_fault[id(fault)]

    def changes_routes(self, fault: Fault) -> bool:
        """Return whether the repair of a fault changes cables between switches."""
        fixed = self.without(fault)
        return fixed is not None and fixed.has_other_routes

    def _repair(self, fault: Fault) -> RepairedFabric | None:
        if not is_repairable(fault):
            return None
        if self._cabling is None:
            self._cabling = read_cabling(self.fabric)
        fixed = repair_fault(self.fabric, fault, cabling=self._cabling)
        if fixed is None:
            return None
        added = [cable for cable in fixed.cables if id(cable) not in self._known]
        remaining = {id(cable) for cable in fixed.cables}
        gone = [cable for cable in self.fabric.cables if id(cable) not in remaining]
        change = (frozenset(map(_cable_key, added)), frozenset(map(_cable_key, gone)))
        if change not in self._by_change:
            self._by_change[change] = self._build(fixed, [*added, *gone], change)
        return self._by_change[change]

    def _build(self, fixed: Fabric, changed: Sequence[Cable], change: Change) -> RepairedFabric:
        """Return the repaired fabric with its rails; only the changed parts are recomputed."""
        if fixed.switches.keys() != self.fabric.switches.keys():
            return RepairedFabric(fabric=fixed, rails=find_rails(fixed), has_other_routes=True, change=change)
        between = any({cable.a_guid, cable.b_guid} <= fixed.switches.keys() for cable in changed)
        rails = _update_rails(self.rails, fixed, changed)
        return RepairedFabric(fabric=fixed, rails=rails, has_other_routes=between, change=change)


class FaultPricer:
    """Prices the faults of one fabric; shared results are computed once."""

    def __init__(self, repairs: Repairs, jobs: JobsFor, gpus_per_node: int, *, adaptive: bool = False) -> None:
        self._repairs, self._jobs, self._gpus, self._adaptive = repairs, jobs, gpus_per_node, adaptive
        self._fabric, self._rails = repairs.fabric, repairs.rails
        self._routes = build_routes(repairs.fabric, repairs.rails, adaptive=adaptive)
        self._units = unit_of_nodes(repairs.rails, tuple(repairs.rails.attachments))
        self._known: dict[tuple[str, ...], list[tuple[ReferenceJob, Prepared]]] = {}
        self._prices: dict[Change, FaultCost | None] = {}

    def price(self, fault: Fault) -> FaultCost | None:
        """Return the cost of a fault; ``None`` where it cannot be repaired."""
        fixed = self._repairs.without(fault)
        if fixed is None:
            return None
        if fixed.change not in self._prices:
            self._prices[fixed.change] = self._find_worst(fault, fixed)
        return self._prices[fixed.change]

    def _find_worst(self, fault: Fault, fixed: RepairedFabric) -> FaultCost | None:
        """Return the cost to the job that suffers most."""
        routes = self._routes
        if fixed.has_other_routes:
            routes = build_routes(fixed.fabric, fixed.rails, adaptive=self._adaptive)
        worst: FaultCost | None = None
        for where, nodes in self._list_landings(fault):
            for (job, faulty), (_, healthy) in zip(
                self._judge_faulty(nodes), self._judge(nodes, fixed.rails, routes), strict=True
            ):
                cost = _compute_cost(f"{job.label} {where}", nodes, faulty, healthy)
                if worst is None or (cost.default, cost.placed) > (worst.default, worst.placed):
                    worst = cost
        return worst

    def _list_landings(self, fault: Fault) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the node lists on which a job is affected by the fault: inside one unit, and over two."""
        concerned = self._find_concerned(fault)
        if not concerned:
            return
        unit = Counter(self._units[node] for node in concerned).most_common(1)[0][0]
        mates = [node for node, unit_of_node in self._units.items() if unit_of_node == unit and node not in concerned]
        others = [node for node, unit_of_node in self._units.items() if unit_of_node != unit]
        inside = [*concerned, *sorted(mates, key=natural_key)]
        count = min(JOB_NODES, len(inside))
        if count > 1:
            yield "of one unit", slurm_order(inside[:count])
        half = min(JOB_NODES // 2, len(inside), len(others))
        if half:
            near = sorted(others, key=lambda node: (abs(self._units[node] - unit), natural_key(node)))
            yield "of two units", slurm_order([*inside[:half], *near[:half]])

    def _find_concerned(self, fault: Fault) -> list[str]:
        """Return the compute nodes that a fault names, else those on its leaves, else under its spines."""
        known = self._rails.attachments
        named = [node for node in fault.nodes if node in known]
        if named:
            return named[:JOB_NODES]
        guids = set(fault.switches) | {guid for cable in fault.cables for guid in (cable[0], cable[2])}
        below = {
            guid
            for cable in self._fabric.cables
            for guid, other in ((cable.a_guid, cable.b_guid), (cable.b_guid, cable.a_guid))
            if other in guids
        }
        for leaves in (guids & self._rails.leaves.keys(), below & self._rails.leaves.keys()):
            nodes = [node for node, row in known.items() if any(hca.leaf in leaves for hca in row)]
            if nodes:
                return sorted(nodes, key=natural_key)[:JOB_NODES]
        return []

    def _judge_faulty(self, nodes: tuple[str, ...]) -> list[tuple[ReferenceJob, Prepared]]:
        """Return the jobs on the fabric as it is."""
        if nodes not in self._known:
            self._known[nodes] = self._judge(nodes, self._rails, self._routes)
        return self._known[nodes]

    def _judge(self, nodes: tuple[str, ...], rails: Rails, routes: Routes) -> list[tuple[ReferenceJob, Prepared]]:
        return [
            (
                job,
                prepare(
                    PlacementProblem(
                        model=job.model,
                        plan=job.plan,
                        rails=rails,
                        nodes=nodes,
                        gpus_per_node=self._gpus,
                        routes=routes,
                        step=job.step,
                    )
                ),
            )
            for job in self._jobs(len(nodes))
        ]


def _cable_key(cable: Cable) -> tuple[str, int, str, int, float]:
    return cable.a_guid, cable.a_port, cable.b_guid, cable.b_port, cable.bytes_per_s


def _update_rails(rails: Rails, fixed: Fabric, cables: Sequence[Cable]) -> Rails:
    """Return rails with the attachments of the HCAs on ``cables`` taken from the repaired fabric."""
    touched = {guid for cable in cables for guid in (cable.a_guid, cable.b_guid)} - fixed.switches.keys()
    if not touched:
        return rails
    leaf_and_rate = {}
    for cable in fixed.cables:
        for near, far in ((cable.a_guid, cable.b_guid), (cable.b_guid, cable.a_guid)):
            if near in touched and far in fixed.switches:
                leaf_and_rate[near] = (far, cable.bytes_per_s)
    rows: dict[str, list[Attachment]] = {}
    for node, row in rails.attachments.items():
        if any(hca.guid in touched for hca in row):
            rows[node] = [hca for hca in row if hca.guid not in touched or hca.guid in leaf_and_rate]
    known = {hca.guid for row in rows.values() for hca in row}
    for guid in sorted((touched - known) & leaf_and_rate.keys()):
        host = fixed.hcas[guid].node if guid in fixed.hcas else None
        if host is not None and host in rails.attachments:
            device, rate = fixed.hcas[guid].device or guid, leaf_and_rate[guid][1]
            new_hca = Attachment(node=host, device=device, guid=guid, leaf="", rail=None, bytes_per_s=rate)
            rows.setdefault(host, list(rails.attachments[host])).append(new_hca)
    attachments: dict[str, tuple[Attachment, ...]] = dict(rails.attachments)
    for node, hcas in rows.items():
        moved = [
            replace(
                hca,
                leaf=leaf_and_rate[hca.guid][0],
                bytes_per_s=leaf_and_rate[hca.guid][1],
                rail=_find_rail(rails, hca, leaf_and_rate[hca.guid][0]),
            )
            if hca.guid in leaf_and_rate
            else hca
            for hca in hcas
        ]
        attachments[node] = tuple(sorted(moved, key=lambda hca: natural_key(hca.device)))
    return replace(rails, attachments=attachments)


def _find_rail(rails: Rails, hca: Attachment, leaf: str) -> int | None:
    """Return the rail of an HCA on a leaf: that of the leaf, or of the same device there where it carries several."""
    known = rails.leaves.get(leaf)
    if known is None:
        return None
    if len(known.carries) < 2:
        return known.rail
    votes = Counter(
        other.rail
        for node in known.nodes
        for other in rails.attachments.get(node, ())
        if other.leaf == leaf and other.device == hca.device
    )
    return votes.most_common(1)[0][0] if votes else known.rail


def _compute_cost(label: str, nodes: tuple[str, ...], faulty: Prepared, healthy: Prepared) -> FaultCost:
    """Compare one job with and without the fault."""

    def compute_slowdown(faulty_s: float, healthy_s: float) -> float:
        if math.isinf(faulty_s):
            return 0.0 if math.isinf(healthy_s) else math.inf
        return faulty_s / healthy_s - 1.0 if healthy_s and math.isfinite(healthy_s) else 0.0

    def rail_local_fraction(ready: Prepared) -> float:
        verdict = ready.default.verdict
        total = float(verdict.all_bytes[0])
        return 1.0 - float(verdict.off_rail_bytes[0]) / total if total else 1.0

    return FaultCost(
        default=compute_slowdown(float(faulty.default.verdict.step_s[0]), float(healthy.default.verdict.step_s[0])),
        placed=compute_slowdown(float(faulty.best.verdict.step_s[0]), float(healthy.best.verdict.step_s[0])),
        job=label,
        nodes=nodes,
        rail_local_fraction=rail_local_fraction(faulty),
        rail_local_without=rail_local_fraction(healthy),
    )
