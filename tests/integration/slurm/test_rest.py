"""Through a real slurmrestd: is a job accepted, recorded, held and refused as one of sbatch, where no cli_filter runs?

slurmrestd listens on a Unix socket alone, as a plain user, for whom it submits. It speaks the oldest version of its
language that its release and the next ones have.
"""

from __future__ import annotations

import http.client
import json
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from opsk.config import load_site
from opsk.lab.programs import build_search_path
from tests.fakes.advised_lab import ADVICE, FITS, RUNS_OUT, AdvisedLab, this_moment, wait_until
from tests.integration.conftest import Slurm

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]

USER = "daemon"
LISTS_SINCE = (23, 11)
"""Environment as a list, nodes as text, GPUs as TRES; before that a mapping, text and GRES."""

HELD = 2042
"""What 22.05 calls an error: the job is accepted, and held."""


class UnixConnection(http.client.HTTPConnection):
    """HTTP to a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=30)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(self._path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """A lab with a slurmrestd."""

    lab: AdvisedLab
    socket: Path
    release: tuple[int, int]

    def submit(self, script: str, **more: object) -> dict[str, Any]:
        """Submit for two nodes of eight GPUs; return the answer of slurmrestd."""
        is_new = self.release >= LISTS_SINCE
        job: dict[str, object] = {
            "name": "rest", "partition": "train", "nodes": "2", "tasks_per_node": 1,
            "current_working_directory": "/tmp", "standard_output": "/dev/null", **more,
        }  # fmt: skip
        if is_new:
            job |= {"tres_per_node": "gres/gpu:8", "environment": ["PATH=/usr/bin:/bin"], "script": script}
        else:
            job |= {"gres": "gpu:8", "environment": {"PATH": "/usr/bin:/bin"}}
        connection = UnixConnection(self.socket)
        try:
            body = json.dumps({"job": job} if is_new else {"job": job, "script": script})
            path = f"/slurm/{'v0.0.42' if is_new else 'v0.0.38'}/job/submit"
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            return dict(json.loads(connection.getresponse().read()))
        finally:
            connection.close()

    def accepted(self, script: str, **more: object) -> tuple[dict[str, str], list[str]]:
        """Submit; return what slurmctld keeps of the job, and what its user is told."""
        answer = self.submit(script, **more)
        assert {error.get("error_code") for error in answer["errors"]} <= {HELD}, answer
        assert answer["job_id"], answer
        return self.lab.shown(answer["job_id"]), told(answer)


def told(answer: dict[str, Any]) -> list[str]:
    """Return what job_submit said to the user."""
    return str(answer.get("job_submit_user_msg") or "").splitlines()


@pytest.fixture(scope="module")
def module_rest(lab_programs: None, slurm: Slurm, advised_lab: AdvisedLab) -> Iterator[Rest]:
    if shutil.which("slurmrestd", path=build_search_path()) is None:
        pytest.skip("not installed: slurmrestd")
    log = advised_lab.directory / "rest.log"
    listening = advised_lab.directory / USER / "rest.sock"
    listening.parent.mkdir()
    shutil.chown(listening.parent, USER)
    plugins = ("-s", "slurmctld", "-d", "v0.0.42") if slurm.release >= LISTS_SINCE else ("-s", "openapi/v0.0.38")
    with log.open("wb") as out:
        server = subprocess.Popen(
            ["slurmrestd", "-u", USER, "-g", USER, "-a", "rest_auth/local", *plugins, f"unix:{listening}"],
            env=advised_lab.environ, cwd="/tmp", stdin=subprocess.DEVNULL, stdout=out, stderr=out,
        )  # fmt: skip
    try:
        wait_until(lambda: listening.exists() or server.poll() is not None)
        assert server.poll() is None, log.read_text()
        yield Rest(lab=advised_lab, socket=listening, release=slurm.release)
    finally:
        server.kill()
        server.wait(10)


@pytest.fixture
def rest(module_rest: Rest) -> Iterator[Rest]:
    yield module_rest
    subprocess.run(["scancel", "--user", USER], env=module_rest.lab.environ, check=False)


def test_a_training_job_is_accepted_recorded_and_told_two_lines(rest: Rest) -> None:
    rest.lab.policy()
    before = this_moment()
    rest.accepted(FITS)  # what slurmctld does not get in time the advisor finishes all the same
    began = this_moment()
    shown, lines = rest.accepted(FITS, comment="mine")
    assert shown["AdminComment"].startswith("opsk:v1 verdict=fits")
    assert len(lines) == 2
    assert all(line.startswith(ADVICE) for line in lines)
    asked = rest.lab.last_audited("submit", began)
    assert asked["for_uid"] == pwd.getpwnam(USER).pw_uid
    assert "advise" not in {entry["kind"] for entry in rest.lab.audited(before)}


def test_lines_that_slurmrestd_does_not_read_are_not_in_force(rest: Rest) -> None:
    """Only sbatch makes options of ``#SBATCH`` lines."""
    rest.lab.policy()
    script = FITS.replace("--nodes=2 --gpus-per-node=8", "--nodes=16 --gpus-per-node=4")
    script = script.replace("--nnodes 2 --nproc-per-node 8", "--nnodes $SLURM_NNODES --nproc-per-node 8")
    rest.accepted(script)
    _, lines = rest.accepted(script)
    assert "16 × H100 (2 nodes)" in lines[0]


def test_a_policy_holds_and_refuses(rest: Rest) -> None:
    rest.lab.policy('action = "hold"')
    shown, lines = rest.accepted(RUNS_OUT)
    assert (shown["Priority"], shown["Reason"]) == ("0", "JobHeldUser")
    assert "held: will run out of GPU memory" in lines[0]
    rest.lab.policy('action = "reject"')
    answer = rest.submit(RUNS_OUT)
    assert answer["errors"]
    assert not answer.get("job_id")
    assert rest.accepted(FITS)


def test_without_an_advisor_jobs_are_accepted(rest: Rest) -> None:
    rest.lab.policy()
    address = load_site(rest.lab.record.folder.site).advisor.socket
    away = address.with_suffix(".away")
    address.rename(away)
    try:
        for _ in range(5):
            shown, lines = rest.accepted(RUNS_OUT)
            assert (lines, "AdminComment" in shown) == ([], False)
    finally:
        away.rename(address)


def test_a_job_that_trains_nothing_is_accepted_without_a_word(rest: Rest) -> None:
    shown, lines = rest.accepted("#!/bin/bash\nhostname\n")
    assert (lines, "AdminComment" in shown) == ([], False)
