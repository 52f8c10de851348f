"""Is Slurm asked when somebody wants to know, and no more often than it may be?"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from opsk.errors import SlurmError
from opsk.slurm.records import NodeRecord
from opsk.slurm.snapshot import SnapshotReader
from opsk_jobcheck.cluster_state.snapshots import (
    REQUEST_FILE,
    REQUEST_VALID_S,
    SNAPSHOT,
    SnapshotPoller,
    is_requested,
    poll_on_request,
)
from tests.fakes.live_cluster import CountingSlurm, training_job


@dataclass
class Clock:
    now_s: float = 1e9
    waits: int = 0
    most: int = 10
    paused: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now_s

    def is_over(self, pause_s: float) -> bool:
        self.now_s += pause_s
        self.waits += 1
        return self.waits > self.most


def test_slurm_is_asked_once_an_interval_however_long_somebody_wants_to_know(tmp_path: Path) -> None:
    slurm, clock = CountingSlurm(training_job(1, ["n0"])), Clock(most=104)
    asking = SnapshotPoller(slurm=slurm, clock=clock, interval_s=10.0)
    (tmp_path / REQUEST_FILE).touch()
    poll_on_request(asking, tmp_path, is_over=clock.is_over)
    # 105 looks of 0.2 s are 21 s: at 0.2 s, 10.2 s and 20.2 s
    assert slurm.asked == ["jobs with details", "nodes"] * 3


def test_nobody_is_asked_where_nobody_wants_to_know(tmp_path: Path) -> None:
    slurm, clock = CountingSlurm(), Clock()
    poll_on_request(SnapshotPoller(slurm=slurm, clock=clock, interval_s=1.0), tmp_path, is_over=clock.is_over)
    assert slurm.asked == []
    wanted = tmp_path / REQUEST_FILE
    wanted.touch()
    assert is_requested(tmp_path)
    old_s = time.time() - REQUEST_VALID_S - 1
    os.utime(wanted, (old_s, old_s))
    assert not is_requested(tmp_path)


def test_the_last_answer_stays_with_the_reason_while_slurm_is_silent(tmp_path: Path) -> None:
    slurm, clock = CountingSlurm(training_job(1, ["n0"])), Clock()
    asking = SnapshotPoller(slurm=slurm, clock=clock, interval_s=1.0)
    good = asking.ask()
    slurm.is_down = True
    clock.now_s += 5
    silent = asking.ask()
    assert silent.jobs == good.jobs
    assert silent.taken_at_s == good.taken_at_s
    assert "did not answer" in silent.problem
    assert not asking.is_due()
    clock.now_s += 1.5
    assert not asking.is_due(), "a silent controller is asked less often"
    clock.now_s += 1.0
    assert asking.is_due()


def test_nothing_is_kept_before_it_is_known_what_slurm_hides(tmp_path: Path) -> None:
    class Hiding(CountingSlurm):
        def config(self) -> dict[str, str]:
            raise SlurmError("scontrol did not answer")

    asking = SnapshotPoller(slurm=Hiding(training_job(1, ["n0"])), clock=Clock(), interval_s=1.0)
    assert asking.ask().jobs == ()


def test_the_file_is_read_back(tmp_path: Path) -> None:
    clock = Clock(most=1)
    (tmp_path / REQUEST_FILE).touch()
    asking = SnapshotPoller(slurm=CountingSlurm(training_job(1, ["n0", "n1"])), clock=clock, interval_s=1.0)
    poll_on_request(asking, tmp_path, is_over=clock.is_over)
    found = SnapshotReader().read((tmp_path / SNAPSHOT).read_bytes())
    assert [job.nodes for job in found.jobs] == [("n0", "n1")]
    assert (tmp_path / SNAPSHOT).stat().st_mode & 0o077 == 0


def test_a_folder_that_went_with_its_advisor_is_told_of_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Going(CountingSlurm):
        def nodes(self) -> tuple[NodeRecord, ...]:
            shutil.rmtree(tmp_path)
            return super().nodes()

    (tmp_path / REQUEST_FILE).touch()
    clock = Clock(most=1)
    poll_on_request(SnapshotPoller(slurm=Going(), clock=clock, interval_s=1.0), tmp_path, is_over=clock.is_over)
    assert "cannot be written" in caplog.text
    assert "Traceback" not in caplog.text


def test_a_controller_that_is_back_is_asked_within_a_minute() -> None:
    now_s = 1000.0

    class Gone:
        def __getattr__(self, name: str) -> object:
            raise SlurmError("slurmctld does not answer")

    asking = SnapshotPoller(slurm=Gone(), clock=lambda: now_s, interval_s=5.0)  # type: ignore[arg-type]
    for _ in range(20):
        asking.ask()
        now_s += 60.0
        assert asking.is_due()
