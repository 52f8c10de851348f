"""Are checkpoints found between the steps that exporters tell?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from opsk.diagnosis.losses.observation import HostActivity
from opsk.diagnosis.losses.values import Cause, Losses
from opsk_tui.data.sources.assembly import GpuTables, JobViews
from opsk_tui.data.sources.job_losses import JobLosses
from opsk_tui.data.sources.progress import (
    AGAIN_AFTER_S,
    HISTORY_S,
    LINES_READ_S,
    LINES_STEP_S,
    WORTH_A_LOOK,
    PastProgress,
)
from opsk_tui.data.sources.readings import HOST_SHARES, Progress, Readings
from opsk_tui.data.view import Metric
from tests.fakes.lab_node import GPUS, NODES, TRAINING
from tests.tui.data.sources.conftest import slurm_nodes, training_job

NOW_S = 1_800_000_000.0
STEP_S = 9.3
Points = tuple[tuple[float, float], ...]


class Trained:
    """A Prometheus that has seen the job train: steps all alike, and after every ``period`` of them a checkpoint."""

    def __init__(self, period: int = 100, checkpoint_s: float = 0.0) -> None:
        ended_s, self.ended = NOW_S - 2 * LINES_READ_S, []
        while ended_s < NOW_S:
            ended_s += STEP_S + (checkpoint_s if len(self.ended) % period == 0 else 0.0)
            self.ended.append(ended_s)
        self.ratio = 1.0 + checkpoint_s / period / STEP_S
        self.asked: list[str] = []

    def now(self, expr: str) -> list[tuple[Mapping[str, str], float]]:
        self.asked.append(expr)
        return [({"job": TRAINING}, self.ratio)] if self.ratio > WORTH_A_LOOK else []

    def over_time(
        self, expr: str, since_s: float, until_s: float, step_s: float
    ) -> list[tuple[Mapping[str, str], Points]]:
        self.asked.append(expr)
        times = np.arange(since_s, until_s, step_s)
        if "step_seconds" in expr:
            return [({"job": TRAINING}, tuple((at, STEP_S) for at in times))]
        last = np.searchsorted(self.ended, times, side="right") - 1
        series = {"iteration": last.tolist(), "last_progress_timestamp_seconds": np.array(self.ended)[last].tolist()}
        return [
            ({"__name__": f"opsk_training_{name}", "job": TRAINING}, tuple(zip(times.tolist(), values, strict=True)))
            for name, values in series.items()
        ]


def losses_of(prometheus: Trained, hosts: HostActivity | None = None, busy: float = 0.99) -> Losses:
    readings = Readings()
    readings.set_layout(NODES, GPUS)
    readings.progress[TRAINING] = Progress(step_s=STEP_S, iteration=7)
    readings.put_gpus(Metric.UTILISATION, np.full((len(NODES), GPUS), busy))
    if hosts is not None:
        readings.hosts = np.array([[getattr(hosts, name) for name in HOST_SHARES]] * len(NODES), np.float64)
    past = PastProgress(prometheus, readings)  # type: ignore[arg-type]
    past.turn(NOW_S)
    past.read_pending_lines(NOW_S + 5.0)
    gpus = GpuTables().table(readings, slurm_nodes(), (jobs := (training_job(),)), NOW_S)
    views = JobViews().views(jobs, readings, gpus.job, NOW_S)
    (job,) = JobLosses().turn(views, readings, gpus, None, NOW_S)
    assert job.losses is not None
    return job.losses


@pytest.mark.parametrize(("period", "checkpoint_s"), [(100, 60.0), (50, 25.0), (250, 200.0)])
def test_checkpoints_are_named_with_what_they_cost(period: int, checkpoint_s: float) -> None:
    found = losses_of(Trained(period, checkpoint_s))
    (worst, *_) = found.findings
    assert worst.cause is Cause.CHECKPOINTING
    # by hand: one checkpoint every `period` steps of 9.3 s
    assert worst.share == pytest.approx(checkpoint_s / (period * STEP_S + checkpoint_s), rel=0.15)
    assert worst.numbers["period_steps"] == pytest.approx(period, rel=0.1)


def test_a_job_without_pauses_is_not_looked_at_closely() -> None:
    prometheus = Trained()
    found = losses_of(prometheus)
    assert not any("iteration|" in expr for expr in prometheus.asked)
    assert [finding.cause for finding in found.findings] in ([], [Cause.UNKNOWN])


def test_starved_hosts_are_named_where_gpus_wait_for_them() -> None:
    starved = HostActivity(node="", cpu_busy=0.99, iowait=0.0, cpu_stalled=0.6, io_stalled=0.0, memory_stalled=0.0)
    found = losses_of(Trained(), starved, busy=0.7)
    assert found.findings[0].cause is Cause.DATA_LOADING
    idle = HostActivity(node="", cpu_busy=0.1, iowait=0.0, cpu_stalled=0.0, io_stalled=0.0, memory_stalled=0.0)
    assert not any(each.cause is Cause.DATA_LOADING for each in losses_of(Trained(), idle, busy=0.7).findings)


def test_history_is_read_once_for_each_job() -> None:
    prometheus, readings = Trained(), Readings()
    readings.progress[TRAINING] = Progress(step_s=STEP_S)
    past = PastProgress(prometheus, readings)  # type: ignore[arg-type]
    past.turn(NOW_S)
    assert len(readings.progress[TRAINING].history) == pytest.approx(HISTORY_S / 60.0, abs=1)
    past.turn(NOW_S + 400.0)
    assert sum("step_seconds" in expr and "delta" not in expr for expr in prometheus.asked) == 1
    readings.progress["9"] = Progress(step_s=1.0)
    past.turn(NOW_S + 800.0)
    assert 'job=~"9"' not in prometheus.asked[0]


def test_the_past_is_due_once_jobs_train_and_again_after_a_while() -> None:
    readings = Readings()
    past = PastProgress(Trained(), readings)  # type: ignore[arg-type]
    assert not past.is_due(NOW_S)
    readings.progress[TRAINING] = Progress(step_s=STEP_S)
    assert past.is_due(NOW_S)
    past.turn(NOW_S)
    assert not past.is_due(NOW_S + AGAIN_AFTER_S - 1.0)
    assert past.is_due(NOW_S + AGAIN_AFTER_S)


def test_after_a_restart_lines_begin_anew() -> None:
    progress = Progress()
    for number, ended_s in ((5, 1.0), (6, 2.0), (6, 2.0), (8, 4.0), (7, 9.0), (8, 10.0)):
        progress.note_line(number, ended_s)
    assert list(progress.lines) == [(7, 9.0), (8, 10.0)]
    assert LINES_STEP_S < 60.0
