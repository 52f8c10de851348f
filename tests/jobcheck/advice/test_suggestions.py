"""Ways out of a memory problem, and faster plans: each must hold when it is predicted again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.costmodel.predict import predict
from opsk.costmodel.table import PlanTable
from opsk.costmodel.uncertainty.verdict import Verdict, compute_verdict
from opsk_jobcheck.advice.suggestions import (
    MAX_SUGGESTIONS,
    MIN_GAIN,
    Question,
    Suggestion,
    find_best_plan,
    find_near_plans,
    find_plan_on_more_nodes,
    find_useful_changes,
)
from opsk_jobcheck.scripts.script import read_script
from tests.fakes.launch_scripts import megatron_script
from tests.fakes.questions import CLUSTER, question_of

FLAGS = "--global-batch-size 128 --sequence-parallel --use-distributed-optimizer"
TP4_PP2 = "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --micro-batch-size 2"
SCRIPTS = {
    "a little too large": f"{TP4_PP2} {FLAGS}",
    "no parallelism": f"--tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --micro-batch-size 2 {FLAGS}",
    "interleaved": f"{TP4_PP2} {FLAGS} --num-layers-per-virtual-pipeline-stage 10",
}


def asked(flags: str = "", *, script: str = "") -> Question:
    """Return what is asked by a script."""
    return question_of(read_script(script or megatron_script(flags), file="job.sh"))


def changes(question: Question) -> tuple[Suggestion, ...]:
    """Return the changes that help."""
    return find_useful_changes(question, find_near_plans(question))


def hold(suggestion: Suggestion, question: Question) -> None:
    """Check a suggestion against a prediction of its plan alone."""
    again = predict(question.model, PlanTable.of([suggestion.plan]), CLUSTER)
    assert compute_verdict(float(again.memory.fit_probability[0])) is Verdict.FITS
    assert float(again.memory.total_bytes.expected[0]) == pytest.approx(suggestion.memory_bytes)
    assert float(again.time.step_s.expected[0]) == pytest.approx(suggestion.step_s)
    assert suggestion.step_ratio == pytest.approx(suggestion.step_s / question.step_s)
    assert suggestion.memory_ratio == pytest.approx(suggestion.memory_bytes / question.memory_bytes)


@pytest.mark.parametrize("flags", SCRIPTS.values(), ids=SCRIPTS)
def test_every_way_out_really_fits_in_the_stated_time(flags: str) -> None:
    question = asked(flags)
    out = changes(question)
    assert 2 <= len(out) <= MAX_SUGGESTIONS
    for suggestion in out:
        hold(suggestion, question)
        plan = question.plan
        assert (suggestion.plan.gpus, suggestion.plan.global_batch) == (plan.gpus, plan.global_batch)
        assert suggestion.changes
        assert suggestion.flags


@pytest.mark.parametrize("flags", SCRIPTS.values(), ids=SCRIPTS)
def test_ways_out_are_of_different_kinds_and_fastest_first(flags: str) -> None:
    out = changes(asked(flags))
    kinds = [frozenset(change.axis for change in entry.changes) for entry in out]
    assert len(set(kinds)) == len(kinds)
    assert [entry.step_ratio for entry in out] == sorted(entry.step_ratio for entry in out)


def test_a_second_change_must_buy_speed() -> None:
    out = changes(asked(SCRIPTS["a little too large"]))
    for one in out:
        axes = {change.axis for change in one.changes}
        for other in out:
            if {change.axis for change in other.changes} < axes:
                assert one.step_ratio * (1 + MIN_GAIN) < other.step_ratio


def test_a_job_that_fits_gets_changes_that_are_clearly_faster_alone() -> None:
    question = asked("--micro-batch-size 1 --global-batch-size 64 --tensor-model-parallel-size 8"
                     " --pipeline-model-parallel-size 8 --recompute-granularity full --recompute-method uniform"
                     " --recompute-num-layers 1 --sequence-parallel --use-distributed-optimizer")  # fmt: skip
    assert question.verdict is Verdict.FITS
    found = changes(question)
    assert found
    for suggestion in found:
        hold(suggestion, question)
        assert suggestion.step_ratio <= 1 - MIN_GAIN


def test_the_best_plan_really_fits_and_nothing_is_faster_among_the_ways_out() -> None:
    question = asked(SCRIPTS["a little too large"])
    best = find_best_plan(question)
    assert best is not None
    assert best.considered > 100
    hold(best.suggestion, question)
    assert all(best.suggestion.step_s <= entry.step_s * (1 + 1e-9) for entry in changes(question))


def test_where_nothing_fits_more_nodes_are_looked_at() -> None:
    flags = "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --micro-batch-size 1 --global-batch-size 1"
    question = asked(script=megatron_script(flags, nodes=1).replace("per-node=8", "per-node=1"))
    assert changes(question) == ()
    assert find_best_plan(question) is None
    assert find_plan_on_more_nodes(question) is None  # seventy billion parameters do not fit on eight GPUs either
    question = asked(SCRIPTS["a little too large"] + " --micro-batch-size 1", script="")
    larger = find_plan_on_more_nodes(question)
    assert larger is not None
    assert larger.flags[0] == "--nodes=16"
    assert larger.plan.gpus == 2 * question.plan.gpus
    hold(larger, question)


def test_a_launcher_that_counts_its_ranks_is_told_how_many_more_nodes_take() -> None:
    workload = read_script(megatron_script(SCRIPTS["a little too large"] + " --micro-batch-size 1"), file="job.sh")
    options = tuple(sorted({**dict(workload.options), "launcher.ranks": "64"}.items()))
    larger = find_plan_on_more_nodes(question_of(replace(workload, options=options)))
    assert larger is not None
    assert larger.flags[:2] == ("--nodes=16", "(start 128 ranks)")


def test_idle_gpus_are_used_before_more_nodes_are_asked_for() -> None:
    # 16 nodes of 8 GPUs are requested, but 64 ranks are started: twice as many fill these nodes
    workload = read_script(megatron_script(SCRIPTS["a little too large"] + " --micro-batch-size 1"), file="job.sh")
    options = tuple(sorted({**dict(workload.options), "launcher.ranks": "64", "slurm.gpus": "128"}.items()))
    plan = replace(workload.plan, nodes=16, gpus_per_node=4, gpus=64)
    larger = find_plan_on_more_nodes(question_of(replace(workload, options=options, plan=plan)))
    assert larger is not None
    assert larger.plan.gpus == 128
    assert larger.flags[0] == "(start 128 ranks)"


def test_tensor_parallelism_stays_inside_the_gpus_asked_of_a_node() -> None:
    # DGX H100: NVLink joins the eight GPUs of a node, of which this job has four
    assert asked(SCRIPTS["interleaved"]).tp_limit == 8
    script = megatron_script(SCRIPTS["interleaved"]).replace("per-node=8", "per-node=4")
    assert asked(script=script).tp_limit == 4
