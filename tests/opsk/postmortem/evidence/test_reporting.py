"""A report is written whatever is killed or full on its way, and by one node."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from opsk.postmortem.evidence.collector import MAX_REPORTS, Collector, NodePaths
from opsk.postmortem.evidence.reporting import GIVEN_UP_AFTER_S, RETRY_AFTER_S, DueReport, claim_report, remove_note
from opsk.telemetry.jobs.job_files import JobFile, parse_job_file
from tests.fakes.gpus import reading

NOTE = "opsk-job 1\njob=77\nnode=n3\nuid={uid}\nstart={start}\nwhole\n"
START = 1000


@pytest.fixture
def paths(tmp_path: Path) -> NodePaths:
    for name in ("spool/ended", "jobs", "sys/class"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "kmsg").write_text("")
    return NodePaths(
        folder=tmp_path / "evidence", spool=tmp_path / "spool", jobs_folder=tmp_path / "jobs",
        kernel_log=tmp_path / "kmsg", sysfs=tmp_path / "sys", cgroups=tmp_path / "none", dumps=(),
    )  # fmt: skip


def ends(paths: NodePaths, start: int = START) -> JobFile:
    """Let the job end on this node."""
    path = paths.spool / "ended" / "77"
    path.write_text(NOTE.format(uid=os.getuid(), start=start))
    note = parse_job_file(path.read_text(), path.stat().st_mtime)
    assert note is not None
    return note


def begun(paths: NodePaths) -> list[DueReport]:
    """Collect once; return the reports that were begun, each by somebody who dies at once."""
    found: list[DueReport] = []
    Collector(paths, gpus=lambda: reading()).collect(report=found.append)
    return found


def waits(paths: NodePaths, seconds: float) -> None:
    """Let time go by since reports were begun."""
    for mark in (paths.spool / "reports").glob(".*.tried"):
        os.utime(mark, (mark.stat().st_atime, mark.stat().st_mtime - seconds))


def left(paths: NodePaths) -> list[str]:
    return sorted(entry.name for entry in (paths.spool / "reports").iterdir())


def test_a_report_is_begun_when_the_evidence_is_kept(paths: NodePaths) -> None:
    ends(paths)
    (one,) = begun(paths)
    assert (one.note.job_id, one.path.read_text().startswith("opsk-job 1")) == ("77", True)
    assert list((paths.folder / "77").glob("n3@*.json"))
    assert list((paths.spool / "ended").iterdir()) == []


def test_a_report_whose_writer_was_killed_is_begun_again_after_a_while(paths: NodePaths) -> None:
    ends(paths)
    assert len(begun(paths)) == 1
    assert begun(paths) == []
    waits(paths, RETRY_AFTER_S + 1)
    assert len(begun(paths)) == 1


def test_a_report_that_is_written_is_not_begun_again(paths: NodePaths) -> None:
    ends(paths)
    (one,) = begun(paths)
    remove_note(one.path)
    assert left(paths) == []
    assert begun(paths) == []


def test_a_report_that_is_being_written_is_not_begun_a_second_time(paths: NodePaths) -> None:
    ends(paths)
    held: list[int] = []

    def writes(one: DueReport) -> None:
        held.append(os.dup(one.handle))  # as a process that inherits it

    Collector(paths, gpus=lambda: reading()).collect(report=writes)
    waits(paths, RETRY_AFTER_S + 1)
    assert begun(paths) == []
    os.close(held[0])
    assert len(begun(paths)) == 1


def test_a_collector_that_was_killed_between_evidence_and_report_leaves_it_to_the_next(paths: NodePaths) -> None:
    ends(paths)

    def dies(_: DueReport) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Collector(paths, gpus=lambda: reading()).collect(report=dies)
    waits(paths, RETRY_AFTER_S + 1)
    assert len(begun(paths)) == 1


def test_a_folder_that_takes_nothing_is_told_and_tried_again(paths: NodePaths) -> None:
    ends(paths)
    Collector(paths, gpus=lambda: reading()).collect(report=lambda _: None)
    waits(paths, RETRY_AFTER_S + 1)
    shutil.rmtree(paths.folder)
    paths.folder.write_text("in its place")
    found: list[DueReport] = []
    done = Collector(paths, gpus=lambda: reading()).collect(report=found.append)
    assert (found, len(done.problems)) == ([], 1)
    assert "no report" in done.problems[0]
    paths.folder.unlink()
    assert len(begun(paths)) == 1


def test_the_first_node_that_asks_reports_and_the_others_forget_it(paths: NodePaths) -> None:
    note = ends(paths)
    assert [claim_report(paths.folder, replace(note, node=node)) for node in ("n1", "n3", "n1")] == [True, False, True]
    assert begun(paths) == []
    assert left(paths) == []


def test_each_run_of_a_requeued_job_has_a_report_of_its_own(paths: NodePaths) -> None:
    for start in (START, 2 * START):
        ends(paths, start)
        assert len(begun(paths)) == 1
    assert len([name for name in left(paths) if not name.startswith(".")]) == 2


def test_a_report_that_cannot_be_written_is_given_up_after_days(paths: NodePaths) -> None:
    ends(paths)
    (one,) = begun(paths)
    long_ago = one.path.stat().st_mtime - GIVEN_UP_AFTER_S - 10
    os.utime(one.path, (long_ago, long_ago))
    waits(paths, RETRY_AFTER_S + 1)
    assert begun(paths) == []
    assert left(paths) == []


def test_many_reports_that_were_left_are_begun_some_at_a_time(paths: NodePaths) -> None:
    """As after a night without the store; those begun before are still being written, or were given up."""
    for start in range(START, START + MAX_REPORTS + 3):
        ends(paths, start)
        Collector(paths, gpus=lambda: reading()).collect(report=lambda _: None)
    waits(paths, RETRY_AFTER_S + 1)
    assert [len(begun(paths)) for _ in range(3)] == [MAX_REPORTS, 3, 0]


def test_a_site_without_automatic_reports_keeps_no_notes(paths: NodePaths) -> None:
    ends(paths)
    assert Collector(paths, gpus=lambda: reading()).collect().ended == ["77"]
    assert left(paths) == []


def test_each_cluster_has_a_node_that_reports_on_its_job_of_this_number(paths: NodePaths) -> None:
    note = ends(paths)
    east, west = replace(note, cluster="east", node="e0"), replace(note, cluster="west", node="w0")
    assert claim_report(paths.folder, east)
    assert claim_report(paths.folder, west)
    assert not claim_report(paths.folder, replace(east, node="e1"))
