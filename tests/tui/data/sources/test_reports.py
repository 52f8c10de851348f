"""Are the reports that ``opsk postmortem`` keeps beside its evidence listed, and can they be read as text?"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.app.postmortem import explain_evidence, gather_job_evidence, write_report
from opsk.errors import InputError
from opsk.postmortem.logs import LogFile
from opsk_tui.data.sources.reports import ReportFolder, report_text

LOG = """\
[rank3]: Traceback (most recent call last):
[rank3]:   File "train.py", line 7, in <module>
[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.11 GiB
"""
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = ("job", "state", "root_cause", "alternatives", "timeline", "missing", "actions", "recurrence", "unreadable")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the report on a job that ran out of memory, written as the site writes it."""
    monkeypatch.setenv("OPSK_CONFIG", str(tmp_path / "opsk.toml"))
    (tmp_path / "opsk.toml").touch()
    log = tmp_path / "train.out"
    log.write_text(LOG, encoding="utf-8")
    report = explain_evidence(gather_job_evidence("", logs=[LogFile(path=log)]))
    (tmp_path / "kept" / "77").mkdir(parents=True)
    write_report(report, tmp_path / "kept" / "77")
    return tmp_path / "kept"


def test_a_report_is_listed_with_its_cause_and_opened_as_text(folder: Path) -> None:
    reports = ReportFolder(folder)
    assert not reports.is_report(str(folder / "77" / "report.json")), "before it was listed"
    (row,) = reports.reports()
    assert (row.job, row.kind) == ("77", "postmortem")
    assert row.title.startswith("gpu_memory: ")
    assert reports.is_report(row.path)
    text = reports.text(row.path)
    assert "cause   gpu_memory, " in text
    assert "CUDA out of memory" in text
    assert "rank 3" in text


def test_only_what_was_listed_is_opened(folder: Path, tmp_path: Path) -> None:
    reports = ReportFolder(folder)
    reports.reports()
    assert not reports.is_report(str(tmp_path / "opsk.toml"))
    assert not reports.is_report("/etc/passwd")
    (row,) = reports.reports()
    (folder / "77" / "report.json").unlink()
    with pytest.raises(InputError, match="No such file"):
        reports.text(row.path)
    (folder / "77" / "report.json").symlink_to("/etc/passwd")
    with pytest.raises(InputError):
        reports.text(row.path)


def test_what_was_listed_before_is_not_read_again_unless_it_is_another(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = ReportFolder(folder)
    first = reports.reports()
    path = folder / "77" / "report.json"
    written = path.stat().st_mtime
    read: list[object] = []
    loads = json.loads
    monkeypatch.setattr("opsk.postmortem.evidence.index.json.loads", lambda text: read.append(text) or loads(text))
    assert reports.reports() == first
    assert not read
    os.utime(path, (written + 5, written + 5))
    assert reports.reports()[0].made_at_s == pytest.approx(written + 5)
    assert len(read) == 1


def test_a_site_without_a_folder_has_none(tmp_path: Path) -> None:
    assert not ReportFolder(None).is_there
    assert ReportFolder(None).reports() == ()
    assert ReportFolder(tmp_path / "not there yet").reports() == ()


@given(st.dictionaries(st.sampled_from(KEYS), VALUES) | VALUES)
def test_whatever_is_kept_as_a_report_can_be_shown(said: object) -> None:
    assert isinstance(report_text(json.dumps(said)), str)


def test_what_is_no_post_mortem_is_shown_as_it_is() -> None:
    for content in ("# a report in Markdown", '{"rows": []}', "[1]", ""):
        assert report_text(content) == content


def test_reports_on_jobs_of_other_clusters_are_not_listed(folder: Path) -> None:
    """Several clusters keep their reports in one folder; opsk 0.1 kept one by the number alone."""
    for name in ("east.77", "west.77"):
        (folder / name).mkdir()
        (folder / name / "report.json").write_bytes((folder / "77" / "report.json").read_bytes())
    reports = ReportFolder(folder)
    listed = {
        cluster: {Path(row.path).parent.name for row in reports.reports(cluster)} for cluster in ("east", "west", "")
    }
    assert listed == {"east": {"east.77", "77"}, "west": {"west.77", "77"}, "": {"east.77", "west.77", "77"}}
    assert {row.job for row in reports.reports("east")} == {"77"}
