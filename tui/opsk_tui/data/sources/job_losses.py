"""Diagnoses where jobs lose time: passes observations to the loss diagnosis, a few jobs at each refresh."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from opsk.diagnosis.losses.losses import compute_losses
from opsk.diagnosis.losses.observation import (
    GpuActivity,
    HostActivity,
    MeasuredStep,
    Observation,
    PortActivity,
    Prediction,
)
from opsk.diagnosis.losses.step_times import MIN_STEPS
from opsk.diagnosis.losses.values import Losses
from opsk.workload.advice_record import AdviceRecord
from opsk_tui.data.sources.readings import (
    HEAT_HELD,
    HOST_SHARES,
    POWER_DEFAULT,
    POWER_HELD,
    POWER_LIMIT,
    SLOWDOWN,
    SM_ACTIVE,
    Readings,
)
from opsk_tui.data.view import GpuTable, JobView, Metric, PortTable

PREDICTION_ERROR = 0.15
"""Records carry no range: typical error of a predicted step time [ratio], as measured by ``opsk validate``."""
CPU_PER_UPDATE_S, SHARE_OF_CORE = 0.006, 0.0012
"""The CPU budget of one update, and over time."""
AGAIN_AFTER_S = 30.0


class JobLosses:
    """Stores the losses of jobs, and diagnoses jobs in turn."""

    def __init__(self) -> None:
        self._losses: dict[int, tuple[float, Losses]] = {}
        self._updated_at_s = -math.inf
        self._views: dict[int, tuple[JobView, Losses, JobView]] = {}

    def turn(
        self, jobs: Sequence[JobView], readings: Readings, gpus: GpuTable | None, ports: PortTable | None, now_s: float
    ) -> tuple[JobView, ...]:
        """Return the jobs with their losses; those that were diagnosed longest ago are diagnosed again."""
        due = sorted(
            (self._losses[job.record.id][0] if job.record.id in self._losses else -math.inf, index)
            for index, job in enumerate(jobs)
            if job.measured is not None and len(job.measured.history) >= MIN_STEPS
        )
        end = time.thread_time() + min(CPU_PER_UPDATE_S, SHARE_OF_CORE * max(0.0, now_s - self._updated_at_s))
        self._updated_at_s = now_s
        for diagnosed_at_s, index in due:
            if now_s - diagnosed_at_s < AGAIN_AFTER_S or time.thread_time() > end:
                break
            self._losses[jobs[index].record.id] = (
                now_s,
                compute_losses(build_observation(jobs[index], readings, gpus, ports)),
            )
        live = {job.record.id for job in jobs}
        self._losses = {number: entry for number, entry in self._losses.items() if number in live}
        self._views = {number: entry for number, entry in self._views.items() if number in live}
        return tuple(map(self._add_losses, jobs))

    def _add_losses(self, job: JobView) -> JobView:
        """Return a job with its losses; the same object as before where both are."""
        entry = self._losses.get(job.record.id)
        if entry is None:
            return job
        before = self._views.get(job.record.id)
        if before is None or before[0] is not job or before[1] is not entry[1]:
            before = self._views[job.record.id] = (job, entry[1], replace(job, losses=entry[1]))
        return before[2]


def build_observation(job: JobView, readings: Readings, gpus: GpuTable | None, ports: PortTable | None) -> Observation:
    """Return the present observation of a job."""
    measured = job.measured
    return Observation(
        prediction=build_prediction(job.advice),
        steps=build_steps(job, readings),
        gpus=build_gpu_activities(job, readings, gpus),
        ports=build_port_activities(job, readings, ports),
        hosts=build_host_activities(job, readings),
        mfu=measured.mfu if measured is not None else None,
    )


def build_steps(job: JobView, readings: Readings) -> tuple[MeasuredStep, ...]:
    """Return the steps of a job.

    With progress lines the time between steps is known too, such as checkpoints; else steps are medians of step times a
    scrape or a minute apart, and carry no time of their own.
    """
    measured = job.measured
    if measured is None:
        return ()
    progress = readings.progress.get(job.record.label) or readings.progress.get(str(job.record.id))
    if progress is not None and progress.step_s and len(progress.lines) > MIN_STEPS:
        return tuple(
            MeasuredStep(iteration=number, seconds=progress.step_s, at_s=at_s, steps=number - before)
            for (before, _), (number, at_s) in pairwise(progress.lines)
        )
    return tuple(MeasuredStep(iteration=None, seconds=step_s) for _, step_s in measured.history)


def build_host_activities(job: JobView, readings: Readings) -> tuple[HostActivity, ...]:
    """Return the hosts of a job for which there are readings."""
    hosts = readings.hosts
    if hosts is None or len(hosts) != len(readings.nodes):
        return ()
    rows = [readings.rows[node] for node in job.record.nodes if node in readings.rows]
    return tuple(
        HostActivity(node=readings.nodes[row], **dict(zip(HOST_SHARES, map(_finite_or_none, hosts[row]), strict=True)))
        for row in rows
        if np.isfinite(hosts[row]).any()
    )


def build_prediction(advice: AdviceRecord | None) -> Prediction | None:
    """Return the predicted step of a job's advice record."""
    if advice is None or not advice.step_s:
        return None
    return Prediction(
        low_s=advice.step_s * (1 - PREDICTION_ERROR),
        step_s=advice.step_s,
        high_s=advice.step_s * (1 + PREDICTION_ERROR),
        mfu=advice.mfu,
    )


