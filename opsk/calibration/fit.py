"""Which efficiency parameters bring the cost model closest to measured step times?

The most probable parameters given the runs and the priors (maximum a posteriori): least squares on ln(predicted /
measured), robust against single runs (soft L1), plus the squared distance of every parameter from its prior. What no
run tells stays at the prior. A source of n runs counts as n^(1-p) independent ones, so that a large table of one
software on one machine does not drown a small one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from opsk.calibration.least_squares import RobustProblem
from opsk.calibration.parameters import MEMBERED, ParameterSpace, Prior, groups
from opsk.costmodel.efficiency import Efficiency
from opsk.costmodel.predict import PreparedRows
from opsk.costmodel.table import SOFTWARE, BoolColumn, FloatColumn, PlanTable
from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

MAD_TO_SIGMA = 1.4826
"""Median absolute deviation of a normal distribution to its standard deviation."""
MIN_NOISE, MAX_NOISE = 0.02, 0.3
"""Bounds of the estimated noise: repeated runs differ by about 2 %; above 30 % the model explains nothing."""
IDENTIFIED = 0.7
"""A parameter is identified when the runs cut its standard error below this share of the prior's width."""
_ROUNDS = 2
_DIFFERENCE = 1e-2
"""Distance over which slopes are taken: a hundredth of the scale of a logit, a logarithm, or an overlap."""


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
    assumed_weight
        Weight of a run some of whose inputs were assumed.
    priors
        Priors that differ from the usual ones, see `ParameterSpace.over`.
    """

    source_exponent: float = 0.5
    least_source: int = 8
    assumed_weight: float = 0.5
    priors: dict[str, Prior] = field(default_factory=dict)


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

    ``log_errors`` are ln(predicted / measured), in the order of the runs; ``noise_log_sigma`` is their robust standard
    deviation.
    """

    efficiency: Efficiency
    space: ParameterSpace
    vector: FloatColumn
    parameters: tuple[FittedParameter, ...]
    log_errors: FloatColumn
    noise_log_sigma: float
    steps: int


class TimedRuns:
    """Runs, prepared so that they can be predicted with one set of efficiencies after another."""

    def __init__(self, runs: Sequence[TimedRun]) -> None:
        self.runs = tuple(runs)
        self.measured_log_s = np.log([run.step_s for run in runs])
        self.architectures = np.array([run.cluster.node.gpu.architecture for run in runs], dtype=object)
        self.families = np.array([run.plan.software.value for run in runs], dtype=object)
        plans = PlanTable.of([run.plan for run in runs])
        self._rows = PreparedRows.of([run.model for run in runs], plans, [run.cluster for run in runs])

    def log_errors(self, efficiency: Efficiency) -> FloatColumn:
        """Return ln(predicted / measured) of every run."""
        step_s = self._rows.predict(efficiency).time.step_s.expected
        found: FloatColumn = np.log(step_s) - self.measured_log_s
        return found

    def space(self, priors: dict[str, Prior] | None = None, base: Efficiency | None = None) -> ParameterSpace:
        """Return the parameters that these runs can say something about."""
        software = [SOFTWARE[index] for index in np.unique(self._rows.plans.software)]
        return ParameterSpace.over(set(self.architectures), software, priors=priors, base=base)

    def members(self, space: ParameterSpace) -> list[BoolColumn]:
        """Return for every parameter which runs it acts on."""
        column = {"gpu": self.architectures, "software": self.families}
        everywhere = np.ones(len(self.runs), dtype=np.bool_)
        return [
            np.asarray(column[item.section] == item.member) if item.section in MEMBERED else everywhere
            for item in space.parameters
        ]

    def weights(self, settings: FitSettings) -> FloatColumn:
        """Return the weight of every run, 1 on average."""
        size = Counter(run.source for run in self.runs)
        found = np.array(
            [
                max(size[run.source], settings.least_source) ** -settings.source_exponent
                * (1.0 if run.is_stated else settings.assumed_weight)
                for run in self.runs
            ]
        )
        weights: FloatColumn = found / found.mean()
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
    space = timed.space(chosen.priors, base)
    problem = _Problem(timed, space, timed.weights(chosen))
    vector = space.centre() if start is None else space.vector_of(start)
    noise, steps = 0.1, 0
    for _ in range(_ROUNDS):
        vector, count = problem.robust(noise).solve(vector)
        steps += count
        errors = problem.errors(vector)
        noise = _robust_sigma(errors, problem.weights)
    return Fit(
        efficiency=space.efficiency(vector),
        space=space,
        vector=vector,
        parameters=problem.described(vector, noise),
        log_errors=errors,
        noise_log_sigma=noise,
        steps=steps,
    )


class _Problem:
    """The least squares problem: weighed, robust residuals of runs, then plain ones of priors."""

    def __init__(self, timed: TimedRuns, space: ParameterSpace, weights: FloatColumn) -> None:
        self.timed, self.space, self.weights = timed, space, weights
        self.members = timed.members(space)
        self.groups = groups(space)
        self.prior, self.prior_offset = space.prior_matrix()
        self.high = space.bounds()[1]

    def errors(self, vector: FloatColumn) -> FloatColumn:
        return self.timed.log_errors(self.space.efficiency(vector))

    def robust(self, noise: float) -> RobustProblem:
        """Return the problem for a noise of single runs."""
        low, high = self.space.bounds()
        return RobustProblem(
            residuals=lambda vector: self.errors(vector) / noise,
            slopes=lambda vector, residuals: self.sensitivity(vector, residuals * noise) / noise,
            weights=self.weights,
            prior=self.prior,
            offset=self.prior_offset,
            low=low,
            high=high,
        )

    def sensitivity(self, vector: FloatColumn, errors: FloatColumn) -> FloatColumn:
        """Return the change of every run's ln(predicted) with every parameter, shape (runs, parameters)."""
        slopes = np.zeros((len(errors), len(vector)))
        step = np.where(vector + _DIFFERENCE > self.high, -_DIFFERENCE, _DIFFERENCE)
        for group in self.groups:
            moved = vector.copy()
            moved[list(group)] += step[list(group)]
            change = self.errors(moved) - errors
            for index in group:
                slopes[:, index] = np.where(self.members[index], change / step[index], 0.0)
        return slopes

    def described(self, vector: FloatColumn, noise: float) -> tuple[FittedParameter, ...]:
        """Return what the fit knows of every parameter; errors from the curvature at the optimum (Laplace)."""
        errors = self.errors(vector)
        slopes = self.sensitivity(vector, errors)
        curvature = self.robust(noise).curvature(errors / noise, slopes / noise)
        after = np.sqrt(np.diag(np.linalg.inv(curvature)))
        before = np.sqrt(np.diag(np.linalg.inv(self.prior.T @ self.prior)))
        values, scales = self.space.values(vector), self.space.slopes(vector)
        return tuple(
            FittedParameter(
                name=item.name,
                value=values[index],
                prior=item.prior.centre,
                standard_error=float(after[index] * scales[index]),
                is_identified=bool(after[index] < IDENTIFIED * before[index]),
                runs=int(np.count_nonzero(slopes[:, index])),
            )
            for index, item in enumerate(self.space.parameters)
        )


def _robust_sigma(errors: FloatColumn, weights: FloatColumn) -> float:
    """Return the standard deviation that the weighed median of absolute errors implies."""
    order = np.argsort(np.abs(errors))
    total = np.cumsum(weights[order])
    median = float(np.abs(errors)[order][np.searchsorted(total, total[-1] / 2)])
    return float(np.clip(MAD_TO_SIGMA * median, MIN_NOISE, MAX_NOISE))
