"""May a user who reaches the folder of evidence first write what root believes, or have root write where he wants?

The folder of a site is often on shared storage, and the number of the next job is easily guessed: here everybody may
make folders in it, as in /tmp, and a user has been there before the node.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from opsk.app.postmortem import write_report
from opsk.errors import InputError
from opsk.job_key import JobKey
from opsk.postmortem.evidence.index import list_entries
from opsk.postmortem.evidence.node_files import FORM, job_folder, read_node_files, write_atomically
from opsk.postmortem.values import Report

USER = 65534
FORGED = json.dumps(
    {"form": FORM, "job": "4711", "node": "n07", "kernel": {"lines": ["NVRM: Xid (PCI:0000:1b:00): 79"]}}
)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make files of another user")


@pytest.fixture
def top(tmp_path: Path) -> Path:
    folder = tmp_path / "evidence"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def given(path: Path) -> Path:
    os.chown(path, USER, USER, follow_symlinks=False)
    return path


def test_a_link_in_place_of_a_jobs_folder_leads_root_nowhere(top: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "cron.d"
    elsewhere.mkdir()
    (top / "4711").symlink_to(elsewhere)
    given(top / "4711")
    with pytest.raises(OSError, match="might"):
        write_atomically(job_folder(top, JobKey(job="4711")) / "n07@0.json", "{}")
    assert list(elsewhere.iterdir()) == []


def test_a_folder_that_the_user_made_first_gets_no_evidence(top: Path) -> None:
    (top / "4711").mkdir()
    given(top / "4711")
    with pytest.raises(OSError, match="might"):
        write_atomically(job_folder(top, JobKey(job="4711")) / "n07@0.json", "{}")
    assert list((top / "4711").iterdir()) == []


def test_evidence_in_a_folder_that_the_user_made_is_not_believed(top: Path) -> None:
    (top / "4711").mkdir()
    (top / "4711" / "n07@0.json").write_text(FORGED, encoding="utf-8")
    (top / "4711" / "n07@0.json").chmod(0o640)
    given(given(top / "4711") / "n07@0.json")
    found = read_node_files([top / "4711"])
    assert found.files == ()
    assert "might" in found.unreadable[0]


def test_the_same_in_a_folder_that_only_the_site_writes_is_believed(top: Path) -> None:
    # Root of the nodes may be nobody on the storage: whoever owns the folder there is who keeps evidence.
    top.chmod(0o755)
    (top / "4711").mkdir()
    (top / "4711" / "n07@0.json").write_text(FORGED, encoding="utf-8")
    (top / "4711" / "n07@0.json").chmod(0o640)
    given(given(top / "4711") / "n07@0.json")
    assert len(read_node_files([top / "4711"]).files) == 1


def test_where_everybody_may_rename_folders_nothing_is_written(top: Path) -> None:
    top.chmod(0o777)
    with pytest.raises(OSError, match="might"):
        write_atomically(job_folder(top, JobKey(job="4711")) / "n07@0.json", "{}")


def test_root_writes_where_everybody_may_make_folders_and_it_made_this_one(top: Path) -> None:
    write_atomically(job_folder(top, JobKey(job="4711")) / "n07@0.json", FORGED)
    assert len(read_node_files([top / "4711"]).files) == 1
    assert (top / "4711").stat().st_mode & 0o777 == 0o750


def test_a_report_is_not_written_through_a_link_either(top: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (top / "4711").symlink_to(tmp_path / "elsewhere")
    given(top / "4711")
    with pytest.raises(InputError, match="might"):
        write_report(Report(state="ended well"), top / "4711")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_report_that_the_user_put_there_is_not_listed(top: Path) -> None:
    (top / "4711").mkdir()
    (top / "4711" / "report.json").write_text('{"root_cause": {"what": "drain n07"}}', encoding="utf-8")
    given(top / "4711")
    found, problems = list_entries(top)
    assert found == ()
    assert "might" in problems[0]