def build_gpu_activities(job: JobView, readings: Readings, gpus: GpuTable | None) -> tuple[GpuActivity, ...]:
    """Return the GPUs of a job, in the order of its nodes."""
    if gpus is None:
        return ()
    rows = [readings.rows[node] for node in job.record.nodes if node in readings.rows]
    if not rows or max(rows) >= gpus.job.shape[0]:
        return ()
    where = np.argwhere(gpus.job[rows] == job.record.id)
    extra = {
        name: array
        for name in (POWER_LIMIT, HEAT_HELD, POWER_HELD, POWER_DEFAULT, SLOWDOWN, SM_ACTIVE)
        if (array := readings.gpu.get(name)) is not None and array.shape == gpus.job.shape
    }
    pipeline = (job.advice.pp or 1) if job.advice is not None else 1
    activities = []
    for rank, (position, slot) in enumerate(where):
        row = rows[position]

        def value(metric: Metric, row: int = row, slot: int = slot) -> float | None:
            array = gpus.values.get(metric)
            return _finite_or_none(array[row, slot]) if array is not None else None

        def more(name: str, row: int = row, slot: int = slot) -> float | None:
            return _finite_or_none(extra[name][row, slot]) if name in extra else None

        throttled_shares = {"thermal": more(HEAT_HELD), "sw_power_cap": more(POWER_HELD)}
        activities.append(
            GpuActivity(
                node=readings.nodes[row],
                index=int(slot),
                rank=rank,
                equals=rank * pipeline // len(where),
                busy=value(Metric.UTILISATION),
                sm_active=more(SM_ACTIVE),
                tensor_active=value(Metric.TENSOR),
                clock=value(Metric.CLOCK),
                power_w=value(Metric.POWER),
                power_limit_w=more(POWER_LIMIT),
                power_default_limit_w=more(POWER_DEFAULT),
                temperature_c=value(Metric.TEMPERATURE),
                slowdown_at_c=more(SLOWDOWN),
                throttled={reason: share for reason, share in throttled_shares.items() if share},
            )
        )
    return tuple(activities)


def build_port_activities(job: JobView, readings: Readings, ports: PortTable | None) -> tuple[PortActivity, ...]:
    """Return the ports of a job's nodes."""
    if ports is None:
        return ()
    nodes = frozenset(job.record.nodes)
    activities = []
    for node in job.record.nodes:
        row = readings.rows.get(node)
        if row is None or row >= ports.rate_ratio.shape[0] or node not in nodes:
            continue
        for column, rail in enumerate(ports.rails):
            rate = _finite_or_none(ports.rate_ratio[row, column])
            if rate is not None:
                activities.append(
                    PortActivity(
                        node=node,
                        device=rail,
                        leaf=ports.leaves.get((node, column), ""),
                        rail=rail,
                        congestion=_finite_or_none(ports.congestion[row, column]),
                        rate=rate,
                        errors=_finite_or_none(ports.errors[row, column]),
                        bytes_per_s=_finite_or_none(ports.bytes_per_s[row, column]),
                    )
                )
    return tuple(activities)


def _finite_or_none(value: np.float32 | np.float64) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None
