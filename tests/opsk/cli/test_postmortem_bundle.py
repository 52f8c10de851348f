"""What is handed on of a job: also of a task of an array, whose evidence lies under Slurm's own number of it."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from opsk.cli.postmortem.report import write_job_bundle
from opsk.postmortem.evidence.node_files import FORM
from opsk.postmortem.values import JobFacts, Report


@pytest.mark.parametrize(("label", "number", "nodes"), [("10_3", "77", 1), ("77", "77", 1), ("10_3", "", 0)])
def test_what_nodes_kept_is_found_by_the_jobs_own_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, label: str, number: str, nodes: int
) -> None:
    (tmp_path / "opsk.toml").write_text(f'[postmortem]\nfolder = "{tmp_path}/kept"\n')
    monkeypatch.setenv("OPSK_CONFIG", str(tmp_path / "opsk.toml"))
    (tmp_path / "kept" / "77").mkdir(parents=True)
    said = {"form": FORM, "node": "n1", "from_s": 900, "until_s": 2000, "note": {"uid": 987654}}
    (tmp_path / "kept" / "77" / "n1@1000.json").write_text(json.dumps(said))
    report = Report(state="FAILED", job=JobFacts(job_id=label, number=number, uid=987654, start_s=960, end_s=2000))
    write_job_bundle(tmp_path / "b.tar.gz", report, (), anonymous=True)
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        assert sum("/nodes/" in name for name in archive.getnames()) == nodes
        texts = [archive.extractfile(entry).read() for entry in archive]  # type: ignore[union-attr]
    assert not any(b"987654" in text for text in texts)
