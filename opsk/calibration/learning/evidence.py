"""Defines what a site's fit is made from, and what it reports."""

from __future__ import annotations

from dataclasses import dataclass, field

from opsk.calibration.accuracy.cross_validation import ErrorFigures
from opsk.costmodel.efficiency.cases import Case, build_case
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.table import FloatColumn
from opsk.costmodel.uncertainty.inputs import TIME_INPUTS
from opsk.hardware.spec import ClusterSpec
from opsk.probe.document import ProbeDocument
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredJob:
    """A job of the site that ran well.

    Parameters
    ----------
    owner
        Its user; the jobs of one owner count less, the more there are of a kind.
    step_s
        Median time of its steady steps [s]; ``None`` where its memory alone was measured.
    peak_bytes
        Highest memory in use on its fullest GPU, as the driver reports it [bytes].
    reserved_bytes
        The same as PyTorch's allocator reports it; only of steps that a probe measured.
    assumed
        Fields of model, plan and cluster that its script does not state.
    is_new
        Whether it ended after the fit that is in use was made.
    """

    id: str
    model: ModelShape
    plan: Plan
    cluster: ClusterSpec
    owner: str = ""
    step_s: float | None = None
    peak_bytes: float | None = None
    reserved_bytes: float | None = None
    assumed: frozenset[str] = frozenset()
    is_new: bool = False

    @property
    def case(self) -> Case:
        """The case of its model, plan and GPU."""
        return build_case(self.model, self.plan, self.cluster)

    @property
    def time_assumptions(self) -> int:
        """Number of assumed inputs of its time."""
        return len(self.assumed & TIME_INPUTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMeasurement:
    """The document of a measured node, the cluster that the node is of, and how much it counts, up to 1."""

    document: ProbeDocument
    cluster: ClusterSpec
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A parameter, or the factor of an offset, before and after a fit; ``log_sigma`` is how well it is known now."""

    name: str
    before: float
    after: float
    unit: str
    log_sigma: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """A job that the others contradict.

    Parameters
    ----------
    ratio
        Measured over what the fit without this job predicts.
    is_used
        Whether it has any weight: one that is out of the prior's reach has none.
    """

    job: str
    owner: str
    quantity: str
    ratio: float
    is_used: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedQuantity:
    """What was learned of the time of steps, or of the memory of GPUs.

    Parameters
    ----------
    jobs
        Jobs that were fitted to.
    before, after
        Errors of these with the efficiencies that ship with opsk, and with a fit to all others of them; ``None``
        without jobs.
    current
        Errors of the new jobs among them with the fit in use, and ``after_new`` those with a fit to all others.
    mean_before, mean_after
        Mean errors by which the fit is judged, as `before` and `after`: of jobs by their weights, named outliers
        included; ``None`` where none is judged.
    is_taken
        Whether the fit is better, and used.
    why_not
        Why it is not taken; empty where it is.
    """

    jobs: int
    before: ErrorFigures | None = None
    after: ErrorFigures | None = None
    current: ErrorFigures | None = None
    after_new: ErrorFigures | None = None
    mean_before: float | None = None
    mean_after: float | None = None
    is_taken: bool = False
    why_not: str = ""
    outliers: tuple[Outlier, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """The jobs that a fit was tested on.

    Parameters
    ----------
    jobs
        Ids.
    before, after
        ln(predicted / measured) with the base, and with a fit to all other jobs.
    weights
        Weight of each in the fit; 0 is out of reach, or contradicted by the others.
    judged
        Weight of each where the fit is judged; 0 is out of reach.
    """

    jobs: tuple[str, ...]
    before: FloatColumn
    after: FloatColumn
    weights: FloatColumn
    judged: FloatColumn

    def select_first(self, count: int) -> LeftOut:
        """Return the same of the first jobs alone."""
        columns = (self.before, self.after, self.weights, self.judged)
        before, after, weights, judged = (column[:count] for column in columns)
        return LeftOut(jobs=self.jobs[:count], before=before, after=after, weights=weights, judged=judged)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFit:
    """The efficiencies of a site, with what they were learned from and how good they are.

    ``efficiency`` is what predictions should use: a quantity that was not taken is as before. ``warnings`` name the
    jobs that cannot be predicted.
    """

    efficiency: Efficiency
    time: LearnedQuantity
    memory: LearnedQuantity
    changes: tuple[Change, ...] = ()
    time_left_out: LeftOut | None = None
    memory_left_out: LeftOut | None = None
    warnings: tuple[str, ...] = field(default=())

    @property
    def is_taken(self) -> bool:
        """Whether anything of the fit is used."""
        return self.time.is_taken or self.memory.is_taken
