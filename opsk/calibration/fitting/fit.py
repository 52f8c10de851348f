"""Fits the efficiency parameters to measured step times.

The most probable parameters given the runs and the priors (maximum a posteriori): least squares on ln(predicted /
measured), robust against single runs (soft L1), plus the squared distance of every parameter from its prior. A
parameter that the runs do not narrow to half of its prior goes back to the prior, and the others are fitted again.

All runs of a source and a family of software share an offset of their own, which the fit finds together with how large
such offsets are: software of one family differs by release and by what a site adds to it, and what is common to one
source must not bias physical parameters away from what differs inside the sources. A source of n runs counts as n^(1-p)
independent ones, so that a large table of one software on one machine does not outweigh a small one.

A site's few runs are also fitted with slopes that are computed once (`LinearSite`), so that many subsets can be left
out quickly: `opsk calibrate` fits all runs exactly, and decides with these whether they improve predictions. For few
runs the difference is what the slopes change over a few percent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np

from opsk.calibration.fitting.offsets import SOURCE_LOG_SIGMA, Offset, Offsets, merge_offsets
from opsk.calibration.fitting.parameters import MEMBERED, ParameterSpace, Prior
from opsk.calibration.fitting.priors import PRIORS
from opsk.calibration.fitting.problem import (
    IDENTIFIED,
    MAX_FITTED,
    FitProblem,
    FreeParameters,
    Noise,
    free_all,
    select_identified,
)
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.predict import PreparedRows
from opsk.costmodel.table import FloatColumn, IntColumn, PlanTable
from opsk.errors import InputError
from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Software

MAD_TO_SIGMA = 1.4826
"""Median absolute deviation of a normal distribution to its standard deviation."""
MIN_NOISE, MAX_NOISE = 0.05, 0.3
"""Bounds of the estimated noise: releases of one software differ by 5 %; above 30 % the model explains nothing."""
_FIT_ROUNDS = 2
SITE_NOISE = 0.1
"""Initial noise of a run, and noise of a site's runs. Chosen by hand: 0.05 to 0.2 give a site similar results."""
_PRESELECTION_SHARE = 0.85
"""Share of the prior's width above which a parameter is fixed before the first solution, where slopes are rough."""
_MAX_SELECTIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRun:
    """One run whose step was measured; ``assumed_inputs`` counts the inputs of its time that were assumed."""

    id: str
    source: str
    model: ModelShape
    plan: Plan
    cluster: ClusterSpec
    step_s: float
    assumed_inputs: int = 0

    @property
    def is_stated(self) -> bool:
        """Whether every input of the time was stated."""
        return self.assumed_inputs == 0


class Start(Enum):
    """The prior of a fit."""

    PRIORS = "priors"
    """Sourced priors, pooled: the fit that ships with opsk."""
    BASE = "base"
    """The base efficiencies, as wide as they are known: the fit of a site."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSettings:
    """How runs are weighted, and where a fit begins.

    Parameters
    ----------
    source_exponent
        A run of a source with n runs weighs n^-p: 0 counts every run the same, 1 every source.
    min_source_runs
        A source with fewer runs counts as one with so many: a single run does not determine a parameter.
    max_assumed
        A run with more assumed inputs of its time is excluded: it would test the assumptions, not the model.
    start
        The prior.
    priors
        Priors that differ from the usual ones, see `ParameterSpace.over`.
    offset_log_sigma
        Standard deviation of the offset of a source and a family of software, in ln(predicted / measured); the
        initial value where it is estimated.
    """

    source_exponent: float = 0.3
    min_source_runs: int = 8
    max_assumed: int = 5
    start: Start = Start.PRIORS
    priors: Mapping[str, Prior] = field(default_factory=lambda: PRIORS)
    offset_log_sigma: float = SOURCE_LOG_SIGMA


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedParameter:
    """One parameter after a fit.

    Parameters
    ----------
    standard_error
        Standard error of the value; the prior's where the parameter was not fitted.
    width
        The same of its coordinate.
    is_identified
        Whether it was fitted: the runs made it at most half as wide as its prior.
    runs
        Runs whose predicted time depends on it.
    source
        Source of the prior.
    """

    name: str
    value: float
    prior: float
    standard_error: float
    width: float
    is_identified: bool
    runs: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NearFit:
    """The result of a fit to nearly the same runs: coordinates by name, fitted parameters, and the noise."""

    coordinates: Mapping[str, float]
    fitted: tuple[str, ...]
    noise: Noise
    offset_log_sigma: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The result of a fit.

    ``log_errors`` are ln(predicted / measured) without offsets, in the order of the runs; ``weights`` those of
    the runs, 0 where excluded; ``stated_log_sigma`` and ``assumed_log_sigma`` the robust standard deviations of
    the errors after offsets, ``offset_log_sigma`` that of the offsets.
    """

    efficiency: Efficiency
    parameters: tuple[FittedParameter, ...]
    free: FreeParameters
    vector: FloatColumn
    offsets: tuple[Offset, ...]
    log_errors: FloatColumn
    weights: FloatColumn
    stated_log_sigma: float
    assumed_log_sigma: float
    offset_log_sigma: float
    steps: int

    @property
    def space(self) -> ParameterSpace:
        """All parameters, fitted or not."""
        return self.free.space

    @property
    def near(self) -> NearFit:
        """The starting point for another fit."""
        names = [item.name for item in self.space.parameters]
        whole = self.free.whole(self.vector)
        return NearFit(
            coordinates={name: float(coordinate) for name, coordinate in zip(names, whole, strict=True)},
            fitted=tuple(names[coordinate] for coordinate in self.free.free),
            noise={True: self.stated_log_sigma, False: self.assumed_log_sigma},
            offset_log_sigma=self.offset_log_sigma,
        )


