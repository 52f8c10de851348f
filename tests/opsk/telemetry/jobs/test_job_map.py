"""Is each GPU told its job, by the witness that is to be trusted most, and are dead witnesses recognised?"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from opsk.telemetry.gpu.job_gpus import JobGpu
from opsk.telemetry.gpu.samples import GpuProcess, GpuReading, GpuSample, LostGpu
from opsk.telemetry.jobs import job_map
from opsk.telemetry.jobs.job_files import JobFiles
from opsk.telemetry.jobs.job_map import JobMap, JobRun
from tests.fakes.cgroup_tree import sluid
from tests.fakes.gpus import gpu_uuid, h100, reading, with_mig
from tests.fakes.job_notes import NOW, Node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def busy(index: int, *pids: int) -> GpuSample:
    return replace(h100(index), processes=tuple(GpuProcess(pid=pid) for pid in pids))


def only(jobs: JobMap) -> JobRun:
    (run,) = jobs.jobs
    return run


FOUR = reading(busy(0, 102), busy(1, 103), busy(2), busy(3, 900))
STEPS = {"batch": [101], "extern": [100], "0": [102, 103]}


def test_a_job_with_all_witnesses(node: Node) -> None:
    node.note(12, [0, 1, 2])
    node.cgroups.add(12, STEPS)
    run = only(node.mapper().read(FOUR))
    assert (run.job, run.user, run.account, run.partition, run.uid) == ("12", "ann", "phys", "gpu", 1000)
    assert run.gpus == (
        JobGpu(uuid=gpu_uuid(0), processes=1), JobGpu(uuid=gpu_uuid(1), processes=1),
        JobGpu(uuid=gpu_uuid(2), processes=0),
    )  # fmt: skip
    assert (run.gpus_allocated, run.gpus_from) == (3, "prolog")


def test_processes_of_no_job_are_counted_where_they_are(node: Node) -> None:
    node.note(12, [0, 1, 2])
    node.cgroups.add(12, STEPS)
    assert node.mapper().read(FOUR).strangers == {gpu_uuid(0): 0, gpu_uuid(1): 0, gpu_uuid(2): 0, gpu_uuid(3): 1}


def test_without_control_groups_nobody_is_called_a_stranger(node: Node) -> None:
    node.note(12, [0, 1])
    jobs = node.mapper().read(FOUR)
    assert jobs.strangers == {}
    assert [gpu.processes for gpu in only(jobs).gpus] == [None, None]


def test_a_gpu_that_is_used_without_being_given_is_told(node: Node) -> None:
    node.note(12, [0])
    node.cgroups.add(12, STEPS)
    run = only(node.mapper().read(FOUR))
    assert run.gpus[1] == JobGpu(uuid=gpu_uuid(1), allocated=False, processes=1)


def test_slurms_order_is_that_of_the_gres_conf_beside_its_conf(node: Node, tmp_path: Path) -> None:
    (tmp_path / "gres.conf").write_text("Name=gpu File=/dev/nvidia[3,2,1,0]\n")
    node.note(12, [0, 1], conf=tmp_path / "slurm.conf")
    assert [gpu.uuid for gpu in only(node.mapper().read(FOUR)).gpus] == [gpu_uuid(3), gpu_uuid(2)]


def test_instances_are_named_by_slurm_itself(node: Node) -> None:
    cut = with_mig(h100(1))
    node.note(12, [2], devices=cut.mig[1].uuid)
    run = only(node.mapper().read(reading(h100(0), cut)))
    assert run.gpus == (JobGpu(uuid=cut.mig[1].uuid, parent=gpu_uuid(1)),)


def test_two_jobs_may_share_a_gpu(node: Node) -> None:
    for job in (12, 13):
        node.note(job, [0])
        node.cgroups.add(job, {"0": [job]})
    jobs = node.mapper().read(reading(busy(0, 12, 13)))
    assert [(run.job, run.gpus) for run in jobs.jobs] == [
        ("12", (JobGpu(uuid=gpu_uuid(0), processes=1),)), ("13", (JobGpu(uuid=gpu_uuid(0), processes=1),)),
    ]  # fmt: skip


def test_a_gpu_that_is_lost_later_moves_no_job(node: Node) -> None:
    """GPU 0 goes, and NVML numbers the others anew: what was settled stays."""
    node.note(12, [1, 2])
    mapper = node.mapper()
    before = only(mapper.read(FOUR))
    left = GpuReading(read_at_s=1.0, gpus=tuple(replace(h100(index), index=index - 1) for index in (1, 2, 3)))
    assert [gpu.uuid for gpu in only(mapper.read(left)).gpus] == [gpu.uuid for gpu in before.gpus]
    later = node.mapper()
    later.restore_resolved(mapper.export_resolved())
    assert [gpu.uuid for gpu in only(later.read(left)).gpus] == [gpu_uuid(1), gpu_uuid(2)]


def test_a_lost_gpu_is_still_the_jobs(node: Node) -> None:
    node.note(12, [0, 1])
    lost = LostGpu(uuid=gpu_uuid(1), index=1, pci=h100(1).pci, minor=1, why="lost")
    run = only(node.mapper().read(GpuReading(read_at_s=0.0, gpus=(busy(0),), lost=(lost,))))
    assert [gpu.uuid for gpu in run.gpus] == [gpu_uuid(0), gpu_uuid(1)]


def test_without_gpus_to_read_the_number_of_gpus_is_told(node: Node) -> None:
    node.note(12, [0, 1])
    run = only(node.mapper().read(None))
    assert (run.gpus, run.gpus_allocated) == ((), 2)


def test_the_environment_fills_what_the_prolog_is_not_told(node: Node) -> None:
    node.note(12, [0])
    node.cgroups.add(12, STEPS)
    node.process(101, JOB_ID=12, JOB_NAME="train", ARRAY_JOB_ID=10, ARRAY_TASK_ID=4, JOB_ACCOUNT="forged", JOB_GPUS="3")
    run = only(node.mapper().read(FOUR))
    assert (run.job, run.job_id, run.name) == ("10_4", "12", "train")
    assert (run.account, run.gpus_from) == ("phys", "prolog"), "what the prolog says counts more"


def test_a_sluid_folder_finds_its_file_and_its_job(node: Node) -> None:
    node.note(12, [1], sluid=sluid(12))
    node.cgroups.add(12, STEPS, by_sluid=True)
    run = only(node.mapper().read(FOUR))
    assert (run.run, run.job, run.sluid) == (sluid(12), "12", sluid(12))
    assert [gpu.uuid for gpu in run.gpus if gpu.allocated] == [gpu_uuid(1)]


def test_a_sluid_folder_without_a_file_asks_a_process(node: Node) -> None:
    node.cgroups.add(12, STEPS, by_sluid=True)
    node.process(101, JOB_ID=12, JOB_SLUID=sluid(12), JOB_GPUS="0,2")
    run = only(node.mapper().read(FOUR))
    assert (run.job, run.gpus_from) == ("12", "environment")
    assert [gpu.uuid for gpu in run.gpus if gpu.allocated] == [gpu_uuid(0), gpu_uuid(2)]


def test_a_sluid_folder_of_which_nobody_tells_is_shown_by_its_sluid(node: Node) -> None:
    node.cgroups.add(12, {"0": [102]}, by_sluid=True)
    run = only(node.mapper().read(FOUR))
    assert (run.job, run.job_id, run.gpus_from) == (sluid(12), None, "processes")
    assert run.gpus == (JobGpu(uuid=gpu_uuid(0), processes=1),)


def test_an_environment_that_contradicts_slurm_is_not_believed(node: Node) -> None:
    node.cgroups.add(12, {"0": [102]})
    node.process(102, JOB_ID=13, JOB_USER="root", JOB_GPUS="3")
    run = only(node.mapper().read(FOUR))
    assert (run.job, run.user, run.gpus_from) == ("12", None, "processes")


def test_gpus_of_the_batch_node_are_not_those_of_another(node: Node) -> None:
    """srun hands SLURM_JOB_GPUS of the first node on to tasks everywhere; SLURM_STEP_GPUS is each node's own."""
    node.cgroups.add(12, {"0": [102]})
    node.process(102, JOB_ID=12, STEP_ID=0, JOB_GPUS="3", STEP_GPUS="1")
    run = only(node.mapper().read(FOUR))
    assert [gpu.uuid for gpu in run.gpus if gpu.allocated] == [gpu_uuid(1)]


