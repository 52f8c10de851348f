"""How many jobs died lately, and of what: counted by one node, from the names of files, as any user."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from opsk.errors import OpskError
from opsk.postmortem.evidence.as_user import Person, read_as
from opsk.postmortem.evidence.mark_writer import MAX_MARK_AGE_S, mark_report
from opsk.postmortem.marks import CLASSES, count_marks
from opsk.postmortem.values import Cause, FailureClass, JobFacts, Place, Report
from opsk_exporters.core.collector import NoDataError
from opsk_exporters.jobs import reports
from opsk_exporters.jobs.reports import ReportsCollector
from opsk_exporters.slurm.election import Election

NOW_S = 1_763_770_000.0


def report(failure: FailureClass | None, ended_ago_s: float) -> Report:
    cause = Cause(failure=failure, what="x", where=Place(), confidence=0.9) if failure is not None else None
    return Report(state="FAILED", job=JobFacts(job_id="7", end_s=NOW_S - ended_ago_s), root=cause)


def collector(folder: Path | None, on: str = "here", host: str = "here") -> ReportsCollector:
    election = Election(on, host=lambda: host)
    return ReportsCollector(folder, election, lambda: (), deadline_s=60.0, now_unix_s=lambda: NOW_S)


def samples(folder: Path) -> dict[str, float]:
    made = collector(folder)
    try:
        return {
            sample.labels.get("class", sample.name): sample.value
            for metric in made.collect()
            for sample in metric.samples
        }
    finally:
        made.close()


def test_reports_of_the_last_day_are_counted_by_class(tmp_path: Path) -> None:
    for number, (failure, ago_s) in enumerate(
        ((FailureClass.NODE, 60.0), (FailureClass.NODE, 7200.0), (None, 10.0), (FailureClass.FABRIC, 2 * 86400.0)), 1
    ):
        mark_report(tmp_path, str(number), report(failure, ago_s), NOW_S)
    found = samples(tmp_path)
    last = found.pop("opsk_postmortem_last_end_timestamp_seconds")
    assert {name: value for name, value in found.items() if value} == {"node": 2, "none": 1}
    assert set(found) == set(CLASSES)
    assert last == NOW_S - 10.0


def test_a_report_that_is_made_anew_counts_once_and_in_its_last_class(tmp_path: Path) -> None:
    for failure in (None, FailureClass.SOFTWARE, FailureClass.GPU_HARDWARE, FailureClass.GPU_HARDWARE):
        mark_report(tmp_path, "7", report(failure, 60.0), NOW_S)
    counts = count_marks(tmp_path, since_s=0.0).counts
    assert {name: count for name, count in counts.items() if count} == {"gpu_hardware": 1}


def test_marks_of_long_ago_go(tmp_path: Path) -> None:
    mark_report(tmp_path, "7", report(None, 0.0), NOW_S)
    mark_report(tmp_path, "8", report(None, -MAX_MARK_AGE_S - 1.0), NOW_S + MAX_MARK_AGE_S + 1.0)
    assert sum(count_marks(tmp_path, since_s=0.0).counts.values()) == 1


def test_what_is_no_mark_is_not_counted(tmp_path: Path) -> None:
    mark_report(tmp_path, "7", report(FailureClass.NODE, 0.0), NOW_S)
    for name in ("x", "7@", "@9", "7@9.json", "99999999999@1", ".opsk-half"):
        (tmp_path / "classes" / "node" / name).touch()
    (tmp_path / "classes" / "made_up").mkdir()
    (tmp_path / "classes" / "made_up" / "7@1763769999").touch()
    assert sum(samples(tmp_path)[name] for name in CLASSES) == 1


@pytest.mark.parametrize(("folder", "on"), [(None, "here"), ("kept", "off"), ("kept", "elsewhere"), ("none", "here")])
def test_one_node_tells_and_only_where_there_is_something(tmp_path: Path, folder: str | None, on: str) -> None:
    (tmp_path / "kept").mkdir()
    made = collector(tmp_path / folder if folder is not None else None, on)
    with pytest.raises(NoDataError):
        made.collect()
    made.close()


def test_a_folder_without_reports_is_a_site_where_none_died(tmp_path: Path) -> None:
    assert {samples(tmp_path)[name] for name in CLASSES} == {0.0}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_the_exporters_user_need_only_pass_the_folder(passable_path: Path) -> None:
    passable_path.chmod(0o711)
    before = os.umask(0o077)
    try:
        mark_report(passable_path, "7", report(FailureClass.NODE, 0.0), NOW_S)
    finally:
        os.umask(before)
    said = read_as(Person(uid=54321), lambda: str(count_marks(passable_path, since_s=0.0).counts["node"]).encode())
    assert said == b"1"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a folder of another user")
def test_a_folder_that_somebody_else_put_there_is_not_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "classes").symlink_to(tmp_path / "elsewhere")
    os.chown(tmp_path / "classes", 54321, 54321, follow_symlinks=False)
    with pytest.raises(OSError, match="might"):
        mark_report(tmp_path, "7", report(None, 0.0), NOW_S)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_folder_that_may_not_be_passed_is_a_fault_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    monkeypatch.setattr(reports, "count_marks", refused)
    made = collector(tmp_path)
    with pytest.raises(OpskError, match="Permission denied"):
        made.collect()
    made.close()


def test_reports_of_other_clusters_in_a_shared_folder_do_not_count(tmp_path: Path) -> None:
    for name in ("east.7", "east.8", "west.7", "9"):
        mark_report(tmp_path, name, report(FailureClass.NODE, 60.0), NOW_S)
    counts = {name: count_marks(tmp_path, since_s=0.0, cluster=name).counts["node"] for name in ("east", "west", "")}
    assert counts == {"east": 3, "west": 2, "": 4}
    made = ReportsCollector(
        tmp_path, Election("here", host=lambda: "here"), lambda: (), cluster=lambda: "west", deadline_s=60.0,
        now_unix_s=lambda: NOW_S,
    )  # fmt: skip
    try:
        samples = [sample for metric in made.collect() for sample in metric.samples]
    finally:
        made.close()
    assert [sample.value for sample in samples if sample.labels.get("class") == "node"] == [2]
