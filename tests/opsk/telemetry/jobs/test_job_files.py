"""Are the prolog's files believed when they are whole, and only then?"""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from opsk.telemetry.jobs.job_files import parse_gpu_numbers, parse_job_file, read_job_files
from tests.fakes.job_notes import Node

WHOLE = (
    "opsk-job 1\njob=12\nsluid=s0123456789ABC\nnode=n0\nuid=1000\nuser=ann\npartition=gpu\nstart=1700000000\n"
    "gpus=0,2\ndevices=0,2\nwork_dir=/home/ann/x=y\nwhole\n"
)
NOW = 1_700_000_100.0


def test_a_whole_file(tmp_path: Path) -> None:
    (tmp_path / "12.s0123456789ABC").write_text(WHOLE)
    found = read_job_files(tmp_path, NOW)
    (file,) = found.files
    assert (file.job_id, file.sluid, file.uid, file.user, file.gpus) == ("12", "s0123456789ABC", 1000, "ann", (0, 2))
    assert file.work_dir == "/home/ann/x=y"
    assert file.start_unix_s == 1_700_000_000
    assert file.run == "s0123456789ABC"
    assert (found.present, found.torn, found.unreadable) == (True, 0, 0)


def test_without_a_sluid_a_run_is_told_by_its_start() -> None:
    file = parse_job_file("opsk-job 1\njob=12\nwhole\n", 1_700_000_007.5)
    assert file is not None
    assert file.run == "12@1700000007"


@given(st.integers(0, len(WHOLE) - 1))
def test_a_file_that_was_cut_anywhere_is_not_believed(length: int) -> None:
    assert parse_job_file(WHOLE[:length], NOW) is None


def test_what_a_killed_prolog_leaves_is_counted(tmp_path: Path) -> None:
    """A hidden file of now is being written; one of a minute ago is not. A cut one has its name only after a crash."""
    for name, text, age_s in ((".12.4711", WHOLE[:40], 60), (".13.4712", WHOLE[:40], 1), ("14", WHOLE[:40], 60)):
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, (NOW - age_s, NOW - age_s))
    found = read_job_files(tmp_path, NOW)
    assert (found.files, found.torn) == ((), 2)


def test_files_of_others_and_what_is_no_file_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "README").write_text("x")
    (tmp_path / "12").symlink_to("/etc/passwd")
    (tmp_path / "13").mkdir()
    os.mkfifo(tmp_path / "14")
    (tmp_path / "15").write_bytes(b"x" * 100_000)
    found = read_job_files(tmp_path, NOW)
    assert (found.files, found.torn, found.unreadable) == ((), 0, 4)


def test_no_folder_is_told_apart_from_an_empty_one(tmp_path: Path) -> None:
    assert read_job_files(tmp_path / "absent", NOW).present is False
    assert read_job_files(tmp_path, NOW).present is True


@given(st.text(max_size=100))
def test_no_value_is_too_strange(value: str) -> None:
    for name in ("gpus", "start", "uid", "restarts", "devices", "job"):
        found = parse_job_file(f"opsk-job 1\njob=1\n{name}={value}\nwhole\n", NOW)
        assert found is None or name == "job" or found.job_id == "1"


@given(st.text(st.characters(exclude_characters="\n", exclude_categories=("Cs",)), min_size=1, max_size=60))
def test_only_a_line_feed_ends_a_line(value: str) -> None:
    """Other characters that Python takes for line ends are a user's to choose."""
    for end in "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029":
        path = f"/x{value}{end}gpus=7{end}whole"
        file = parse_job_file(f"opsk-job 1\njob=1\nwork_dir={path}\nwhole\n", NOW)
        assert file is not None
        assert (file.gpus, file.work_dir) == ((), path)


def test_numbers_of_gpus() -> None:
    assert parse_gpu_numbers("0,2-4,7") == (0, 2, 3, 4, 7)
    assert parse_gpu_numbers("") == ()
    assert parse_gpu_numbers("GPU-1,x,3") == (3,)
    assert len(parse_gpu_numbers("0-999999999")) <= 1024


def test_jobs_of_two_clusters_are_told_apart(tmp_path: Path) -> None:
    node = Node(tmp_path)
    for cluster in ("east", "west"):
        node.note(12, [0], cluster=cluster)
    half_made = node.jobs / ".east.12.99"
    half_made.write_text("opsk-job 1\n")
    os.utime(half_made, (NOW, NOW))
    (node.jobs / "east.12.advice").write_text("opsk:v1 step_s=1\n")
    found = read_job_files(node.jobs, NOW + 60)
    assert (len(found.files), found.torn, found.unreadable) == (2, 1, 0)
    assert {str(file.key) for file in found.files} == {"job 12 of cluster east", "job 12 of cluster west"}
    assert {file.run for file in found.files} == {f"{cluster}.12@{int(node.clock())}" for cluster in ("east", "west")}
