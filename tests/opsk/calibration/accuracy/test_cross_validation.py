"""Is the source that is left out really left out?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opsk.calibration.accuracy.cross_validation import CrossValidation, ErrorFigures, cross_validate
from opsk.calibration.fitting.fit import FitSettings, TimedRun, TimedRuns, fit_time
from opsk.errors import InputError
from tests.fakes.timed_runs import made_runs

POISON = 3.0


def _poisoned(runs: list[TimedRun], source: str) -> list[TimedRun]:
    return [replace(run, step_s=run.step_s * POISON) if run.source == source else run for run in runs]


@pytest.fixture(scope="module")
def runs() -> list[TimedRun]:
    return made_runs()[::2]


@pytest.fixture(scope="module")
def clean(runs: list[TimedRun]) -> CrossValidation:
    return cross_validate(runs)


def test_nothing_of_a_source_reaches_the_fit_that_predicts_it(runs: list[TimedRun], clean: CrossValidation) -> None:
    poisoned = cross_validate(_poisoned(runs, "b"))
    own = np.array([run.source == "b" for run in runs])
    # the prediction is the same to the last bit, so the errors differ by what was measured and by nothing else
    assert poisoned.log_errors[own] == pytest.approx(clean.log_errors[own] - np.log(POISON), abs=1e-12)
    # the others were fitted with it; little of a factor on all of a source reaches them, for its own offset takes it up
    assert np.abs(poisoned.log_errors[~own] - clean.log_errors[~own]).max() > 0.005


def test_a_source_is_predicted_by_the_fit_to_the_others(runs: list[TimedRun], clean: CrossValidation) -> None:
    for source in ("a", "b", "c"):
        rest = [run for run in runs if run.source != source]
        own = [run for run in runs if run.source == source]
        expected = TimedRuns(own).log_errors(fit_time(rest, FitSettings()).efficiency)
        inside = np.array([run.source == source for run in runs])
        assert clean.log_errors[inside] == pytest.approx(expected, abs=1e-12)
        assert clean.by_source[source] == ErrorFigures.of(expected)


def test_runs_of_one_truth_are_predicted_nearly_within_their_noise(runs: list[TimedRun]) -> None:
    found = cross_validate(runs, FitSettings(priors={}))
    assert found.overall is not None
    assert found.overall.runs == len(runs)
    # noise of 2 %, whose median is 1.3 %, and what 32 runs leave open of parameters that start 15 % and more away
    assert found.overall.median < 0.04
    assert found.stated == found.overall
    assert found.assumed is None


def test_two_processes_find_what_one_does(runs: list[TimedRun]) -> None:
    few = runs[:12]
    alone, together = cross_validate(few), cross_validate(few, processes=2)
    assert together.log_errors == pytest.approx(alone.log_errors, abs=1e-9)


def test_progress_tells_every_source_once(runs: list[TimedRun]) -> None:
    seen: list[tuple[str, int, int]] = []
    cross_validate(runs[::4], progress=lambda *step: seen.append(step))
    assert [done for _, done, _ in seen] == list(range(1, len(seen) + 1))
    assert {source for source, *_ in seen} == {run.source for run in runs[::4]}


def test_one_source_alone_cannot_be_left_out(runs: list[TimedRun]) -> None:
    with pytest.raises(InputError, match="nothing can be left out"):
        cross_validate([run for run in runs if run.source == "a"])


def test_figures_are_those_of_relative_errors() -> None:
    figures = ErrorFigures.of(np.log([0.9, 1.0, 1.1, 1.2, 2.0]))
    assert figures is not None
    assert figures.median == pytest.approx(0.1)
    assert figures.p90 == pytest.approx(0.2 + 0.6 * 0.8)  # numpy's linear quantile: place 3.6 of 0, .1, .1, .2, 1
    assert figures.bias == pytest.approx(0.1)
