"""``opsk place --running``: sixteen nodes in four units and four storage servers; every leaf has one cable up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from opsk.cli.main import opsk
from opsk.cli.place import command as place_module
from opsk.errors import SlurmError
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.render import render_ibnetdiscover
from opsk.slurm.records import JobRecord, NodeRecord
from opsk.workload.advice_record import AdviceRecord, Verdict

PLAN = """
gpus_per_node = 8
[model]
name = "m"
layers = 80
hidden = 8192
ffn = 28672
heads = 64
kv_heads = 8
vocab = 128256
seq = 8192
[plan]
tp = 8
dp = 2
global_batch = 8
"""
RECORD = AdviceRecord(
    verdict=Verdict.FITS, step_s=20.0, tokens_per_s_per_gpu=800.0, tflops=400.0, tp=8, pp=1, dp=2
).render()
NAMES = [*(f"n{number}" for number in range(16)), *(f"oss{number}" for number in range(4))]
FABRIC = rail_optimized_fabric(nodes=20, hcas=8, leaves=40, spines=1, names=NAMES)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    (tmp_path / "plan.toml").write_text(PLAN)
    (tmp_path / "fabric.ib").write_text(render_ibnetdiscover(FABRIC))
    (tmp_path / "opsk.toml").write_text("")
    monkeypatch.setenv("OPSK_CONFIG", str(tmp_path / "opsk.toml"))
    return [str(tmp_path / "plan.toml"), "--fabric", str(tmp_path / "fabric.ib"), "--nodes", "n[0,4]"]


class FakeSlurm:
    """Stands for a cluster with these jobs; every node is up."""

    def __init__(self, *jobs: JobRecord) -> None:
        self._jobs = jobs

    def jobs(self, *, details: bool = False, finished: bool = False) -> tuple[JobRecord, ...]:
        assert details
        assert not finished
        return self._jobs

    def job(self, job_id: str) -> JobRecord:
        return next(job for job in self._jobs if job.label == job_id)

    def nodes(self) -> tuple[NodeRecord, ...]:
        return tuple(NodeRecord(name=name, state="IDLE") for name in NAMES)

    def release(self) -> tuple[int, int]:
        return (24, 11)


def job(number: int, *nodes: str, **changes: Any) -> JobRecord:
    values: dict[str, Any] = {
        "id": number, "label": str(number), "user": "eve", "name": "train", "state": "RUNNING", "nodes": nodes,
        "gpus": 8 * len(nodes), "gpus_per_node": 8, "node_count": len(nodes), "admin_comment": RECORD,
    }  # fmt: skip
    return JobRecord(**(values | changes))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(opsk, ["place", *arguments])


def answer(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exception is None, result.output
    found = json.loads(result.stdout)["interference"]
    assert isinstance(found, dict)
    return found


def use(monkeypatch: pytest.MonkeyPatch, *jobs: JobRecord) -> None:
    monkeypatch.setattr(place_module, "slurm_client", lambda: FakeSlurm(*jobs))


def test_without_the_flags_nobody_is_asked(files: list[str]) -> None:
    result = run(*files, "--json")
    assert "interference" not in json.loads(result.stdout)


def test_json_has_the_keys_that_programs_rely_on(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, job(1, "n1", "n5"), job(2, "n8", "n9"))
    found = answer(*files, "--running")
    assert found.keys() >= {"shared_links", "jobs", "storage", "predicted", "best_nodes", "worst_nodes", "assumed"}
    (other,) = found["jobs"]
    assert (other["job"], other["user"], other["kind"], other["shared_links"]) == ("1", "eve", "plan", 32)
    assert other["slowdown_of_candidate"] > 0
    assert other["slowdown_of_job"] > 0
    assert found["predicted"]["step_s"] > found["predicted"]["alone_step_s"]
    link = found["shared_links"][0]
    assert set(link["names"]) <= {"spine0", *(f"leaf{number}" for number in range(16))}
    assert link["kind"] == "switch"
    assert link["jobs"][0]["job"] == "1"
    assert found["running"] == {"jobs": 2, "known_as": {"plan": 2}}


def test_both_lose_what_the_hand_says(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a cluster a step is communication alone: the candidate is on the cables all the time. The other one's
    step is its recorded 20 s and its communication c on top, all of which doubles.
    """
    use(monkeypatch, job(1, "n1", "n5"))
    found = answer(*files, "--running")
    (other,) = found["jobs"]
    communication_s = other["step_s"] - 20.0
    assert other["step_with_candidate_s"] == pytest.approx(20.0 + 2 * communication_s)
    used = communication_s / (20.0 + communication_s)
    assert found["predicted"]["slowdown"] == pytest.approx(used, rel=1e-5)
    assert found["shared_links"][0]["utilisation"]["others"] == pytest.approx(used, rel=1e-5)