class TimedRuns:
    """Runs, prepared for repeated prediction with different efficiencies."""

    def __init__(self, runs: Sequence[TimedRun]) -> None:
        self.runs = tuple(runs)
        self.is_stated = np.array([run.is_stated for run in runs])
        self.measured_log_s = np.log([run.step_s for run in runs])
        architectures = np.array([run.cluster.node.gpu.architecture for run in runs], dtype=object)
        families = np.array([run.plan.software.value for run in runs], dtype=object)
        self.columns = dict(zip(MEMBERED, (architectures, families), strict=True))
        plans = PlanTable.of([run.plan for run in runs])
        self._rows = PreparedRows.of([run.model for run in runs], plans, [run.cluster for run in runs])

    def log_errors(self, efficiency: Efficiency) -> FloatColumn:
        """Return ln(predicted / measured) of every run."""
        result: FloatColumn = np.log(self._rows.step_s(efficiency)) - self.measured_log_s
        return result

    def space(self, settings: FitSettings, base: Efficiency | None = None) -> ParameterSpace:
        """Return the parameters that the used runs can determine."""
        used = self.weights > 0
        architectures, families = (set(self.columns[section][used]) for section in MEMBERED)
        software = [Software(family) for family in families]
        if settings.start is Start.BASE:
            return ParameterSpace.around(architectures, software, base=base or Efficiency(), priors=settings.priors)
        known = {name.split(".")[1] for name in settings.priors if name.startswith("gpu.") and name.count(".") == 2}
        plain = replace(base or Efficiency(), offset={}, widths={})
        return ParameterSpace.over(known | architectures, software, priors=settings.priors, base=plain)

    @property
    def offset_keys(self) -> list[tuple[str, str]]:
        """Source and family of software of every run."""
        return [(run.source, run.plan.software.value) for run in self.runs]

    def weigh(self, settings: FitSettings) -> FloatColumn:
        """Set and return the weight of every run, 0 for unused ones."""
        used = np.array([run.assumed_inputs <= settings.max_assumed for run in self.runs])
        size = Counter(run.source for run, is_used in zip(self.runs, used, strict=True) if is_used)
        weights = np.array(
            [max(size[run.source], settings.min_source_runs) ** -settings.source_exponent for run in self.runs]
        )
        if not used.any():
            raise InputError(
                f"no run to fit to: each of {len(self.runs)} has more than {settings.max_assumed} assumed inputs",
                hint="state more of the runs: model, plan, GPUs, network",
            )
        self.weights: FloatColumn = np.where(used, weights, 0.0)
        return self.weights


def fit_time(
    runs: Iterable[TimedRun],
    settings: FitSettings | None = None,
    *,
    base: Efficiency | None = None,
    near: NearFit | None = None,
) -> Fit:
    """Fit the efficiencies of computation, links and software to measured step times.

    Parameters
    ----------
    runs
        Measured runs; at least one.
    settings
        How runs are weighted, and where the fit begins.
    base
        Source of the parameters of memory and the spread.
    near
        A fit to these runs and some more, to start from, which makes this one fast; its fixed parameters stay fixed.
    """
    chosen = settings or FitSettings()
    timed = TimedRuns(tuple(runs))
    timed.weigh(chosen)
    search = _Search(timed, timed.space(chosen, base), chosen, near)
    if chosen.start is Start.BASE:
        search.solve()
    else:
        search.select()
    return search.result()


