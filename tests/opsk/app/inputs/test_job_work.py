"""A remap is predicted for what the job really trains: as its kept advice says, else as its script does."""

from __future__ import annotations

import json
import os
import pwd
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from opsk.app.inputs import job_work as module
from opsk.app.inputs.job_work import find_job_work, parse_job_work
from opsk.config import SiteConfig
from opsk.errors import SlurmError
from opsk.slurm.commands import job_script
from opsk.slurm.commands.job_script import check_script
from opsk.slurm.records import JobRecord
from opsk.store.database.engine import open_store
from opsk.store.records.advice import AdviceGiven
from opsk.store.writing import DirectWriter

SCRIPT = b"""#!/bin/bash
#SBATCH --nodes=2 --gpus-per-node=8
torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 \\
  --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 128 --bf16 \\
  --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --train-iters 10 --vocab-size 50257
"""
RECORD = "opsk:v1 verdict=fits step_s=2.5 tp=4 pp=2 dp=2 hash=abc123"
ME = pwd.getpwuid(os.getuid()).pw_name


def job(**more: Any) -> JobRecord:
    return JobRecord(
        id=7, label="7", user=ME, name="gpt", state="RUNNING", nodes=("n0", "n1"), node_count=2, gpus=16, **more
    )


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline is for people who wait: on a busy machine the answer is looked at here, not how fast it comes."""
    monkeypatch.setattr(job_script, "_READING_S", 120.0)


@pytest.fixture(scope="module")
def answer() -> str:
    """What ``opsk check`` says of the script."""
    return json.dumps(check_script(SCRIPT, 2, deadline_s=120.0))


@pytest.fixture
def document(answer: str) -> dict[str, Any]:
    found = json.loads(answer)
    assert isinstance(found, dict)
    return found


@pytest.fixture
def no_script(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> bytes:
        raise SlurmError("Access denied", hint="")

    monkeypatch.setattr(job_script, "read_batch_script", refuse)


def test_the_script_tells_model_plan_and_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_script, "read_batch_script", lambda *_, **__: SCRIPT)
    found = find_job_work(job())
    assert found is not None
    assert (found.model.name, found.model.layers, found.model.hidden) == ("gpt", 24, 2048)
    assert (found.plan.tp, found.plan.pp, found.plan.dp, found.plan.global_batch) == (4, 2, 2, 128)


def test_files_that_the_script_names_are_looked_for_in_the_jobs_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sizes.sh").write_text("LAYERS=30\n")
    script = SCRIPT.replace(b"torchrun", b". ./sizes.sh\ntorchrun", 1).replace(
        b"--num-layers 24", b"--num-layers $LAYERS"
    )
    monkeypatch.setattr(job_script, "read_batch_script", lambda *_, **__: script)
    found = find_job_work(job(work_dir=str(tmp_path)))
    assert found is not None
    assert found.model.layers == 30


@pytest.mark.usefixtures("no_script")
def test_the_store_tells_what_was_predicted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, document: dict[str, Any]
) -> None:
    """Two pieces of advice on one script, as its arguments differed: the one that left the job's record counts."""
    url = f"sqlite:///{tmp_path}/opsk.db"
    other = json.loads(json.dumps(document))
    other["workload"]["model"]["layers"] = 48
    for at, told, record in ((1, document, RECORD), (2, other, RECORD.replace("2.5", "4.75"))):
        given = AdviceGiven(
            cluster="lab", at=datetime.fromtimestamp(at, UTC), uid=0, script_hash="abc123", verdict="fits",
            document={**told, "record": record},
        )  # fmt: skip
        DirectWriter(open_store(url)).write([given])
    monkeypatch.setattr(module, "load_site", lambda: SiteConfig.model_validate({"store": {"url": url}}))
    monkeypatch.setattr(module, "open_site_store", lambda **_: open_store(url, writing=False))
    found = find_job_work(job(admin_comment=RECORD))
    assert found is not None
    assert found.model.layers == 24
    nothing = find_job_work(job(admin_comment=RECORD.replace("abc123", "other")))
    assert nothing is None


@pytest.mark.usefixtures("no_script")
def test_where_neither_tells_nothing_is_made_up() -> None:
    assert find_job_work(job(admin_comment=RECORD)) is None


@pytest.mark.parametrize(
    "change",
    [{"framework": None}, {"model": None}, {"model": {"layers": "many"}}, {"plan": {"tp": -3}}, {"plan": []}, None],
)
def test_a_document_that_says_too_little_or_nonsense_is_none(document: dict[str, Any], change: Any) -> None:
    damaged = {**document, "workload": None if change is None else {**document["workload"], **change}}
    assert parse_job_work(damaged, job()) is None


def test_a_plan_of_more_gpus_than_the_job_has_is_not_this_jobs(document: dict[str, Any]) -> None:
    document["workload"]["plan"]["dp"] = 16
    document["workload"]["plan"]["gpus"] = 128
    assert parse_job_work(document, job()) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_root_reads_a_users_script_as_that_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script names files: what only root may read is not opened for it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # pytest's own folders are closed to others
        python = Path(folder) / "python"
        python.write_text('#!/bin/sh\necho "{\\"uid\\": $(id -u), \\"script\\": $(wc -c <"$8")}"\n')
        python.chmod(0o755)
        monkeypatch.setattr("sys.executable", str(python))
        nobody = pwd.getpwnam("nobody")
        assert check_script(SCRIPT, 2, owner=nobody) == {"uid": nobody.pw_uid, "script": len(SCRIPT)}
