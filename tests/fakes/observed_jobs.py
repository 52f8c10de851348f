"""Simulated jobs as the analysis is given them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.uncertainty.case_spread import find_plan_log_sigma
from opsk.costmodel.uncertainty.chance import COVERED_SIGMAS
from opsk.diagnosis.losses.observation import (
    Axis,
    GpuActivity,
    HostActivity,
    MeasuredStep,
    Observation,
    OtherPlan,
    Pause,
    PortActivity,
    Prediction,
)
from tests.fakes.losing_jobs import Simulated


def observed(job: Simulated, *, without: Sequence[str] = ()) -> Observation:
    """Return what is seen of a job, without some values of its GPUs."""
    gpus: list[Any] = [{key: value for key, value in gpu.items() if key not in without} for gpu in job.gpus]
    ports: list[Any] = list(job.ports)
    hosts: list[Any] = list(job.hosts)
    return Observation(
        prediction=Prediction(
            low_s=job.low_s,
            step_s=job.expected_s,
            high_s=job.high_s,
            components=dict(job.parts),
            network={name: Axis(total_s=total, window_s=window) for name, (total, window) in job.axes.items()},
            mfu=job.mfu,
            others=tuple(
                OtherPlan(what=what, step_s=step_s, fit_probability=fit, only_recomputes_less=leaner)
                for what, step_s, fit, leaner in job.others
            ),
            plan_error=math.expm1(COVERED_SIGMAS * find_plan_log_sigma(DEFAULT.spread)),
        ),
        steps=tuple(MeasuredStep(iteration=step, seconds=seconds, at_s=at) for step, seconds, at in job.steps),
        checkpoints=tuple(Pause(iteration=step) for step in job.checkpoints),
        validations=tuple(Pause(iteration=step) for step in job.validations),
        gpus=tuple(GpuActivity(**gpu) for gpu in gpus),
        ports=tuple(PortActivity(**port) for port in ports),
        hosts=tuple(HostActivity(**host) for host in hosts),
    )