def test_nodes_of_running_jobs_are_not_asked_for(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, job(1, "n1", "n5"))
    found = answer(*files, "--running")
    assert found["free_nodes"] == 14
    best = found["best_nodes"][0]
    assert not {"n1", "n5"}.intersection(best["nodes"])
    assert len(best["units"]) == 1
    assert found["worst_nodes"][0]["step_s"] > best["step_s"]


def test_a_job_without_a_plan_is_said_to_be_unknown(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, job(1, "n1", "n5", admin_comment=None), job(2, "n2", "n6", gpus=8, gpus_per_node=4))
    found = answer(*files, "--running")
    assert (found["jobs"], found["running"]["known_as"]) == ([], {"unknown": 2})
    assert any("2 jobs (1, 2)" in item["why"] for item in found["assumed"])


def test_a_record_that_a_user_wrote_puts_nothing_on_the_wire(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, job(1, "n1", "n5", admin_comment=None, comment=RECORD))
    found = answer(*files, "--running")
    assert (found["jobs"], found["running"]["known_as"]) == ([], {"unknown": 1})


def test_counters_stand_in_for_a_plan(files: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """25 GB/s from each HCA of n1 and n5: half of each cable between their leaves."""
    guids = [guid for guid, hca in FABRIC.hcas.items() if hca.node in ("n1", "n5")]
    rows = [{"guid": guid, "sent_bytes_per_s": 25e9, "received_bytes_per_s": 25e9} for guid in guids]
    (tmp_path / "rates.json").write_text(json.dumps(rows))
    use(monkeypatch, job(1, "n1", "n5", admin_comment=None))
    found = answer(*files, "--running", "--rates", str(tmp_path / "rates.json"))
    assert found["jobs"][0]["kind"] == "measured"
    assert found["jobs"][0]["step_s"] is None
    assert found["predicted"]["slowdown"] == pytest.approx(0.5)


def test_declared_storage_traffic_counts(files: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """160 GB/s read by n1 and n5: 10 GB/s by each of 16 HCAs, a fifth of each cable down to their leaves."""
    (tmp_path / "opsk.toml").write_text("[storage]\nread_bytes_per_s = 160e9\n")
    use(monkeypatch, job(1, "n1", "n5", admin_comment=None))
    found = answer(*files, "--running")
    assert found["storage"]["from"] == "declared"
    assert found["storage"]["servers"] == ["oss0", "oss1", "oss2", "oss3"]
    assert found["storage"]["slowdown_of_candidate"] == pytest.approx(0.2)
    assert [entry["kind"] for entry in found["jobs"]] == ["storage"]


def test_the_candidate_is_no_other(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, job(1, "n0", "n4"))
    found = answer("--job", "1", *files[1:3], "--running")
    assert (found["jobs"], found["running"]["jobs"]) == ([], 0)


def test_people_see_whom_they_meet(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, job(1, "n1", "n5", user="e\x1b[31mve"))
    result = run(*files, "--running")
    assert result.exception is None
    assert "shares 32 links with 1 of 1 running jobs" in result.stdout
    assert "leaf0 to spine0" in result.stdout
    assert "nodes to ask for" in result.stdout
    assert "\x1b" not in result.stdout
    said = result.stdout[result.stdout.index("shares 32") :]
    assert max(map(len, said.splitlines())) <= 80


def test_a_slurm_that_does_not_answer_is_an_error(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(FakeSlurm):
        def jobs(self, *, details: bool = False, finished: bool = False) -> tuple[JobRecord, ...]:
            raise SlurmError("squeue did not answer within 10 s")

    monkeypatch.setattr(place_module, "slurm_client", Silent)
    assert isinstance(run(*files, "--running").exception, SlurmError)
