"""Does a site's fit find what its jobs and nodes show, and does it refuse what would make it worse?"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from opsk.calibration.fitting.parameters import ParameterSpace
from opsk.calibration.learning.evidence import NodeMeasurement
from opsk.calibration.learning.joint_rows import NodeRows
from opsk.calibration.learning.memory_fit import predict_peaks
from opsk.calibration.learning.site_fit import learn_site, predict_times
from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.uncertainty.case_spread import apply_case_spread
from opsk.costmodel.uncertainty.chance import COVERED_SIGMAS
from opsk.probe.comparison import compare, summarise_ratios
from opsk.probe.document import parse_probe
from opsk.workload.plan import Precision, Recompute
from tests.fakes.probe_documents import LOADED, probe_document
from tests.fakes.site_jobs import H100, site_jobs

FACTORS = (1.3, 0.8, 1.15, 0.75)
"""Measured over predicted times of the four kinds of jobs: what a site's software and clocks may do."""


def test_kinds_that_differ_are_each_learned() -> None:
    others = site_jobs(80, factors=FACTORS, seed=2)
    learned = learn_site(DEFAULT, site_jobs(32, factors=FACTORS))
    errors = np.log(predict_times(others, learned.efficiency) / [job.step_s for job in others])
    assert learned.time.is_taken
    assert np.median(np.abs(errors)) < 0.03  # the noise of single jobs is 2 %
    sigmas = [apply_case_spread(learned.efficiency, (), job.case).spread.time_log_sigma for job in others]
    assert np.mean(np.abs(errors) <= COVERED_SIGMAS * np.array(sigmas)) > 0.8
    assert learned.time.after is not None
    assert learned.time.before is not None
    assert learned.time.after.median < 0.05 < learned.time.before.median
    names = {change.name for change in learned.changes}
    assert "offset.pytorch/hopper/dense/dp-full/8b.time" in names


def test_a_job_left_out_is_predicted_as_by_a_fit_without_it() -> None:
    """The closed form against fits that are really made without the job; without the job, others of its kind
    decide alone, and the noise is estimated anew: of errors of 0.3 before, 0.1 may differ."""
    jobs = site_jobs(8, factors=FACTORS)
    whole = learn_site(DEFAULT, jobs)
    assert whole.time_left_out is not None
    for index in (0, 5):
        without = learn_site(DEFAULT, [job for job in jobs if job is not jobs[index]])
        error = float(np.log(predict_times([jobs[index]], without.efficiency)[0] / (jobs[index].step_s or 1.0)))
        assert whole.time_left_out.after[index] == pytest.approx(error, abs=0.1)


def test_a_fit_that_predicts_jobs_left_out_no_better_is_not_taken() -> None:
    """Times that are right on average and scatter by a fifth teach nothing."""
    learned = learn_site(DEFAULT, site_jobs(24, noise=0.2, seed=5))
    assert not learned.time.is_taken
    assert "jobs that were left out are predicted no better" in learned.time.why_not
    assert learned.efficiency.gpu == DEFAULT.gpu


def test_jobs_that_others_contradict_teach_nothing_and_a_lone_job_of_its_kind_does() -> None:
    """Three jobs of one owner at 0.6 of the time that others of their kind take; the only job of a kind stays."""
    jobs = [job for index, job in enumerate(site_jobs(24, factors=FACTORS)) if index % 4 != 3 or index == 3]
    wrong = [replace(job, id=f"wrong-{job.id}", owner="mallory", step_s=(job.step_s or 0.0) * 0.6) for job in jobs[:3]]
    learned = learn_site(DEFAULT, [*jobs, *wrong])
    assert learned.time_left_out is not None
    weights = dict(zip(learned.time_left_out.jobs, learned.time_left_out.weights, strict=True))
    assert [name for name, weight in weights.items() if weight == 0] == [job.id for job in wrong]
    honest = learn_site(DEFAULT, jobs)
    assert predict_times(jobs, learned.efficiency) == pytest.approx(predict_times(jobs, honest.efficiency), rel=0.02)


