"""Which efficiency parameters bring the cost model closest to measured step times?

The most probable parameters given the runs and the priors (maximum a posteriori): least squares on ln(predicted /
measured), robust against single runs (soft L1), plus the squared distance of every parameter from its prior. A
parameter that the runs do not narrow to half of its prior goes back to the prior, and the others are fitted again.

All runs of a source and a family of software share an offset of their own, which the fit finds together with how large
such offsets are: software of one family differs by release and by what a site adds to it, and what is common to one
source may not pull physical parameters away from what differs inside the sources. A source of n runs counts as n^(1-p)
independent ones, so that a large table of one software on one machine does not drown a small one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np

from opsk.calibration.fitting.free_parameters import IDENTIFIED, MOST_FITTED, FreeParameters, all_free, identified
from opsk.calibration.fitting.offsets import SOURCE_LOG_SIGMA, Offset, Offsets, with_offsets
from opsk.calibration.fitting.parameters import MEMBERED, ParameterSpace, Prior
from opsk.calibration.fitting.priors import PRIORS
from opsk.calibration.fitting.problem import FitProblem, Noise
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.predict import PreparedRows
from opsk.costmodel.table import FloatColumn, PlanTable
from opsk.errors import InputError
from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Software

MAD_TO_SIGMA = 1.4826
"""Median absolute deviation of a normal distribution to its standard deviation."""
MIN_NOISE, MAX_NOISE = 0.05, 0.3
"""Bounds of the estimated noise: releases of one software differ by 5 %; above 30 % the model explains nothing."""
_ROUNDS = 2
SITE_NOISE = 0.1
"""Noise of a run before any is seen, and of a site's runs. Chosen by hand: 0.05 to 0.2 teach a site about the same."""
_NEARLY = 0.85
"""Share of the prior's width above which a parameter is set aside before the first solution, where slopes are rough."""
_MOST_SELECTIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRun:
    """One run whose step was measured; ``assumed_inputs`` counts the inputs of its time that nobody stated."""

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
    """What the prior of a fit is."""

    PRIORS = "priors"
    """Sourced priors, pooled: the fit that ships with opsk."""
    BASE = "base"
    """The base efficiencies, as wide as they are known: the fit of a site."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSettings:
    """How runs are weighed, and where a fit begins.

    Parameters
    ----------
    source_exponent
        A run of a source with n runs weighs n^-p: 0 counts every run the same, 1 every source.
    least_source
        A source with fewer runs counts as one with so many: a single run shows nothing about a parameter.
    most_assumed
        A run with more assumed inputs of its time is left out: it would show how good the assumptions are.
    start
        What the prior is.
    priors
        Priors that differ from the usual ones, see `ParameterSpace.over`.
    offset_log_sigma
        Standard deviation of the offset of a source and a family of software, in ln(predicted / measured); where it
        is estimated, what it is before.
    """

    source_exponent: float = 0.3
    least_source: int = 8
    most_assumed: int = 5
    start: Start = Start.PRIORS
    priors: Mapping[str, Prior] = field(default_factory=lambda: PRIORS)
    offset_log_sigma: float = SOURCE_LOG_SIGMA


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedParameter:
    """One parameter after a fit.

    Parameters
    ----------
    standard_error
        Of the value; the prior's where the parameter stayed there.
    width
        The same of its coordinate.
    is_identified
        Whether it was fitted: the runs made it at most half as wide as its prior.
    runs
        Runs whose predicted time depends on it.
    source
        Where the prior is from.
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
    """Where a fit to nearly the same runs ended: coordinates by name, what was fitted, and the noise."""

    coordinates: Mapping[str, float]
    fitted: tuple[str, ...]
    noise: Noise
    offset_log_sigma: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The result of a fit.

    ``log_errors`` are ln(predicted / measured) without offsets, in the order of the runs; ``weights`` what each
    counted, 0 where it was left out; ``stated_log_sigma`` and ``assumed_log_sigma`` the robust standard deviations of
    the errors that offsets leave, ``offset_log_sigma`` that of the offsets.
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
        """Where another fit can start."""
        names = [item.name for item in self.space.parameters]
        whole = self.free.whole(self.vector)
        return NearFit(
            coordinates={name: float(place) for name, place in zip(names, whole, strict=True)},
            fitted=tuple(names[place] for place in self.free.free),
            noise={True: self.stated_log_sigma, False: self.assumed_log_sigma},
            offset_log_sigma=self.offset_log_sigma,
        )


