"""Options of a network: what each changes of a step, and what it costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.network_cost import PartPrices, clos_network, network_cost_usd, network_power_w
from opsk.costmodel.predict import predict
from opsk.costmodel.table import PlanTable
from opsk.hardware.spec import NodeSpec
from opsk.network_design.point import Point, build_cluster, build_parts
from opsk.network_design.techniques import ASSUMES, Extras, Technique, bill, count_uplinks, reprice_steps
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Sharding
from opsk.workload.public_models.lookup import public_models

PLANS = [
    Plan(tp=2, pp=4, dp=64, global_batch=512, sharding=Sharding.NONE),
    Plan(tp=2, pp=4, dp=64, global_batch=512, sharding=Sharding.ZERO1),
    Plan(tp=16, pp=1, dp=32, global_batch=512, sharding=Sharding.ZERO1),
]


@pytest.fixture
def model() -> ModelShape:
    return public_models()["llama-2-13b"].shape


def steps(model: ModelShape, point: Point, dgx: NodeSpec, technique: Technique, extras: Extras | None = None):
    cluster = build_cluster(point, dgx)
    before = predict(model, PlanTable.of(PLANS), cluster).time.step_s.expected
    after = reprice_steps(model, PLANS, cluster, technique, extras=extras or Extras(), efficiency=DEFAULT)
    return before, after


def test_each_option_says_what_it_takes_to_be_so():
    assert set(ASSUMES) == set(Technique)
    assert all(ASSUMES.values())


@pytest.mark.parametrize("technique", [Technique.OPTCAST, Technique.SMARTNIC])
def test_aggregation_helps_only_who_all_reduces(model: ModelShape, point: Point, dgx: NodeSpec, technique: Technique):
    slow = replace(point, nic_bytes_per_s=3e9)
    before, after = steps(model, slow, dgx, technique, Extras(servers_per_node=1.0))
    assert (after <= before * (1 + 1e-12)).all()
    assert after[1] == pytest.approx(before[1])


def test_as_many_servers_as_nodes_save_a_half_of_what_a_ring_sends(model: ModelShape, point: Point, dgx: NodeSpec):
    # rings send 2 (n - 1)/n of the array, servers let each worker send it once: with n = 64 nodes half of it is saved;
    # all communication shows (overlap off), so the step shrinks by just that
    slow = replace(point, nic_bytes_per_s=1e9)
    plan = replace(PLANS[0], tp=8, pp=1, overlap=False)
    cluster = build_cluster(slow, dgx)
    time = predict(model, PlanTable.of([plan]), cluster, DEFAULT).time
    after = reprice_steps(
        model, [plan], cluster, Technique.OPTCAST, extras=Extras(servers_per_node=1.0), efficiency=DEFAULT
    )  # fmt: skip
    straggling = time.step_s.expected / (time.step_s.expected - time.components["straggler"])
    saved = (time.step_s.expected - after) / straggling / time.components["dp"]
    assert saved[0] == pytest.approx(0.49, abs=0.02)


def test_more_servers_never_make_a_step_longer(model: ModelShape, point: Point, dgx: NodeSpec):
    slow = replace(point, nic_bytes_per_s=3e9)
    times = [
        steps(model, slow, dgx, Technique.OPTCAST, Extras(servers_per_node=share))[1][0]
        for share in (0.05, 0.25, 0.5, 1.0, 2.0)
    ]
    assert times == sorted(times, reverse=True)


def test_circuits_cannot_carry_tensor_parallelism_between_domains(model: ModelShape, point: Point, dgx: NodeSpec):
    _, after = steps(model, point, dgx, Technique.TOPOOPT)
    assert np.isfinite(after).tolist() == [True, True, False]


def test_circuits_shared_with_a_pipeline_are_slower_and_more_of_them_help(
    model: ModelShape, point: Point, dgx: NodeSpec
):
    slow = replace(point, nic_bytes_per_s=3e9)
    before, few = steps(model, slow, dgx, Technique.TOPOOPT, Extras(interfaces=4))
    assert few[0] > before[0]


def test_an_optical_switch_changes_no_step(model: ModelShape, point: Point, dgx: NodeSpec):
    before, after = steps(model, point, dgx, Technique.OPTICAL)
    assert after == pytest.approx(before)


def test_bills_by_hand(point: Point):
    parts = build_parts(point)
    prices, extras = PartPrices(), Extras(usd_per_circuit_port=100.0, usd_per_server=1000.0, servers_per_node=0.5)
    plain = network_cost_usd(parts, prices)

    def cost(technique: Technique | None) -> float:
        return bill(parts, prices, nodes=point.nodes, technique=technique, extras=extras).cost_usd

    assert cost(None) == cost(Technique.SHARP) == plain
    # 64 nodes: 32 servers, which take half as many ports again
    assert cost(Technique.OPTCAST) == pytest.approx(plain * 1.5 + 32 * 1000.0)
    # 512 NICs: two ports each, or four interfaces each
    assert cost(Technique.OPTICAL) == plain + 1024 * 100.0
    assert cost(Technique.TOPOOPT) == 512 * 199.0 + 2048 * 100.0


def test_circuits_replace_the_top_tier_and_its_transceivers():
    # 32,768 ports of radix 64: 3 tiers, (2 x 3 - 1) 512 switches, 3 x 2 x 32,768 transceivers; the top tier has 512
    # switches, each port of which was joined to an uplink by a link of two transceivers
    parts = clos_network(endpoints=32_768, radix=64)
    assert count_uplinks(parts) == 32_768
    built = bill(parts, PartPrices(), nodes=4096, technique=Technique.JUPITER)
    assert (built.switches, built.transceivers, built.circuit_ports) == (4 * 512, 5 * 32_768, 32_768)
    plain = network_cost_usd(parts, PartPrices())
    assert built.cost_usd == pytest.approx(plain - 32_768 * (694 + 199) + 32_768 * 520)
    # Poutievski et al. 2022 report 41 % less power, of a network whose blocks are larger
    assert 1 - built.power_w / network_power_w(parts, PartPrices()) == pytest.approx(0.19, abs=0.01)


def test_one_tier_has_no_spines_to_replace():
    parts = clos_network(endpoints=64, radix=64)
    assert count_uplinks(parts) == 0
    built = bill(parts, PartPrices(), nodes=8, technique=Technique.JUPITER)
    assert (built.circuit_ports, built.cost_usd) == (0, network_cost_usd(parts, PartPrices()))


def test_the_torus_of_4096_endpoints_is_that_of_tpu_v4():
    # Jouppi et al. 2023: 64 cubes of 4 x 4 x 4, each with 16 links on 6 faces, on 48 switches with 128 ports in use
    built = bill(clos_network(endpoints=4096, radix=64), PartPrices(), nodes=512, technique=Technique.TORUS)
    assert built.switches == 0
    assert built.circuit_ports == built.transceivers == 64 * 6 * 16 == 48 * 128


def test_a_torus_carries_rings_and_not_an_all_to_all(point: Point, dgx: NodeSpec):
    dense, sparse = public_models()["llama-2-13b"].shape, public_models()["mixtral-8x7b"].shape
    slow = replace(point, gpus=512, nic_bytes_per_s=3e9)
    rings = replace(PLANS[0], tp=8, pp=1, dp=64)
    experts = replace(PLANS[0], tp=1, pp=1, dp=512, ep=512 // 64, etp=8, sharding=Sharding.ZERO1, overlap=False)
    cluster = build_cluster(slow, dgx)
    for model, plan, is_longer in ((dense, rings, False), (sparse, experts, True)):
        before = predict(model, PlanTable.of([plan]), cluster).time.step_s.expected
        after = reprice_steps(model, [plan], cluster, Technique.TORUS, extras=Extras(), efficiency=DEFAULT)
        assert (after[0] > before[0] * (1 + 1e-6)) == is_longer


def test_a_schedule_for_two_domains_halves_what_a_ring_sends(model: ModelShape, point: Point, dgx: NodeSpec):
    # a ring of 2 x 8 ranks sends 15/16 of the array over the NICs in each half of the all-reduce, a schedule 1/2 of it;
    # NCCL's trees send half of what the ring does there too, at 92 % of its rate
    slow = replace(point, gpus=16, global_batch=16, nic_bytes_per_s=1e9)
    plan = replace(PLANS[0], tp=1, pp=1, dp=16, global_batch=16, overlap=False)
    cluster = build_cluster(slow, dgx)
    time = predict(model, PlanTable.of([plan]), cluster).time
    after = reprice_steps(model, [plan], cluster, Technique.TACCL, extras=Extras(), efficiency=DEFAULT)
    straggling = time.step_s.expected / (time.step_s.expected - time.components["straggler"])
    saved = (time.step_s.expected - after) / straggling / time.components["dp"]
    assert saved[0] == pytest.approx(1 - 0.92, abs=0.01)
    sharded = replace(plan, sharding=Sharding.ZERO1)  # reduce-scatters and all-gathers are rings: 1/2 over 15/16
    time = predict(model, PlanTable.of([sharded]), cluster).time
    after = reprice_steps(model, [sharded], cluster, Technique.TACCL, extras=Extras(), efficiency=DEFAULT)
    saved = (time.step_s.expected - after) / straggling / time.components["dp"]
    assert saved[0] == pytest.approx(1 - (1 / 2) / (15 / 16), abs=0.02)