def test_jobs_of_another_layout_or_size_get_what_the_wider_cell_has_learned() -> None:
    """Every job on Hopper takes 1.3 of the time: so will those of a layout that no job had, for the larger part."""
    learned = learn_site(DEFAULT, [job for job in site_jobs(32, factors=(1.3,)) if job.cluster is H100])
    job = next(job for job in site_jobs(4) if job.plan.pp > 1)
    new = replace(job, plan=replace(job.plan, pp=8, recompute=Recompute.FULL))
    ratio = predict_times([new], learned.efficiency)[0] / predict_times([new], DEFAULT)[0]
    assert 1.1 < ratio < 1.35
    widths = [apply_case_spread(learned.efficiency, (), each.case).spread.time_log_sigma for each in (job, new)]
    assert widths[1] > 2 * widths[0]


def test_two_jobs_are_too_few_to_test_a_fit() -> None:
    learned = learn_site(DEFAULT, site_jobs(2, factors=FACTORS))
    assert (learned.is_taken, learned.efficiency) == (False, DEFAULT)
    assert "3 jobs are needed" in learned.time.why_not


def test_invented_step_times_are_named_and_move_nothing() -> None:
    """One user reports a tenth of the true time, on many jobs: no prior reaches that far."""
    honest = site_jobs(16, factors=FACTORS)
    invented = [
        replace(job, id=f"invented-{job.id}", owner="mallory", step_s=job.step_s and job.step_s / 10)
        for job in site_jobs(24, factors=FACTORS, seed=5)
    ]
    clean, mixed = learn_site(DEFAULT, honest), learn_site(DEFAULT, [*honest, *invented])
    assert predict_times(honest, mixed.efficiency) == pytest.approx(predict_times(honest, clean.efficiency), rel=0.005)
    unused = [outlier for outlier in mixed.time.outliers if not outlier.is_used]
    assert {outlier.owner for outlier in unused} == {"mallory"}
    assert len(unused) == 24


def test_a_user_who_reports_plausible_times_moves_others_little() -> None:
    """Within reach, one user counts as ten jobs of a kind, and robustly: against twenty honest ones, below 6 %."""
    honest = site_jobs(80, factors=(1.0,), owners=8)
    slow = [
        replace(job, id=f"slow-{job.id}", owner="mallory", step_s=job.step_s and job.step_s * 1.5)
        for job in site_jobs(160, seed=5)
    ]
    learned = learn_site(DEFAULT, [*honest, *slow])
    assert np.abs(np.log(predict_times(honest, learned.efficiency) / predict_times(honest, DEFAULT))).max() < 0.06
    assert sum(outlier.owner == "mallory" for outlier in learned.time.outliers) > 100


def test_jobs_of_one_kind_move_no_parameter_out_of_its_priors_reach() -> None:
    """Twice the predicted time: offsets take what parameters must not."""
    jobs = site_jobs(24, factors=(2.0,))
    kind = [job for job in jobs if job.case.cells[0] == jobs[1].case.cells[0]]
    learned = learn_site(DEFAULT, kind)
    assert learned.time.is_taken
    space = ParameterSpace.around(["hopper"], [kind[0].plan.software], base=DEFAULT)
    for item in space.parameters:
        value, scale = space.value_in(learned.efficiency, item), item.prior.scale
        moved = abs(scale.coordinate(value) - scale.coordinate(item.prior.centre))
        assert moved <= 2.001 * item.prior.width, item.name


def test_peaks_teach_memory_by_framework_without_any_time() -> None:
    jobs = [replace(job, step_s=None) for job in site_jobs(16, memory_factor=1.12)]
    learned = learn_site(DEFAULT, jobs)
    assert (learned.time.is_taken, learned.memory.is_taken) == (False, True)
    errors = np.log(predict_peaks(jobs, learned.efficiency) / [job.peak_bytes for job in jobs])
    assert np.abs(errors).max() < 0.06
    assert learned.efficiency.offset["deepspeed"].memory_log > 0.05
    times = predict_times(jobs, learned.efficiency)
    assert times == pytest.approx(predict_times(jobs, DEFAULT))


def test_the_fit_in_use_stays_where_it_predicts_new_jobs_better() -> None:
    """The site changed back: the last twelve jobs are as shipped, the older ones are half as slow again."""
    old = site_jobs(32, factors=(1.5,))
    new = [replace(job, id=f"new-{job.id}", is_new=True) for job in site_jobs(12, seed=4)]
    learned = learn_site(DEFAULT, [*old, *new], current=DEFAULT)
    assert not learned.time.is_taken
    assert "12 jobs that it has not seen" in learned.time.why_not


