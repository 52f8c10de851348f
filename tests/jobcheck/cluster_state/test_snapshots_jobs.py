"""Whose a job is, told by the folder that opsk-watcher writes: an advisor without a network can ask nobody else."""

from __future__ import annotations

import os
from pathlib import Path

from opsk.slurm.records import JobRecord
from opsk.slurm.snapshot import Snapshot, pack
from opsk_jobcheck.cluster_state.snapshots import GRACE_S, REQUEST_FILE, SNAPSHOT, WatcherJobs

INTERVAL_S = 10.0


def job(number: int, user: str, label: str = "") -> JobRecord:
    return JobRecord(id=number, label=label or str(number), user=user, name="n", state="RUNNING")


def hand_over(folder: Path, at_s: float, *jobs: JobRecord) -> None:
    draft = folder / "draft"
    draft.write_bytes(pack(Snapshot(taken_at_s=at_s, jobs=jobs, cluster="vega")).to_bytes())
    draft.replace(folder / SNAPSHOT)


class Watcher:
    """A clock whose passing lets a watcher answer, once it is wanted, so many seconds later."""

    def __init__(self, folder: Path, answers_at_s: float) -> None:
        self.now_s, self._folder, self._answers_at_s = 1000.0, folder, answers_at_s

    def sleep(self, pause_s: float) -> None:
        self.now_s += pause_s
        if self.now_s >= self._answers_at_s and (self._folder / REQUEST_FILE).exists():
            hand_over(self._folder, self.now_s, job(7, "ada"), job(8, "bob", "6_1"))
            self._answers_at_s = float("inf")


def handed(folder: Path, watcher: Watcher) -> WatcherJobs:
    return WatcherJobs(folder, INTERVAL_S, clock=lambda: watcher.now_s, sleep=watcher.sleep)


def test_a_job_is_known_by_its_number_and_its_label_without_waiting(tmp_path: Path) -> None:
    hand_over(tmp_path, 999.0, job(7, "ada"), job(8, "bob", "6_1"))
    watcher = Watcher(tmp_path, float("inf"))
    jobs = handed(tmp_path, watcher)
    assert [jobs.find_user(name) for name in ("7", "8", "6_1", "9")] == ["ada", "bob", "bob", None]
    assert watcher.now_s == 1000.0
    assert jobs.cluster() == "vega"


def test_a_watcher_that_nobody_wanted_anything_of_is_woken_and_waited_for(tmp_path: Path) -> None:
    hand_over(tmp_path, 10.0)
    watcher = Watcher(tmp_path, 1003.0)
    assert handed(tmp_path, watcher).find_user("7") == "ada"
    assert watcher.now_s == 1003.0


def test_nobody_waits_for_long_and_not_where_there_is_no_watcher(tmp_path: Path) -> None:
    watcher = Watcher(tmp_path, float("inf"))
    assert handed(tmp_path, watcher).find_user("7") is None
    assert watcher.now_s == 1000.0, "nothing has ever been handed over"
    hand_over(tmp_path, 10.0)
    assert handed(tmp_path, watcher).find_user("7") is None
    assert watcher.now_s <= 1000.0 + INTERVAL_S + GRACE_S + 1.0
    nobody = WatcherJobs(None, INTERVAL_S)
    assert (nobody.find_user("7"), nobody.cluster()) == (None, "")


def test_what_is_damaged_leaves_what_was_known(tmp_path: Path) -> None:
    hand_over(tmp_path, 999.0, job(7, "ada"))
    jobs = handed(tmp_path, Watcher(tmp_path, float("inf")))
    assert jobs.find_user("7") == "ada"
    (tmp_path / SNAPSHOT).write_bytes(b"\0\xff" * 40)
    os.utime(tmp_path / SNAPSHOT, (1, 1))
    assert jobs.find_user("7") == "ada"
