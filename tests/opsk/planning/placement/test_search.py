"""The placement is the best of all orders of a few nodes, which separate code enumerates one by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.fabric import Fabric
from opsk.fabric.leaves.leaf import Attachment
from opsk.fabric.rails import Rails, find_rails
from opsk.planning.placement.initial_placements import PlacementProblem
from opsk.planning.placement.placement import Placement, place
from opsk.planning.placement.rank_placement import Job, build_rank_placement, judge
from opsk.planning.placement.step_model import StepModel
from opsk.planning.ranks import rank_grid
from opsk.planning.routing.fabric_routes import build_routes
from opsk.planning.routing.hca_ports import build_ports
from opsk.planning.routing.traffic import step_bytes
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan
from tests.fakes import naive_placement

NOTHING_HIDDEN = StepModel(
    other_s=0.0, total_s=np.zeros(5), window_s=np.zeros(5), weight=np.ones(5), latency_s=np.zeros(5), straggler=1.0,
    nic_fraction=1.0,
)  # fmt: skip
PARTLY_HIDDEN = StepModel(
    other_s=1.0, total_s=np.full(5, 1e-3), window_s=np.array([0.0, 0.0, 0.0, 5e-3, 0.0]),
    weight=np.array([1.5, 1.5, 1.5, 1.0, 1.5]), latency_s=np.array([1e-3, 0, 0, 0, 0]), straggler=1.05,
    nic_fraction=0.8,
)  # fmt: skip


class Case:
    """A job on a small fabric, and its step for any seats, by the naive code."""

    def __init__(self, fabric: Fabric, plan: Plan, gpus: int, model: ModelShape, step: StepModel) -> None:
        self.fabric, self.plan, self.gpus, self.model, self.step = fabric, plan, gpus, model, step
        self.rails: Rails = find_rails(fabric)
        self.nodes = tuple(self.rails.attachments)
        ports = build_ports(self.rails, self.nodes, gpus)
        self.hca_of: dict[tuple[str, int], Attachment] = {
            (node, gpu): hca
            for number, node in enumerate(self.nodes)
            for gpu in range(gpus)
            if (hca := ports.find_attachment(number, gpu)) is not None
        }

    def place(self) -> Placement:
        return place(
            PlacementProblem(
                model=self.model,
                plan=self.plan,
                rails=self.rails,
                nodes=self.nodes,
                gpus_per_node=self.gpus,
                routes=build_routes(self.fabric, self.rails),
                step=self.step,
            )
        )

    def step_s(self, seats: Sequence[tuple[str, int]]) -> float:
        return naive_placement.step_s(
            grid=rank_grid(self.plan), sent=step_bytes(self.model, self.plan), seats=seats, hca_of=self.hca_of,
            domain_of={node: node for node in self.nodes}, fabric=self.fabric, rails=self.rails, step=self.step,
        )  # fmt: skip

    def orders(self) -> Iterator[tuple[str, ...]]:
        return itertools.permutations(self.nodes, self.plan.gpus // self.gpus)

    def seats(self, order: Sequence[str], local: Mapping[str, Sequence[int]] | None = None) -> list[tuple[str, int]]:
        return [(node, gpu) for node in order for gpu in (local[node] if local else range(self.gpus))]


def seats_of(placed: Placement) -> list[tuple[str, int]]:
    return [(rank.node, rank.gpu) for rank in placed.ranks]


@st.composite
def fabrics(draw: st.DrawFn, most_nodes: int, hcas: Sequence[int]) -> Fabric:
    """Small fabrics of two tiers with cables gone and cables slower than others, so that orders differ."""
    each = draw(st.sampled_from(hcas))
    units = draw(st.integers(1, 3))
    nodes = draw(st.integers(max(units, 2), most_nodes))
    fabric = rail_optimized_fabric(
        nodes=nodes, hcas=each, leaves=units * each, spines=draw(st.integers(1, 2)),
        cables_per_pair=draw(st.integers(1, 2)),
    )  # fmt: skip
    kept = []
    joined: set[frozenset[str]] = set()
    for cable in fabric.cables:
        pair = frozenset((cable.a_guid, cable.b_guid))
        if not pair <= fabric.switches.keys():
            kept.append(cable)
        elif pair not in joined or draw(st.booleans()):
            joined.add(pair)
            kept.append(replace(cable, bytes_per_s=cable.bytes_per_s / draw(st.sampled_from([1, 4, 16]))))
    return Fabric(switches=fabric.switches, hcas=fabric.hcas, cables=tuple(kept), source="small")


def plans(gpus: int, nodes: int) -> list[Plan]:
    """Plans that fill some of the nodes."""
    found = []
    for used in range(2, nodes + 1):
        for tp in (1, 2, 4):
            for pp in (1, 2, 3):
                if gpus % tp == 0 and (used * gpus) % (tp * pp) == 0:
                    dp = used * gpus // (tp * pp)
                    found.append(Plan(tp=tp, pp=pp, dp=dp, global_batch=dp * pp))
    return found


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), step=st.sampled_from([NOTHING_HIDDEN, PARTLY_HIDDEN]))
def test_no_order_of_nodes_is_faster(model: ModelShape, data: st.DataObject, step: StepModel) -> None:
    """All orders of up to five nodes (and subsets), judged one by one in plain loops."""
    fabric = data.draw(fabrics(most_nodes=5, hcas=(1, 2)))
    gpus = data.draw(st.sampled_from([2, 4]))
    nodes = len({hca.node for hca in fabric.hcas.values()})
    case = Case(fabric, data.draw(st.sampled_from(plans(gpus, nodes))), gpus, model, step)
    placed = case.place()
    best = min(case.step_s(case.seats(order)) for order in case.orders())
    assert placed.traffic.step_s <= best * (1 + 2e-6)
    assert placed.traffic.step_s == pytest.approx(case.step_s(seats_of(placed)), rel=1e-6)
    assert placed.is_optimal
    assert placed.least_step_s <= placed.traffic.step_s * (1 + 2e-6)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_no_order_of_nodes_and_local_ranks_is_faster(model: ModelShape, data: st.DataObject) -> None:
    """Two nodes of three GPUs and three HCAs: 2 x 6 x 6 seatings; three nodes of two: 6 x 2 x 2 x 2."""
    nodes, gpus = data.draw(st.sampled_from([(2, 3), (3, 2)]))
    fabric = rail_optimized_fabric(nodes=nodes, hcas=gpus, leaves=gpus, spines=2)
    fabric = _with_moved_hcas(fabric, data.draw(st.permutations(range(gpus))))
    plan = data.draw(st.sampled_from(plans(gpus, nodes)))
    case = Case(fabric, plan, gpus, model, NOTHING_HIDDEN)
    placed = case.place()
    best = min(
        case.step_s(case.seats(order, dict(zip(order, local, strict=True))))
        for order in case.orders()
        for local in itertools.product(itertools.permutations(range(gpus)), repeat=len(order))
    )
    assert placed.traffic.step_s == pytest.approx(best, rel=2e-6)
    assert placed.is_optimal


def _with_moved_hcas(fabric: Fabric, order: Sequence[int]) -> Fabric:
    """Cable the HCAs of node n0 to each other's ports."""
    ports = {(cable.a_guid, cable.a_port): cable for cable in fabric.cables}
    mine = [guid for guid, hca in fabric.hcas.items() if hca.node == "n0"]
    at = {guid: index for index, guid in enumerate(mine)}
    moved = []
    for cable in ports.values():
        a, b = cable.a_guid, cable.b_guid
        a = mine[order[at[a]]] if a in at else a
        b = mine[order[at[b]]] if b in at else b
        moved.append(replace(cable, a_guid=a, b_guid=b))
    return Fabric(switches=fabric.switches, hcas=fabric.hcas, cables=tuple(moved), source="moved")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_relabelled_fabric_gives_the_same_step(model: ModelShape, data: st.DataObject) -> None:
    """Other names, guids and order of cables; the job is as fast, and as local."""
    fabric = data.draw(fabrics(most_nodes=6, hcas=(1, 2, 4)))
    nodes = len({hca.node for hca in fabric.hcas.values()})
    plan = data.draw(st.sampled_from(plans(4, nodes)))
    ours = Case(fabric, plan, 4, model, NOTHING_HIDDEN).place()
    its = Case(_relabelled(fabric, data.draw(st.randoms())), plan, 4, model, NOTHING_HIDDEN).place()
    assert its.traffic.step_s == pytest.approx(ours.traffic.step_s, rel=2e-6)
    assert its.traffic.inter_node_bytes == pytest.approx(ours.traffic.inter_node_bytes)