def test_what_is_not_taken_stays_as_in_the_fit_in_use() -> None:
    """Jobs without a step time improve memory and say nothing of times: the learned times stay."""
    jobs = site_jobs(16, factors=FACTORS)
    current = learn_site(DEFAULT, [replace(job, peak_bytes=None) for job in jobs]).efficiency
    peaks = [replace(job, step_s=None) for job in site_jobs(16, memory_factor=1.12)]
    learned = learn_site(DEFAULT, peaks, current=current)
    assert (learned.time.is_taken, learned.memory.is_taken) == (False, True)
    assert predict_times(jobs, learned.efficiency) == pytest.approx(predict_times(jobs, current))
    assert predict_peaks(jobs, learned.efficiency) == pytest.approx(1.12 * predict_peaks(jobs, DEFAULT), rel=0.05)


def test_a_job_that_cannot_be_predicted_does_not_stop_the_fit() -> None:
    """An A100 has no FP8; a script may say so all the same."""
    jobs = site_jobs(8, factors=FACTORS)
    odd = replace(jobs[3], id="odd", plan=replace(jobs[3].plan, precision=Precision.FP8))
    learned = learn_site(DEFAULT, [*jobs, odd])
    assert learned.time.jobs == 8
    assert learned.warnings[0].startswith("job odd cannot be predicted")


def measured_node(*, throttled: bool = False) -> NodeMeasurement:
    """Return a node whose products reach 0.8 of what opsk expects of a GPU of its kind."""
    loaded = {**LOADED, "is_throttled": throttled, "time_s": 1e-3, "spread": 0.01}
    reached = {
        row.label: 0.8 * row.expected
        for row in compare(parse_probe(json.dumps(probe_document()), origin="x"), H100, DEFAULT)
    }
    products = [
        {
            "precision": "bf16",
            "m": size,
            "k": size,
            "n": size,
            **loaded,
            "flop_per_s": reached[f"{size} x {size} x {size}"],
        }
        for size in (1024, 8192)
    ]
    alone = {"collectives": [], "memory": [], "attention": [], "sustained": []}
    document = parse_probe(json.dumps(probe_document(matmul=products, **alone)), origin="x")
    return NodeMeasurement(document=document, cluster=H100)


def test_a_measured_node_is_learned_without_jobs_and_less_under_heat() -> None:
    cool, hot = (learn_site(DEFAULT, [], [measured_node(throttled=throttled)]) for throttled in (False, True))
    ratios = [
        summarise_ratios(compare(measured_node().document, H100, learned.efficiency))["matmul", "bf16"]
        for learned in (cool, hot)
    ]
    assert cool.time.is_taken
    assert 0.8 < ratios[0] < 1.05
    assert ratios[0] > ratios[1] > 0.8  # what was measured under heat moves it less
    assert "a measured node of h100-sxm" in cool.efficiency.fit


def test_rates_of_products_are_those_under_a_long_load() -> None:
    """7e14 FLOP/s in a short measurement and 6.5e14 under load, as in the invented document: ln(6.5 / 7)."""
    brief, loaded = (
        NodeRows([NodeMeasurement(document=parse_probe(json.dumps(values), origin="x"), cluster=H100)], DEFAULT)
        for values in (probe_document(sustained=[]), probe_document())
    )
    moved = loaded.log_errors(DEFAULT) - brief.log_errors(DEFAULT)
    parts = [part for part, _ in loaded.series]
    for part, change in zip(parts, moved, strict=True):
        assert change == pytest.approx(np.log(6.5 / 7) if part in ("matmul", "attention") else 0.0)


def test_jobs_outweigh_a_measured_node_that_they_contradict() -> None:
    """The node's products are a fifth slower than expected, and the jobs need seven tenths of the predicted time."""
    learned = learn_site(DEFAULT, site_jobs(12, factors=(0.7,)), [measured_node()])
    assert learned.time.is_taken
    assert learned.time.after is not None
    assert learned.time.after.median < 0.1
