"""What a launcher and opsk say to each other, through files that only the job's owner may have written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from opsk.errors import InputError
from opsk.job_key import JobKey
from opsk.remapping.decision import (
    Decision,
    LauncherReport,
    RankSlot,
    decision_file,
    launcher_report_file,
    read_decision,
    read_launcher_report,
    write_document,
)

ME = os.geteuid()
KEY = JobKey(cluster="east", job="7")
DECISION = Decision(id="7-x", job="7", hosts=("n1", "n1", "n0"), gpu_order=(("n1", "0,2"),))
SAID = LauncherReport(job="7", host="n0", pid=1, decision="", starts=1, ranks=(RankSlot(rank=0, node="n1", gpu=2),))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_document(decision_file(tmp_path, KEY), DECISION)
    write_document(launcher_report_file(tmp_path, KEY), SAID)
    assert read_decision(decision_file(tmp_path, KEY), owner=ME) == DECISION
    assert read_launcher_report(launcher_report_file(tmp_path, KEY), owner=ME) == SAID
    assert DECISION.nodes == ("n1", "n0")
    assert {path.name for path in tmp_path.iterdir()} == {"opsk-decision-east.7.json", "opsk-launch-east.7.json"}


def test_nothing_is_nothing(tmp_path: Path) -> None:
    assert read_decision(tmp_path / "nowhere", owner=ME) is None
    assert read_launcher_report(tmp_path / "nowhere", owner=ME) is None


def test_what_is_somebody_elses_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "decision"
    write_document(path, DECISION)
    with pytest.raises(InputError, match="not a file of the job's owner"):
        read_decision(path, owner=ME + 1)
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(InputError):
        read_decision(link, owner=ME)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError):
        read_decision(tmp_path / "pipe", owner=ME)
    assert read_launcher_report(link, owner=ME) is None


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("mine")
    path = tmp_path / "decision"
    path.symlink_to(target)
    write_document(path, DECISION)
    assert target.read_text() == "mine"
    assert not path.is_symlink()


@pytest.mark.parametrize(
    "document",
    [
        "", "[]", "{}", "[" * 9999, json.dumps({"id": "x", "job": "7", "hosts": []}),
        json.dumps({"id": "x", "job": "7", "hosts": ["n0;reboot"]}),
        json.dumps({"id": "x", "job": "7", "hosts": ["-x"]}),
        json.dumps({"id": "x", "job": "7", "hosts": ["n0"], "gpu_order": [["n0", "$(id)"]]}),
    ],
)  # fmt: skip
def test_what_is_no_decision_is_refused(tmp_path: Path, document: str) -> None:
    path = tmp_path / "decision"
    path.write_text(document)
    with pytest.raises(InputError):
        read_decision(path, owner=ME)


@pytest.mark.parametrize("job", ["", "..", "7/../../x", "7;x", "7_"])
def test_what_is_no_job_has_no_file(tmp_path: Path, job: str) -> None:
    with pytest.raises(InputError, match="not a job id"):
        decision_file(tmp_path, JobKey(cluster="east", job=job))


def test_jobs_of_two_clusters_in_one_folder_have_files_of_their_own(tmp_path: Path) -> None:
    west = JobKey(cluster="west", job="7")
    write_document(launcher_report_file(tmp_path, KEY), SAID)
    assert read_launcher_report(launcher_report_file(tmp_path, west), owner=ME) is None
    assert decision_file(tmp_path, KEY) != decision_file(tmp_path, west)


def test_what_opsk_0_1_wrote_names_no_cluster(tmp_path: Path) -> None:
    path = tmp_path / "decision"
    path.write_text(json.dumps({"id": "x", "job": "7", "hosts": ["n0"]}))
    found = read_decision(path, owner=ME)
    assert found is not None
    assert found.cluster == ""
