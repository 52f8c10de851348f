"""Goodput and spares: against a cluster played event by event, published runs, and what must always hold."""

from __future__ import annotations

import math
from dataclasses import astuple, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.costmodel.estimates.checkpoint import CheckpointOptions
from opsk.diagnosis.goodput.goodput import GoodputRequest, SpareRow, compute_goodput
from opsk.diagnosis.goodput.parts import compute_job_mtbf_s, compute_node_mtbf_s, count_parts, list_causes
from opsk.diagnosis.goodput.spares import build_units, list_placements, share_shrunk
from opsk.errors import InputError
from opsk.hardware.catalog import cluster as catalogue_cluster
from opsk.hardware.failure_rates import FailureRates, failure_rates
from opsk.hardware.spec import ClusterSpec
from opsk.workload.plan import Plan
from tests.fakes.failing_job import FailingJob
from tests.fakes.training_runs import gpt

HOUR_S = 3600.0
MODEL = gpt(layers=96, hidden=12288, heads=96)
H100 = catalogue_cluster("superpod-h100")
GB200 = catalogue_cluster("superpod-gb200")


def request(
    *,
    nodes: int = 20,
    tp: int = 8,
    rates: FailureRates | None = None,
    checkpoint: CheckpointOptions | None = None,
    cluster: ClusterSpec = H100,
    max_spares: int | None = None,
    shrinks: bool = False,
) -> GoodputRequest:
    return GoodputRequest(
        model=MODEL,
        plan=Plan(tp=tp, dp=nodes * cluster.node.gpus // tp, global_batch=nodes * cluster.node.gpus),
        cluster=cluster,
        rates=rates or failure_rates(),
        step_s=10.0,
        checkpoint=checkpoint or CheckpointOptions(),
        max_spares=max_spares,
        shrinks=shrinks,
    )


def rows(asked: GoodputRequest) -> list[SpareRow]:
    return list(compute_goodput(asked).rows)


# --- against a played cluster -----------------------------------------------------------------------------------------

FLAKY = FailureRates(name="flaky", host_mtbf_s=500 * HOUR_S, node_repair_s=24 * HOUR_S)
"""Hosts alone fail: 20 nodes are interrupted every 25 hours, and each is out for 4.6 % of the time."""
SLOW = CheckpointOptions(write_bytes_per_s=2.45e12 / 180, interval_s=HOUR_S, restart_s=HOUR_S / 2)


def repairs(kind: str):
    """Return a drawer of times to repair with a mean of 24 hours."""
    return {
        "always the same": lambda _: 24.0,
        "exponential": lambda draw: draw.exponential(24.0),
        # lognormal with a median of 8 h: e^(sigma^2 / 2) = 3
        "mostly short": lambda draw: 8.0 * math.exp(math.sqrt(2 * math.log(3)) * draw.standard_normal()),
    }[kind]


@pytest.mark.parametrize("spares", [0, 1, 2, 4])
@pytest.mark.parametrize("kind", ["always the same", "exponential", "mostly short"])
def test_goodput_is_that_of_a_played_cluster_whatever_repairs_look_like(spares: int, kind: str):
    found = compute_goodput(request(rates=FLAKY, checkpoint=SLOW, max_spares=spares))
    row = found.rows[-1]
    job = FailingJob(
        needed=20, spares=spares, mtbf_h=500, repair=repairs(kind), interval_h=1.0,
        stall_h=found.saving.stall_s / HOUR_S, restart_h=0.5,
    )  # fmt: skip
    played = job.play(400_000, seed=7)
    # about 18,000 failures; the heavy tail of "mostly short" leaves the widest error
    assert job.enough_h / 400_000 == pytest.approx(row.availability, abs=0.02)
    assert played == pytest.approx(row.waits, abs=0.02)


@pytest.mark.parametrize("spares", [0, 2])
def test_a_job_that_goes_on_with_fewer_replicas_is_played_as_well(spares: int):
    # 20 nodes with 10 replicas of two nodes
    plan = Plan(tp=8, pp=2, dp=10, global_batch=160)
    asked = replace(request(rates=FLAKY, checkpoint=SLOW, max_spares=spares, shrinks=True), plan=plan, model=MODEL)
    found = compute_goodput(asked)
    job = FailingJob(
        needed=20, spares=spares, mtbf_h=500, repair=repairs("exponential"), interval_h=1.0,
        stall_h=found.saving.stall_s / HOUR_S, restart_h=0.5, replicas_of=lambda nodes: nodes // 2,
    )  # fmt: skip
    played = job.play(400_000, seed=3)
    assert played == pytest.approx(found.rows[-1].shrinks, abs=0.015)
    assert found.rows[-1].shrinks > found.rows[-1].waits


# --- against published runs -------------------------------------------------------------------------------------------


def mtbf_h(name: str, nodes: int, leaves: int = 0) -> float:
    """Return the mean time between interruptions on nodes of 8 GPUs and 8 NICs, in hours."""
    parts = count_parts(Plan(dp=8 * nodes, global_batch=8 * nodes), replace(H100, nodes=nodes), nodes=nodes)
    parts = replace(parts, leaves=leaves, upper_switches=0)
    return compute_job_mtbf_s(list_causes(parts, failure_rates(name), domains=nodes)) / HOUR_S


def test_llama_3_is_interrupted_as_often_as_it_was():
    """Llama 3 405B: 419 in 54 days on 2,048 nodes; one leaf for two nodes, from memory."""
    assert 54 * 24 / mtbf_h("llama3-405b", 2048, leaves=1024) == pytest.approx(419, rel=0.005)


@pytest.mark.parametrize(("gpus", "hours"), [(16_384, 1.8), (131_072, 0.23)])
def test_the_clusters_of_meta_are_projected_as_their_owners_do(gpus: int, hours: float):
    """Kokolis et al. 2025: mean time to failure by RSC-1's 6.50 failures per 1,000 node-days; 0.23 is rounded."""
    assert mtbf_h("rsc-1", gpus // 8) == pytest.approx(hours, rel=0.03)


def test_nodes_of_the_published_trace_are_out_for_as_long_as_they_were():
    """InfiniteHBD trace: 583 faults on 139,592 node days, 5.51 days each: out for 2.30 % of the time."""
    rates = failure_rates("infinitehbd")
    parts = count_parts(Plan(dp=800, global_batch=800), H100)
    mtbf_s = compute_node_mtbf_s(parts, rates)
    assert mtbf_s / HOUR_S == pytest.approx(5746, rel=0.01)
    assert rates.node_repair_s / (mtbf_s + rates.node_repair_s) == pytest.approx(0.0230, rel=0.03)


def test_llama_3_trains_for_more_than_nine_tenths_of_the_time():
    """Llama 3 405B, section 3.3.4: over 90 % effective training time on 16,384 of 24,576 GPUs.

    5.7 TB a checkpoint at the 2 TB/s that Tectonic sustains; restart as opsk assumes it.
    """
    cluster = replace(H100, nodes=3072, nodes_per_unit=2, leaves=1536, spines=100)
    asked = replace(
        request(nodes=2048, cluster=cluster, checkpoint=CheckpointOptions(write_bytes_per_s=2e12)),
        model=gpt(layers=126, hidden=16384, heads=128),
    )
    found = compute_goodput(asked)
    assert found.mtbf_s / HOUR_S == pytest.approx(3.09, rel=0.01)
    assert 0.90 < found.best.goodput < 0.95
    assert found.best.held_nodes < 3072
    # what docs/explanation/goodput.md prints
    assert (found.best.spares, round(found.best.goodput, 3)) == (56, 0.925)
    of_repairs = {
        hours: compute_goodput(replace(asked, rates=replace(asked.rates, node_repair_s=hours * HOUR_S))).best.spares
        for hours in (132, 72, 24)
    }
    assert of_repairs == {132: 56, 72: 35, 24: 16}


def test_small_jobs_of_meta_end_more_often_than_the_rate_of_nodes_says():
    """RSC-1 at 1,024 GPUs: 7.9 h published; what docs/explanation/goodput.md prints beside it."""
    assert mtbf_h("rsc-1", 1024 // 8) == pytest.approx(28.8, rel=0.002)


# --- what must always hold --------------------------------------------------------------------------------------------


@given(
    nodes=st.integers(1, 120),
    gpu_h=st.floats(1e3, 1e7),
    repair_h=st.floats(0, 500),
    worse=st.floats(1.0, 20.0),
)
def test_more_failures_and_longer_repairs_never_give_more(nodes: int, gpu_h: float, repair_h: float, worse: float):
    options = CheckpointOptions(interval_s=1800.0)
    rates = replace(failure_rates(), gpu_mtbf_s=gpu_h * HOUR_S, node_repair_s=repair_h * HOUR_S)
    fair = rows(request(nodes=nodes, rates=rates, checkpoint=options, max_spares=5))
    for changed in (
        replace(rates, gpu_mtbf_s=rates.gpu_mtbf_s / worse),
        replace(rates, node_repair_s=rates.node_repair_s * worse),
        replace(rates, switch_mtbf_s=rates.switch_mtbf_s / worse),
    ):
        bad = rows(request(nodes=nodes, rates=changed, checkpoint=options, max_spares=5))
        assert all(b.waits <= f.waits + 1e-12 for f, b in zip(fair, bad, strict=True))


@given(nodes=st.integers(1, 120), gpu_h=st.floats(1e3, 1e7), repair_h=st.floats(0, 500))
def test_another_spare_never_gives_less_before_its_own_cost(nodes: int, gpu_h: float, repair_h: float):
    rates = replace(failure_rates(), gpu_mtbf_s=gpu_h * HOUR_S, node_repair_s=repair_h * HOUR_S)
    found = compute_goodput(request(nodes=nodes, rates=rates, max_spares=12))
    assert all(row.gain >= -1e-12 for row in found.rows)
    assert all(0 <= row.waits <= row.shrinks + 1e-12 <= 1 + 1e-9 for row in found.rows)
    assert found.best.per_held == max(row.per_held for row in found.rows)
    assert sum(astuple(found.shares)) == pytest.approx(1.0)


def test_without_failures_all_of_the_time_is_useful():
    found = compute_goodput(request(rates=FailureRates(name="ideal")))
    assert found.best.goodput == 1
    assert found.best.spares == 0
    assert math.isinf(found.mtbf_s)
    assert found.saving.interval_steps is None


def test_a_stated_time_between_failures_of_the_job_scales_all_rates():
    asked = request(checkpoint=CheckpointOptions(mtbf_s=50_000.0))
    found = compute_goodput(asked)
    assert found.mtbf_s == pytest.approx(50_000.0)
    plain = compute_goodput(request())
    assert found.scaled_by == pytest.approx(50_000.0 / plain.mtbf_s)
    # nodes are out more often with it
    assert found.rows[0].availability < plain.rows[0].availability


def test_half_a_restart_is_worth_what_the_formula_says():
    found = compute_goodput(request(rates=replace(failure_rates(), node_repair_s=0.0, switch_mtbf_s=math.inf)))
    lever = next(lever for lever in found.levers if lever.name == "restart in half the time")
    # goodput is proportional to e^(-R/M)
    expected = found.best.goodput * math.expm1(300.0 / found.mtbf_s)
    assert lever.gain == pytest.approx(expected, rel=1e-6)
    assert [lever.gain for lever in found.levers] == sorted((lever.gain for lever in found.levers), reverse=True)


# --- HB domains that span nodes ---------------------------------------------------------------------------------------


def test_a_wide_tensor_axis_leaves_two_trays_of_a_rack_as_spares():
    # 72 GPUs hold four groups of 16 and a rest of 8: 64 of 72, 16 of 18 trays
    parts = count_parts(Plan(tp=16, dp=32, global_batch=32), GB200)
    first = list_placements(parts, Plan(tp=16, dp=32, global_batch=32))[0]
    assert (first.used_nodes, first.spare_nodes, first.units, first.unit_gpus) == (16, 2, 8, 64)


def test_a_dead_tray_costs_nothing_where_trays_are_spare():
    found = compute_goodput(request(nodes=128, tp=8, cluster=GB200, max_spares=0))
    assert found.kind == "hb_domain"
    by_spare = {row.spare_nodes_inside: row for row in found.rows}
    # 7.11 racks in full or eight with 16 of 18 trays: eight racks are held either way
    assert by_spare[0].held_gpus == by_spare[2].held_gpus == 576
    assert by_spare[2].availability > 0.97 > 0.5 > by_spare[0].availability
    assert found.best.spare_nodes_inside == 2


def test_the_last_domain_may_be_used_in_part():
    # 128 trays: seven racks in full and two trays of the eighth, which sixteen others can replace
    rates = replace(failure_rates(), switch_mtbf_s=math.inf)
    asked = request(nodes=128, cluster=GB200, rates=rates, max_spares=1)
    row, more = compute_goodput(asked).rows[:2]
    parts = count_parts(asked.plan, GB200)
    units = build_units(list_placements(parts, asked.plan)[0], parts, rates)
    assert (row.units, units.placement.last_nodes) == (8, 2)
    assert units.last_out < 0.003 < units.out
    assert row.availability == pytest.approx((1 - units.out) ** 7 * (1 - units.last_out))
    seven = (1 - units.out) ** 8 + 8 * units.out * (1 - units.out) ** 7
    assert more.availability == pytest.approx(
        (1 - units.last_out) * seven + units.last_out * (1 - units.out) ** 7, rel=1e-6
    )


def test_a_job_inside_of_one_domain_holds_only_its_trays():
    plan = Plan(tp=8, dp=4, global_batch=32)
    placements = list_placements(count_parts(plan, GB200), plan)
    assert [placement.held_nodes for placement in placements] == [8, 9, 10, 11, 12, 13]
    assert all(placement.units == 1 for placement in placements)


def test_domains_are_interrupted_by_what_takes_all_of_them():
    found = compute_goodput(request(nodes=128, cluster=GB200))
    cause = next(cause for cause in found.causes if cause.name == "hb_domain")
    assert cause.count == found.best.units
    small = compute_goodput(request(nodes=64))
    assert not any(cause.per_s for cause in small.causes if cause.name == "hb_domain")


# --- switches ---------------------------------------------------------------------------------------------------------


def test_switches_are_those_of_the_units_that_the_job_spans():
    # 32 leaves in four units of 32 nodes, 16 spines
    within = count_parts(Plan(dp=256, global_batch=256), H100)
    across = count_parts(Plan(dp=512, global_batch=512), H100)
    assert (within.leaves, within.upper_switches) == (8, 0)
    assert (across.leaves, across.upper_switches) == (16, 16)


def test_switches_are_estimated_where_nobody_counts_them():
    bare = replace(H100, leaves=None, spines=None, cores=None, nodes_per_unit=None)
    parts = count_parts(Plan(dp=512, global_batch=512), bare, radix=64)
    # 512 ports on 64: two tiers, 16 leaves and 8 spines; a rail-optimised unit of 32 nodes has eight leaves
    assert (parts.leaves, parts.upper_switches) == (16, 8)
    assert (parts.leaf_group_nodes, parts.group_leaves) == (32, 8)
    tree = count_parts(Plan(dp=512, global_batch=512), replace(bare, fabric="fat-tree"), radix=64)
    assert (tree.leaf_group_nodes, tree.group_leaves) == (4, 1)
    with pytest.raises(InputError):
        count_parts(Plan(dp=512, global_batch=512), bare, radix=5)


def test_one_node_needs_no_network():
    parts = count_parts(Plan(tp=4, global_batch=1), H100)
    assert (parts.nodes, parts.gpus_per_node, parts.nics, parts.leaves) == (1, 4, 0, 0)


def test_replicas_that_need_more_than_is_left_wait():
    # one replica over all nodes: going on with fewer is waiting
    plan = Plan(tp=8, pp=20, global_batch=20)
    parts = count_parts(plan, H100)
    units = build_units(list_placements(parts, plan)[0], parts, replace(failure_rates(), switch_mtbf_s=math.inf))
    share = share_shrunk(units, 0, plan, useful=1.0, restart_s=0.0)
    assert share == pytest.approx((1 - units.out) ** 20)
    assert np.isfinite(share)