class _Search:
    """The state of a fit: free parameters, coordinates, noise and offsets."""

    def __init__(self, timed: TimedRuns, space: ParameterSpace, settings: FitSettings, near: NearFit | None) -> None:
        self.timed, self.settings, self.steps = timed, settings, 0
        self.is_site = settings.start is Start.BASE
        self.offset_model = Offsets.over(
            timed.offset_keys,
            list(timed.weights > 0),
            log_sigma=settings.offset_log_sigma if near is None else near.offset_log_sigma,
            is_site=self.is_site,
        )
        self.offsets = np.zeros(len(self.offset_model.keys))
        if near is None:
            self.free, self.whole = free_all(space), space.centre()
            self.noise: Noise = {True: SITE_NOISE, False: SITE_NOISE}
            return
        names = [item.name for item in space.parameters]
        usual = dict(zip(names, space.centre(), strict=True))
        self.whole = np.array([near.coordinates.get(name, usual[name]) for name in names])
        self.free = free_all(space, (place for place, name in enumerate(names) if name in near.fitted))
        self.noise = near.noise

    @property
    def problem(self) -> FitProblem:
        """The problem with the current free parameters."""
        return FitProblem(self.timed, self.free, self.offset_model.columns)

    @property
    def vector(self) -> FloatColumn:
        """The current vector."""
        return np.concatenate([self.free.part(self.whole), self.offsets])

    def select(self) -> None:
        """Select the parameters that the runs determine, and fit them."""
        self._drop_unidentified(share=_PRESELECTION_SHARE, maximum=len(self.free.space))
        self.solve()
        for _ in range(_MAX_SELECTIONS):
            if not self._drop_unidentified():
                return
            self.solve()

    def solve(self) -> None:
        """Alternate between fitting parameters and offsets, and estimating the sizes of noise and offsets."""
        for _ in range(_FIT_ROUNDS):
            problem = self.problem
            vector, count = problem.robust(self.noise).solve(self.vector)
            self.whole, self.offsets = problem.split(vector)
            self.steps += count
            self._measure(problem, vector)

    def _drop_unidentified(self, *, share: float = IDENTIFIED, maximum: int = MAX_FITTED) -> bool:
        """Fix the parameters that the runs do not determine; return whether any was fixed."""
        before = len(self.free)
        evidence = self.problem.evidence(self.vector, self.noise)
        self.free = select_identified(self.free, evidence, np.eye(len(self.offsets)), share=share, maximum=maximum)
        self.whole = self.free.whole(self.free.part(self.whole))
        return len(self.free) < before

    def _measure(self, problem: FitProblem, vector: FloatColumn) -> None:
        """Estimate noise and offsets from the residuals of the solution (expectation of their squares)."""
        if self.is_site:  # a few runs, most of which a parameter can fit, do not determine the noise
            return
        errors = problem.errors_with_offsets(vector)
        self.noise = {
            kind: robust_sigma(errors, self.timed.weights * (self.timed.is_stated == kind)) for kind in (True, False)
        }
        variances = np.diag(np.linalg.inv(self._curvature(problem, vector)))[len(self.free) :]
        before = self.offset_model.columns.sum(axis=0)
        self.offset_model = self.offset_model.rescale(
            self.offset_model.estimate_log_sigma(self.offsets, variances, self.settings.offset_log_sigma)
        )
        self.offsets = self.offsets * before / self.offset_model.columns.sum(axis=0)

    def _curvature(self, problem: FitProblem, vector: FloatColumn) -> FloatColumn:
        """Return half the second derivative of the cost."""
        robust = problem.robust(self.noise)
        residuals = robust.residuals(vector)
        return robust.curvature(residuals, robust.slopes(vector, residuals))

    def result(self) -> Fit:
        """Return the fit."""
        problem, vector = self.problem, self.vector
        whole, offsets = problem.split(vector)
        covariance: FloatColumn = np.asarray(np.linalg.inv(self._curvature(problem, vector)), dtype=np.float64)
        size = len(self.free)
        fitted_offsets = self.offset_model.describe(offsets, covariance[size:, size:], self.timed.weights)
        parameters = self._describe_parameters(whole, np.sqrt(np.diag(covariance)[:size]))
        widths = {item.name: item.width for item in parameters if item.is_identified}
        base = self.free.space.efficiency(whole)
        efficiency = replace(
            base,
            offset=merge_offsets(
                base.offset, fitted_offsets, is_site=self.is_site, log_sigma=self.offset_model.log_sigma
            ),
            widths=widths,
        )
        return Fit(
            efficiency=efficiency,
            parameters=parameters,
            free=self.free,
            vector=vector[:size],
            offsets=fitted_offsets,
            log_errors=self.timed.log_errors(efficiency),
            weights=self.timed.weights,
            stated_log_sigma=self.noise[True],
            assumed_log_sigma=self.noise[False],
            offset_log_sigma=self.offset_model.log_sigma,
            steps=self.steps,
        )

    def _describe_parameters(self, whole: FloatColumn, widths: FloatColumn) -> tuple[FittedParameter, ...]:
        """Return the result for every parameter; widths from the curvature at the optimum (Laplace)."""
        space = self.free.space
        slopes = self.problem.sensitivity(whole, everything=True)[self.timed.weights > 0]
        before = free_all(space).prior_widths()
        posterior = before.copy()
        posterior[list(self.free.free)] = widths
        values, scales = space.values(whole), space.slopes(whole)
        identified = set(self.free.free)
        if self.is_site:  # where no parameter is fixed
            identified = set(np.flatnonzero(posterior <= IDENTIFIED * before).tolist())
        return tuple(
            FittedParameter(
                name=item.name,
                value=values[index],
                prior=item.prior.centre,
                standard_error=float(posterior[index] * scales[index]),
                width=float(posterior[index]),
                is_identified=index in identified,
                runs=int(np.count_nonzero(slopes[:, index])),
                source=item.prior.source,
            )
            for index, item in enumerate(space.parameters)
        )


