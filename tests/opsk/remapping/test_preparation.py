"""The launcher of a job is found by cluster and job, in a folder where a job of another cluster may run as well."""

from __future__ import annotations

import getpass
from dataclasses import replace
from pathlib import Path

import pytest

from opsk.job_key import JobKey
from opsk.remapping.decision import LauncherReport, launcher_report_file, write_document
from opsk.remapping.preparation import find_launcher
from opsk.slurm.records import JobRecord

SAID = LauncherReport(job="7", host="n0.example.org", pid=1, decision="", starts=1, ranks=(), cluster="east")


@pytest.fixture
def job(tmp_path: Path) -> JobRecord:
    return JobRecord(
        id=7, label="7", user=getpass.getuser(), name="train", state="RUNNING", nodes=("n0", "n1"),
        work_dir=str(tmp_path),
    )  # fmt: skip


def test_each_cluster_has_a_launcher_of_its_own(job: JobRecord, tmp_path: Path) -> None:
    write_document(launcher_report_file(tmp_path, JobKey(cluster="east", job="7")), SAID)
    found = find_launcher(job, "east")
    assert found is not None
    assert found.files["decision"] == tmp_path / "opsk-decision-east.7.json"
    assert find_launcher(job, "west") is None


def test_a_launcher_of_opsk_0_1_is_spoken_to_where_it_runs_on_the_jobs_nodes(job: JobRecord, tmp_path: Path) -> None:
    write_document(launcher_report_file(tmp_path, JobKey(job="7")), replace(SAID, cluster=""))
    found = find_launcher(job, "east")
    assert found is not None
    assert found.files["decision"] == tmp_path / "opsk-decision-7.json"
    assert find_launcher(replace(job, nodes=("w0", "w1")), "west") is None