def _relabelled(fabric: Fabric, dice: Random) -> Fabric:
    """Return the fabric with guids, host names and the order of everything drawn anew."""
    guids = [*fabric.switches, *fabric.hcas]
    fresh = dict(zip(guids, dice.sample([f"{number:016x}" for number in range(len(guids))], len(guids)), strict=True))
    hosts = sorted({hca.node or "" for hca in fabric.hcas.values()})
    name = dict(zip(hosts, dice.sample([f"host{number}" for number in range(len(hosts))], len(hosts)), strict=True))
    switches = [replace(switch, guid=fresh[guid]) for guid, switch in fabric.switches.items()]
    hcas = [
        replace(hca, guid=fresh[guid], node=name[hca.node or ""], description=f"{name[hca.node or '']} {hca.device}")
        for guid, hca in fabric.hcas.items()
    ]
    cables = [replace(cable, a_guid=fresh[cable.a_guid], b_guid=fresh[cable.b_guid]) for cable in fabric.cables]
    for row in (switches, hcas, cables):
        dice.shuffle(row)
    return Fabric(
        switches={switch.guid: switch for switch in switches},
        hcas={hca.guid: hca for hca in hcas},
        cables=tuple(cables),
        source="relabelled",
    )


@given(fabric=fabrics(most_nodes=6, hcas=(1, 2, 4)))
def test_leaves_are_as_far_from_each_other_either_way(fabric: Fabric) -> None:
    distance = find_rails(fabric).leaf_distance
    assert all(distance[other, one] == far for (one, other), far in distance.items())


