"""Do the training steps of a probe teach as jobs do, and as jobs whose every input is stated?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opsk.calibration.learning.evidence import MeasuredJob, NodeMeasurement, SiteFit
from opsk.calibration.learning.memory_fit import predict_peaks
from opsk.calibration.learning.probe_steps import ProbeSteps
from opsk.calibration.learning.site_fit import learn_site, predict_times
from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.sizes.parameters import total_parameters
from opsk.costmodel.uncertainty.case_spread import apply_case_spread
from opsk.probe.document import parse_probe
from opsk.workload.plan import Recompute, Sharding, Software
from tests.fakes.probe_documents import LOADED, probe_document
from tests.fakes.site_jobs import A100, H100, site_jobs

NO_RATES: dict[str, Any] = {part: [] for part in ("matmul", "attention", "collectives", "memory", "sustained")}
VARIANTS = (("plain", 1), ("recomputed", 1), ("fsdp", 8), ("fsdp recomputed", 8))


def rows(**more: Any) -> list[dict[str, Any]]:
    """Return twelve steps as the program writes them."""
    first = probe_document()["training"][0]
    return [
        {**first, "variant": variant, "ranks": ranks, "micro_batch": batch, **more}
        for variant, ranks in VARIANTS
        for batch in (1, 2, 4)
    ]


def measurement(training: list[dict[str, Any]], **more: Any) -> NodeMeasurement:
    document = parse_probe(json.dumps(probe_document(**{**NO_RATES, "training": training, **more})), origin="x")
    return NodeMeasurement(document=document, cluster=H100)


def learn(*, time: float = 1.0, memory: float | None = None, odd: Mapping[str, float] | None = None) -> SiteFit:
    """Learn from steps that take so many times what opsk predicts, and reserve so much of it."""
    steps = ProbeSteps.of([measurement(rows(reserved_bytes=1e10))]).jobs
    predicted = zip(rows(), predict_times(steps, DEFAULT), predict_peaks(steps, DEFAULT), strict=True)
    training = [
        {
            **row,
            "step_s": float(step_s) * (odd or {}).get(row["variant"], time),
            "reserved_bytes": None if memory is None else float(peak) * memory,
        }
        for row, step_s, peak in predicted
    ]
    return learn_site(DEFAULT, [], [measurement(training)])


def build_job(software: Software) -> MeasuredJob:
    """Return a job of the size of the step's model's neighbours, which nobody measured."""
    job = site_jobs(4)[0]
    plan = replace(job.plan, software=software, tp=1, pp=1, dp=8, sharding=Sharding.ZERO3, recompute=Recompute.FULL)
    return replace(job, cluster=H100, plan=replace(plan, sequence_parallel=False, global_batch=8 * plan.micro_batch))


def test_the_steps_of_a_variant_are_one_job_with_every_input_stated() -> None:
    steps = ProbeSteps.of([measurement(rows())])
    assert [(job.plan.recompute, job.plan.sharding, job.plan.dp) for job in steps.jobs[::3]] == [
        (Recompute.NONE, Sharding.NONE, 1), (Recompute.FULL, Sharding.NONE, 1),
        (Recompute.NONE, Sharding.ZERO3, 8), (Recompute.FULL, Sharding.ZERO3, 8),
    ]  # fmt: skip
    # 12 (4 x 2048^2 + 3 x 2048 x 5632 + 2 x 2048) + 2 x 32000 x 2048 + 2048, as the program builds it
    assert {total_parameters(job.model) for job in steps.jobs} == {747_685_888}
    assert not any(job.assumed for job in steps.jobs)
    assert steps.weights.sum() == pytest.approx(len(VARIANTS))


def test_steps_count_less_the_more_of_a_probe_heat_held_down() -> None:
    product = {**probe_document()["matmul"][0], **LOADED}
    hot = measurement(rows(), matmul=[product, {**product, "is_throttled": True}])
    assert ProbeSteps.of([hot]).weights.sum() == pytest.approx(len(VARIANTS) * (1 - 0.75 / 2))


@pytest.mark.parametrize("more", [{"variant": "of a newer program"}, {"ffn": None}, {"heads": 7}, {"ranks": 1 << 30}])
def test_steps_that_this_version_cannot_describe_are_passed_over(more: dict[str, Any]) -> None:
    assert ProbeSteps.of([measurement(rows(**more))]).jobs == ()


def test_slow_steps_slow_jobs_of_the_framework_on_that_gpu_and_narrow_their_range() -> None:
    learned = learn(time=1.2)
    assert learned.time.is_taken
    job = build_job(Software.PYTORCH)
    ratio = predict_times([job], learned.efficiency)[0] / predict_times([job], DEFAULT)[0]
    assert 1.08 < ratio < 1.21  # what was measured is 1.2
    before, after = (apply_case_spread(efficiency, (), job.case).spread for efficiency in (DEFAULT, learned.efficiency))
    assert after.time_log_sigma < before.time_log_sigma
    assert after.time_assumed_log_sigma == before.time_assumed_log_sigma  # a probe says nothing of what a script omits
    assert learned.efficiency.offset["pytorch/hopper"].time_jobs == 0
    elsewhere = replace(job, cluster=A100).case  # nobody measured these GPUs: little is known of them by the others
    widths = [apply_case_spread(each, (), elsewhere).spread.time_log_sigma for each in (DEFAULT, learned.efficiency)]
    assert 0.85 * widths[0] < widths[1] <= widths[0]


def test_steps_that_were_predicted_worse_narrow_the_range_less() -> None:
    near, far = (
        apply_case_spread(learn(time=time).efficiency, (), build_job(Software.PYTORCH).case).spread.time_log_sigma
        for time in (1.0, 1.4)
    )
    assert near < 0.8 * far


def test_what_pytorch_reserved_teaches_memory_without_any_job() -> None:
    learned = learn(memory=1.15)
    assert learned.memory.is_taken
    job = build_job(Software.PYTORCH)
    ratio = predict_peaks([job], learned.efficiency)[0] / predict_peaks([job], DEFAULT)[0]
    assert 1.05 < ratio < 1.15
    other = build_job(Software.DEEPSPEED)
    assert predict_peaks([other], learned.efficiency) == pytest.approx(predict_peaks([other], DEFAULT))


def test_a_step_out_of_reach_is_named_and_teaches_nothing() -> None:
    """One variant at a twentieth of the time that any H100 could need."""
    clean, mixed = learn(), learn(odd={"fsdp": 0.05})
    job = build_job(Software.PYTORCH)
    assert predict_times([job], mixed.efficiency) == pytest.approx(predict_times([job], clean.efficiency), rel=0.02)
    assert len(mixed.warnings) == 3
    assert "fsdp, micro-batch 1: 0.05 times the predicted step time is out of the prior's reach" in mixed.warnings[0]


def test_a_model_that_no_gpu_can_hold_does_not_stop_the_fit() -> None:
    learned = learn_site(DEFAULT, [], [measurement(rows(layers=1 << 40, hidden=1 << 40, heads=1 << 20))])
    assert np.isfinite(predict_times([build_job(Software.PYTORCH)], learned.efficiency)).all()
