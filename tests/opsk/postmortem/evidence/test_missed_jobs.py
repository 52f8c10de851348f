"""Jobs that ended with all their nodes have a report in the end: each one, once, and never too many at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from opsk.errors import InputError, SlurmError
from opsk.job_key import JobKey
from opsk.postmortem.evidence import missed_jobs as missed
from opsk.postmortem.evidence.missed_jobs import GRACE_S, MAX_REPORTS, SCAN_INTERVAL_S, report_missed
from opsk.postmortem.evidence.node_files import job_folder
from opsk.slurm.commands.accounting import AccountedRun, AccountingClient

NOW_S = 1_800_000_000.0


class Accounting(AccountingClient):
    """Answers with runs that ended within the time that is asked for."""

    def __init__(self, *runs: AccountedRun) -> None:
        super().__init__(environment={})
        self.all, self.asked, self.problem = list(runs), [], None  # type: ignore[var-annotated]

    def list_ended(self, states: Sequence[str], from_s: float, until_s: float) -> tuple[AccountedRun, ...]:
        if self.problem is not None:
            raise self.problem
        self.asked.append((from_s, until_s))
        return tuple(run for run in self.all if run.state in states and from_s <= (run.end_s or 0.0) <= until_s)


def run(number: int, ago_s: float, **more: object) -> AccountedRun:
    told = {"state": "NODE_FAIL", "nodes": ("n1",), "end_s": NOW_S - ago_s} | more
    return AccountedRun(id=number, label=str(number), **told)  # type: ignore[arg-type]


class Site:
    """A folder of reports and a spool, at a time that passes when it is told to."""

    def __init__(self, top: Path, *runs: AccountedRun) -> None:
        self.folder, self.spool, self.accounting = top / "kept", top / "spool", Accounting(*runs)
        self.now_s, self.written, self.took_s = NOW_S, [], 0.0  # type: ignore[var-annotated]
        self.broken: set[str] = set()

    def report(self, key: JobKey) -> None:
        self.now_s += self.took_s
        if key.job in self.broken:
            raise InputError("no room")
        self.written.append(key.job)
        folder = job_folder(self.folder, key)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.json").write_text("{}")
        os.utime(folder / "report.json", (self.now_s, self.now_s))

    def look(self, later_s: float = 0.0, cluster: str = "") -> missed.ScanResult:
        self.now_s += later_s
        return report_missed(
            self.folder, self.spool, self.accounting, self.report, clock=lambda: self.now_s, cluster=cluster
        )


def test_a_job_without_a_report_gets_one_and_only_one(tmp_path: Path) -> None:
    site = Site(tmp_path, run(7, 2 * GRACE_S))
    assert site.look().reported == ["7"]
    assert site.look(later_s=2 * SCAN_INTERVAL_S).reported == []
    assert site.written == ["7"]


def test_nodes_that_live_have_time_to_report_themselves(tmp_path: Path) -> None:
    site = Site(tmp_path, run(7, GRACE_S / 2))
    assert site.look().reported == []
    assert site.look(later_s=GRACE_S).reported == ["7"]


def test_what_a_node_has_reported_on_is_not_reported_on_again(tmp_path: Path) -> None:
    site = Site(tmp_path, run(7, 2 * GRACE_S))
    site.report(JobKey(job="7"))
    assert site.look().reported == []


def test_an_earlier_run_of_the_job_is_no_report_on_this_one(tmp_path: Path) -> None:
    site = Site(tmp_path, run(7, 2 * GRACE_S))
    site.report(JobKey(job="7"))
    os.utime(site.folder / "7" / "report.json", (NOW_S - 9 * GRACE_S,) * 2)
    assert site.look().reported == ["7"]


@pytest.mark.parametrize("more", [{"nodes": ()}, {"end_s": None}, {"state": "FAILED"}])
def test_what_did_not_end_with_its_nodes_is_none_of_it(tmp_path: Path, more: dict[str, object]) -> None:
    assert Site(tmp_path, run(7, 2 * GRACE_S, **more)).look().reported == []


def test_it_asks_seldom_and_from_where_it_was(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.look()
    assert not site.look(later_s=1.0).due
    site.look(later_s=4 * missed.OVERLAP_S)
    first, second = site.accounting.asked
    assert first == (NOW_S - missed.MAX_LOOKBACK_S, NOW_S - GRACE_S)
    assert second[0] == NOW_S - GRACE_S - missed.OVERLAP_S


def test_many_are_done_a_few_at_a_time_and_none_is_forgotten(tmp_path: Path) -> None:
    """A machine room without power: more jobs than one look reports on, over a longer time than looks overlap."""
    count = 2 * MAX_REPORTS + 5
    site = Site(tmp_path, *(run(number, 80_000.0 - 900.0 * number) for number in range(1, count + 1)))
    looks = [site.look(later_s=SCAN_INTERVAL_S) for _ in range(4)]
    assert [len(each.reported) for each in looks] == [MAX_REPORTS, MAX_REPORTS, 5, 0]
    assert looks[0].left == MAX_REPORTS + 5
    assert sorted(map(int, site.written)) == list(range(1, count + 1))


def test_slow_reports_leave_the_others_for_the_next_time(tmp_path: Path) -> None:
    site = Site(tmp_path, *(run(number, 50_000.0 - number) for number in range(6)))
    site.took_s = 0.6 * missed.MAX_SCAN_S
    assert len(site.look().reported) == 2
    assert missed.format_messages(Site(tmp_path / "other").look()) == []


def test_one_that_cannot_be_written_keeps_no_other_from_it_and_is_tried_again(tmp_path: Path) -> None:
    site = Site(tmp_path, run(7, 2 * GRACE_S), run(8, 2 * GRACE_S))
    site.broken = {"7"}
    done = site.look()
    assert (done.reported, done.problems) == (["8"], ["job 7: no room"])
    site.broken = set()
    assert site.look(later_s=SCAN_INTERVAL_S).reported == ["7"]


def test_an_accounting_that_does_not_answer_is_asked_for_the_same_time_again(tmp_path: Path) -> None:
    site = Site(tmp_path, run(7, 2 * GRACE_S))
    site.accounting.problem = SlurmError("slurmdbd is away")  # type: ignore[assignment]
    with pytest.raises(SlurmError):
        site.look()
    site.accounting.problem = None
    assert site.look(later_s=1.0).reported == ["7"]


def test_two_looks_at_once_are_one(tmp_path: Path) -> None:
    site = Site(tmp_path, run(7, 2 * GRACE_S))

    def again(key: JobKey) -> None:
        with pytest.raises(InputError, match="goes on"):
            report_missed(site.folder, site.spool, site.accounting, site.report)
        site.report(key)

    report_missed(site.folder, site.spool, site.accounting, again, clock=lambda: NOW_S)
    assert site.written == ["7"]


@pytest.mark.parametrize("text", ["", "[]", '{"at_s": "x", "until_s": 1}', "{"])
def test_what_is_written_down_may_be_damaged(tmp_path: Path, text: str) -> None:
    site = Site(tmp_path, run(7, 2 * GRACE_S))
    site.spool.mkdir()
    (site.spool / "missed.json").write_text(text)
    assert site.look().reported == ["7"]
    assert set(json.loads((site.spool / "missed.json").read_text())) == {"at_s", "until_s"}


def test_a_job_of_another_cluster_is_no_report_on_this_one(tmp_path: Path) -> None:
    """One host looks for two clusters, which keep their reports in one folder."""
    east = Site(tmp_path, run(7, 2 * GRACE_S, cluster="east"))
    assert east.look(cluster="east").reported == ["7"]
    west = Site(tmp_path, run(7, 2 * GRACE_S, cluster="west"))
    looked = west.look(cluster="west")
    assert (looked.due, looked.reported) == (True, ["7"]), "how far the look at east came says nothing of west"
    assert sorted(path.name for path in east.folder.iterdir()) == ["east.7", "west.7"]
    assert not west.look(later_s=1.0, cluster="west").due


def test_what_opsk_0_1_has_reported_on_is_not_reported_on_again(tmp_path: Path) -> None:
    site = Site(tmp_path, run(7, 2 * GRACE_S, cluster="east"))
    site.report(JobKey(job="7"))
    assert site.look(cluster="east").reported == []
