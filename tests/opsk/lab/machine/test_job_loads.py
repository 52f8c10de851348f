"""Is what a job's plan asks of its GPUs written on each of its nodes, and does it end with the job?"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from opsk.job_key import JobKey
from opsk.lab.machine.job_loads import NOISE, JobLoads, PlannedNeed
from opsk.lab.machine.machine import MachineFolder
from opsk.lab.machine.work import GpuLoad, NodeJob, Work, find_work, load_file, read_load, write_load
from opsk.workload.advice_record import AdviceRecord

NOW = 1_800_000_000.0
RECORD = "opsk:v1 verdict=fits mem_bytes=50000000000 capacity_bytes=84900000000 step_s=2 tp=2 hash=abc"
FILE = "opsk-job 1\njob={job}\nuid={uid}\nstdout={log}\ngpus=0-1\nwhole\n"
LINE = " iteration {step:8d}/ 900 | elapsed time per iteration (ms): {ms}.0 | lm loss: 3.1E+00 |\n"


@pytest.fixture
def folders(tmp_path: Path) -> tuple[MachineFolder, ...]:
    """Two nodes without a job."""
    found = tuple(MachineFolder(root=tmp_path / node) for node in ("n0", "n1"))
    for folder in found:
        folder.jobs.mkdir(parents=True)
    return found


def submit(folders: tuple[MachineFolder, ...], job: str, log: Path, record: str = RECORD) -> None:
    """Write what the lab's prolog writes on each node."""
    for folder in folders:
        (folder.jobs / job).write_text(FILE.format(job=job, uid=os.getuid(), log=log), encoding="utf-8")
        if record:
            (folder.jobs / f"{job}.advice").write_text(record, encoding="utf-8")


def turn(loads: JobLoads, folders: tuple[MachineFolder, ...], now_unix_s: float = NOW) -> dict[str, GpuLoad | None]:
    """Let a second pass; return what job 7 asks of each node."""
    work = loads.write_loads(folders, find_work(folders, Path("/nowhere/slurm.conf"), now_unix_s), now_unix_s)
    for thread in threading.enumerate():
        if thread.name == "prediction":
            thread.join()
    return {node: each.jobs["7"].load if "7" in each.jobs else None for node, each in work.items()}


def test_the_record_holds_until_the_model_has_answered(folders: tuple[MachineFolder, ...], tmp_path: Path) -> None:
    need = PlannedNeed(stage_memory_bytes=(50e9, 30e9), stage_gpus=2, power_w=600.0, nodes=("n0", "n1"))
    asked: list[str] = []

    def predict(job_id: str, record: AdviceRecord) -> PlannedNeed:
        asked.append(f"{job_id} {record.hash}")
        return need

    submit(folders, "7", tmp_path / "log")
    loads = JobLoads(predict=predict)
    for load in turn(loads, folders).values():
        assert load is not None
        assert load.memory_bytes == pytest.approx([50e9] * 2, rel=NOISE)
        assert load.power_w == ()
    after = turn(loads, folders)
    for node, expected in (("n0", 50e9), ("n1", 30e9)):
        load = after[node]
        assert load is not None
        assert load.memory_bytes == pytest.approx([expected] * 2, rel=NOISE)
        assert load.power_w == pytest.approx([600.0] * 2, rel=NOISE)
    assert asked == ["7 abc"]
    # Whoever breaks a device meanwhile is another process, and reads the same.
    found = find_work(folders, Path("/nowhere/slurm.conf"), NOW)
    assert {node: work.jobs["7"].load for node, work in found.items()} == after


def test_a_job_that_was_submitted_again_is_predicted_once(folders: tuple[MachineFolder, ...], tmp_path: Path) -> None:
    asked: list[str] = []

    def predict(job_id: str, _: AdviceRecord) -> PlannedNeed:
        asked.append(job_id)
        return PlannedNeed(stage_memory_bytes=(50e9,), power_w=600.0)

    loads = JobLoads(predict=predict)
    for job in ("7", "8"):
        submit(folders, job, tmp_path / "log")
    for _ in range(3):
        turn(loads, folders)
    assert asked == ["7"]
    assert all((load := read_load(folder.jobs, JobKey(job="8"))) and load.power_w for folder in folders)


def test_a_job_whose_log_is_slow_is_slow(folders: tuple[MachineFolder, ...], tmp_path: Path) -> None:
    log = tmp_path / "log"
    submit(folders, "7", log)
    loads = JobLoads(predict=lambda *_: None)
    assert [load and load.pace for load in turn(loads, folders).values()] == [1.0, 1.0]
    log.write_text("".join(LINE.format(step=step, ms=4000) for step in range(1, 7)), encoding="ascii")
    os.utime(log, (NOW, NOW))
    # 2 s were predicted, and it takes 4 s.
    assert [load and load.pace for load in turn(loads, folders).values()] == [0.5, 0.5]
    assert [load and load.pace for load in turn(loads, folders, NOW + 100).values()] == [0.0, 0.0]


@pytest.mark.parametrize("record", ["", "opsk:v1 verdict=unknown", "opsk:v2 mem_bytes=1", "anything"])
def test_a_job_without_a_prediction_has_no_load(
    folders: tuple[MachineFolder, ...], tmp_path: Path, record: str
) -> None:
    submit(folders, "7", tmp_path / "log", record)
    loads = JobLoads(predict=lambda *_: pytest.fail("nothing was predicted"))
    assert list(turn(loads, folders).values()) == [None, None]
    assert not load_file(folders[0].jobs, JobKey(job="7")).exists()


def test_a_job_that_has_ended_is_forgotten(folders: tuple[MachineFolder, ...], tmp_path: Path) -> None:
    submit(folders, "7", tmp_path / "log")
    loads = JobLoads(predict=lambda *_: None)
    turn(loads, folders)
    for folder in folders:
        for path in folder.jobs.iterdir():  # as opsk-epilog does: all that is called after the job
            path.unlink()
    assert turn(loads, folders) == {"n0": None, "n1": None}
    assert not load_file(folders[0].jobs, JobKey(job="7")).exists()


def test_a_load_that_was_written_while_the_epilog_ran_goes(folders: tuple[MachineFolder, ...], tmp_path: Path) -> None:
    """The epilog lists what it removes before the load is there; on the other node the job goes on."""
    need = PlannedNeed(stage_memory_bytes=(50e9,), stage_gpus=2, power_w=600.0, nodes=("n0", "n1"))
    submit(folders, "7", tmp_path / "log")
    loads = JobLoads(predict=lambda *_: need)
    turn(loads, folders)
    first, second = (load_file(folder.jobs, JobKey(job="7")) for folder in folders)
    (folders[0].jobs / "7").unlink()
    assert first.exists()
    turn(loads, folders)
    assert (first.exists(), second.exists()) == (False, True)


def test_a_load_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    assert read_load(tmp_path, JobKey(job="7")) is None
    load_file(tmp_path, JobKey(job="7")).write_text("{", encoding="ascii")
    assert read_load(tmp_path, JobKey(job="7")) is None
    load = GpuLoad(memory_bytes=(1.0, 2.0), power_w=(3.0, 4.0), pace=0.5)
    write_load(tmp_path, JobKey(job="7"), load)
    assert read_load(tmp_path, JobKey(job="7")) == load


def test_a_load_of_other_gpus_is_nobodys() -> None:
    """A job that was requeued may have got others."""
    job = NodeJob(gpus=(0, 1, 2), steps={"0": (1,)}, load=GpuLoad(memory_bytes=(1.0, 2.0)))
    assert job.memory_bytes(0) is None
    assert Work(jobs={"7": job}).is_busy(0)
