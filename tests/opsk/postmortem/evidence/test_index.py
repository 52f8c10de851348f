"""A user reads the report on his own job, nobody else's, and nothing else that root keeps: tried by children of his."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from opsk.app.postmortem import write_report
from opsk.postmortem.evidence.as_user import Person, read_as
from opsk.postmortem.evidence.gathering import EvidenceSources, gather_job
from opsk.postmortem.evidence.index import find_user_copy, list_entries, redact_for_owner, write_user_copies
from opsk.postmortem.evidence.node_files import write_atomically
from opsk.postmortem.logs import LogFile
from opsk.postmortem.values import Evidence, Finding, JobFacts, Moment, Origin, Report, Role

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files away and to become users")
ADA, BOB = Person(uid=54321), Person(uid=54322)


@pytest.fixture
def top(passable_path: Path) -> Path:
    """A folder of reports that everybody may list, below folders that everybody may pass."""
    (passable_path / "kept").mkdir(mode=0o755)
    return passable_path / "kept"


def report(number: str, person: Person) -> Report:
    return Report(state="FAILED", job=JobFacts(job_id=number, number=number, user="", uid=person.uid))


def as_user(person: Person, work: Callable[[], object]) -> str:
    """Return what a user's child gets, or the name of its error."""

    def tried() -> bytes:
        try:
            return str(work()).encode()
        except OSError as error:
            return type(error).__name__.encode()

    return read_as(person, tried).decode()


def test_each_reads_the_report_on_his_own_job(top: Path) -> None:
    write_report(report("71", ADA), top / "71")
    write_report(report("72", BOB), top / "72")
    write_atomically(top / "71" / "n1@1000.json", "{}")
    for person, own, other in ((ADA, "71", "72"), (BOB, "72", "71")):
        for name in ("own-report.json", "own-report.html"):
            assert '"FAILED"' in as_user(person, (top / own / name).read_text) or name.endswith("html")
            assert as_user(person, (top / other / name).read_text) == "PermissionError"
            assert (top / own / name).stat().st_mode & 0o777 == 0o400
    for name in ("report.json", "report.html", "n1@1000.json"):
        assert as_user(ADA, (top / "71" / name).read_text) == "PermissionError"
    assert as_user(ADA, lambda: list((top / "71").iterdir())) == "PermissionError"
    assert as_user(ADA, lambda: (top / "71" / "new").write_text("x")) == "PermissionError"
    assert as_user(ADA, lambda: (top / "71" / "own-report.json").unlink()) == "PermissionError"


def test_the_index_shows_each_his_own(top: Path) -> None:
    write_report(report("71", ADA), top / "71")
    write_report(report("72", BOB), top / "72")
    shown = as_user(ADA, lambda: [[entry.job for entry in list_entries(top)[0]], list_entries(top)[1]])
    assert shown == "[['71'], ()]"
    assert {entry.job for entry in list_entries(top)[0]} == {"71", "72"}


def test_those_of_others_do_not_count_for_how_many_a_user_is_shown(top: Path) -> None:
    for number in ("71", "72", "73"):
        write_report(report(number, ADA if number == "71" else BOB), top / number)
    assert as_user(ADA, lambda: [entry.job for entry in list_entries(top, limit=1)[0]]) == "['71']"


def test_a_user_who_may_not_read_what_nodes_kept_is_told_of_his_copy(top: Path) -> None:
    write_report(report("71", ADA), top / "71")
    write_atomically(top / "71" / "n1@1000.json", "{}")
    asked = EvidenceSources(job_id="71", folder=top, logs=(LogFile(path=top / "no.log"),))
    told = as_user(ADA, lambda: gather_job(asked).unreadable)
    assert f"the report of when the job ended has it: {top}/71/own-report.html" in told
    assert "own-report" not in as_user(BOB, lambda: gather_job(asked).unreadable)


def test_what_a_user_does_to_his_copy_is_not_what_others_read(top: Path) -> None:
    write_report(report("71", ADA), top / "71")
    copy = top / "71" / "own-report.json"
    forged = '{"state": "x", "root_cause": null}'
    assert as_user(ADA, lambda: copy.chmod(0o600)) == "None"
    assert as_user(ADA, lambda: copy.write_text(forged)) == str(len(forged))
    ((entry,), _) = list_entries(top)
    assert entry.state == "FAILED"
    write_report(report("71", ADA), top / "71")
    assert '"FAILED"' in as_user(ADA, copy.read_text)


def test_no_link_leads_root_elsewhere(top: Path, tmp_path: Path) -> None:
    """Should a link ever stand in place of a copy, it is replaced, and what it points to is nobody's gift."""
    target = tmp_path / "shadow"
    target.write_text("secret")
    (top / "71").mkdir(mode=0o750)
    (top / "71" / "own-report.json").symlink_to(target)
    (top / "71" / "own-report.html").hardlink_to(target)
    write_report(report("71", ADA), top / "71")
    assert (target.read_text(), target.stat().st_uid) == ("secret", 0)
    assert not (top / "71" / "own-report.json").is_symlink()
    assert (top / "71" / "own-report.json").stat().st_uid == ADA.uid


def test_a_link_in_place_of_the_jobs_folder_is_not_opened(top: Path, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir(mode=0o700)
    (top / "71").symlink_to(tmp_path / "private")
    with pytest.raises(OSError, match=r"directory|link"):
        write_user_copies(top / "71", ADA.uid, {})
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o700


def test_where_nothing_can_be_given_away_the_report_is_kept_all_the_same(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []

    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", refused)
    write_report(report("71", ADA), top / "71", messages.append)
    assert (top / "71" / "report.json").exists()
    assert find_user_copy(top / "71", "report.json") is None
    assert "the job's user has no copy" in messages[0]


@pytest.mark.parametrize("person", [Person(uid=0), None])
def test_roots_own_jobs_and_those_of_nobody_known_have_no_copy(top: Path, person: Person | None) -> None:
    said = Report(state="FAILED", job=JobFacts(job_id="71", uid=person.uid if person is not None else None))
    write_report(said, top / "71")
    assert sorted(path.name for path in (top / "71").iterdir()) == ["report.html", "report.json"]
    assert (top / "71").stat().st_mode & 0o777 == 0o750


def test_what_the_kernel_said_of_other_jobs_is_not_in_a_users_copy() -> None:
    own = Finding(signature="kernel.xid", role=Role.ROOT, origin=Origin.KERNEL, text="own")
    others = Finding(signature="kernel.xid", role=Role.ADVICE, origin=Origin.KERNEL, text="of another")
    advice = Finding(signature="torch.hint", role=Role.ADVICE, origin=Origin.JOB_LOG, text="hint")
    moments = (
        Moment(time_s=1.0, what="x", finding=others),
        Moment(time_s=2.0, what="y", finding=own),
        Moment(time_s=3.0, what="z"),
    )
    said = redact_for_owner(Report(state="FAILED", timeline=moments, evidence=Evidence(findings=(own, others, advice))))
    assert [finding.text for finding in said.evidence.findings] == ["own", "hint"]
    assert [moment.what for moment in said.timeline] == ["y", "z"]
