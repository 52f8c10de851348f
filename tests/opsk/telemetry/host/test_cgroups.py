"""Are jobs found, and their use read, in every layout that Slurm has made?"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.telemetry.host import cgroups
from opsk.telemetry.host.cgroups import SLUID, CgroupReader, JobCgroup
from tests.fakes.cgroup_tree import MIB, CgroupV1, CgroupV2, sluid

STEPS = {"batch": [101], "extern": [100], "0": [102, 103]}


def only(root: Path) -> JobCgroup:
    (job,) = CgroupReader(root).jobs()
    return job


def check_use(job: JobCgroup, number: int) -> None:
    """The numbers of the generator's docstring; ``0-(j-1),100-(99+j)`` are 2 j CPUs; 4 and 5 MiB a job are its own."""
    assert (job.cpu_user_s, job.cpu_system_s, job.cpu_s) == (number, number / 4, number * 1.25)
    assert job.throttled_s == pytest.approx(number / 1000)
    assert job.cpus == 2 * number
    assert (job.memory_bytes, job.memory_peak_bytes) == (4 * number * MIB, 5 * number * MIB)
    assert job.memory_limit_bytes == 100 * number * MIB
    assert (job.anonymous_bytes, job.cache_bytes) == (number * MIB, 2 * number * MIB)
    assert job.limit_hits == number


def test_a_job_of_version_2(tmp_path: Path) -> None:
    CgroupV2(tmp_path).add(12, STEPS, oom_kills=2, io=True)
    job = only(tmp_path)
    assert (job.name, job.job_id, job.sluid, job.version, job.node, job.uid) == ("job_12", "12", None, 2, None, None)
    assert job.steps == ("0", "batch", "extern")
    assert job.pids == {100, 101, 102, 103}
    assert job.extern_pids == {100}
    assert job.processes == 3, "the sleep of step extern is Slurm's"
    assert job.threads == 2 * 4 + 3
    check_use(job, 12)
    assert job.oom_kills == 2
    assert (job.read_bytes, job.written_bytes) == (12_000 + 12, 36_000)
    assert job.stalled_s == {"cpu": pytest.approx(0.024)}


def test_a_job_whose_folder_is_its_sluid(tmp_path: Path) -> None:
    CgroupV2(tmp_path).add(12, STEPS, by_sluid=True)
    job = only(tmp_path)
    assert (job.job_id, job.sluid) == (None, sluid(12))
    check_use(job, 12)


def test_a_slice_of_the_site_and_several_slurmd(tmp_path: Path) -> None:
    CgroupV2(tmp_path, cgroup_slice="batch.slice/batch-gpu.slice", node="n1").add(1, STEPS)
    CgroupV2(tmp_path, node="n2").add(1, STEPS)
    assert {(job.node, job.job_id) for job in CgroupReader(tmp_path).jobs()} == {("n1", "1"), ("n2", "1")}


def test_a_job_of_version_1(tmp_path: Path) -> None:
    CgroupV1(tmp_path).add(12, STEPS, uid=4711, oom_kills=3)
    job = only(tmp_path)
    assert (job.name, job.job_id, job.version, job.uid) == ("job_12", "12", 1, 4711)
    assert (job.pids, job.extern_pids, job.processes) == ({100, 101, 102, 103}, {100}, 3)
    check_use(job, 12)
    assert job.oom_kills == 3, "the kill is counted in the group of the task, and only there"


def test_several_slurmd_in_version_1(tmp_path: Path) -> None:
    CgroupV1(tmp_path, node="host0").add(1, STEPS)
    CgroupV1(tmp_path, node="host1").add(1, STEPS)
    assert {job.node for job in CgroupReader(tmp_path).jobs()} == {"host0", "host1"}


def test_a_hybrid_system_has_each_job_once(tmp_path: Path) -> None:
    CgroupV1(tmp_path).add(12, STEPS)
    CgroupV2(tmp_path / "unified").add(12, {"0": []})
    CgroupV2(tmp_path / "unified").add(13, STEPS)
    found = {job.job_id: job for job in CgroupReader(tmp_path).jobs()}
    assert sorted(found) == ["12", "13"]
    check_use(found["12"], 12)
    assert found["12"].version == 1