def test_environments_of_others_that_cannot_be_read_are_no_fault(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.note(12, [0])
    node.cgroups.add(12, STEPS)
    node.process(101, JOB_ID=12, JOB_NAME="train")
    opened = Path.open

    def denied(self: Path, *words: object, **more: object) -> object:
        if self.name == "environ":
            raise PermissionError(13, "no", str(self))
        return opened(self, *words, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", denied)
    run = only(node.mapper().read(FOUR))
    assert (run.job, run.name) == ("12", None)


def test_processes_tell_what_no_controller_counts(node: Node) -> None:
    """1000 + 100 and 2000 + 200 ticks of user time, half of it of system time, 4 threads each; a name may hold ")"."""
    group = node.cgroups.add(12, {"0": [102, 103]})
    for name in ("cpu.stat", "pids.current"):
        (group / name).unlink()
    node.process(102, ticks=1000)
    node.process(103, ticks=2000, comm="a) R 1 2 (b")
    found = only(node.mapper().read(FOUR)).cgroup
    assert found is not None
    assert (found.cpu_user_s, found.cpu_system_s, found.threads) == (33.0, 16.5, 8)


def test_a_job_whose_processes_are_hidden_lacks_only_those_numbers(node: Node) -> None:
    group = node.cgroups.add(12, STEPS)
    (group / "cpu.stat").unlink()
    found = only(node.mapper().read(FOUR)).cgroup
    assert found is not None
    assert (found.cpu_user_s, found.processes) == (None, 3)


def test_components_of_a_heterogeneous_job(node: Node) -> None:
    node.note(13, [0], het_job=12)
    assert only(node.mapper().read(FOUR)).job == "12+1"


def test_a_requeued_job_is_one_job_with_its_newest_run(node: Node) -> None:
    """The first run's epilog was killed; the second has the job's name, control group and GPUs."""
    node.note(12, [0], age_s=500, sluid=sluid(1))
    node.note(12, [1], sluid=sluid(2))
    node.cgroups.add(2, STEPS, by_sluid=True)
    jobs = node.mapper().read(FOUR)
    assert (only(jobs).run, only(jobs).job, jobs.stale_files) == (sluid(2), "12", 1)


@pytest.mark.parametrize("newest_first", [False, True])
def test_of_two_runs_that_began_in_the_same_second_the_requeued_one_is_the_job(
    node: Node, newest_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder has no order; of what is told of both, only how often they were requeued tells them apart."""
    node.note(12, [0], sluid=sluid(2), restarts=0)
    node.note(12, [1], sluid=sluid(1), restarts=1)
    real = job_map.read_job_files

    def shuffled(folder: Path, now_unix_s: float) -> JobFiles:
        found = real(folder, now_unix_s)
        files = sorted(found.files, key=lambda file: file.restarts or 0, reverse=newest_first)
        return replace(found, files=tuple(files))

    monkeypatch.setattr(job_map, "read_job_files", shuffled)
    run = only(node.mapper().read(FOUR))
    assert (run.run, [gpu.uuid for gpu in run.gpus]) == (sluid(1), [gpu_uuid(1)])


@pytest.mark.parametrize("newest_first", [False, True])
def test_of_two_runs_that_nothing_else_tells_apart_the_later_sluid_is_the_job(
    node: Node, newest_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SLUIDs sort by time."""
    node.note(12, [0], sluid=sluid(1))
    node.note(12, [1], sluid=sluid(2))
    real = job_map.read_job_files

    def shuffled(folder: Path, now_unix_s: float) -> JobFiles:
        found = real(folder, now_unix_s)
        return replace(found, files=tuple(sorted(found.files, key=lambda file: file.run, reverse=newest_first)))

    monkeypatch.setattr(job_map, "read_job_files", shuffled)
    assert only(node.mapper().read(FOUR)).run == sluid(2)


def test_a_file_that_was_touched_later_is_not_of_a_later_run(node: Node) -> None:
    """Without SLUIDs a control group has its job's newest file: the one whose run began last, by Slurm's word."""
    old = node.note(12, [0], age_s=500, restarts=0)
    old.rename(old.with_name("012"))
    node.note(12, [1], age_s=10, restarts=1)
    os.utime(old.with_name("012"), (node.clock.now_s, node.clock.now_s))
    node.cgroups.add(12, STEPS)
    assert only(node.mapper().read(FOUR)).gpus[0].uuid == gpu_uuid(1)


def test_nobody_hides_another_job_by_taking_its_name(node: Node) -> None:
    """Job 13's user says that it is task 4 of array 12, which runs here too."""
    for job, pid in ((12, 101), (13, 201)):
        node.note(job, [job - 12])
        node.cgroups.add(job, {"batch": [pid]})
        node.process(pid, JOB_ID=job, ARRAY_JOB_ID=12, ARRAY_TASK_ID=4)
    assert [run.job for run in node.mapper().read(FOUR).jobs] == ["12", "13"]


def test_a_number_of_a_job_that_no_slurm_gives_is_a_torn_file(node: Node) -> None:
    for number, wrong in enumerate(("9" * 5000, "٣", "1e3", "-1")):
        path = node.note(12, [0], het_job="9" * 5000)
        path.write_text(path.read_text().replace("job=12\n", f"job={wrong}\n"))
        path.rename(path.with_name(f"{number + 100}"))
    node.note(13, [1], het_job="9" * 5000)
    jobs = node.mapper().read(FOUR)
    assert (only(jobs).job, jobs.torn_files) == ("13", 4)


def test_without_a_sluid_the_newest_file_is_of_the_run(node: Node) -> None:
    node.note(12, [1], restarts=1)
    node.cgroups.add(12, STEPS)
    assert only(node.mapper().read(FOUR)).run == f"12@{int(node.clock.now_s)}"


def test_a_file_whose_job_is_gone_is_stale(node: Node) -> None:
    """Another job has step extern, so that every job would have one; a minute is left to the prolog and to Slurm."""
    node.note(12, [0])
    node.cgroups.add(13, STEPS)
    mapper = node.mapper()
    assert {run.job for run in mapper.read(FOUR).jobs} == {"12", "13"}
    node.clock.now_s += 61
    jobs = mapper.read(FOUR)
    assert ([run.job for run in jobs.jobs], jobs.stale_files) == (["13"], 1)


def test_a_job_whose_control_group_went_is_gone_a_minute_later(node: Node) -> None:
    node.note(12, [0], age_s=5000)
    job = node.cgroups.add(12, STEPS)
    mapper = node.mapper()
    assert only(mapper.read(FOUR)).job == "12"
    node.cgroups.remove(job)
    node.clock.now_s += 59
    assert only(mapper.read(FOUR)).job == "12"
    node.clock.now_s += 2
    assert mapper.read(FOUR).stale_files == 1


def test_without_step_extern_a_job_may_be_long_without_a_step(node: Node) -> None:
    """An allocation whose first srun is still to come holds its GPUs: for an hour it is believed."""
    node.note(12, [0])
    mapper = node.mapper()
    node.clock.now_s += 3500
    assert only(mapper.read(FOUR)).gpus_allocated == 1
    node.clock.now_s += 200
    assert mapper.read(FOUR).stale_files == 1


def test_where_nothing_can_be_seen_nothing_speaks_against_a_file(node: Node) -> None:
    """No control groups, and an exporter from which systemd hides the processes of others (ProtectProc=invisible)."""
    shutil.rmtree(node.proc / "1")
    node.note(12, [0], end=int(node.clock.now_s) + 90_000)
    mapper = node.mapper()
    node.clock.now_s += 80_000
    assert only(mapper.read(FOUR)).job == "12"
    node.clock.now_s += 20_000
    assert mapper.read(FOUR).stale_files == 1


def test_past_its_time_limit_it_is_not(node: Node) -> None:
    node.note(12, [0], end=int(node.clock.now_s) + 60)
    mapper = node.mapper()
    node.clock.now_s += 60 + 601
    assert mapper.read(FOUR).stale_files == 1


@pytest.mark.parametrize("title", ["slurmstepd: [12.batch]", "slurmstepd: [12.extern]", "slurmstepd: [12.0]"])
def test_a_slurmstepd_keeps_a_job_alive(node: Node, title: str) -> None:
    node.note(12, [0], age_s=9000)
    node.process(50, comm="slurmstepd", cmdline=title)
    node.process(51, comm="slurmd", cmdline="slurmstepd: [13.batch]")
    assert only(node.mapper().read(FOUR)).job == "12"


def test_a_file_from_before_the_boot_is_stale_at_once(node: Node) -> None:
    node.note(12, [0], age_s=10_001)
    node.process(50, comm="slurmstepd", cmdline="slurmstepd: [12.batch]")
    assert node.mapper().read(FOUR).stale_files == 1


def test_torn_files_are_counted(node: Node) -> None:
    path = node.note(12, [0])
    path.write_text(path.read_text()[:-3])
    jobs = node.mapper().read(FOUR)
    assert (jobs.jobs, jobs.torn_files, jobs.stale_files) == ((), 1, 0)


def test_a_node_without_prolog_and_groups_has_nothing(node: Node) -> None:
    node.jobs.rmdir()
    assert node.mapper().read(FOUR).present is False


def test_jobs_of_two_clusters_with_one_number_are_two(tmp_path: Path) -> None:
    """A host that is a node of both; each counts its jobs from 1."""
    node = Node(tmp_path)
    for gpu, cluster in enumerate(("east", "west")):
        node.note(12, [gpu], cluster=cluster)
    found = node.mapper().read(reading(h100(0), h100(1)))
    told = {run.job: [gpu.uuid for gpu in run.gpus] for run in found.jobs}
    assert told == {
        f"east.12@{int(NOW)}": [h100(0).uuid],
        f"west.12@{int(NOW)}": [h100(1).uuid],
    }
