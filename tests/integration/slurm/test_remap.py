"""The commands of ``opsk remap`` on a real slurmctld: do they really move a job off a failed node?

These tests drain a node of the shared lab and give it back.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from opsk.slurm.commands.command import CommandClient
from opsk.slurm.commands.remap_commands import relaunch, shrink
from opsk.slurm.records import JobRecord
from tests.fakes.settling import settle
from tests.fakes.small_plans import small_plan

pytestmark = pytest.mark.slurm

DEADLINE_S = 90.0
PLAN = small_plan(gpus_per_node=8, tp=8, dp=2, global_batch=2, cluster="superpod-h100")


@pytest.fixture
def client(lab: Any) -> CommandClient:
    return CommandClient(environment=dict(lab.environment))


@pytest.fixture
def plan(tmp_path: Path) -> str:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return str(path)


@pytest.fixture
def submit(lab: Any, client: CommandClient, tmp_path: Path) -> Iterator[Callable[..., JobRecord]]:
    """Submit a job and wait until it runs; jobs and drains end with the test."""
    tmp_path.chmod(0o755)
    jobs: list[str] = []

    def start(nodes: int, body: str, *options: str) -> JobRecord:
        submitted = lab.run(
            "sbatch", "--parsable", f"-N{nodes}", "--gpus-per-node=8", "--requeue", "-o", str(tmp_path / "out"),
            "--open-mode=append", *options, "--wrap", body, cwd=tmp_path,
        )  # fmt: skip
        assert submitted.returncode == 0, submitted.stderr
        jobs.append(submitted.stdout.strip())
        return until(client, jobs[-1], lambda job: job.state == "RUNNING")

    yield start
    for job in jobs:
        lab.run("scancel", job)
    for node in client.nodes():
        if not node.is_usable:
            lab.run("scontrol", "update", f"nodename={node.name}", "state=resume")


def until(client: CommandClient, number: str, wanted: Callable[[JobRecord], bool]) -> JobRecord:
    deadline = time.monotonic() + DEADLINE_S
    while not wanted(job := client.job(number)):
        assert time.monotonic() < deadline, job
        time.sleep(0.2)
    return job


def written(path: Path, wanted: str) -> str:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        said = path.read_text() if path.exists() else ""
        if wanted in said or time.monotonic() > deadline:
            return said
        time.sleep(0.2)


def test_the_queue_takes_a_job_off_a_failed_node(
    lab: Any, client: CommandClient, submit: Callable[..., JobRecord], plan: str, tmp_path: Path
) -> None:
    """Two of four nodes; the second one fails: drained, and the job runs on the other one that was judged."""
    job = submit(2, "sleep 300")
    failed = job.nodes[1]
    command = ["remap", str(job.id), "--failed", f"gpu:{failed}/3", "--plan", plan,
               "--fabric", str(lab.path / "fabric.ibnetdiscover"), "--rank-file", str(tmp_path / "ranks")]  # fmt: skip
    shown = lab.opsk(*command, "--json")
    assert shown.returncode == 0, shown.stderr
    option = next(option for option in json.loads(shown.stdout)["options"] if option["kind"] == "spare_node")
    assert option["way"] == "requeue"
    done = lab.opsk(*command, "--apply", "spare_node", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    applied = json.loads(done.stdout)["applied"]
    assert len(applied["done"]) == 4, applied
    moved = until(client, str(job.id), lambda now: now.state == "RUNNING" and bool(now.restarts))
    assert set(moved.nodes) == set(option["nodes"])
    assert failed not in moved.nodes
    states = {node.name: node for node in client.nodes()}
    assert not states[failed].is_usable
    assert "opsk: gpu:" in (states[failed].reason or "")


def test_waiting_holds_the_job_and_the_rest_lets_it_go(
    lab: Any, client: CommandClient, submit: Callable[..., JobRecord], plan: str, tmp_path: Path
) -> None:
    job = submit(2, "sleep 300")
    failed = job.nodes[1]
    command = ["remap", str(job.id), "--failed", f"gpu:{failed}/3", "--plan", plan,
               "--fabric", str(lab.path / "fabric.ibnetdiscover"), "--rank-file", str(tmp_path / "ranks")]  # fmt: skip
    done = lab.opsk(*command, "--apply", "wait", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    held = until(client, str(job.id), lambda now: now.state == "PENDING")
    assert held.reason is not None
    settle(lab)
    later = [text for text, who in json.loads(done.stdout)["applied"]["left"] if "later" in who]
    assert later == [f"scontrol update nodename={failed} state=resume", f"scontrol release {job.id}"]
    for text in later:
        ran = lab.run(*text.split())
        assert ran.returncode == 0, ran.stderr
    lab.run("scontrol", "update", f"jobid={job.id}", "starttime=now")
    assert until(client, str(job.id), lambda now: now.state == "RUNNING").restarts


def test_a_step_is_launched_again_on_a_spare_of_the_allocation(
    lab: Any, client: CommandClient, submit: Callable[..., JobRecord], tmp_path: Path
) -> None:
    """Three nodes, two in use: the second rank file puts the ranks of n1 on n2, in the middle of the row."""
    ranks = tmp_path / "ranks"
    again = relaunch(["n0", "n2"], tasks=4, rank_file=str(ranks))
    said = "echo $SLURM_PROCID $SLURMD_NODENAME"
    step = " ".join(f"'{word}'" for word in again.argv[:-1]) + f" bash -c '{said}'"
    body = f"srun -N2 -n4 -w $(scontrol show hostnames | head -2 | paste -sd,) true; {step}; echo done; sleep 300"
    first, second = "n0", "n2"
    ranks.write_text(f"{second}\n{first}\n{first}\n{second}\n")
    job = submit(3, body, "--nodelist=n[0-2]")
    assert job.nodes == ("n0", "n1", "n2")
    lines = written(tmp_path / "out", "done").split("\n")
    assert sorted(line for line in lines if line[:1].isdecimal()) == ["0 n2", "1 n0", "2 n0", "3 n2"]


def test_a_failed_node_can_be_given_back_while_the_job_runs(
    lab: Any, client: CommandClient, submit: Callable[..., JobRecord]
) -> None:
    job = submit(3, "sleep 300", "--nodelist=n[0-2]")
    command = shrink(str(job.id), ["n0", "n2"])
    ran = lab.run(*command.argv)
    assert ran.returncode == 0, ran.stderr
    assert until(client, str(job.id), lambda now: len(now.nodes) == 2).nodes == ("n0", "n2")


def test_a_drained_node_still_takes_a_step_of_its_job(
    lab: Any, client: CommandClient, submit: Callable[..., JobRecord], tmp_path: Path
) -> None:
    """Ranks that go on beside a failed GPU start again on a node that is draining."""
    go = tmp_path / "go"
    job = submit(
        2, f"while ! test -e {go}; do sleep 0.2; done; srun -N2 -n2 hostname > /dev/null && echo stepped; sleep 300"
    )
    ran = lab.run("scontrol", "update", f"nodename={job.nodes[1]}", "state=drain", "reason=opsk: test")
    assert ran.returncode == 0, ran.stderr
    go.touch()
    assert "stepped" in written(tmp_path / "out", "stepped")


def test_a_job_with_no_kill_outlives_a_node_and_starts_again_on_the_rest(
    lab: Any, client: CommandClient, submit: Callable[..., JobRecord], tmp_path: Path
) -> None:
    """Three nodes, n1 goes down: the job keeps n0 and n2, and a step with a rank file runs there."""
    ranks, go = tmp_path / "ranks", tmp_path / "go"
    ranks.write_text("n2\nn0\n")
    again = relaunch(["n2", "n0"], tasks=2, rank_file=str(ranks))
    step = " ".join(f"'{word}'" for word in again.argv[:-1]) + " bash -c 'echo $SLURM_PROCID $SLURMD_NODENAME'"
    body = f"while ! test -e {go}; do sleep 0.2; done; {step}; echo done; sleep 300"
    job = submit(3, body, "--nodelist=n[0-2]", "--no-kill")
    ran = lab.run("scontrol", "update", "nodename=n1", "state=down", "reason=opsk: test")
    assert ran.returncode == 0, ran.stderr
    left = until(client, str(job.id), lambda now: len(now.nodes) == 2)
    assert (left.nodes, left.state) == (("n0", "n2"), "RUNNING")
    go.touch()
    lines = written(tmp_path / "out", "done").split("\n")
    assert sorted(line for line in lines if line[:1].isdecimal()) == ["0 n2", "1 n0"]