class TimedRuns:
    """Runs, prepared so that they can be predicted with one set of efficiencies after another."""

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
        found: FloatColumn = np.log(self._rows.step_s(efficiency)) - self.measured_log_s
        return found

    def space(self, settings: FitSettings, base: Efficiency | None = None) -> ParameterSpace:
        """Return the parameters that the runs which are used can say something about."""
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
        """Set and return the weight of every run, 0 for those that are not used."""
        used = np.array([run.assumed_inputs <= settings.most_assumed for run in self.runs])
        size = Counter(run.source for run, is_used in zip(self.runs, used, strict=True) if is_used)
        found = np.array(
            [max(size[run.source], settings.least_source) ** -settings.source_exponent for run in self.runs]
        )
        if not used.any():
            raise InputError(
                f"no run to fit to: each of {len(self.runs)} has more than {settings.most_assumed} assumed inputs",
                hint="state more of the runs: model, plan, GPUs, network",
            )
        self.weights: FloatColumn = np.where(used, found, 0.0)
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
        How runs are weighed, and where the fit begins.
    base
        Where parameters of memory and the spread are taken from.
    near
        A fit to these runs and some more, to start from: it makes this one quick. What it does not move is not moved.
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
    """A fit under way: which parameters are free, where they are, how large noise and offsets are."""

    def __init__(self, timed: TimedRuns, space: ParameterSpace, settings: FitSettings, near: NearFit | None) -> None:
        self.timed, self.settings, self.steps = timed, settings, 0
        self.is_site = settings.start is Start.BASE
        self.own = Offsets.over(
            timed.offset_keys,
            list(timed.weights > 0),
            log_sigma=settings.offset_log_sigma if near is None else near.offset_log_sigma,
            is_site=self.is_site,
        )
        self.offsets = np.zeros(len(self.own.keys))
        if near is None:
            self.free, self.whole = all_free(space), space.centre()
            self.noise: Noise = {True: SITE_NOISE, False: SITE_NOISE}
            return
        names = [item.name for item in space.parameters]
        usual = dict(zip(names, space.centre(), strict=True))
        self.whole = np.array([near.coordinates.get(name, usual[name]) for name in names])
        self.free = all_free(space, (place for place, name in enumerate(names) if name in near.fitted))
        self.noise = near.noise

    @property
    def problem(self) -> FitProblem:
        """The problem with the parameters that are free now."""
        return FitProblem(self.timed, self.free, self.own.columns)

    @property
    def vector(self) -> FloatColumn:
        """Where the search is."""
        return np.concatenate([self.free.part(self.whole), self.offsets])

    def select(self) -> None:
        """Free the parameters that the runs tell, and find them."""
        self._keep(share=_NEARLY, most=len(self.free.space))
        self.solve()
        for _ in range(_MOST_SELECTIONS):
            if not self._keep():
                return
            self.solve()

    def solve(self) -> None:
        """Find the free parameters and the offsets, then how large noise and offsets are, in turn."""
        for _ in range(_ROUNDS):
            problem = self.problem
            vector, count = problem.robust(self.noise).solve(self.vector)
            self.whole, self.offsets = problem.split(vector)
            self.steps += count
            self._measure(problem, vector)

    def _keep(self, *, share: float = IDENTIFIED, most: int = MOST_FITTED) -> bool:
        """Set aside what the runs do not tell; return whether anything was."""
        before = len(self.free)
        evidence = self.problem.evidence(self.vector, self.noise)
        self.free = identified(self.free, evidence, np.eye(len(self.offsets)), share=share, most=most)
        self.whole = self.free.whole(self.free.part(self.whole))
        return len(self.free) < before

    def _measure(self, problem: FitProblem, vector: FloatColumn) -> None:
        """Estimate noise and offsets from what the solution leaves (expectation of their squares)."""
        if self.is_site:  # a handful of runs, most of which a parameter can follow, shows no noise
            return
        errors = problem.moved(vector)
        self.noise = {
            kind: robust_sigma(errors, self.timed.weights * (self.timed.is_stated == kind)) for kind in (True, False)
        }
        variances = np.diag(np.linalg.inv(self._curvature(problem, vector)))[len(self.free) :]
        before = self.own.columns.sum(axis=0)
        self.own = self.own.rescaled(
            self.own.estimated_log_sigma(self.offsets, variances, self.settings.offset_log_sigma)
        )
        self.offsets = self.offsets * before / self.own.columns.sum(axis=0)

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
        found = self.own.described(offsets, covariance[size:, size:], self.timed.weights)
        parameters = self._described(whole, np.sqrt(np.diag(covariance)[:size]))
        widths = {item.name: item.width for item in parameters if item.is_identified}
        base = self.free.space.efficiency(whole)
        efficiency = replace(
            base,
            offset=with_offsets(base.offset, found, is_site=self.is_site, log_sigma=self.own.log_sigma),
            widths=widths,
        )
        return Fit(
            efficiency=efficiency,
            parameters=parameters,
            free=self.free,
            vector=vector[:size],
            offsets=found,
            log_errors=self.timed.log_errors(efficiency),
            weights=self.timed.weights,
            stated_log_sigma=self.noise[True],
            assumed_log_sigma=self.noise[False],
            offset_log_sigma=self.own.log_sigma,
            steps=self.steps,
        )

    def _described(self, whole: FloatColumn, widths: FloatColumn) -> tuple[FittedParameter, ...]:
        """Return what is known of every parameter; widths from the curvature at the optimum (Laplace)."""
        space = self.free.space
        slopes = self.problem.sensitivity(whole, everything=True)[self.timed.weights > 0]
        before = all_free(space).prior_widths()
        own = before.copy()
        own[list(self.free.free)] = widths
        values, scales = space.values(whole), space.slopes(whole)
        told = set(self.free.free)
        if self.is_site:  # where nothing is set aside
            told = set(np.flatnonzero(own <= IDENTIFIED * before).tolist())
        return tuple(
            FittedParameter(
                name=item.name,
                value=values[place],
                prior=item.prior.centre,
                standard_error=float(own[place] * scales[place]),
                width=float(own[place]),
                is_identified=place in told,
                runs=int(np.count_nonzero(slopes[:, place])),
                source=item.prior.source,
            )
            for place, item in enumerate(space.parameters)
        )


def robust_sigma(errors: FloatColumn, weights: FloatColumn) -> float:
    """Return the standard deviation that the weighed median of absolute errors implies."""
    order = np.argsort(np.abs(errors))
    total = np.cumsum(weights[order])
    if not total[-1] > 0:
        return SITE_NOISE
    median = float(np.abs(errors)[order][np.searchsorted(total, total[-1] / 2)])
    return float(np.clip(MAD_TO_SIGMA * median, MIN_NOISE, MAX_NOISE))
