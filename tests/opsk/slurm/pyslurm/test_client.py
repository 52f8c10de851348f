"""A pyslurm that hangs, dies or refuses: what becomes of it, and what is known afterwards."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from opsk.errors import InputError, SlurmError
from opsk.slurm.pyslurm.client import (
    ProcessDeadlineError,
    PyslurmClient,
    PyslurmUnusableError,
    child_environment,
    conf_problem,
)
from tests.fakes.slurm_cluster import cluster, install_pyslurm

DEADLINE_S = 1.0
AT_LEAST_PATIENT_S = 30.0
"""The stand-in hangs for 60 s: who waited for it is told apart from who was slowed down by a busy machine."""


def client(folder: Path, mode: str = "", *, deadline_s: float = 20.0) -> PyslurmClient:
    environment = install_pyslurm(folder, cluster(1), mode) | {"PATH": "/nowhere"}
    return PyslurmClient(environment=environment, deadline_s=deadline_s)


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("exits at import", "ended with status 1: python: fatal: Could not establish a configuration source"),
        ("exits at init", "ended with status 1"),
        ("no module", "libslurmfull.so: cannot open shared object file"),
        ("dies", "ended by signal 11"),
        ("eats memory", "needs more than 4 GiB"),
        ("22.05", "slurmctld hung up, it may be older than pyslurm"),
        ("old cluster", "slurmctld is older than pyslurm"),
        ("older slurmctld", "pyslurm 25.11 cannot ask slurmctld 24.11"),
        ("counts no GPUs", "AccountingStorageTRES has no gres/gpu"),
    ],
)
def test_a_pyslurm_that_cannot_serve_here_says_why(tmp_path: Path, mode: str, said: str) -> None:
    with pytest.raises(PyslurmUnusableError, match=said) as caught:
        client(tmp_path, mode).jobs()
    assert "OPSK_SLURM_ADAPTER=commands" in caught.value.hint


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("down", r"connect failure"),
        ("stuck", r"receive failure"),
        ("times out", r"Socket timed out"),
    ],
)
def test_a_controller_that_does_not_answer_is_no_fault_of_pyslurms(tmp_path: Path, mode: str, said: str) -> None:
    """Where nobody listens a load is not even tried: the stand-in would end with status 3."""
    with pytest.raises(SlurmError, match=said) as caught:
        client(tmp_path, mode).nodes()
    assert not isinstance(caught.value, PyslurmUnusableError)
    assert "scontrol ping" in caught.value.hint


def test_what_slurm_refuses_names_the_reason(tmp_path: Path) -> None:
    with pytest.raises(SlurmError, match="Access/permission denied") as caught:
        client(tmp_path, "denied").jobs()
    assert "PrivateData" in caught.value.hint


def test_the_backup_controller_answers_as_well(tmp_path: Path) -> None:
    assert client(tmp_path, "backup only").jobs()


def test_a_hang_with_the_interpreters_lock_held_ends_at_the_deadline_and_stops_nothing_else(tmp_path: Path) -> None:
    asked = client(tmp_path, "hangs", deadline_s=DEADLINE_S)
    ticks: list[float] = []
    until = threading.Event()
    ticker = threading.Thread(
        target=lambda: [ticks.append(time.monotonic()) for _ in iter(lambda: until.wait(0.05), True)]
    )
    ticker.start()
    started = time.monotonic()
    with pytest.raises(ProcessDeadlineError, match="did not answer within 1 s"):
        asked.jobs()
    assert time.monotonic() - started < AT_LEAST_PATIENT_S
    until.set()
    ticker.join()
    assert ticks
    assert asked._process.pid is None


def test_an_import_that_does_not_end_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(PyslurmUnusableError, match="import pyslurm: no end"):
        client(tmp_path, "hangs at import", deadline_s=DEADLINE_S).jobs()


def test_the_next_question_after_a_hang_starts_a_new_process(tmp_path: Path) -> None:
    asked = client(tmp_path, "hangs", deadline_s=DEADLINE_S)
    with pytest.raises(ProcessDeadlineError):
        asked.jobs()
    asked._process._environment["FAKE_PYSLURM_MODE"] = ""
    asked._deadline_s = 20.0
    assert asked.jobs()


def test_a_process_that_was_killed_between_two_questions_is_replaced(tmp_path: Path) -> None:
    asked = client(tmp_path)
    assert asked.jobs()
    first = asked._process.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    while asked._process.is_running:
        time.sleep(0.01)
    assert asked.jobs()
    assert asked._process.pid not in {None, first}


def test_one_process_answers_all_questions(tmp_path: Path) -> None:
    asked = client(tmp_path)
    asked.jobs()
    first = asked._process.pid
    asked.nodes()
    with pytest.raises(InputError):
        asked.job("4711")
    assert asked._process.pid == first
    asked.close()
    assert asked._process.pid is None


def test_threads_ask_one_after_the_other(tmp_path: Path) -> None:
    asked = client(tmp_path)
    answers: list[int] = []
    threads = [threading.Thread(target=lambda: answers.append(len(asked.jobs(finished=True)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [len(cluster(1)["jobs"])] * 8


def test_the_process_is_safe_to_import_in_and_sees_no_setting_of_the_commands() -> None:
    given = {"SLURM_CONF": "/c", "SLURM_CLUSTERS": "x", "SQUEUE_FORMAT": "%i", "HOME": "/root"}
    assert child_environment(given) == {
        "SLURM_CONF": "/c", "HOME": "/root", "PATH": os.defpath, "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s",
        "PYSLURM_DISABLE_AUTO_INIT": "1",
    }  # fmt: skip


def test_a_slurm_conf_that_is_missing_is_found_before_anything_is_started(tmp_path: Path) -> None:
    """libslurm would try for 60 s to read it."""
    missing = tmp_path / "slurm.conf"
    environment = {"SLURM_CONF": str(missing), "PYTHONPATH": "/nowhere"}
    asked = PyslurmClient(environment=environment)
    with pytest.raises(PyslurmUnusableError, match="which cannot be read"):
        asked.jobs()
    assert asked._process.pid is None
    assert conf_problem({}, (str(missing),)) is not None
    missing.write_text("")
    assert conf_problem({}, (str(missing),)) is None
    assert conf_problem({"SLURM_CONF_SERVER": "head"}, ()) is None


def test_one_damaged_attribute_does_not_take_the_record_with_it(tmp_path: Path) -> None:
    """A name that is no UTF-8 makes pyslurm raise when it is read, as any user may bring about."""
    asked = client(tmp_path)
    data = tmp_path / "slurmctld.json"
    told = json.loads(data.read_text())
    told["jobs"][0]["name"] = "\udcff\udcfe"
    data.write_text(json.dumps(told))
    job = asked.job("1")
    assert (job.name, job.state, len(job.nodes)) == ("", "RUNNING", 2)


def test_gpus_that_no_visible_job_holds_are_used_all_the_same(tmp_path: Path) -> None:
    """Slurm may hide other people's jobs (PrivateData): nodes still count their GPUs, without saying which."""
    asked = client(tmp_path)
    data = tmp_path / "slurmctld.json"
    told = json.loads(data.read_text())
    told["jobs"] = []
    data.write_text(json.dumps(told))
    assert {node.name: node.gpus_used for node in asked.nodes()}["n0"] == 8
