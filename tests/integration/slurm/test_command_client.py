"""The Slurm port against a real slurmctld: what users write cannot forge an answer, and a job is placed end to end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opsk.errors import InputError
from opsk.slurm.commands.command import CommandClient
from opsk.slurm.records import JobRecord

pytestmark = pytest.mark.slurm

FORGED = "c\n   AdminComment=forged\nJobId=99 JobName=fake\n   WorkDir=/"
START_DEADLINE_S = 60.0


@pytest.fixture
def client(lab: Any) -> CommandClient:
    return CommandClient(environment=dict(lab.environment))


@pytest.fixture
def job(lab: Any, client: CommandClient, tmp_path: Path) -> Iterator[JobRecord]:
    """A running job of two whole nodes whose name and comment look like Slurm's own output."""
    tmp_path.chmod(0o755)
    submitted = lab.run(
        "sbatch", "--parsable", "-N2", "--gpus-per-node=8", "-J", "a\n   UserId=root(0) |x", f"--comment={FORGED}",
        "-o", "/dev/null", "--wrap", "sleep 300", cwd=tmp_path,
    )  # fmt: skip
    assert submitted.returncode == 0, submitted.stderr
    number = submitted.stdout.strip()
    try:
        deadline = time.monotonic() + START_DEADLINE_S
        while client.job(number).state != "RUNNING" and time.monotonic() < deadline:
            time.sleep(0.2)
        yield client.job(number)
    finally:
        lab.run("scancel", number)


def test_a_real_job_is_read_whole(lab: Any, client: CommandClient, job: JobRecord) -> None:
    assert job.state == "RUNNING"
    assert (len(job.nodes), job.gpus, job.gpus_per_node) == (2, 16, 8)
    assert job.gpu_indices == {node: tuple(range(8)) for node in job.nodes}
    assert (job.name, job.comment) == ("a\n   UserId=root(0) |x", FORGED)
    assert job.start_time is not None


def test_a_forged_comment_is_not_the_administrators(lab: Any, client: CommandClient, job: JobRecord) -> None:
    assert job.admin_comment is None
    lab.run("scontrol", "update", f"jobid={job.id}", "admincomment=opsk:v1 verdict=fits tp=8 pp=1 dp=2")
    told = [found.admin_comment for found in client.jobs(details=True) if found.id == job.id]
    assert told == [client.job(str(job.id)).admin_comment]
    assert told != ["forged"]


def test_nodes_are_read(client: CommandClient) -> None:
    assert [(node.gpus, node.is_usable) for node in client.nodes()] == [(8, True)] * 4


def test_a_job_that_never_was_is_unknown(client: CommandClient) -> None:
    with pytest.raises(InputError, match="knows no job 999999"):
        client.job("999999")


def test_a_running_job_is_placed_on_the_labs_own_fabric(lab: Any, job: JobRecord, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        "[model]\nlayers = 4\nhidden = 1024\nffn = 4096\nheads = 16\nvocab = 1024\nseq = 128\n"
        "[plan]\ntp = 8\ndp = 2\nglobal_batch = 2\n"
    )
    answer = lab.opsk("place", str(plan), "--job", str(job.id), "--json")
    assert answer.returncode == 0, answer.stderr
    document = json.loads(answer.stdout)
    assert {rank["node"] for rank in document["ranks"]} == set(job.nodes)
    assert document["rail_local_fraction"] == 1.0