@pytest.mark.parametrize("make", [CgroupV1, CgroupV2])
def test_a_node_without_jobs_has_none(tmp_path: Path, make: type) -> None:
    make(tmp_path)
    assert CgroupReader(tmp_path).jobs() == ()
    assert CgroupReader(tmp_path / "absent").jobs() == ()


def test_no_limit_is_no_number(tmp_path: Path) -> None:
    job = CgroupV2(tmp_path / "2").add(1, STEPS)
    (job / "memory.max").write_text("max\n")
    jobs = CgroupV1(tmp_path / "1").add(1, STEPS)
    (jobs[-1] / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert only(tmp_path / "2").memory_limit_bytes is None
    assert only(tmp_path / "1").memory_limit_bytes is None


def test_what_is_not_there_is_absent_and_the_rest_stays(tmp_path: Path) -> None:
    job = CgroupV2(tmp_path).add(12, STEPS)
    for name in ("memory.peak", "memory.stat", "cpu.pressure", "pids.current"):
        (job / name).unlink()
    (job / "cpu.stat").write_text("usage_usec 5000000\n")
    found = only(tmp_path)
    assert (found.memory_peak_bytes, found.anonymous_bytes, found.threads, found.stalled_s) == (None, None, None, {})
    assert (found.cpu_s, found.cpu_user_s) == (5.0, None)
    assert found.memory_bytes == 48 * MIB


@pytest.mark.parametrize("garbage", ["", "max", "-1", "0x10", "1 2", "\x00\xff", "9" * 40])
def test_a_damaged_file_is_a_missing_number(tmp_path: Path, garbage: str) -> None:
    job = CgroupV2(tmp_path).add(12, STEPS)
    for path in job.iterdir():
        if path.is_file():
            path.write_text(garbage, encoding="latin-1")
    found = only(tmp_path)
    assert found.cpu_s is None
    assert found.memory_limit_bytes is None
    assert found.pids == {100, 101, 102, 103}


def test_a_job_that_goes_while_it_is_read_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is listed, and gone before its first file is opened; the other job is read all the same."""
    tree = CgroupV2(tmp_path)
    going, _ = tree.add(12, STEPS), tree.add(13, STEPS)
    listed = cgroups.list_folders

    def folders(path: cgroups.AnyPath) -> tuple[cgroups.Folder, ...]:
        found = listed(path)
        if path == str(tree.scope) and going.exists():
            shutil.rmtree(going)
        return found

    monkeypatch.setattr(cgroups, "list_folders", folders)
    assert [job.job_id for job in CgroupReader(tmp_path).jobs()] == ["13"]


@given(st.integers(1, 2**42))
def test_every_sluid_is_recognised(number: int) -> None:
    assert SLUID.fullmatch(sluid(number))
    assert SLUID.fullmatch(sluid(number).lower())


@given(st.sets(st.integers(0, 300), min_size=1))
def test_a_list_of_cpus_counts_what_it_lists(tmp_path_factory: pytest.TempPathFactory, cpus: set[int]) -> None:
    path = tmp_path_factory.mktemp("cpus") / "list"
    path.write_text(",".join(str(cpu) if cpu % 2 else f"{cpu}-{cpu}" for cpu in sorted(cpus)) + "\n")
    assert cgroups.count_cpus(path) == len(cpus)


def test_a_number_longer_than_the_kernels_is_none(tmp_path: Path) -> None:
    path = tmp_path / "file"
    absurd = "9" * 400
    for word, expected in ((str(2**64 - 1), 2**64 - 1), (absurd, None), ("9" * 5000, None)):
        path.write_text(f"{word}\n", encoding="ascii")
        assert cgroups.read_number(path) == expected
        assert cgroups.read_pids(path) == ({expected} if expected else set())
    path.write_text(f"a {absurd}\nb 2\n", encoding="ascii")
    assert cgroups.read_keyed(path) == {"b": 2}
    path.write_text(f"some avg10=0.00 total={absurd}\n", encoding="ascii")
    assert cgroups.read_stalled_s(path) is None
    path.write_text(f"8:0 rbytes={absurd} wbytes=5\n", encoding="ascii")
    assert cgroups.read_io_bytes(path) == (0, 5)
    path.write_text(f"8:0 Read {absurd}\n8:0 Write 5\n", encoding="ascii")
    assert cgroups.read_blkio_bytes(path) == (0, 5)