def test_all_orders_of_eight_nodes_are_tried(model: ModelShape) -> None:
    """Two nodes a unit, far apart by name, uplinks of many rates, four stages of two replicas.

    The answer is compared with all 8! = 40,320 orders, judged without leaving out any that look alike.
    """
    dice = Random(3)
    names = ["n0", "n4", "n1", "n5", "n2", "n6", "n3", "n7"]
    clean = rail_optimized_fabric(nodes=8, hcas=2, leaves=8, spines=2, names=names)
    cables = tuple(
        replace(cable, bytes_per_s=cable.bytes_per_s / dice.choice([1, 8, 32]))
        if {cable.a_guid, cable.b_guid} <= clean.switches.keys()
        else cable
        for cable in clean.cables
    )
    case = Case(replace(clean, cables=cables), Plan(tp=2, dp=2, pp=4, global_batch=8), 2, model, NOTHING_HIDDEN)
    placed = case.place()
    job = Job(
        grid=rank_grid(case.plan), sent=step_bytes(model, case.plan), nodes=case.nodes,
        ports=build_ports(case.rails, case.nodes, 2), domains=np.arange(8), usable_gpus=2,
        routes=build_routes(case.fabric, case.rails), step=NOTHING_HIDDEN,
    )  # fmt: skip
    orders = np.array(list(itertools.permutations(range(8))))
    best = np.inf
    for some in np.array_split(orders, 16):
        node = np.repeat(some, 2, axis=1)
        gpu = np.tile(np.arange(2), (len(some), 8))
        best = min(best, judge(job, build_rank_placement(node, gpu, job.ports, job.domains)).step_s.min())
    assert placed.traffic.step_s == pytest.approx(best, rel=2e-6)
    assert placed.traffic.step_s < placed.default_traffic.step_s
    assert placed.is_optimal


def test_more_nodes_are_exchanged_until_that_helps_no_more(model: ModelShape) -> None:
    """Twelve nodes on three units of four, pairs of replicas that names spread over units, thin uplinks.

    By name every pair spans two units; an order with each pair inside one is there, and is found.
    """
    clean = rail_optimized_fabric(nodes=12, hcas=2, leaves=6, spines=1)
    cables = tuple(
        replace(cable, bytes_per_s=cable.bytes_per_s / 16)
        if {cable.a_guid, cable.b_guid} <= clean.switches.keys()
        else cable
        for cable in clean.cables
    )
    names = [f"n{unit + 3 * index}" for unit in range(3) for index in range(4)]
    fabric = rail_optimized_fabric(nodes=12, hcas=2, leaves=6, spines=1, names=names)
    case = Case(replace(fabric, cables=cables), Plan(tp=2, dp=2, pp=6, global_batch=12), 2, model, NOTHING_HIDDEN)
    placed = case.place()
    where = {node: unit for unit, nodes in enumerate(case.rails.units) for node in nodes}
    pairs = zip(placed.nodes[::2], placed.nodes[1::2], strict=True)
    assert all(where[one] == where[other] for one, other in pairs)
    assert placed.traffic.step_s < placed.default_traffic.step_s
    assert placed.least_step_s <= placed.traffic.step_s
    assert placed.gap >= 0
