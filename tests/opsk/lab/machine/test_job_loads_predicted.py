"""Do a simulated job's GPUs hold and draw what the cost model predicts for its plan?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.costmodel.predict import predict_one
from opsk.hardware.catalog import cluster
from opsk.lab.machine.job_loads import (
    NOISE,
    PlannedNeed,
    compute_load,
    compute_pace,
    predict_need,
    read_recorded_need,
)
from opsk.telemetry.progress.follow import Progress
from opsk.telemetry.progress.records import StepRecord
from opsk.workload.advice_record import AdviceRecord, Verdict
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Sharding

GIB = float(1 << 30)
CLUSTER = cluster("superpod-h100")
MODEL = ModelShape(
    name="llama3-8b",
    layers=32,
    hidden=4096,
    ffn=14336,
    heads=32,
    kv_heads=8,
    head_dim=128,
    vocab=128256,
    seq=8192,
    gated_mlp=True,
)
FLAT = Plan(tp=2, pp=1, dp=8, micro_batch=1, global_batch=128, sequence_parallel=True, sharding=Sharding.ZERO1)
STAGED = replace(FLAT, pp=4, dp=2)
RECORD = AdviceRecord(verdict=Verdict.FITS, mem_bytes=50e9, capacity_bytes=84e9, step_s=2.0)


def bare(plan: Plan) -> AdviceRecord:
    """What is recorded of the model's own prediction."""
    found = predict_one(MODEL, plan, CLUSTER)
    return AdviceRecord(verdict=Verdict.FITS, mem_bytes=float(found.memory.device_bytes), step_s=2.0)


def test_memory_and_power_lie_within_the_predicted_ranges() -> None:
    found = predict_one(MODEL, FLAT, CLUSTER)
    need = predict_need(MODEL, FLAT, CLUSTER, bare(FLAT))
    load = compute_load(need, "7", "n0", range(8))
    assert len(load.memory_bytes) == len(load.power_w) == 8
    low, high = float(found.memory.total_bytes.low), float(found.memory.total_bytes.high)
    assert all(low < each < high for each in load.memory_bytes)
    assert load.power_w == pytest.approx([float(found.energy.gpu_w)] * 8, rel=NOISE)
    assert len(set(load.memory_bytes)) == 8


def test_each_stage_holds_what_the_model_gives_for_it() -> None:
    first, second, last = (float(each) for each in predict_one(MODEL, STAGED, CLUSTER).memory.by_stage.device)
    need = replace(predict_need(MODEL, STAGED, CLUSTER, bare(STAGED)), nodes=("n4", "n2"))
    # 16 GPUs on 2 nodes in 4 stages of 4, the outermost axis: two stages a node, in the order of the job's nodes.
    for node, stages in (("n4", (first, second)), ("n2", (second, last))):
        expected = [stages[0]] * 4 + [stages[1]] * 4
        assert compute_load(need, "7", node, range(8)).memory_bytes == pytest.approx(expected, rel=NOISE)
    assert abs(first - last) > 2 * NOISE * first, "stages that are alike would show nothing"


def test_the_record_says_how_much_the_fullest_stage_holds() -> None:
    need = predict_need(MODEL, STAGED, CLUSTER, RECORD)
    assert max(need.stage_memory_bytes) == pytest.approx(50e9)
    assert need.step_s == 2.0


def test_a_record_alone_gives_memory_and_pace_but_no_power() -> None:
    need = read_recorded_need(RECORD)
    assert need == PlannedNeed(stage_memory_bytes=(50e9,), capacity_bytes=84e9, step_s=2.0)
    assert compute_load(need, "7", "n0", (0, 1)).power_w == ()
    assert read_recorded_need(AdviceRecord(verdict=Verdict.UNKNOWN)) is None


def test_the_noise_of_a_gpu_is_always_the_same_and_another_for_each_job() -> None:
    need = PlannedNeed(stage_memory_bytes=(50 * GIB,))
    assert compute_load(need, "7", "n0", (0, 1)) == compute_load(need, "7", "n0", (0, 1))
    assert compute_load(need, "7", "n0", (0,)) != compute_load(need, "8", "n0", (0,))
    assert compute_load(need, "7", "n0", (0,)) != compute_load(need, "7", "n1", (0,))


def test_gpus_of_a_job_that_runs_out_of_memory_are_full() -> None:
    need = PlannedNeed(stage_memory_bytes=(119.6 * GIB,), capacity_bytes=79.1 * GIB)
    assert compute_load(need, "7", "n0", (0, 1)).memory_bytes == (79.1 * GIB, 79.1 * GIB)


def progress(step_s: float | None, at_unix_s: float | None = 1000.0) -> Progress:
    return Progress(
        framework=None, last=StepRecord(iteration=9), step_s=step_s, tokens_per_s=None, tflops_per_gpu=None,
        restarts=0, at_unix_s=at_unix_s,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("seen", "step_s", "now_unix_s", "pace"),
    [
        (None, 2.0, 1000.0, 1.0),  # it has not begun
        (progress(None), 2.0, 1000.0, 1.0),
        (progress(2.0), None, 5000.0, 1.0),  # nothing was predicted
        (progress(2.0), 2.0, 1001.0, 1.0),
        (progress(1.9), 2.0, 1001.0, 1.0),  # faster than predicted is no more than predicted
        (progress(4.0), 2.0, 1001.0, 0.5),
        (progress(4.0), 2.0, 1019.0, 0.5),  # not yet five steps of 4 s
        (progress(4.0), 2.0, 1021.0, 0.0),
        (progress(0.1), 0.1, 1009.0, 1.0),  # not yet 10 s
        (progress(0.1), 0.1, 1011.0, 0.0),
        (progress(2.0, None), 2.0, 5000.0, 1.0),
    ],
)
def test_the_pace_follows_the_log(seen: Progress | None, step_s: float | None, now_unix_s: float, pace: float) -> None:
    assert compute_pace(seen, step_s, now_unix_s) == pace
