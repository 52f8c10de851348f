"""What a node keeps of a job from prolog to evidence, with the scripts of deploy/slurm and a made-up node."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opsk.errors import TelemetryError
from opsk.postmortem.evidence.collector import Collector, NodePaths
from opsk.postmortem.evidence.gathering import EvidenceSources, gather_job
from opsk.postmortem.evidence.node_files import read_node_files, write_atomically
from opsk.telemetry.gpu.samples import GpuReading
from opsk.telemetry.kernel_log import boot_unix_s
from tests.conftest import ROOT
from tests.fakes.gpus import h100, reading


def gpus() -> GpuReading:
    return reading(*(h100(index) for index in range(2)))


@pytest.fixture
def paths(tmp_path: Path) -> NodePaths:
    for name in ("spool/started", "spool/ended", "jobs", "sys/class"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "kmsg").write_text("")
    return NodePaths(
        folder=tmp_path / "evidence", spool=tmp_path / "spool", jobs_folder=tmp_path / "jobs",
        kernel_log=tmp_path / "kmsg", sysfs=tmp_path / "sys", cgroups=tmp_path / "none",
        dumps=(),
    )  # fmt: skip


def slurm(paths: NodePaths, which: str, **more: str) -> None:
    """Run prolog or epilog as slurmd does, with an opsk that does nothing."""
    environment = {
        "OPSK_JOBS_FOLDER": str(paths.jobs_folder), "OPSK_SPOOL_FOLDER": str(paths.spool), "OPSK_COMMAND": "/bin/true",
        "SLURM_JOB_ID": "77", "SLURMD_NODENAME": "n3", "SLURM_JOB_UID": str(os.getuid()), "SLURM_JOB_USER": "ada",
        "SLURM_JOB_WORK_DIR": str(paths.spool.parent), "SLURM_JOB_STDOUT": "out-%j.txt", "SLURM_JOB_GPUS": "0,1",
        "SLURM_JOB_START_TIME": str(int(time.time()) - 5), **more,
    }  # fmt: skip
    done = subprocess.run(
        [str(ROOT / "deploy" / "slurm" / f"opsk-{which}")], env=environment, check=False, timeout=30, cwd="/"
    )
    assert done.returncode == 0


def kept(paths: NodePaths, job: str = "77") -> dict[str, Any]:
    (said,) = read_node_files([paths.folder / job]).files
    return dict(said)


def kernel_line(text: str, ago_s: float = 1.0, priority: int = 3) -> str:
    since_boot_us = int((time.time() - ago_s - boot_unix_s()) * 1e6)
    return f"{priority},1,{since_boot_us},-;{text}\n"


def test_a_job_from_start_to_end(paths: NodePaths) -> None:
    (paths.spool.parent / "out-77.txt").write_text("step 1\nRuntimeError: boom\n")
    slurm(paths, "prolog")
    assert Collector(paths, gpus=gpus).collect().started == ["77"]
    paths.kernel_log.write_text(
        kernel_line("NVRM: Xid (PCI:0000:1a:00): 79, GPU has fallen off the bus.")
        + kernel_line("NVRM: Xid (PCI:0000:1a:00): 31, long ago", ago_s=4000)
        + kernel_line("NVRM: Xid (PCI:0000:1a:00): 48, by a program", priority=11)
    )
    slurm(paths, "epilog")
    assert list(paths.jobs_folder.iterdir()) == []
    done = Collector(paths, gpus=gpus).collect()
    assert (done.ended, done.problems) == (["77"], [])
    said = kept(paths)
    assert (said["node"], said["job"], len(said["start"]["gpus"]), len(said["end"]["gpus"])) == ("n3", "77", 2, 2)
    assert [line.partition(";")[2] for line in said["kernel"]["lines"]] == [
        "NVRM: Xid (PCI:0000:1a:00): 79, GPU has fallen off the bus."
    ]
    (log,) = said["logs"]
    assert log["errors"] == ["RuntimeError: boom"]
    assert log["tail"] == "step 1\nRuntimeError: boom\n"
    (path,) = (paths.folder / "77").glob("*.json")
    assert path.stat().st_mode & 0o777 == 0o640
    assert [entry for name in ("started", "ended") for entry in (paths.spool / name).iterdir()] == []


def test_dumps_of_the_flight_recorder_are_read_where_the_job_left_them(paths: NodePaths) -> None:
    """Those of its user and of its time; a dump that would run something says nothing."""
    slurm(paths, "prolog")
    folder = paths.spool.parent
    entries = [{"collective_seq_id": 9, "state": "started", "profiling_name": "nccl:all_reduce"}]
    for name, data in (
        ("nccl_trace_rank_4", pickle.dumps({"entries": entries})), ("nccl_trace_rank_5", b"cos\nsystem\n(S'x'\ntR."),
        ("nccl_trace_rank_6", pickle.dumps({"entries": entries})), ("other_7", b""),
    ):  # fmt: skip
        (folder / name).write_bytes(data)
    os.utime(folder / "nccl_trace_rank_6", (1000, 1000))
    slurm(paths, "epilog")
    Collector(paths, gpus=gpus).collect()
    (dump,) = kept(paths)["recorder"]
    assert (dump["rank"], dump["stuck"][0]["seq"]) == (4, 9)
    (finding,) = [
        each for each in gather_job(EvidenceSources(gathered=(paths.folder / "77",))).findings if each.place.rank == 4
    ]
    assert (finding.signature, finding.fields["op"]) == ("flight_recorder.entry", "ALL_REDUCE")


def test_what_cannot_be_written_waits_for_the_next_time(paths: NodePaths) -> None:
    slurm(paths, "prolog")
    slurm(paths, "epilog")
    paths.folder.write_text("in the way")
    done = Collector(paths, gpus=gpus).collect()
    assert done.ended == []
    assert len(done.problems) == 1
    paths.folder.unlink()
    assert len(Collector(paths, gpus=gpus).collect().ended) == 1
    assert kept(paths)["start"] == {}, "nobody made a snapshot of the start"


def test_what_cannot_be_written_is_kept_as_it_was_when_the_job_had_ended(paths: NodePaths) -> None:
    """Until the folder is there again the next job has broken something, or a GPU was put right."""
    slurm(paths, "prolog")
    slurm(paths, "epilog")
    paths.folder.write_text("in the way")
    lost = replace(gpus(), gpus=gpus().gpus[:1])
    Collector(paths, gpus=lambda: lost).collect()
    paths.folder.unlink()
    assert Collector(paths, gpus=gpus).collect().ended == ["77"]
    assert len(kept(paths)["end"]["gpus"]) == 1
    assert list((paths.spool / "ended").iterdir()) == []


def test_what_was_kept_of_another_run_is_not_this_one(paths: NodePaths) -> None:
    paths.folder.write_text("in the way")
    for start in ("1000", "2000"):
        slurm(paths, "prolog", SLURM_JOB_START_TIME=start, SLURM_JOB_RESTART_COUNT=start[0])
        slurm(paths, "epilog")
        Collector(paths, gpus=gpus).collect()
    paths.folder.unlink()
    Collector(paths, gpus=gpus).collect()
    assert [path.name for path in (paths.folder / "77").glob("*.json")] == ["n3@2000.json"]
    assert kept(paths)["note"]["start_unix_s"] == 2000


def test_a_spool_that_is_full_keeps_nothing_from_its_folder(paths: NodePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, text: str, **more: Any) -> None:
        if path.is_relative_to(paths.spool):
            raise OSError(28, "No space left on device")
        write_atomically(path, text, **more)

    slurm(paths, "prolog")
    slurm(paths, "epilog")
    monkeypatch.setattr("opsk.postmortem.evidence.collector.write_atomically", full)
    assert Collector(paths, gpus=gpus).collect().ended == ["77"]
    assert kept(paths)["job"] == "77"


def test_without_a_spool_the_epilog_only_takes_the_note_away(paths: NodePaths) -> None:
    slurm(paths, "prolog")
    (paths.spool / "ended").rmdir()
    slurm(paths, "epilog")
    assert list(paths.jobs_folder.iterdir()) == []
    assert not (paths.spool / "ended").exists()


def test_gpus_that_cannot_be_read_keep_nothing_else_from_being_kept(paths: NodePaths) -> None:
    def hangs() -> GpuReading:
        raise TelemetryError("the GPU driver has not answered for 15 s")

    slurm(paths, "prolog")
    slurm(paths, "epilog")
    Collector(paths, gpus=hangs).collect()
    assert kept(paths)["end"]["gpu_problem"] == "the GPU driver has not answered for 15 s"


def test_another_run_of_a_requeued_job_has_a_file_of_its_own(paths: NodePaths) -> None:
    for start in (1000, 2000):
        slurm(paths, "prolog", SLURM_JOB_START_TIME=str(start))
        slurm(paths, "epilog")
        Collector(paths, gpus=gpus).collect()
    assert len(read_node_files([paths.folder / "77"]).files) == 2
    assert len(read_node_files([paths.folder / "77"], start_s=1000, end_s=1100).files) == 1


def test_evidence_of_others_is_not_believed(paths: NodePaths) -> None:
    slurm(paths, "prolog")
    slurm(paths, "epilog")
    Collector(paths, gpus=gpus).collect()
    (path,) = (paths.folder / "77").glob("*.json")
    path.chmod(0o666)
    found = read_node_files([paths.folder / "77"])
    assert found.files == ()
    assert "not believed" in found.unreadable[0]
    path.chmod(0o640)
    (paths.folder / "77" / "n9@0.json").symlink_to(path)
    (paths.folder / "77" / "n8@0.json").write_text(json.dumps({"form": "another"}))
    found = read_node_files([paths.folder / "77"])
    assert (len(found.files), len(found.unreadable)) == (1, 2)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_file_of_another_user_is_not_believed(paths: NodePaths) -> None:
    slurm(paths, "prolog")
    slurm(paths, "epilog")
    Collector(paths, gpus=gpus).collect()
    (path,) = (paths.folder / "77").glob("*.json")
    os.chown(path, 65534, 65534)
    assert read_node_files([paths.folder / "77"]).files == ()


def test_jobs_of_two_clusters_with_one_number_have_evidence_of_their_own(paths: NodePaths) -> None:
    """A host that is a node of both, with one spool and one folder of evidence."""
    for cluster in ("east", "west"):
        slurm(paths, "prolog", SLURM_CLUSTER_NAME=cluster, SLURM_JOB_USER=f"ada-{cluster}")
    assert Collector(paths, gpus=gpus).collect().started == ["77", "77"]
    for cluster in ("east", "west"):
        slurm(paths, "epilog", SLURM_CLUSTER_NAME=cluster)
        assert Collector(paths, gpus=gpus).collect().ended == ["77"]
    for cluster in ("east", "west"):
        said = kept(paths, f"{cluster}.77")
        assert (said["note"]["user"], said["note"]["cluster"]) == (f"ada-{cluster}", cluster)
        assert said["start"]["gpus"], "the snapshot of this job's own start"
    assert sorted(path.name for path in paths.folder.iterdir()) == ["east.77", "west.77"]


def test_a_job_that_began_under_opsk_0_1_keeps_its_start(paths: NodePaths) -> None:
    """The node was updated while the job ran: note and snapshot are called by the number alone."""
    slurm(paths, "prolog", SLURM_CLUSTER_NAME="east")
    assert Collector(paths, gpus=gpus).collect().started == ["77"]
    (snapshot,) = (paths.spool / "started").iterdir()
    said = json.loads(snapshot.read_text())
    said["run"] = said["run"].removeprefix("east.")
    snapshot.unlink()
    (snapshot.parent / snapshot.name.removeprefix("east.")).write_text(json.dumps(said))
    (paths.jobs_folder / "east.77").rename(paths.jobs_folder / "77")
    slurm(paths, "epilog", SLURM_CLUSTER_NAME="east")
    assert Collector(paths, gpus=gpus).collect().ended == ["77"]
    assert kept(paths, "east.77")["start"]["gpus"]


def test_a_log_of_another_job_with_this_number_is_not_kept(paths: NodePaths) -> None:
    """The user's directory has a log of a job 77 of another cluster, which ended before this one began."""
    for name, said in (("out-77.txt", "RuntimeError: ours"), ("rank0-77.log", "RuntimeError: ours too")):
        (paths.spool.parent / name).write_text(f"{said}\n")
    other = paths.spool.parent / "west-77.log"
    other.write_text("RuntimeError: theirs\n")
    os.utime(other, (time.time() - 86400, time.time() - 86400))
    slurm(paths, "prolog")
    slurm(paths, "epilog")
    Collector(paths, gpus=gpus).collect()
    assert {Path(log["path"]).name for log in kept(paths)["logs"]} == {"out-77.txt", "rank0-77.log"}
