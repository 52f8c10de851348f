"""What does a fault of the cabling cost a job that lands on it? The same job on the same nodes, with and without it.

The job is as large as a scalable unit allows, up to sixteen nodes, with the faulty part in it; it runs inside the unit
and half in another one. Counted is the worst of these, in Slurm's own order of nodes and as opsk places it. Left out:
errors and retries on a bad cable, and other jobs on the same links.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from opsk.fabric.cabling import Cabling, read_cabling
from opsk.fabric.checks.repair import is_repairable, repaired
from opsk.fabric.fabric import Cable, Fabric, Fault
from opsk.fabric.hosts.ports import natural
from opsk.fabric.leaves.leaf import Attachment
from opsk.fabric.rails import Rails, find_rails
from opsk.planning.placement.node_order import slurm_order, unit_of_nodes
from opsk.planning.placement.preparing import Prepared, prepare
from opsk.planning.placement.reference_jobs import ReferenceJob
from opsk.planning.routing.routes import Routes
from opsk.planning.routing.routes_of_fabric import routes_of

JOB_NODES = 16
JobsFor = Callable[[int], Sequence[ReferenceJob]]
"""The jobs to try on a number of nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultCost:
    """What a fault costs: how much longer a step takes, as a share, ``default`` in Slurm's order, ``placed`` by opsk.

    Infinite where the job cannot run across it at all. ``job`` says which job it was, on ``nodes``; the rail-local
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
class Sound:
    """A fabric with one thing put right; ``has_other_routes`` where cables between switches changed."""

    fabric: Fabric
    rails: Rails
    has_other_routes: bool
    change: Change


class Repairs:
    """The fabric without each of its faults; faults of one cause, which the same repair heals, share it."""

    def __init__(self, fabric: Fabric, rails: Rails) -> None:
        self.fabric, self.rails = fabric, rails
        self._cabling: Cabling | None = None
        self._known = {id(cable) for cable in fabric.cables}
        self._by_fault: dict[int, Sound | None] = {}
        self._by_change: dict[Change, Sound] = {}

    def without(self, fault: Fault) -> Sound | None:
        """Return the fabric put right; ``None`` where the fault names nothing that could be."""
        if id(fault) not in self._by_fault:
            self._by_fault[id(fault)] = self._repaired(fault)
        return self._by_fault[id(fault)]

    def changes_routes(self, fault: Fault) -> bool:
        """Return whether cables between switches are other ones when the fault is put right."""
        sound = self.without(fault)
        return sound is not None and sound.has_other_routes

    def _repaired(self, fault: Fault) -> Sound | None:
        if not is_repairable(fault):
            return None
        if self._cabling is None:
            self._cabling = read_cabling(self.fabric)
        sound = repaired(self.fabric, fault, cabling=self._cabling)
        if sound is None:
            return None
        added = [cable for cable in sound.cables if id(cable) not in self._known]
        kept = {id(cable) for cable in sound.cables}
        gone = [cable for cable in self.fabric.cables if id(cable) not in kept]
        change = (frozenset(map(_ends, added)), frozenset(map(_ends, gone)))
        if change not in self._by_change:
            self._by_change[change] = self._sound(sound, [*added, *gone], change)
        return self._by_change[change]

    def _sound(self, sound: Fabric, changed: Sequence[Cable], change: Change) -> Sound:
        """Return rails of the fabric put right; only what changed is looked at again."""
        if sound.switches.keys() != self.fabric.switches.keys():
            return Sound(fabric=sound, rails=find_rails(sound), has_other_routes=True, change=change)
        between = any({cable.a_guid, cable.b_guid} <= sound.switches.keys() for cable in changed)
        rails = _recabled(self.rails, sound, changed)
        return Sound(fabric=sound, rails=rails, has_other_routes=between, change=change)


class FaultPricer:
    """Prices the faults of one fabric; what is common to them is worked out once."""

    def __init__(self, repairs: Repairs, jobs: JobsFor, gpus_per_node: int, *, adaptive: bool = False) -> None:
        self._repairs, self._jobs, self._gpus, self._adaptive = repairs, jobs, gpus_per_node, adaptive
        self._fabric, self._rails = repairs.fabric, repairs.rails
        self._routes = routes_of(repairs.fabric, repairs.rails, adaptive=adaptive)
        self._units = unit_of_nodes(repairs.rails, tuple(repairs.rails.attachments))
        self._known: dict[tuple[str, ...], list[tuple[ReferenceJob, Prepared]]] = {}
        self._prices: dict[Change, FaultCost | None] = {}

    def price(self, fault: Fault) -> FaultCost | None:
        """Return what a fault costs; ``None`` where it names nothing that could be put right."""
        sound = self._repairs.without(fault)
        if sound is None:
            return None
        if sound.change not in self._prices:
            self._prices[sound.change] = self._worst(fault, sound)
        return self._prices[sound.change]

    def _worst(self, fault: Fault, sound: Sound) -> FaultCost | None:
        """Return the cost to the job that suffers most."""
        routes = self._routes
        if sound.has_other_routes:
            routes = routes_of(sound.fabric, sound.rails, adaptive=self._adaptive)
        worst: FaultCost | None = None
        for where, nodes in self._landings(fault):
            for (job, ill), (_, well) in zip(self._ill(nodes), self._judged(nodes, sound.rails, routes), strict=True):
                found = _cost(f"{job.label} {where}", nodes, ill, well)
                if worst is None or (found.default, found.placed) > (worst.default, worst.placed):
                    worst = found
        return worst

    def _landings(self, fault: Fault) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield where a job could land so that the fault concerns it: inside a unit, and over two."""
        concerned = self._concerned(fault)
        if not concerned:
            return
        unit = Counter(self._units[node] for node in concerned).most_common(1)[0][0]
        mates = [node for node, own in self._units.items() if own == unit and node not in concerned]
        others = [node for node, own in self._units.items() if own != unit]
        inside = [*concerned, *sorted(mates, key=natural)]
        count = min(JOB_NODES, len(inside))
        if count > 1:
            yield "of one unit", slurm_order(inside[:count])
        half = min(JOB_NODES // 2, len(inside), len(others))
        if half:
            near = sorted(others, key=lambda node: (abs(self._units[node] - unit), natural(node)))
            yield "of two units", slurm_order([*inside[:half], *near[:half]])

    def _concerned(self, fault: Fault) -> list[str]:
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
                return sorted(nodes, key=natural)[:JOB_NODES]
        return []

    def _ill(self, nodes: tuple[str, ...]) -> list[tuple[ReferenceJob, Prepared]]:
        """Return the jobs on the fabric as it is."""
        if nodes not in self._known:
            self._known[nodes] = self._judged(nodes, self._rails, self._routes)
        return self._known[nodes]

    def _judged(self, nodes: tuple[str, ...], rails: Rails, routes: Routes) -> list[tuple[ReferenceJob, Prepared]]:
        return [
            (job, prepare(job.model, job.plan, rails, nodes, self._gpus, routes=routes, step=job.step))
            for job in self._jobs(len(nodes))
        ]


def _ends(cable: Cable) -> tuple[str, int, str, int, float]:
    return cable.a_guid, cable.a_port, cable.b_guid, cable.b_port, cable.bytes_per_s


def _recabled(rails: Rails, sound: Fabric, cables: Sequence[Cable]) -> Rails:
    """Return rails with the attachments of the HCAs that ``cables`` lead to as the sound fabric has them."""
    touched = {guid for cable in cables for guid in (cable.a_guid, cable.b_guid)} - sound.switches.keys()
    if not touched:
        return rails
    at = {}
    for cable in sound.cables:
        for own, far in ((cable.a_guid, cable.b_guid), (cable.b_guid, cable.a_guid)):
            if own in touched and far in sound.switches:
                at[own] = (far, cable.bytes_per_s)
    rows: dict[str, list[Attachment]] = {}
    for node, row in rails.attachments.items():
        if any(hca.guid in touched for hca in row):
            rows[node] = [hca for hca in row if hca.guid not in touched or hca.guid in at]
    known = {hca.guid for row in rows.values() for hca in row}
    for guid in sorted((touched - known) & at.keys()):
        host = sound.hcas[guid].node if guid in sound.hcas else None
        if host is not None and host in rails.attachments:
            device, rate = sound.hcas[guid].device or guid, at[guid][1]
            fresh = Attachment(node=host, device=device, guid=guid, leaf="", rail=None, bytes_per_s=rate)
            rows.setdefault(host, list(rails.attachments[host])).append(fresh)
    attachments: dict[str, tuple[Attachment, ...]] = dict(rails.attachments)
    for node, hcas in rows.items():
        moved = [
            replace(hca, leaf=at[hca.guid][0], bytes_per_s=at[hca.guid][1], rail=_rail(rails, hca, at[hca.guid][0]))
            if hca.guid in at
            else hca
            for hca in hcas
        ]
        attachments[node] = tuple(sorted(moved, key=lambda hca: natural(hca.device)))
    return replace(rails, attachments=attachments)


def _rail(rails: Rails, hca: Attachment, leaf: str) -> int | None:
    """Return the rail of an HCA on a leaf: that of the leaf, of its like there where the leaf carries several."""
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


def _cost(label: str, nodes: tuple[str, ...], ill: Prepared, well: Prepared) -> FaultCost:
    """Compare one job with and without the fault."""

    def longer(one: float, other: float) -> float:
        if math.isinf(one):
            return 0.0 if math.isinf(other) else math.inf
        return one / other - 1.0 if other and math.isfinite(other) else 0.0

    def local(ready: Prepared) -> float:
        verdict = ready.default.verdict
        total = float(verdict.all_bytes[0])
        return 1.0 - float(verdict.off_rail_bytes[0]) / total if total else 1.0

    return FaultCost(
        default=longer(float(ill.default.verdict.step_s[0]), float(well.default.verdict.step_s[0])),
        placed=longer(float(ill.best.verdict.step_s[0]), float(well.best.verdict.step_s[0])),
        job=label,
        nodes=nodes,
        rail_local_fraction=local(ill),
        rail_local_without=local(well),
    )
