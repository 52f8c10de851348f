"""Which runs of a table can the fit use, and as what?"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from opsk.calibration.conventions import measured_step_s
from opsk.calibration.fit import TimedRun
from opsk.calibration.runs import Run
from opsk.costmodel.inputs import TIME_INPUTS


def timed_runs(runs: Iterable[Run]) -> list[TimedRun]:
    """Return the runs whose time was measured and is scored; rates are turned into times by each row's convention."""
    scored = [run for run in runs if run.is_time_scored]
    return [
        TimedRun(
            id=run.id,
            source=run.source,
            model=run.model,
            plan=run.plan,
            cluster=run.cluster,
            step_s=float(step_s),
            assumed_inputs=sum(entry.field in TIME_INPUTS for entry in run.assumed),
        )
        for run, step_s in zip(scored, measured_step_s(scored), strict=True)
        if np.isfinite(step_s)
    ]
