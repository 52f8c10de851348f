"""Which efficiency parameters bring the cost model closest to measured step times?

The most probable parameters given the runs and the priors (maximum a posteriori): least squares on ln(predicted /
measured), robust against single runs (soft L1), plus the squared distance of every parameter from its prior. What no
run tells stays at the prior. A source of n runs counts as n^(1-p) independent ones, so that a large table of one
software on one machine does not drown a small one. All runs of a source share an offset of their own, which the fit
finds and predictions do not use: software of the same family differs by a release or two, and what is common to one
source may not pull physical parameters away from what differs inside the sources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import block_diag

from opsk.calibration.least_squares import RobustProblem
from opsk.calibration.parameters import MEMBERED, ParameterSpace, Prior, groups
from opsk.calibration.priors import PRIORS
from opsk.costmodel.efficiency import Efficiency
from opsk.costmodel.predict import PreparedRows
from opsk.costmodel.table import BoolColumn, FloatColumn, PlanTable
from opsk.errors import InputError
from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Software

MAD_TO_SIGMA = 1.4826
"""Median absolute deviation of a normal distribution to its standard deviation."""
MIN_NOISE, MAX_NOISE = 0.05, 0.3
"""Bounds of the estimated noise: releases of one software differ by 5 %; above 30 % the model explains nothing."""
IDENTIFIED = 0.7
"""A parameter is identified when the runs cut its standard error below this share of the prior's width."""
_ROUNDS = 2
_FIRST_NOISE = 0.1
_DIFFERENCE = 1e-2
"""Distance over which slopes are taken: a hundredth of the scale of a logit, a logarithm, or an overlap."""

Noise = Mapping[bool, float]
"""Standard deviation of ln(predicted / measured) of one run, of those with every input stated and of the others."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSettings:
    """How runs are weighed.

    Parameters
    ----------
    source_exponent
        A run of a source with n runs weighs n^-p: 0 counts every run the same, 1 every source.
    least_source
        A source with fewer runs counts as one with so many: a single run shows nothing about a parameter.
    most_assumed
        A run with more assumed inputs of its time is left out: it would show how good the assumptions are.
    priors
        Priors that differ from the usual ones, see `ParameterSpace.over`.
    offset_log_sigma
        Standard deviation of a source's own offset of ln(predicted / measured).
    reference_sources
        Sources without such an offset, to the weight of each of their runs over that of others: all inputs stated by
        the authors of the software, times printed to three digits or more.
    """

    source_exponent: float = 0.3
    least_source: int = 8
    most_assumed: int = 5
    priors: Mapping[str, Prior] = field(default_factory=lambda: PRIORS)
    offset_log_sigma: float = 0.01
    reference_sources: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedParameter:
    """One parameter after a fit; ``is_identified`` says that the runs narrowed it clearly below its prior."""

    name: str
    value: float
    prior: float
    standard_error: float
    is_identified: bool
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The result of a fit.

    ``log_errors`` are ln(predicted / measured), in the order of the runs; ``weights`` what each counted, 0 where it was
    left out; ``stated_log_sigma`` and ``assumed_log_sigma`` the robust standard deviations of the errors.
    """

    efficiency: Efficiency
    space: ParameterSpace
    vector: FloatColumn
    parameters: tuple[FittedParameter, ...]
    log_errors: FloatColumn
    weights: FloatColumn
    stated_log_sigma: float
    assumed_log_sigma: float
    steps: int


