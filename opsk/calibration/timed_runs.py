"""How long did one step of a run take, where the table gives seconds, a rate or a utilisation?

A rate in FLOP is turned into seconds by the convention in which the row states it, so that errors of all rows are
errors of the step time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from opsk.calibration.fit import TimedRun
from opsk.calibration.runs import TIME_INPUTS, Run
from opsk.costmodel.flops import ATTENTION_SHARES, step_flop
from opsk.costmodel.shape import shapes_of
from opsk.costmodel.shares import shares_of
from opsk.costmodel.table import FloatColumn, PlanTable
from opsk.units import TERA


def timed_runs(runs: Iterable[Run]) -> list[TimedRun]:
    """Return the runs whose time is scored and was measured, as the fit takes them."""
    scored = [run for run in runs if run.is_time_scored]
    if not scored:
        return []
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


def measured_step_s(runs: Sequence[Run]) -> FloatColumn:
    """Return the measured time of one step of every run [s], NaN where nothing of it was measured.

    Seconds are taken before tokens a second, those before TFLOP/s, MFU and HFU.
    """
    model, plans = shapes_of([run.model for run in runs]), PlanTable.of([run.plan for run in runs])
    share = np.array([ATTENTION_SHARES[run.measured.attn_flops] for run in runs])
    useful, done = step_flop(model, shares_of(model, plans), share)
    tokens = model.seq * plans.global_batch
    gpus = np.array([run.plan.gpus for run in runs], dtype=np.float64)
    peak = np.array([_peak(run) for run in runs])
    in_hardware = np.array([run.measured.flops_convention == "hardware" for run in runs])
    ways = (
        _column(runs, "step_s"),
        tokens / gpus / _column(runs, "tokens_per_s_per_gpu"),
        np.where(in_hardware, done, useful) / gpus / TERA / _column(runs, "tflops_per_gpu"),
        useful / gpus / peak / _column(runs, "mfu"),
        done / gpus / peak / _column(runs, "hfu"),
    )
    found = np.full(len(runs), np.nan)
    for way in reversed(ways):
        found = np.where(np.isfinite(way), way, found)
    return found


def _column(runs: Sequence[Run], name: str) -> FloatColumn:
    """Return what was measured under one name, NaN where it was not."""
    return np.array([getattr(run.measured, name) or np.nan for run in runs], dtype=np.float64)


def _peak(run: Run) -> float:
    """Return the dense peak of a run's number format [FLOP/s], NaN where the catalogue has none."""
    return run.cluster.node.gpu.peak_flop_per_s.get(run.plan.precision.peak_format, np.nan)
