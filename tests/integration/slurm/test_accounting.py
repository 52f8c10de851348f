"""Real slurmdbd, each release: what opsk reads of jobs that ended is what happened to them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from opsk.errors import InputError
from opsk.slurm.commands.accounting import AccountedRun, AccountingClient, find_last_ended
from tests.fakes.advisor_process import eventually
from tests.integration.conftest import RunningLab, Slurm

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]

NAME, HOSTILE = "a|b 77|FAILED;$(x)", "a|b\n77|FAILED \u00e9"


@pytest.fixture
def client(lab: RunningLab) -> AccountingClient:
    return AccountingClient(environment=dict(lab.environment))


def runs(client: AccountingClient, job: str) -> tuple[AccountedRun, ...]:
    """The runs so far; a job that has just started may not have reached the accounting."""
    try:
        return client.runs(job)
    except InputError:
        return ()


def ended(client: AccountingClient, job: str) -> AccountedRun:
    run = eventually(
        lambda: find_last_ended(runs(client, job)), lambda each: each is not None and bool(each.end_s), 90.0
    )
    assert isinstance(run, AccountedRun)
    return run


def await_running(client: AccountingClient, job: str) -> None:
    eventually(lambda: [run.state for run in runs(client, job)], lambda states: states[-1:] == ["RUNNING"], 60.0)


def submit(lab: RunningLab, folder: Path, *options: str) -> str:
    done = lab.run("sbatch", "--parsable", "-o", str(folder / "o"), *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_job_that_failed_with_its_steps(lab: RunningLab, client: AccountingClient, tmp_path: Path) -> None:
    job = submit(lab, tmp_path, "-N2", "--gpus-per-node=2", "-J", NAME, "--wrap", "srun true; sleep 4; exit 3")
    run = ended(client, job)
    assert (run.state, run.exit_code, run.label) == ("FAILED", 3, job)
    assert run.name == NAME
    assert (len(run.nodes), run.gpus, run.uid) == (2, 4, os.getuid())
    assert {step.id for step in run.steps} >= {"batch", "0"}
    step = next(step for step in run.steps if step.id == "0")
    assert (step.state, step.tasks) == ("COMPLETED", 2)
    assert run.work_dir == str(tmp_path)


def test_a_name_of_two_lines_forges_no_row(lab: RunningLab, client: AccountingClient, tmp_path: Path) -> None:
    """The accounting of 22.05 calls a job that ends at once ``allocation``."""
    job = submit(lab, tmp_path, "-J", HOSTILE, "--wrap", "exit 3")
    run = ended(client, job)
    assert (run.state, run.exit_code, run.name in (HOSTILE, "allocation")) == ("FAILED", 3, True)
    assert len(runs(client, job)) == 1


def test_who_cancelled_a_job_is_known(lab: RunningLab, client: AccountingClient, tmp_path: Path) -> None:
    job = submit(lab, tmp_path, "--wrap", "sleep 300")
    await_running(client, job)
    assert lab.run("scancel", job).returncode == 0
    run = ended(client, job)
    assert (run.state, run.cancelled_by) == ("CANCELLED", os.getuid())


def test_a_task_of_an_array(lab: RunningLab, client: AccountingClient, tmp_path: Path) -> None:
    array = submit(lab, tmp_path, "--array=3-4", "--wrap", "exit $((SLURM_ARRAY_TASK_ID - 3))")
    assert (ended(client, f"{array}_4").exit_code, ended(client, f"{array}_3").state) == (1, "COMPLETED")
    with pytest.raises(InputError, match="stands for 2 jobs"):
        client.runs(array)
    (own,) = client.runs(array, is_number=True)
    assert str(own.id) == array


def test_a_requeued_job_has_two_runs(lab: RunningLab, client: AccountingClient, tmp_path: Path) -> None:
    job = submit(lab, tmp_path, "--requeue", "--wrap", "sleep 300")
    await_running(client, job)
    assert lab.run("scontrol", "requeue", job).returncode == 0
    first, second = eventually(lambda: runs(client, job), lambda found: len(found) == 2, 60.0)
    assert (first.has_ended, second.restarts) == (True, 1)
    lab.run("scancel", job)


def test_why_a_node_is_set_aside(lab: RunningLab, client: AccountingClient, slurm: Slurm) -> None:
    reason = "opsk test: a reason, with words"
    assert lab.run("scontrol", "update", "nodename=n3", "state=drain", f"reason={reason}").returncode == 0
    try:
        (found,) = client.node_reasons(["n0", "n3"])
        assert (found.node, found.reason) == ("n3", reason), slurm
        assert found.at_s is not None
    finally:
        assert lab.run("scontrol", "update", "nodename=n3", "state=resume").returncode == 0