class TimedRuns:
    """Runs, prepared so that they can be predicted with one set of efficiencies after another."""

    def __init__(self, runs: Sequence[TimedRun]) -> None:
        self.runs = tuple(runs)
        self.is_stated = np.array([run.is_stated for run in runs])
        self.measured_log_s = np.log([run.step_s for run in runs])
        self.architectures = np.array([run.cluster.node.gpu.architecture for run in runs], dtype=object)
        self.families = np.array([run.plan.software.value for run in runs], dtype=object)
        plans = PlanTable.of([run.plan for run in runs])
        self._rows = PreparedRows.of([run.model for run in runs], plans, [run.cluster for run in runs])

    def log_errors(self, efficiency: Efficiency) -> FloatColumn:
        """Return ln(predicted / measured) of every run."""
        found: FloatColumn = np.log(self._rows.step_s(efficiency)) - self.measured_log_s
        return found

    def space(
        self, used: BoolColumn, priors: Mapping[str, Prior] | None = None, base: Efficiency | None = None
    ) -> ParameterSpace:
        """Return the parameters that the runs which are used can say something about."""
        software = [Software(family) for family in set(self.families[used])]
        known = {name.split(".")[1] for name in priors or () if name.startswith("gpu.") and name.count(".") == 2}
        return ParameterSpace.over(known | set(self.architectures[used]), software, priors=priors, base=base)

    def members(self, space: ParameterSpace) -> list[BoolColumn]:
        """Return for every parameter which runs it acts on."""
        column = {"gpu": self.architectures, "software": self.families}
        everywhere = np.ones(len(self.runs), dtype=np.bool_)
        return [
            np.asarray(column[item.section] == item.member) if item.section in MEMBERED else everywhere
            for item in space.parameters
        ]

    def weights(self, settings: FitSettings) -> FloatColumn:
        """Return the weight of every run, 0 for those that are not used."""
        used = np.array([run.assumed_inputs <= settings.most_assumed for run in self.runs])
        size = Counter(run.source for run, is_used in zip(self.runs, used, strict=True) if is_used)
        found = np.array(
            [
                max(size[run.source], settings.least_source) ** -settings.source_exponent
                * settings.reference_sources.get(run.source, 1.0)
                for run in self.runs
            ]
        )
        if not used.any():
            raise InputError(
                f"no run to fit to: each of {len(self.runs)} has more than {settings.most_assumed} assumed inputs",
                hint="state more of the runs: model, plan, GPUs, network",
            )
        weights: FloatColumn = np.where(used, found, 0.0)
        return weights


def fit_time(
    runs: Iterable[TimedRun],
    settings: FitSettings | None = None,
    *,
    base: Efficiency | None = None,
    start: Efficiency | None = None,
) -> Fit:
    """Fit the efficiencies of computation, links and software to measured step times.

    Parameters
    ----------
    runs
        Measured runs; at least one.
    settings
        How runs are weighed.
    base
        Where parameters of memory and the spread are taken from.
    start
        Efficiencies to start from; a near answer makes the fit quick.
    """
    chosen = settings or FitSettings()
    timed = TimedRuns(tuple(runs))
    weights = timed.weights(chosen)
    space = timed.space(weights > 0, chosen.priors, base)
    problem = _Problem(timed, space, weights, _offsets(timed, chosen))
    parameters = space.centre() if start is None else space.vector_of(start)
    vector = np.concatenate([parameters, np.zeros(problem.offsets.shape[1])])
    noise, steps = {True: _FIRST_NOISE, False: _FIRST_NOISE}, 0
    for _ in range(_ROUNDS):
        vector, count = problem.robust(noise).solve(vector)
        steps += count
        errors = problem.errors(vector)
        noise = {kind: _robust_sigma(errors, problem.weights * (timed.is_stated == kind)) for kind in (True, False)}
    found = vector[: len(space)]
    return Fit(
        efficiency=space.efficiency(found),
        space=space,
        vector=found,
        parameters=problem.described(vector, noise),
        log_errors=errors,
        stated_log_sigma=noise[True],
        assumed_log_sigma=noise[False],
        weights=problem.weights,
        steps=steps,
    )


def _offsets(timed: TimedRuns, settings: FitSettings) -> FloatColumn:
    """Return how the offset of each source, in its standard deviations, moves every run, shape (runs, sources)."""
    sources = sorted({run.source for run in timed.runs} - settings.reference_sources.keys())
    return settings.offset_log_sigma * np.array([[run.source == source for source in sources] for run in timed.runs])


