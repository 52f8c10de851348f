"""Makes jobs of the training steps that a probe measured: their every input is stated, and nobody owns them.

The steps of one variant differ by their micro-batch alone and are wrong together, so they count as one job. They teach
as jobs do, and judge nothing: it is the site's own jobs that a fit must predict better.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from opsk.calibration.learning.evidence import MeasuredJob, NodeMeasurement
from opsk.costmodel.table import FloatColumn
from opsk.probe.document import ProbeDocument
from opsk.probe.steps import describe_step

DISTURBED_WEIGHT = 0.25
"""Weight of a measurement under a clock that heat held down, or with repetitions that differ: twice the noise."""


@dataclass(frozen=True, kw_only=True)
class ProbeSteps:
    """Measured steps as jobs, with the weight of each, in jobs."""

    jobs: tuple[MeasuredJob, ...] = ()
    weights: FloatColumn

    @classmethod
    def of(cls, measurements: Sequence[NodeMeasurement]) -> ProbeSteps:
        """Return the steps of measured nodes that state their whole model and plan."""
        pairs = [pair for measurement in measurements for pair in _list_jobs(measurement)]
        return cls(jobs=tuple(job for job, _ in pairs), weights=np.array([weight for _, weight in pairs], dtype=float))

    def select(self, jobs: Sequence[MeasuredJob]) -> ProbeSteps:
        """Return those of some jobs, which are among these."""
        chosen = {id(job) for job in jobs}
        places = [index for index, job in enumerate(self.jobs) if id(job) in chosen]
        return ProbeSteps(jobs=tuple(self.jobs[index] for index in places), weights=self.weights[places])

    def list_out_of_reach(self, before: FloatColumn, weights: FloatColumn, quantity: str) -> tuple[str, ...]:
        """Return a warning for each step without weight.

        Parameters
        ----------
        before, weights
            Of the steps: ln(predicted / measured) before the fit, and their weights in it.
        """
        return tuple(
            f"{job.id}: {np.exp(-error):.2g} times the predicted {quantity} is out of the prior's reach, not used"
            for job, error, weight in zip(self.jobs, before, weights, strict=True)
            if weight == 0
        )


def _list_jobs(measurement: NodeMeasurement) -> Iterator[tuple[MeasuredJob, float]]:
    """Yield the steps of a node with their weights."""
    document, cluster = measurement.document, measurement.cluster
    counts = Counter(row.variant for row in document.training)
    quality = measurement.weight * compute_quality(document)
    for row in document.training:
        described = describe_step(row)
        if described is None or described[1].gpus > cluster.gpus:
            continue
        model, plan = described
        name = f"{document.machine.gpu} at {document.measured_at}: {row.variant}, micro-batch {row.micro_batch}"
        job = MeasuredJob(
            id=name, model=model, plan=plan, cluster=cluster, step_s=row.step_s, reserved_bytes=row.reserved_bytes
        )
        yield job, quality / counts[row.variant]


def compute_quality(document: ProbeDocument) -> float:
    """Return how much steps count whose own clock nobody read: less, the more other measurements were throttled."""
    return 1.0 - (1.0 - DISTURBED_WEIGHT) * document.throttled_share
