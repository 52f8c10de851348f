"""Joins the jobs of a site and the measurements of its nodes into the rows of one fit.

A measurement compares the rate of kernels and collectives, shape by shape, with the rate that the cost model reaches
with the same efficiencies. The shapes of one series (a precision, a collective among so many ranks) are wrong together,
so each series counts as one job, however many shapes it has; one that was measured while heat held the clock down, or
whose repetitions differ, counts less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from opsk.calibration.fitting.fit import SITE_NOISE, TimedRun, TimedRuns
from opsk.calibration.learning.evidence import MeasuredJob, NodeMeasurement
from opsk.calibration.learning.probe_steps import DISTURBED_WEIGHT, ProbeSteps
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.table import BoolColumn, FloatColumn
from opsk.probe.comparison import Compared, compare, find_implausible
from opsk.probe.document import MAX_SPREAD, ProbeDocument

PROBE_LOG_SIGMA = 0.05
"""How far kernels in training lie from the same kernels alone: clocks under a mixed load, caches, neighbours."""
SERIES_WEIGHTS = {"matmul": 8.0, "attention": 1.0, "memory": 4.0, "collectives": 4.0}
"""Weight of all shapes of a series together, in jobs. The rate of attention follows from that of products, and differs
by release of its kernel: it must not decide theirs."""


MIN_LOAD_FACTOR = 0.7
"""Products under a long load reach no less of their first rate; a lower figure is no property of the GPU."""


class NodeRows:
    """The compared values of measured nodes, prepared for repeated comparison.

    ``warnings`` name the series that no GPU of the kind reaches: they are left out.
    """

    def __init__(self, measurements: Sequence[NodeMeasurement], base: Efficiency) -> None:
        self.measurements = tuple(measurements)
        parts: list[Compared] = []
        architectures: list[str] = []
        weights: list[float] = []
        load_logs: list[float] = []
        usable: list[bool] = []
        warnings: list[str] = []
        for measurement in self.measurements:
            compared = compare(measurement.document, measurement.cluster, base)
            implausible = find_implausible(compared)
            warnings += [_describe_implausible(measurement, *item) for item in implausible.items()]
            usable += [(row.part, row.series) not in implausible for row in compared]
            rows = [row for row in compared if (row.part, row.series) not in implausible]
            quality = _list_weights(measurement.document, [(row.part, row.label, row.series) for row in rows])
            counts = Counter((row.part, row.series) for row in rows)
            parts += rows
            load_log = _compute_load_log(measurement.document)
            load_logs += [load_log if row.part in ("matmul", "attention") else 0.0 for row in rows]
            architectures += [measurement.cluster.node.gpu.architecture] * len(rows)
            weights += [
                measurement.weight * SERIES_WEIGHTS[row.part] * share / counts[row.part, row.series]
                for row, share in zip(rows, quality, strict=True)
            ]
        self.series = tuple((row.part, row.series) for row in parts)
        self.warnings = tuple(warnings)
        self._usable: BoolColumn = np.array(usable, dtype=np.bool_)
        self._load_logs: FloatColumn = np.array(load_logs, dtype=np.float64)
        self.architectures = tuple(architectures)
        self.weights: FloatColumn = np.array(weights, dtype=np.float64)

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self.series)

    def log_errors(self, efficiency: Efficiency) -> FloatColumn:
        """Return ln(measured / expected) of every rate under load: positive where the model is too slow."""
        ratios = [
            row.ratio
            for measurement in self.measurements
            for row in compare(measurement.document, measurement.cluster, efficiency)
        ]
        result: FloatColumn = np.log(np.array(ratios, dtype=np.float64)[self._usable]) + self._load_logs
        return result


def _describe_implausible(measurement: NodeMeasurement, key: tuple[str, str], ratio: float) -> str:
    document = measurement.document
    return (
        f"{document.machine.gpu} at {document.measured_at}: {' '.join(key)} is {ratio:.2g} times what opsk expects, "
        "not used"
    )


def _compute_load_log(document: ProbeDocument) -> float:
    """Return ln of the rate of large products under a long load over that in a short measurement, at most 0.

    Training is a long load: clocks settle where power and heat allow.
    """
    shortly = [row.flop_per_s for row in document.matmul if row.precision == "bf16" and row.m == row.k == row.n]
    settled = [row.flop_per_s for row in document.sustained[len(document.sustained) // 2 :]]
    if not shortly or not settled:
        return 0.0
    return float(np.log(np.clip(median(settled) / max(shortly), MIN_LOAD_FACTOR, 1.0)))


def _list_weights(document: ProbeDocument, keys: Sequence[tuple[str, str, str]]) -> list[float]:
    """Return how much each compared value counts, up to 1."""
    disturbed = {
        *(("memory", f"{row.size_bytes} bytes") for row in document.memory if _is_disturbed(row)),
        *(("matmul", f"{row.precision} {row.m} x {row.k} x {row.n}") for row in document.matmul if _is_disturbed(row)),
        *(
            ("attention", f"{row.kernel} {row.length} tokens, head {row.head}")
            for row in document.attention
            if row.spread > MAX_SPREAD
        ),
        *(
            ("collectives", f"{row.collective} {row.scope} {row.ranks} {row.size_bytes} bytes")
            for row in document.collectives
            if row.spread > MAX_SPREAD
        ),
    }
    return [
        DISTURBED_WEIGHT if (part, label if part == "memory" else f"{series} {label}") in disturbed else 1.0
        for part, label, series in keys
    ]


def _is_disturbed(row: Any) -> bool:
    return bool(row.is_throttled) or row.spread > MAX_SPREAD


class JointRows:
    """Timed jobs, measured steps and compared values, as `opsk.calibration.fitting.problem.FitProblem` takes them.

    Errors of compared values are scaled so that their noise is that of jobs.

    Parameters
    ----------
    weights
        Of the jobs and then of the steps.
    """

    def __init__(
        self, jobs: Sequence[MeasuredJob], steps: ProbeSteps, weights: FloatColumn, nodes: NodeRows, *, noise: float
    ) -> None:
        timed = (*jobs, *steps.jobs)
        self._timed = TimedRuns([_build_timed_run(job) for job in timed]) if timed else None
        self._nodes, self.jobs, self.timed = nodes, len(jobs), len(timed)
        self.rescale(noise)
        self.is_stated: BoolColumn = np.ones(len(timed) + len(nodes), dtype=np.bool_)
        self.weights: FloatColumn = np.concatenate([weights, nodes.weights])
        architectures = [*(job.cluster.node.gpu.architecture for job in timed), *nodes.architectures]
        families = [*(job.plan.software.value for job in timed), *("" for _ in nodes.architectures)]
        self.columns: dict[str, npt.NDArray[Any]] = {
            "gpu": np.array(architectures, dtype=object),
            "software": np.array(families, dtype=object),
        }

    def rescale(self, noise: float) -> None:
        """Set the noise of jobs, by which errors of compared values are scaled."""
        self._scale = noise / PROBE_LOG_SIGMA

    def log_errors(self, efficiency: Efficiency) -> FloatColumn:
        """Return ln(predicted / measured) of every job and step, then the scaled errors of compared values."""
        times = self._timed.log_errors(efficiency) if self._timed is not None else np.zeros(0)
        rates = self._nodes.log_errors(efficiency) * self._scale if len(self._nodes) else np.zeros(0)
        return np.concatenate([times, rates])


def _build_timed_run(job: MeasuredJob) -> TimedRun:
    assert job.step_s is not None
    return TimedRun(
        id=job.id, source="site", model=job.model, plan=job.plan, cluster=job.cluster, step_s=job.step_s,
        assumed_inputs=job.time_assumptions,
    )  # fmt: skip


INITIAL_NOISE = SITE_NOISE
"""Noise of a job before jobs show it."""