class _Problem:
    """The least squares problem: weighed, robust residuals of runs, then plain ones of priors.

    Its vector has the parameters first, then the offsets of sources in their standard deviations.
    """

    def __init__(self, timed: TimedRuns, space: ParameterSpace, weights: FloatColumn, offsets: FloatColumn) -> None:
        self.timed, self.space, self.weights = timed, space, weights
        self.offsets = offsets.reshape(len(timed.runs), -1)
        self.members = timed.members(space)
        self.groups = groups(space)
        own, own_offset = space.prior_matrix()
        self.prior = block_diag(own, np.eye(self.offsets.shape[1]))
        self.prior_offset = np.concatenate([own_offset, np.zeros(self.offsets.shape[1])])
        self.high = space.bounds()[1]

    def errors(self, vector: FloatColumn) -> FloatColumn:
        """Return ln(predicted / measured) of every run, without offsets."""
        return self.timed.log_errors(self.space.efficiency(vector[: len(self.space)]))

    def moved(self, vector: FloatColumn) -> FloatColumn:
        """Return the same with the offsets of the sources."""
        found: FloatColumn = self.errors(vector) + self.offsets @ vector[len(self.space) :]
        return found

    def robust(self, sigma: Noise) -> RobustProblem:
        """Return the problem for a noise of single runs."""
        noise = self.noise(sigma)
        free = np.full(self.offsets.shape[1], np.inf)
        low, high = self.space.bounds()
        return RobustProblem(
            residuals=lambda vector: self.moved(vector) / noise,
            slopes=lambda vector, _: self.sensitivity(vector) / noise[:, None],
            weights=self.weights,
            prior=self.prior,
            offset=self.prior_offset,
            low=np.concatenate([low, -free]),
            high=np.concatenate([high, free]),
        )

    def noise(self, sigma: Noise) -> FloatColumn:
        """Return the standard deviation of every run's ln(predicted / measured)."""
        return np.where(self.timed.is_stated, sigma[True], sigma[False])

    def sensitivity(self, vector: FloatColumn) -> FloatColumn:
        """Return the change of every run's ln(predicted) with every entry of the vector, shape (runs, entries)."""
        parameters = vector[: len(self.space)]
        errors = self.errors(parameters)
        slopes = np.zeros((len(errors), len(parameters)))
        step = np.where(parameters + _DIFFERENCE > self.high, -_DIFFERENCE, _DIFFERENCE)
        for group in self.groups:
            moved = parameters.copy()
            moved[list(group)] += step[list(group)]
            change = self.errors(moved) - errors
            for index in group:
                slopes[:, index] = np.where(self.members[index], change / step[index], 0.0)
        return np.hstack([slopes, self.offsets])

    def described(self, vector: FloatColumn, sigma: Noise) -> tuple[FittedParameter, ...]:
        """Return what the fit knows of every parameter; errors from the curvature at the optimum (Laplace)."""
        slopes = self.sensitivity(vector)
        noise = self.noise(sigma)
        curvature = self.robust(sigma).curvature(self.moved(vector) / noise, slopes / noise[:, None])
        after = np.sqrt(np.diag(np.linalg.inv(curvature)))
        before = np.sqrt(np.diag(np.linalg.inv(self.prior.T @ self.prior)))
        found = vector[: len(self.space)]
        values, scales = self.space.values(found), self.space.slopes(found)
        return tuple(
            FittedParameter(
                name=item.name,
                value=values[index],
                prior=item.prior.centre,
                standard_error=float(after[index] * scales[index]),
                is_identified=bool(after[index] < IDENTIFIED * before[index]),
                runs=int(np.count_nonzero(slopes[self.weights > 0, index])),
            )
            for index, item in enumerate(self.space.parameters)
        )


def _robust_sigma(errors: FloatColumn, weights: FloatColumn) -> float:
    """Return the standard deviation that the weighed median of absolute errors implies."""
    order = np.argsort(np.abs(errors))
    total = np.cumsum(weights[order])
    if not total[-1] > 0:
        return _FIRST_NOISE
    median = float(np.abs(errors)[order][np.searchsorted(total, total[-1] / 2)])
    return float(np.clip(MAD_TO_SIGMA * median, MIN_NOISE, MAX_NOISE))
