"""Ways out of a memory problem, and faster plans: each must hold when it is predicted again."""

from __future__ import annotations

import pytest

from opsk.costmodel.predict import predict
from opsk.costmodel.shipped import DEFAULT
from opsk.costmodel.table import PlanTable
from opsk.costmodel.verdict import Verdict, verdict_of
from opsk.hardware.catalog import cluster
from opsk.workload.completion import complete
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan
from opsk.workload.workload import Workload
from opsk_jobcheck.readers.script import read_script
from opsk_jobcheck.suggestions import MAX_SUGGESTIONS, MIN_GAIN, Suggestion, best_plan, ways_out
from tests.fakes.launch_scripts import megatron_script

CLUSTER = cluster("superpod-h100")
FLAGS = "--global-batch-size 128 --sequence-parallel --use-distributed-optimizer"
TP4_PP2 = "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --micro-batch-size 2"
SCRIPTS = {
    "a little too large": f"{TP4_PP2} {FLAGS}",
    "no parallelism": f"--tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --micro-batch-size 2 {FLAGS}",
    "interleaved": f"{TP4_PP2} {FLAGS} --num-layers-per-virtual-pipeline-stage 10",
}


def asked(flags: str) -> tuple[ModelShape, Plan, Workload, float]:
    """Return model, plan, workload and step time of a script."""
    workload = read_script(megatron_script(flags), file="job.sh")
    completion = complete(workload)
    assert completion.model is not None
    assert completion.plan is not None
    step_s = float(predict(completion.model, PlanTable.of([completion.plan]), CLUSTER).time.step_s.expected[0])
    return completion.model, completion.plan, workload, step_s


def hold(suggestion: Suggestion, model: ModelShape, step_s: float) -> None:
    """Check a suggestion against a prediction of its plan alone."""
    again = predict(model, PlanTable.of([suggestion.plan]), CLUSTER)
    assert verdict_of(float(again.memory.fit_probability[0])) is Verdict.FITS
    assert float(again.memory.total_bytes.expected[0]) == pytest.approx(suggestion.memory_bytes)
    assert float(again.time.step_s.expected[0]) == pytest.approx(suggestion.step_s)
    assert suggestion.step_ratio == pytest.approx(suggestion.step_s / step_s)


@pytest.mark.parametrize("flags", SCRIPTS.values(), ids=SCRIPTS)
def test_every_way_out_really_fits_in_the_stated_time(flags: str) -> None:
    model, plan, workload, step_s = asked(flags)
    out = ways_out(model, plan, CLUSTER, DEFAULT, workload=workload, step_s=step_s)
    assert 2 <= len(out) <= MAX_SUGGESTIONS
    for suggestion in out:
        hold(suggestion, model, step_s)
        assert (suggestion.plan.gpus, suggestion.plan.global_batch) == (plan.gpus, plan.global_batch)
        assert suggestion.changes
        assert suggestion.flags


@pytest.mark.parametrize("flags", SCRIPTS.values(), ids=SCRIPTS)
def test_ways_out_are_of_different_kinds_and_fastest_first(flags: str) -> None:
    model, plan, workload, step_s = asked(flags)
    out = ways_out(model, plan, CLUSTER, DEFAULT, workload=workload, step_s=step_s)
    kinds = [frozenset(change.axis for change in entry.changes) for entry in out]
    assert len(set(kinds)) == len(kinds)
    assert [entry.step_ratio for entry in out] == sorted(entry.step_ratio for entry in out)


def test_a_second_change_must_buy_speed() -> None:
    model, plan, workload, step_s = asked(SCRIPTS["a little too large"])
    out = ways_out(model, plan, CLUSTER, DEFAULT, workload=workload, step_s=step_s)
    for one in out:
        axes = {change.axis for change in one.changes}
        for other in out:
            if {change.axis for change in other.changes} < axes:
                assert one.step_ratio * (1 + MIN_GAIN) < other.step_ratio


def test_the_best_plan_really_fits_and_nothing_is_faster_among_the_ways_out() -> None:
    model, plan, workload, step_s = asked(SCRIPTS["a little too large"])
    best = best_plan(model, plan, CLUSTER, DEFAULT, workload=workload, step_s=step_s)
    assert best is not None
    assert best.considered > 100
    hold(best.suggestion, model, step_s)
    out = ways_out(model, plan, CLUSTER, DEFAULT, workload=workload, step_s=step_s)
    assert all(best.suggestion.step_s <= entry.step_s * (1 + 1e-9) for entry in out)


def test_where_nothing_fits_nothing_is_suggested() -> None:
    flags = "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --micro-batch-size 1 --global-batch-size 1"
    workload = read_script(megatron_script(flags, nodes=1).replace("per-node=8", "per-node=1"), file="job.sh")
    completion = complete(workload)
    assert completion.model is not None
    assert completion.plan is not None
    more = {"workload": workload, "step_s": 1.0}
    assert ways_out(completion.model, completion.plan, CLUSTER, DEFAULT, **more) == ()  # type: ignore[arg-type]
    assert best_plan(completion.model, completion.plan, CLUSTER, DEFAULT, **more) is None  # type: ignore[arg-type]