def robust_sigma(errors: FloatColumn, weights: FloatColumn) -> float:
    """Return the standard deviation that the weighted median of absolute errors implies."""
    order = np.argsort(np.abs(errors))
    total = np.cumsum(weights[order])
    if not total[-1] > 0:
        return SITE_NOISE
    median = float(np.abs(errors)[order][np.searchsorted(total, total[-1] / 2)])
    return float(np.clip(MAD_TO_SIGMA * median, MIN_NOISE, MAX_NOISE))


MAX_PARTS = 10
"""Maximum number of parts, each of which is left out once."""
_ROUNDS = 10
"""Reweighting iterations of soft L1, after which the weights of a few runs have converged."""


@dataclass(frozen=True, kw_only=True)
class LinearSite:
    """Runs of a site: errors ln(predicted / measured) without any of them, and their covariance.

    ``covariance`` is that of the errors through shared parameters and offsets, shape (runs, runs).
    """

    log_errors: FloatColumn
    covariance: FloatColumn

    def log_errors_after(self, given: IntColumn) -> FloatColumn:
        """Return the errors after a fit to the runs at some indices."""
        errors, weights = self.log_errors, np.ones(len(given))
        result = errors
        for _ in range(_ROUNDS):
            among = self.covariance[np.ix_(given, given)] + np.diag(SITE_NOISE**2 / weights)
            result = errors - self.covariance[:, given] @ np.linalg.solve(among, errors[given])
            weights = 1.0 / np.sqrt(1.0 + (result[given] / SITE_NOISE) ** 2)
        return result

    def improves(self, given: IntColumn) -> bool:
        """Return whether the runs at some indices, predicted from the others of them, have smaller errors than before.

        Up to ten runs are left out one by one, more in ten parts. A single run is accepted without a test.
        """
        if len(given) < 2:
            return True
        parts = min(len(given), MAX_PARTS)
        left_out = np.empty(len(given))
        for part in range(parts):
            others = np.arange(len(given)) % parts != part
            left_out[~others] = self.log_errors_after(given[others])[given[~others]]
        return bool(np.abs(left_out).mean() < np.abs(self.log_errors[given]).mean())

    def learnt_log_errors(self, given: IntColumn) -> FloatColumn:
        """Return the errors after a fit to the runs at some indices, or before where the fit does not improve them."""
        return self.log_errors_after(given) if self.improves(given) else self.log_errors


def build_linear_site(runs: Sequence[TimedRun], base: Efficiency, *, log_sigma: float) -> LinearSite:
    """Return a site with ``base`` as its prior; offsets are as wide as ``log_sigma``."""
    settings = FitSettings(start=Start.BASE, source_exponent=0.0, max_assumed=100)
    timed = TimedRuns(runs)
    timed.weigh(settings)
    space = timed.space(settings, base)
    offset_model = Offsets.over(timed.offset_keys, [True] * len(runs), log_sigma=log_sigma, is_site=True)
    problem = FitProblem(timed, free_all(space), offset_model.columns)
    errors = timed.log_errors(base)
    slopes = problem.sensitivity(space.centre(), errors) * [item.prior.width for item in space.parameters]
    moves = np.hstack([slopes, offset_model.columns])
    return LinearSite(log_errors=errors, covariance=moves @ moves.T)
