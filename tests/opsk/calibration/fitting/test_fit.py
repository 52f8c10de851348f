"""Does the fit find what made the runs, keep what it cannot see, and resist runs and sources that are wrong?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opsk.calibration.fitting.fit import (
    MIN_NOISE,
    Fit,
    FitSettings,
    FittedParameter,
    Start,
    TimedRun,
    TimedRuns,
    fit_time,
)
from opsk.calibration.fitting.problem import IDENTIFIED, MAX_FITTED, free_all
from opsk.costmodel.efficiency.efficiency import SoftwareEfficiency
from opsk.errors import InputError
from opsk.workload.plan import Software
from tests.fakes.timed_runs import TRUTH, made_runs

PLAIN = FitSettings(priors={})
"""Priors by the kind of a number alone: what is tested is the fit, not what is believed of chips and software."""


@pytest.fixture(scope="module")
def runs() -> list[TimedRun]:
    return made_runs()


@pytest.fixture(scope="module")
def fit(runs: list[TimedRun]) -> Fit:
    return fit_time(runs, PLAIN)


def _known(fit: Fit, name: str) -> FittedParameter:
    return next(item for item in fit.parameters if item.name == name)


def _slower(run: TimedRun, factor: float) -> TimedRun:
    return replace(run, step_s=run.step_s * factor)


@pytest.mark.parametrize(
    ("name", "truth"),
    [
        ("gpu.ampere.matmul_fraction", TRUTH.gpu["ampere"].matmul_fraction),
        ("gpu.ampere.attention_factor", TRUTH.gpu["ampere"].attention_factor),
        ("software.megatron.kernel_gap_s", TRUTH.software[Software.MEGATRON].kernel_gap_s),
        ("software.pytorch.kernel_gap_s", TRUTH.software[Software.PYTORCH].kernel_gap_s),
    ],
)
def test_known_parameters_are_found_within_what_the_noise_allows(fit: Fit, name: str, truth: float) -> None:
    found = _known(fit, name)
    assert found.is_identified
    assert abs(found.value - truth) < 3 * found.standard_error  # three standard deviations: 1 in 370 would miss
    assert abs(found.value - truth) < 0.5 * abs(found.prior - truth)  # and it has really left the prior


def test_the_errors_left_are_below_the_least_noise_that_a_fit_believes_in(fit: Fit) -> None:
    # noise of 0.02 was put in; what stays at its prior, for runs of a noise of 0.05 would not tell it, adds to that
    assert 0.02 <= np.std(fit.log_errors) < MIN_NOISE
    assert abs(np.mean(fit.log_errors)) < 0.02


def test_what_no_run_tells_stays_at_the_prior(fit: Fit) -> None:
    for name in ("gpu.ampere.fp4_fraction", "software.pytorch.cp_overlap", "software.megatron.ep_overlap"):
        found = _known(fit, name)
        assert not found.is_identified
        assert found.value == pytest.approx(found.prior, abs=1e-6)


def test_families_without_runs_get_what_the_others_share(fit: Fit) -> None:
    shared = _known(fit, "software.other.kernel_gap_s").value
    found = fit.efficiency.software[Software.DEEPSPEED]
    assert found.kernel_gap_s == pytest.approx(shared)
    assert found.kernel_gap_s > 1.4 * SoftwareEfficiency().kernel_gap_s  # both families with runs lie above the prior


def test_a_parameter_is_fitted_only_where_runs_halve_its_width(fit: Fit) -> None:
    space = fit.space
    before = free_all(space).prior_widths()
    for place, item in enumerate(fit.parameters):
        if item.is_identified:
            assert item.width <= IDENTIFIED * before[place] * 1.05  # a shared value that stays adds to its width
        elif space.parents[place] < 0:
            assert item.value == pytest.approx(item.prior)
    assert 0 < len(fit.free) <= MAX_FITTED


def test_what_a_source_has_in_common_is_its_offset_and_moves_no_parameter(runs: list[TimedRun], fit: Fit) -> None:
    slow = [_slower(run, 1.3) if run.source == "b" else run for run in runs]
    found = fit_time(slow, PLAIN)
    for software in ("megatron", "pytorch"):
        own, other = (
            next(each.log for each in found.offsets if (each.source, each.software) == (source, software))
            for source in ("b", "a")
        )
        assert own - other == pytest.approx(np.log(1.3), abs=0.04)
    known = _known(fit, "gpu.ampere.matmul_fraction")
    assert abs(_known(found, known.name).value - known.value) < 2 * known.standard_error


def test_a_site_starts_from_what_is_known_and_learns_its_offset(runs: list[TimedRun], fit: Fit) -> None:
    site = [_slower(run, 1.15) for run in runs[::11]]
    settings = FitSettings(start=Start.BASE, priors={}, source_exponent=0.0)
    found = fit_time(site, settings, base=fit.efficiency)
    before = TimedRuns(site).log_errors(fit.efficiency)
    assert np.median(before) == pytest.approx(-np.log(1.15), abs=0.03)
    assert abs(np.median(found.log_errors)) < 0.03
    family = runs[0].plan.software.value
    moved = found.efficiency.offset[family].time_log - fit.efficiency.offset[family].time_log
    assert 0.05 < moved < 0.2
    assert found.efficiency.offset[family].time_log_sigma < settings.offset_log_sigma


def test_a_wild_run_hardly_moves_the_fit(runs: list[TimedRun], fit: Fit) -> None:
    found = fit_time([_slower(runs[0], 10.0), *runs[1:]], PLAIN)
    known = _known(fit, "gpu.ampere.matmul_fraction")
    assert abs(_known(found, known.name).value - known.value) < known.standard_error


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_a_small_source_is_heard_beside_a_large_one(runs: list[TimedRun], exponent: float) -> None:
    sorted_out = [replace(run, source="small" if place % 8 == 0 else "large") for place, run in enumerate(runs)]
    found = fit_time(sorted_out, replace(PLAIN, source_exponent=exponent))
    small = np.array([run.source == "small" for run in sorted_out])
    # 12 runs against 84, each of n^-p: 1 : 7 where every run counts the same, 1 : 1 where every source does
    assert found.weights[~small].sum() / found.weights[small].sum() == pytest.approx(7.0 ** (1 - exponent))


def test_a_mostly_assumed_run_is_predicted_but_not_fitted_to(runs: list[TimedRun], fit: Fit) -> None:
    guessed = replace(_slower(runs[0], 5.0), assumed_inputs=6)
    found = fit_time([*runs, guessed], PLAIN)
    assert found.weights[-1] == 0
    assert found.log_errors[-1] == pytest.approx(fit.log_errors[0] - np.log(5.0), abs=1e-9)
    assert found.vector == pytest.approx(fit.vector, abs=1e-12)


def test_runs_that_are_all_mostly_assumed_are_refused(runs: list[TimedRun]) -> None:
    with pytest.raises(InputError, match="each of 2 has more than 5 assumed inputs"):
        fit_time([replace(run, assumed_inputs=9) for run in runs[:2]])


def test_noise_of_stated_and_of_assumed_runs_is_told_apart() -> None:
    fine, rough = made_runs(noise=0.08), made_runs(noise=0.2, seed=8)
    found = fit_time([*fine, *(replace(run, source="rough", assumed_inputs=2) for run in rough)], PLAIN)
    # 96 runs each: a median of absolute errors is known to about 1.2 / sqrt(96) = 12 %
    assert found.stated_log_sigma == pytest.approx(0.08, rel=0.36)
    assert found.assumed_log_sigma == pytest.approx(0.2, rel=0.36)


def test_a_start_elsewhere_ends_at_the_same_fit(runs: list[TimedRun], fit: Fit) -> None:
    found = fit_time(runs, PLAIN, near=replace(fit.near, coordinates={}))
    known = _known(fit, "gpu.ampere.matmul_fraction")
    assert _known(found, known.name).value == pytest.approx(known.value, abs=known.standard_error / 2)
