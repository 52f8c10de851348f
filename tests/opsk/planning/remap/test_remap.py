"""Every kind of failure and of option on fabrics of eight nodes, followed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk.hardware.catalog import cluster
from opsk.hostlist import expand
from opsk.planning.placement.rank_placement import judge
from opsk.planning.placement.step_model import COMMUNICATION_ONLY, as_cabled, step_model
from opsk.planning.remap.failure import Failure, assess_impact, fall_back
from opsk.planning.remap.remap import remap
from opsk.planning.remap.situation import Situation
from opsk.planning.remap.values import Answer, Option, OptionKind, Terms, Way
from opsk.planning.routing.traffic import AXES
from opsk.slurm.commands.remap_commands import SlurmSite
from opsk.workload.plan import Plan
from tests.fakes.remap_jobs import (
    dead_domain,
    dead_gpu,
    dead_hca,
    dead_leaf,
    dead_node,
    names,
    situation_of,
)

OLD = SlurmSite(release=(24, 11))
TERMS = Terms(job="7", site=OLD)
WHOLE = Plan(tp=4, dp=4, global_batch=12)
"""One replica a node, on four nodes of four GPUs."""


def options(answer: Answer, kind: OptionKind) -> list[Option]:
    return [option for option in answer.options if option.kind is kind]


def only(answer: Answer, kind: OptionKind, way: Way | None = None) -> Option:
    found = [option for option in options(answer, kind) if way is None or option.way is way]
    assert len(found) == 1, (kind, answer.refused)
    return found[0]


def refusals(answer: Answer, kind: OptionKind) -> str:
    return "; ".join(refusal.why for refusal in answer.refused if refusal.kind is kind)


def moved(option: Option) -> list[tuple[int, str, int, str, int]]:
    return [(move.rank, move.from_node, move.from_gpu, move.to_node, move.to_gpu) for move in option.moves]


def whole_job(**changes: object) -> Situation:
    return situation_of(WHOLE, names(0, 3), **changes)[0]  # type: ignore[arg-type]


# An idle GPU of the same HB domain: three ranks on nodes of four GPUs, the fourth is idle and on rail 3.


def job_with_idle_gpus() -> Situation:
    plan = Plan(tp=1, dp=6, global_batch=6)
    return situation_of(plan, names(0, 1), each=3, free=names(4, 4))[0]


def test_an_idle_gpu_takes_one_rank_and_costs_its_rail() -> None:
    """Rank 4 sits on n1/1, rail 1; n1/3 is idle. The ring 0..5 crosses nodes twice: 2 -> 3 and 5 -> 0.

    Each crossing has three channels, one a GPU; with n1/3 for n1/1 two of three keep their rail in both directions.
    """
    situation = job_with_idle_gpus()
    answer = remap(situation, dead_gpu("n1", 1), TERMS)
    option = only(answer, OptionKind.IDLE_GPU)
    assert moved(option) == [(4, "n1", 1, "n1", 3)]
    assert (option.moves[0].from_rail, option.moves[0].to_rail) == (1, 3)
    assert option.predicted.rail_local_fraction == pytest.approx(2 / 3)
    assert option.gpu_order == (("n1", "0,3,2"),)
    assert option.way is Way.RELAUNCH
    assert not option.rank_file


def test_optical_switching_has_no_rail_cost_but_takes_time() -> None:
    situation = job_with_idle_gpus()
    answer = remap(situation, dead_gpu("n1", 1), replace(TERMS, optical=True, optical_s=45.0))
    option, plain = only(answer, OptionKind.OPTICAL), only(answer, OptionKind.IDLE_GPU)
    assert moved(option) == moved(plain)
    assert option.predicted.rail_local_fraction == 1.0
    assert option.predicted.step_s == answer.today.step_s
    assert option.downtime_s == plain.downtime_s + 45.0
    assert [part.seconds for part in option.downtime if part.name == "optical"] == [45.0]
    assert "n1 mlx5_3 to leaf1" in option.needs[-1]


def test_optical_is_not_there_unless_asked_for() -> None:
    answer = remap(job_with_idle_gpus(), dead_gpu("n1", 1), TERMS)
    assert not options(answer, OptionKind.OPTICAL)
    assert "--optical" in refusals(answer, OptionKind.OPTICAL)


def test_an_idle_gpu_that_the_job_does_not_hold_is_no_option() -> None:
    """Slurm adds no GPU to a running job (facts 6.1), and a requeued one keeps its GPUs per node (6.2)."""
    plan = Plan(tp=1, dp=6, global_batch=6)
    held = dict.fromkeys(names(0, 1), (0, 1, 2))
    situation, _ = situation_of(plan, names(0, 1), each=3, held=held)
    answer = remap(situation, dead_gpu("n1", 1), TERMS)
    assert "adds no GPU to a running job" in refusals(answer, OptionKind.IDLE_GPU)


def test_an_idle_gpu_on_the_same_hca_keeps_the_rail() -> None:
    """Two HCAs, four GPUs: GPUs 2 and 3 share one. Rank 2 of three moves from GPU 2 to GPU 3."""
    plan = Plan(tp=1, dp=6, global_batch=6)
    situation, _ = situation_of(plan, names(0, 1), each=3, hcas=2)
    option = only(remap(situation, dead_gpu("n0", 2), TERMS), OptionKind.IDLE_GPU)
    assert moved(option) == [(2, "n0", 2, "n0", 3)]
    assert option.predicted.rail_local_fraction == 1.0


# A spare node.


def test_a_spare_node_of_the_allocation_comes_first() -> None:
    """n4 to n7 are the other unit: a ring through both units crosses spines, one through n0 to n3 does not."""
    situation = whole_job(spares=["n4"], free=["n5"])
    answer = remap(situation, dead_gpu("n2", 1), TERMS)
    assert [(option.kind, option.way) for option in answer.options[:2]] == [
        (OptionKind.SPARE_NODE, Way.RELAUNCH),
        (OptionKind.SPARE_NODE, Way.REQUEUE),
    ]
    first = answer.options[0]
    assert moved(first) == [(rank, "n2", rank - 8, "n4", rank - 8) for rank in range(8, 12)]
    assert first.nodes == ("n0", "n1", "n4", "n3")
    assert first.rank_file.split() == ["n0"] * 4 + ["n1"] * 4 + ["n4"] * 4 + ["n3"] * 4
    assert first.predicted.rail_local_fraction == 1.0
    assert first.predicted.leaf_local_fraction == pytest.approx(0.5)


def test_the_spare_in_the_same_unit_is_taken() -> None:
    situation, _ = situation_of(Plan(tp=4, dp=2, global_batch=2), names(0, 1), spares=["n7", "n3"])
    option = only(remap(situation, dead_gpu("n1", 0), TERMS), OptionKind.SPARE_NODE, Way.RELAUNCH)
    assert option.nodes == ("n0", "n3")
    assert option.predicted.loss == 0
    assert "same scalable unit" in option.why[0]


def test_the_group_that_was_hit_moves_where_the_step_stays_the_same() -> None:
    """Two stages of two ranks on one node. With the stage of rank 3 alone on n1 stages send over the fabric.

    Communication alone says that all four should move; where computation hides a second of it, two are enough.
    """
    plan = Plan(tp=2, pp=2, dp=1, global_batch=2)
    situation, _ = situation_of(plan, ["n0"], spares=["n1"])
    option = only(remap(situation, dead_gpu("n0", 3), TERMS), OptionKind.SPARE_NODE)
    assert [move.rank for move in option.moves] == [0, 1, 2, 3]
    hidden = replace(COMMUNICATION_ONLY, other_s=1.0, window_s=np.ones(len(AXES)), is_whole=True)
    job = replace(situation.job, step=hidden)
    known = replace(situation, job=job, verdict=judge(job, situation.rank_placement))
    option = only(remap(known, dead_gpu("n0", 3), TERMS), OptionKind.SPARE_NODE)
    assert [move.rank for move in option.moves] == [2, 3]
    assert not option.rank_file  # Slurm's own order of four tasks on two nodes is the same


def test_a_free_node_is_steered_to_through_the_queue() -> None:
    situation = whole_job(free=["n6"])
    option = only(remap(situation, dead_node("n2"), TERMS), OptionKind.SPARE_NODE)
    assert [command.argv for command in option.commands] == [
        ("scontrol", "update", "nodename=n2", "state=drain", "reason=opsk: node:n2 failed"),
        ("scontrol", "requeue", "7"),
        ("scontrol", "update", "jobid=7", "excnodelist=n2", "reqnodelist=n[0-1,3,6]"),
        ("scontrol", "update", "jobid=7", "starttime=now"),
    ]
    assert any("SLURM_HOSTFILE" in need for need in option.needs)  # n6 sorts after n3: ranks 8 to 15 would change nodes


def test_a_node_that_sorts_where_the_old_one_did_needs_no_rank_file() -> None:
    situation, _ = situation_of(WHOLE, ["n0", "n1", "n2", "n4"], free=["n5"])
    option = only(remap(situation, dead_gpu("n4", 0), TERMS), OptionKind.SPARE_NODE)
    assert option.nodes == ("n0", "n1", "n2", "n5")
    assert not option.rank_file


def test_from_26_05_on_ranks_stay_only_with_a_rank_file() -> None:
    situation, _ = situation_of(WHOLE, ["n0", "n1", "n2", "n4"], free=["n5"])
    new = replace(TERMS, site=SlurmSite(release=(26, 5), topology="tree"))
    assert only(remap(situation, dead_gpu("n4", 0), new), OptionKind.SPARE_NODE).rank_file.split()[-1] == "n5"


def test_a_block_topology_is_not_told_which_nodes_to_take() -> None:
    block = replace(TERMS, site=SlurmSite(release=(25, 11), topology="block"))
    option = only(remap(whole_job(free=["n6"]), dead_gpu("n2", 0), block), OptionKind.SPARE_NODE)
    assert option.commands[2].argv == ("scontrol", "update", "jobid=7", "excnodelist=n2", "reqnodelist=")


# The host of the batch script, and of the rendezvous.


def test_when_the_batch_host_dies_only_the_queue_is_left() -> None:
    situation = whole_job(spares=["n4"], free=["n5"])
    answer = remap(situation, dead_node("n0"), TERMS)
    assert all(option.way in {Way.REQUEUE, Way.HOLD} for option in answer.options)
    assert "only a requeue is possible" in refusals(answer, OptionKind.SPARE_NODE)
    assert any("ran the batch script" in note for note in answer.notes)
    option = only(answer, OptionKind.SPARE_NODE)
    assert (option.rendezvous.before, option.rendezvous.after, option.rendezvous.changes) == ("n0", "n5", True)


def test_a_dead_gpu_of_the_batch_host_leaves_the_script_alive() -> None:
    answer = remap(whole_job(spares=["n4"]), dead_gpu("n0", 1), TERMS)
    option = only(answer, OptionKind.SPARE_NODE)
    assert option.way is Way.RELAUNCH
    assert option.rendezvous.after == "n4"


def test_the_batch_host_is_not_given_back_while_its_script_lives() -> None:
    option = only(remap(whole_job(), dead_gpu("n0", 1), TERMS), OptionKind.SHRINK_DP)
    assert option.nodes == ("n1", "n2", "n3")
    assert not any("nodelist=" in word for command in option.commands for word in command.argv[:4])
    assert "given back" not in option.title


def test_a_dead_node_needs_a_job_that_outlives_it() -> None:
    answer = remap(whole_job(spares=["n4"]), dead_node("n1"), TERMS)
    assert any("--no-kill" in need for need in only(answer, OptionKind.SPARE_NODE).needs)
    answer = remap(whole_job(spares=["n4"]), dead_gpu("n1", 0), TERMS)
    assert not any("--no-kill" in need for need in only(answer, OptionKind.SPARE_NODE).needs)


def test_a_job_that_ended_already_is_only_steered() -> None:
    answer = remap(whole_job(spares=["n4"], free=["n5"]), dead_node("n1"), replace(TERMS, is_running=False))
    assert all(option.way in {Way.REQUEUE, Way.HOLD} for option in answer.options)
    assert not any(
        command.argv[:2] == ("scontrol", "requeue") for command in only(answer, OptionKind.SPARE_NODE).commands
    )


# A whole HB domain: two nodes each, r0 to r3.

RACKS = {f"n{number}": f"r{number // 2}" for number in range(8)}


def test_another_domain_of_the_same_unit_takes_over() -> None:
    plan = Plan(tp=8, dp=1, global_batch=1)
    situation, _ = situation_of(plan, names(0, 1), free=names(2, 7), domains=RACKS)
    option = only(remap(situation, dead_domain(situation, "r0"), TERMS), OptionKind.HB_DOMAIN)
    assert option.nodes == ("n2", "n3")
    assert "same scalable unit" in option.why[0]
    assert len(option.moves) == 8


def test_the_nearest_domain_takes_over_where_the_unit_has_none() -> None:
    plan = Plan(tp=8, dp=2, global_batch=2)
    situation, _ = situation_of(plan, names(0, 3), free=names(5, 7), domains=RACKS)
    option = only(remap(situation, dead_domain(situation, "r1"), TERMS), OptionKind.HB_DOMAIN)
    assert option.nodes == ("n0", "n1", "n6", "n7")  # r2 has but one free node
    assert "another scalable unit" in option.why[0]


def test_a_node_of_a_large_domain_is_replaced_inside_it() -> None:
    """Tensor groups over a rack of four nodes: a spare of the same rack keeps all its bytes on NVLink."""
    racks = {f"n{number}": f"r{number // 4}" for number in range(8)}
    plan = Plan(tp=8, dp=1, global_batch=1)
    situation, _ = situation_of(plan, names(0, 1), free=["n7", "n3"], domains=racks)
    option = only(remap(situation, dead_gpu("n1", 2), TERMS), OptionKind.SPARE_NODE)
    assert option.nodes == ("n0", "n3")
    assert option.predicted.step_s == 0.0


def test_a_single_node_is_a_domain_too() -> None:
    situation = whole_job(free=["n6"])
    answer = remap(situation, dead_domain(situation, "n2"), TERMS)
    assert only(answer, OptionKind.HB_DOMAIN).nodes == ("n0", "n1", "n6", "n3")
    assert "see hb_domain" in refusals(answer, OptionKind.SPARE_NODE)


# Fewer replicas.


def test_the_replica_that_was_hit_is_left_out() -> None:
    """dp 4 to 3 with a global batch of 12: 4 micro-batches a replica instead of 3; the others keep their GPUs."""
    answer = remap(whole_job(), dead_gpu("n2", 1), TERMS)
    option = only(answer, OptionKind.SHRINK_DP)
    assert option.plan.dp == 3
    assert option.plan.global_batch == 12
    assert option.changes == ("dp 4 to 3", "micro-batches of a replica 3 to 4")
    assert option.nodes == ("n0", "n1", "n3")
    assert (option.moves, option.renumbered, option.way) == ((), 12, Way.RESIZE)
    assert option.commands[1].argv == ("scontrol", "update", "jobid=7", "nodelist=n[0-1,3]")


def test_a_batch_that_does_not_divide_is_changed_and_said() -> None:
    situation, _ = situation_of(Plan(tp=4, dp=4, global_batch=8), names(0, 3))
    option = only(remap(situation, dead_gpu("n2", 1), TERMS), OptionKind.SHRINK_DP)
    assert option.plan.global_batch == 9
    assert "global batch 8 to 9: 8 does not divide by 3" in option.changes


def test_two_replicas_on_a_node_can_both_go_or_one_stay() -> None:
    """tp 2: GPU 3 of n1 is in replica 3; with the whole node replica 2 goes as well."""
    situation, _ = situation_of(Plan(tp=2, dp=4, global_batch=12), names(0, 1))
    one, two = sorted(
        options(remap(situation, dead_gpu("n1", 3), TERMS), OptionKind.SHRINK_DP), key=lambda o: -o.plan.dp
    )
    assert (one.plan.dp, one.way, one.nodes) == (3, Way.RELAUNCH, ("n0", "n1"))
    assert (two.plan.dp, two.way, two.nodes) == (2, Way.RESIZE, ("n0",))


def test_experts_that_no_longer_divide_refuse_to_shrink() -> None:
    model = replace(situation_of(WHOLE, names(0, 3))[0].model, experts=4, top_k=2, expert_ffn=2048)
    situation, _ = situation_of(Plan(tp=4, dp=4, ep=4, global_batch=12), names(0, 3), model=model)
    assert "ep 4 does not divide" in refusals(remap(situation, dead_gpu("n2", 1), TERMS), OptionKind.SHRINK_DP)


def test_a_pipeline_without_a_second_replica_cannot_shrink() -> None:
    situation, _ = situation_of(Plan(tp=4, pp=4, global_batch=4), names(0, 3))
    assert "none remains" in refusals(remap(situation, dead_gpu("n2", 1), TERMS), OptionKind.SHRINK_DP)


# Another plan.


def test_another_plan_runs_on_the_nodes_that_remain() -> None:
    situation, _ = situation_of(Plan(tp=4, dp=4, global_batch=24), names(0, 3))
    spec = as_cabled(cluster("superpod-h100"), situation.rails)
    known = replace(
        situation,
        cluster=spec,
        job=replace(situation.job, step=step_model(situation.model, situation.plan, spec)),
    )
    option = only(remap(known, dead_gpu("n2", 1), TERMS), OptionKind.REPLAN)
    assert "n2" not in option.nodes
    assert option.plan.gpus <= 12
    assert option.plan.global_batch == 24
    assert (option.plan.tp, option.plan.pp) != (4, 1)


def test_without_a_cluster_no_plan_is_guessed() -> None:
    assert "--cluster" in refusals(remap(whole_job(), dead_gpu("n2", 1), TERMS), OptionKind.REPLAN)


# Waiting, and HCAs that fail while GPUs do not.


def test_waiting_costs_the_repair_and_moves_nobody() -> None:
    answer = remap(whole_job(), dead_gpu("n2", 1), replace(TERMS, repair_s=3600.0))
    option = only(answer, OptionKind.WAIT)
    assert (option.way, option.moves, option.predicted.loss) == (Way.HOLD, (), 0)
    assert option.downtime_s == 30 + 3600 + 5 + 120 + 120
    assert [command.argv[1] for command in option.commands] == ["update", "requeuehold", "update", "release"]
    assert [command.later for command in option.commands] == [False, False, True, True]


def test_a_failed_hca_leaves_its_gpu_to_another_one() -> None:
    """Four rings of four nodes; GPU 1 of n2 now shares HCA 0: two rings on one port, twice the time of its axis."""
    situation = whole_job(free=["n6"])
    answer = remap(situation, dead_hca(situation, "n2", 1), TERMS)
    (rank,) = answer.damage.ranks
    assert (rank.rank, rank.is_dead, rank.device, rank.fallback_device) == (9, False, "mlx5_1", "mlx5_0")
    assert answer.damage.degraded is not None
    assert answer.damage.degraded.step_s == pytest.approx(2 * answer.today.step_s)
    assert answer.damage.degraded.loss == pytest.approx(0.5)
    assert only(answer, OptionKind.WAIT).way is Way.RELAUNCH
    assert "no GPU failed" in refusals(answer, OptionKind.SHRINK_DP)


def test_a_failed_leaf_takes_a_rail_from_a_whole_unit() -> None:
    situation = whole_job()
    leaf = situation.rails.attachments["n0"][3].leaf
    answer = remap(situation, dead_leaf(situation, leaf), TERMS)
    assert [(rank.rank, rank.fallback_device) for rank in answer.damage.ranks] == [
        (rank, "mlx5_2") for rank in (3, 7, 11, 15)
    ]
    option = only(answer, OptionKind.WAIT)
    assert option.predicted.loss == pytest.approx(0.5)
    assert all(command.argv[0] != "scontrol" for command in option.commands)  # its nodes are sound: nothing to drain


def test_going_on_degraded_ends_with_a_second_start_after_the_repair() -> None:
    """Half of today's speed for 24 h loses 12 h less half the start; a repair in an hour and a second start loses less.

    Down 270 s, half an interval 900 s again, (3600 - 270) s at half speed, 270 s for the second start.
    """
    situation = whole_job()
    option = only(remap(situation, dead_hca(situation, "n2", 1), replace(TERMS, repair_s=3600.0)), OptionKind.WAIT)
    assert [part.name for part in option.lost] == ["downtime", "redo", "slower", "second start"]
    assert option.lost_s == pytest.approx(270 + 900 + (3600 - 270) * 0.5 + 270)


def test_a_node_without_any_hca_left_is_dead() -> None:
    situation = whole_job(hcas=1, free=["n6"])
    answer = remap(situation, dead_hca(situation, "n2", 0), TERMS)
    assert {rank.is_dead for rank in answer.damage.ranks} == {True}
    assert only(answer, OptionKind.WAIT).way is Way.HOLD


def test_ports_fall_back_to_the_nearest_that_is_left() -> None:
    """Ports 10, 11, 12 serve two GPUs each; 11 is lost: the lower neighbour takes both its GPUs."""
    row = np.array([10, 10, 11, 11, 12, 12])
    lost = np.zeros(20, dtype=np.bool_)
    lost[11] = True
    assert fall_back(row, lost, 19).tolist() == [10, 10, 10, 10, 12, 12]
    lost[[10, 12]] = True
    assert fall_back(row, lost, 19).tolist() == [19] * 6


# What does not concern the job, and the order of options.


def test_a_failure_elsewhere_is_nothing_to_do() -> None:
    answer = remap(whole_job(free=["n6"]), dead_node("n6"), TERMS)
    assert answer.options == ()
    assert answer.nothing_to_do is not None
    assert "not part of" in answer.nothing_to_do


def test_a_failed_spare_is_not_taken() -> None:
    situation = whole_job(spares=["n4"], free=["n5"])
    both = Failure(
        reported=("gpu:n2/0", "node:n4"), gpus=frozenset({("n2", 0)}), nodes=frozenset({"n4"}),
        drain=frozenset({"n2", "n4"}),
    )  # fmt: skip
    assert only(remap(situation, both, TERMS), OptionKind.SPARE_NODE).nodes == ("n0", "n1", "n5", "n3")


def test_options_are_ordered_by_what_they_lose() -> None:
    answer = remap(whole_job(spares=["n4"], free=["n5"]), dead_gpu("n2", 1), TERMS)
    lost = [round(option.lost_s) for option in answer.options]
    assert lost == sorted(lost)
    for option in answer.options:
        assert option.downtime_s == pytest.approx(sum(part.seconds for part in option.downtime))
        assert option.lost_s == pytest.approx(sum(part.seconds for part in option.lost))


# What holds for every failure.


@settings(max_examples=80)
@given(data=st.data())
def test_new_seats_are_sound_and_nobody_else_moves(data: st.DataObject) -> None:
    each = data.draw(st.sampled_from([3, 4]))
    plan = Plan(tp=1, dp=4 * each, global_batch=4 * each) if each == 3 else WHOLE
    situation, _ = situation_of(
        plan,
        names(0, 3),
        each=each,
        spares=names(4, 3 + data.draw(st.integers(0, 2))),
        free=names(6, 7) if data.draw(st.booleans()) else [],
        domains=RACKS if data.draw(st.booleans()) else None,
        hcas=data.draw(st.sampled_from([1, 2, 4])),
    )
    failure = data.draw(_failures(situation))
    optical = data.draw(st.booleans())
    answer = remap(situation, failure, replace(TERMS, optical=optical))
    broken = assess_impact(situation, failure)
    before = [(situation.job.nodes[at], gpu) for at, gpu in _today(situation)]
    touched = {rank.rank for rank in answer.damage.ranks}
    nodes = {rank.node for rank in answer.damage.ranks}
    for option in answer.options:
        if option.kind is OptionKind.WAIT:
            assert not option.moves
            continue
        assert not set(option.nodes) & failure.nodes
        if option.renumbered:
            continue
        after = list(before)
        for move in option.moves:
            assert (move.from_node, move.from_gpu) == before[move.rank]
            after[move.rank] = move.to_node, move.to_gpu
            assert move.rank in touched or move.from_node in nodes or option.kind is OptionKind.HB_DOMAIN
        assert len(set(after)) == plan.gpus
        assert not any(broken.dead[situation.job.nodes.index(node), gpu] for node, gpu in after)
        if option.rank_file:
            assert option.rank_file.split() == [node for node, _ in after]
        assert_never_aims_at(option, failure.nodes)


def _today(situation: Situation) -> list[tuple[int, int]]:
    return list(zip(situation.rank_placement.node[0].tolist(), situation.rank_placement.gpu[0].tolist(), strict=True))


@st.composite
def _failures(draw: st.DrawFn, situation: Situation) -> Failure:
    """Draw one to three failures of any kind."""
    parts = [_failure(draw, situation) for _ in range(draw(st.integers(1, 3)))]
    return Failure(
        reported=tuple(word for part in parts for word in part.reported),
        gpus=frozenset().union(*(part.gpus for part in parts)),
        nodes=frozenset().union(*(part.nodes for part in parts)),
        hcas=frozenset().union(*(part.hcas for part in parts)),
        domains=frozenset().union(*(part.domains for part in parts)),
        drain=frozenset().union(*(part.drain for part in parts)),
    )


def _failure(draw: st.DrawFn, situation: Situation) -> Failure:
    node = draw(st.sampled_from(names(0, 3)))
    row = situation.rails.attachments[node]
    place = draw(st.integers(0, len(row) - 1))
    kind = draw(st.sampled_from(["gpu", "hca", "node", "leaf", "domain"]))
    if kind == "gpu":
        return dead_gpu(node, draw(st.integers(0, 3)))
    if kind == "hca":
        return dead_hca(situation, node, place)
    if kind == "leaf":
        return dead_leaf(situation, row[place].leaf)
    return dead_node(node) if kind == "node" else dead_domain(situation, situation.domain_of[node])


def assert_never_aims_at(option: Option, failed: frozenset[str]) -> None:
    """Only drain, resume and exclude name a failed node."""
    for command in option.commands:
        aims = [word for word in command.argv if word.startswith(("nodelist=", "reqnodelist=", "--nodelist="))]
        for word in aims:
            assert not failed & set(_expanded(word.partition("=")[2]))


def _expanded(hosts: str) -> Sequence[str]:
    return expand(hosts) if hosts else ()
