"""``opsk postmortem`` beyond logs: kept evidence, dumps, the index, bundles, reports by itself."""

from __future__ import annotations

import json
import os
import pickle
import stat
import subprocess
import tarfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from opsk.postmortem.evidence.node_files import FORM
from opsk.store.database.engine import open_store
from opsk.store.records.failures import FailureSeen
from opsk.store.writing import DirectWriter
from tests.fakes.warm_opsk import warm

SACCT = r"""#!/usr/bin/python3
# Stands for sacct with one job, whose state is in the environment.
import os, sys
fields = "JobID JobIDRaw State ExitCode NodeList Start End User UID WorkDir StdOut".split()
if "-e" in sys.argv:
    print(" ".join(fields))
    sys.exit(0)
mark = next(word.partition("=")[2] for word in sys.argv if word.startswith("--delimiter="))
said = {"JobID": "77", "JobIDRaw": "77", "State": os.environ["STATE"], "ExitCode": "1:0", "NodeList": "n1",
        "Start": "1000", "End": "2000", "UID": str(os.getuid()), "WorkDir": os.environ["WORK"], "StdOut": "o-%j.txt"}
if sys.argv[-1] == "77":
    print("".join(said.get(field, "") + mark for field in sys.argv[sys.argv.index("-o") + 1].split(",")))
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site that keeps evidence of one job, with a sacct and nothing else of Slurm."""
    for name, text in (("sacct", SACCT), ("sinfo", "#!/bin/sh\nexit 0\n"), ("squeue", "#!/bin/sh\nexit 1\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin:/bin")
    monkeypatch.setenv("STATE", "FAILED")
    monkeypatch.setenv("WORK", str(tmp_path))
    (tmp_path / "opsk.toml").write_text(f'[postmortem]\nfolder = "{tmp_path}/kept"\nwait_s = 0\n')
    monkeypatch.setenv("OPSK_CONFIG", str(tmp_path / "opsk.toml"))
    monkeypatch.setenv("OPSK_SLURM_ADAPTER", "commands")
    (tmp_path / "o-77.txt").write_text("export HF_TOKEN=hf_0123456789abcdefghijABCD\nMemoryError: no\n")
    kernel = {"lines": ["3,1,1900000000,-;NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."], "problem": ""}
    (tmp_path / "kept" / "77").mkdir(parents=True)
    (tmp_path / "kept" / "77" / "n1@1000.json").write_text(
        json.dumps({"form": FORM, "node": "n1", "from_s": 900, "until_s": 2000, "boot_unix_s": 0.0, "kernel": kernel})
    )
    return tmp_path


def opsk(*words: str) -> subprocess.CompletedProcess[str]:
    return warm().run(["postmortem", *words], environment=os.environ, stdin="", timeout_s=60.0)


def answer(*words: str) -> dict[str, Any]:
    done = opsk(*words, "--json")
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_job_by_its_number(site: Path) -> None:
    report = answer("77")
    assert report["state"] == "FAILED"
    assert report["root_cause"]["class"] == "gpu_hardware"
    assert report["root_cause"]["place"]["node"] == "n1"
    (xid,) = [row for row in report["evidence"] if row["kind"] == "xid"]
    assert (xid["code"], xid["pci"], xid["origin"]) == (79, "0000:1b:00", "kernel")
    assert report["gathered"]["node_files"] == "1 of 1 nodes"


def test_a_job_that_nobody_knows_is_an_error(site: Path) -> None:
    done = opsk("88")
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "88" in done.stderr


def test_evidence_that_is_brought_along_needs_no_slurm(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    report = answer("--gathered", str(site / "kept" / "77"))
    assert report["root_cause"]["class"] == "gpu_hardware"


def test_dumps_alone(site: Path) -> None:
    for rank, done in enumerate((8, 8, 5)):
        entries = [{"collective_seq_id": done + 1, "state": "started", "profiling_name": "nccl:all_reduce",
                    "process_group": ("0", "default")}]  # fmt: skip
        status = {"0": {"last_enqueued_collective": done + 1, "last_completed_collective": done}}
        (site / f"trace_{rank}").write_bytes(pickle.dumps({"entries": entries, "pg_status": status}))
    words = [word for rank in range(3) for word in ("--flight-recorder", str(site / f"trace_{rank}"))]
    report = answer(*words)
    assert report["divergence"]["behind"] == [2]
    assert report["root_cause"]["class"] == "collective_hang"


def test_a_failed_job_is_reported_on_by_itself_and_listed(site: Path) -> None:
    assert opsk("77", "--automatic").returncode == 1
    assert json.loads((site / "kept" / "77" / "report.json").read_text())["root_cause"]["class"] == "gpu_hardware"
    assert "<html" in (site / "kept" / "77" / "report.html").read_text()
    (listed,) = answer("--list")["reports"]
    assert (listed["job"], listed["root_class"], listed["state"]) == ("77", "gpu_hardware", "FAILED")
    assert "gpu_hardware" in opsk("--list").stdout


def test_a_job_that_completed_has_no_report(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE", "COMPLETED")
    assert opsk("77", "--automatic").returncode == 0
    assert not (site / "kept" / "77" / "report.json").exists()


def test_a_bundle_has_report_and_evidence_and_no_secret(site: Path) -> None:
    (site / "kept" / "77" / "n1@1000.json").write_text(
        (site / "kept" / "77" / "n1@1000.json").read_text().replace('"node"', '"note": {"api_key": "zz9"}, "node"')
    )
    answer("77", "--bundle", str(site / "b.tar.gz"), "--anonymous")
    with tarfile.open(site / "b.tar.gz") as archive:
        texts = {entry.name: archive.extractfile(entry).read().decode() for entry in archive}  # type: ignore[union-attr]
    assert set(texts) == {f"postmortem/{name}" for name in
                          ("report.json", "report.md", "report.html", "nodes/1.json", "README.txt")}  # fmt: skip
    everything = "\n".join(texts.values())
    assert "hf_0123" not in everything
    assert "zz9" not in everything
    assert json.loads(texts["postmortem/report.json"])["root_cause"]["place"]["node"] == "node1"


def test_a_site_that_keeps_nothing_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "opsk.toml").write_text("")
    monkeypatch.setenv("OPSK_CONFIG", str(tmp_path / "opsk.toml"))
    done = opsk("--list")
    assert done.returncode == 2
    assert "keeps no reports" in done.stderr


def test_what_is_to_be_done_is_forgotten_once_the_report_is_kept(site: Path) -> None:
    note = site / "77@1000"
    note.touch()
    (site / "store").write_text("in the place of a folder")
    with (site / "opsk.toml").open("a") as config:
        config.write(f'[store]\nurl = "sqlite:///{site}/store/opsk.db"\n')
    done = opsk("77", "--automatic", "--note", str(note))
    assert "the report is not in the store" in done.stderr
    assert note.exists()
    (site / "store").unlink()
    assert opsk("77", "--automatic", "--note", str(note)).returncode == 1
    assert not note.exists()


def test_there_is_nothing_to_do_about_a_job_that_did_well(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = site / "77@1000"
    note.touch()
    monkeypatch.setenv("STATE", "COMPLETED")
    assert opsk("77", "--automatic", "--note", str(note)).returncode == 0
    assert not note.exists()


def test_each_cluster_has_a_report_on_its_job_of_this_number(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector tells whose job it is, as the job's prolog knew."""
    for cluster in ("east", "west"):
        monkeypatch.setenv("SLURM_CLUSTER_NAME", cluster)
        assert opsk("77", "--automatic").returncode == 1
    kept = site / "kept"
    assert sorted(path.parent.name for path in kept.glob("*/report.json")) == ["east.77", "west.77"]
    assert json.loads((kept / "west.77" / "report.json").read_text())["job"]["cluster"] == "west"
    listed = answer("--list")
    assert [(entry["job"], entry["cluster"]) for entry in listed["reports"]] == [("77", "west")]
    assert listed["other_clusters"] == 1
    assert "1 of other clusters: see opsk postmortem --list --all-clusters" in opsk("--list").stdout
    assert {entry["cluster"] for entry in answer("--list", "--all-clusters")["reports"]} == {"east", "west"}
    assert "east.77" in opsk("--list", "--all-clusters").stdout


def test_failures_of_another_clusters_node_of_this_name_are_not_this_ones(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site / "opsk.toml").write_text(f'{(site / "opsk.toml").read_text()}[store]\nurl = "sqlite:///{site}/opsk.db"\n')
    monkeypatch.setenv("STATE", "FAILED")
    seen = FailureSeen(
        cluster="west", at=datetime.fromtimestamp(500, UTC), failure="gpu_hardware", what="node:n1",
        source="postmortem", node="n1", job="12", document={"user": "bob"},
    )  # fmt: skip
    DirectWriter(open_store(f"sqlite:///{site}/opsk.db")).write([seen, replace(seen, job="13", at=seen.at)])
    earlier = {}
    for cluster in ("east", "west"):
        monkeypatch.setenv("SLURM_CLUSTER_NAME", cluster)
        earlier[cluster] = [each["failures"] for each in answer("77")["recurrence"]]
    assert earlier == {"east": [], "west": [3]}, "two of before, and this one"
