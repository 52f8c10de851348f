"""Where does each job lose time? What is known of it, handed to the planner's losses, a few jobs at each refresh."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from opsk.diagnosis.losses.losses import losses_of
from opsk.diagnosis.losses.observation import (
    GpuActivity,
    HostActivity,
    MeasuredStep,
    Observation,
    PortActivity,
    Prediction,
)
from opsk.diagnosis.losses.step_times import FEWEST_STEPS
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

ERROR_OF_PREDICTION = 0.15
"""What records carry no range for: typical error of a predicted step time [ratio], as ``opsk validate`` finds it."""
CPU_A_TURN_S, SHARE_OF_CORE = 0.006, 0.0012
"""How much is spent on one look, and over time."""
AGAIN_AFTER_S = 30.0


class LossesOfJobs:
    """Remembers what was found, and looks at the jobs in turn."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[float, Losses]] = {}
        self._turned_at_s = -math.inf
        self._views: dict[int, tuple[JobView, Losses, JobView]] = {}

    def turn(
        self, jobs: Sequence[JobView], readings: Readings, gpus: GpuTable | None, ports: PortTable | None, now_s: float
    ) -> tuple[JobView, ...]:
        """Return the jobs with their losses; those that were looked at longest ago are looked at again."""
        due = sorted(
            (self._found[job.record.id][0] if job.record.id in self._found else -math.inf, at)
            for at, job in enumerate(jobs)
            if job.measured is not None and len(job.measured.history) >= FEWEST_STEPS
        )
        end = time.thread_time() + min(CPU_A_TURN_S, SHARE_OF_CORE * max(0.0, now_s - self._turned_at_s))
        self._turned_at_s = now_s
        for asked_at_s, at in due:
            if now_s - asked_at_s < AGAIN_AFTER_S or time.thread_time() > end:
                break
            self._found[jobs[at].record.id] = (now_s, losses_of(observation_of(jobs[at], readings, gpus, ports)))
        live = {job.record.id for job in jobs}
        self._found = {number: found for number, found in self._found.items() if number in live}
        self._views = {number: found for number, found in self._views.items() if number in live}
        return tuple(map(self._with_losses, jobs))

    def _with_losses(self, job: JobView) -> JobView:
        """Return a job with its losses; the same object as before where both are."""
        found = self._found.get(job.record.id)
        if found is None:
            return job
        before = self._views.get(job.record.id)
        if before is None or before[0] is not job or before[1] is not found[1]:
            before = self._views[job.record.id] = (job, found[1], replace(job, losses=found[1]))
        return before[2]


def observation_of(job: JobView, readings: Readings, gpus: GpuTable | None, ports: PortTable | None) -> Observation:
    """Return what is observed of a job now."""
    measured = job.measured
    return Observation(
        prediction=prediction_of(job.advice),
        steps=steps_of(job, readings),
        gpus=gpu_activities(job, readings, gpus),
        ports=port_activities(job, readings, ports),
        hosts=host_activities(job, readings),
        mfu=measured.mfu if measured is not None else None,
    )


def steps_of(job: JobView, readings: Readings) -> tuple[MeasuredStep, ...]:
    """Return the steps of a job.

    With lines it is known what passed between steps too, as checkpoints; else steps are medians of step times a scrape
    or a minute apart, and carry no time of their own.
    """
    measured = job.measured
    if measured is None:
        return ()
    progress = readings.progress.get(job.record.label) or readings.progress.get(str(job.record.id))
    if progress is not None and progress.step_s and len(progress.lines) > FEWEST_STEPS:
        return tuple(
            MeasuredStep(iteration=number, seconds=progress.step_s, at_s=at_s, steps=number - before)
            for (before, _), (number, at_s) in pairwise(progress.lines)
        )
    return tuple(MeasuredStep(iteration=None, seconds=step_s) for _, step_s in measured.history)


def host_activities(job: JobView, readings: Readings) -> tuple[HostActivity, ...]:
    """Return the hosts of a job of which anything is known."""
    hosts = readings.hosts
    if hosts is None or len(hosts) != len(readings.nodes):
        return ()
    rows = [readings.rows[node] for node in job.record.nodes if node in readings.rows]
    return tuple(
        HostActivity(node=readings.nodes[row], **dict(zip(HOST_SHARES, map(_known, hosts[row]), strict=True)))
        for row in rows
        if np.isfinite(hosts[row]).any()
    )


def prediction_of(advice: AdviceRecord | None) -> Prediction | None:
    """Return what a job's record says was predicted of its step."""
    if advice is None or not advice.step_s:
        return None
    return Prediction(
        low_s=advice.step_s * (1 - ERROR_OF_PREDICTION),
        step_s=advice.step_s,
        high_s=advice.step_s * (1 + ERROR_OF_PREDICTION),
        mfu=advice.mfu,
    )


def gpu_activities(job: JobView, readings: Readings, gpus: GpuTable | None) -> tuple[GpuActivity, ...]:
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
    found = []
    for rank, (at, slot) in enumerate(where):
        row = rows[at]

        def value(metric: Metric, row: int = row, slot: int = slot) -> float | None:
            array = gpus.values.get(metric)
            return _known(array[row, slot]) if array is not None else None

        def more(name: str, row: int = row, slot: int = slot) -> float | None:
            return _known(extra[name][row, slot]) if name in extra else None

        held = {"thermal": more(HEAT_HELD), "sw_power_cap": more(POWER_HELD)}
        found.append(
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
                throttled={reason: share for reason, share in held.items() if share},
            )
        )
    return tuple(found)


def port_activities(job: JobView, readings: Readings, ports: PortTable | None) -> tuple[PortActivity, ...]:
    """Return the ports of a job's nodes."""
    if ports is None:
        return ()
    nodes = frozenset(job.record.nodes)
    found = []
    for node in job.record.nodes:
        row = readings.rows.get(node)
        if row is None or row >= ports.rate_ratio.shape[0] or node not in nodes:
            continue
        for column, rail in enumerate(ports.rails):
            rate = _known(ports.rate_ratio[row, column])
            if rate is not None:
                found.append(
                    PortActivity(
                        node=node,
                        device=rail,
                        leaf=ports.leaves.get((node, column), ""),
                        rail=rail,
                        congestion=_known(ports.congestion[row, column]),
                        rate=rate,
                        errors=_known(ports.errors[row, column]),
                        bytes_per_s=_known(ports.bytes_per_s[row, column]),
                    )
                )
    return tuple(found)


def _known(value: np.float32 | np.float64) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None
