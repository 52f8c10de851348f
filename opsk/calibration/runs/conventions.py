"""Converts between published rates and step times, by the convention of each row.

The same step is 12 % more TFLOP/s when the whole attention square is counted instead of its causal half, and a third
more when recomputation counts. A prediction is compared in the row's own convention, never in that of opsk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from opsk.calibration.runs.runs import Run
from opsk.costmodel.sizes.flops import ATTENTION_SHARES, step_flop
from opsk.costmodel.sizes.shape import build_shapes
from opsk.costmodel.sizes.shares import compute_shares
from opsk.costmodel.table import FloatColumn, PlanTable
from opsk.units import TERA
from opsk.workload.plan import Recompute

QUANTITIES = ("step_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "hfu")
"""The quantities of time that a row may report, in the order of comparison: those without conventions first."""
SELECTIVE_AS_PRINTED = 3.0
"""Forwards of attention that equation 8 of Korthikanti et al. 2022 (arXiv 2205.05198) adds for selective recomputation,
where one is computed; hardware FLOP are published by that equation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """The work of one step of every run, one entry a run, by the conventions of its source.

    ``tokens_per_gpu``; ``flop_per_gpu`` as ``flops_convention`` counts it; ``model_flop_per_gpu`` and
    ``hardware_flop_per_gpu`` for MFU and HFU [FLOP]; ``peak_flop_per_s`` the dense peak of the run's number format.
    """

    tokens_per_gpu: FloatColumn
    flop_per_gpu: FloatColumn
    model_flop_per_gpu: FloatColumn
    hardware_flop_per_gpu: FloatColumn
    peak_flop_per_s: FloatColumn

    def of(self, quantity: str) -> FloatColumn:
        """Return the work that divided by the step's time gives a rate: one entry a run; ones for the time itself."""
        works = {
            "tokens_per_s_per_gpu": self.tokens_per_gpu,
            "tflops_per_gpu": self.flop_per_gpu / TERA,
            "mfu": self.model_flop_per_gpu / self.peak_flop_per_s,
            "hfu": self.hardware_flop_per_gpu / self.peak_flop_per_s,
        }
        return works.get(quantity, np.ones_like(self.tokens_per_gpu))


def step_work(runs: Sequence[Run]) -> StepWork:
    """Return the work of one step of every run."""
    shapes = build_shapes([run.model for run in runs])
    shares = compute_shares(shapes, PlanTable.of([run.plan for run in runs]))
    attention = np.array([ATTENTION_SHARES[run.measured.attn_flops] for run in runs])
    useful, hardware = step_flop(shapes, shares, attention)
    selective = np.array([run.plan.recompute is Recompute.SELECTIVE for run in runs])
    hardware = useful + np.where(selective, SELECTIVE_AS_PRINTED, 1.0) * (hardware - useful)
    is_hardware = np.array([run.measured.flops_convention == "hardware" for run in runs])
    gpus = np.array([float(run.plan.gpus) for run in runs])
    tokens = np.array([float(run.model.seq * run.plan.global_batch) for run in runs])
    peaks = [run.cluster.node.gpu.peak_flop_per_s[run.plan.precision.peak_format] for run in runs]
    return StepWork(
        tokens_per_gpu=tokens / gpus,
        flop_per_gpu=np.where(is_hardware, hardware, useful) / gpus,
        model_flop_per_gpu=useful / gpus,
        hardware_flop_per_gpu=hardware / gpus,
        peak_flop_per_s=np.array(peaks),
    )


def published_quantity(run: Run) -> str | None:
    """Return which quantity of a run's time is compared; ``None`` where nothing was measured."""
    return next((name for name in QUANTITIES if getattr(run.measured, name) is not None), None)


def measured_step_s(runs: Sequence[Run]) -> FloatColumn:
    """Return the measured time of every run's step [s], converted from a published rate; NaN where there is none."""
    if not runs:
        return np.zeros(0)
    work = step_work(runs)
    result = np.full(len(runs), np.nan)
    for name in reversed(QUANTITIES):
        measured = np.array([getattr(run.measured, name) or np.nan for run in runs], dtype=np.float64)
        step_s = measured if name == "step_s" else work.of(name) / measured
        result = np.where(np.isnan(measured), result, step_s)
    return result
