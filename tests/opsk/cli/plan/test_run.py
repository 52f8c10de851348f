"""Several processes search one space: the same plans, and none of them is left behind."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections import deque
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from opsk.cli.main import opsk
from opsk.cli.plan.run import _WorkerPool, search_in_processes
from opsk.errors import UnavailableError
from opsk.frameworks.catalog import FRAMEWORKS
from opsk.hardware.catalog import cluster
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.result import SearchResult
from opsk.planning.search.search import search_cases
from opsk.workload.plan import Plan
from opsk.workload.public_models.lookup import public_model
from tests.fakes.advisor_process import eventually


def llama(gpus: int = 64, **fields: Any) -> PlanRequest:
    model = public_model("llama-3-70b")
    assert model is not None
    plan = Plan(global_batch=512)
    machine = cluster("superpod-h100")
    return PlanRequest(model=model, cluster=machine, template=plan, gpus=gpus, global_batch=512, **fields)


def last(found: Any) -> SearchResult:
    return deque(found, maxlen=1)[0]


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others get their tasks however fast this process is."""
    are_up = _WorkerPool.are_up
    monkeypatch.setattr(_WorkerPool, "are_up", lambda self: eventually(lambda: are_up(self), bool, within_s=120))


@pytest.mark.usefixtures("waited_for")
@pytest.mark.parametrize("walk", [True, None])
def test_processes_find_what_one_finds(walk: bool | None) -> None:
    framework = FRAMEWORKS["megatron"]
    request = llama(256, limits=framework.limits, refuses=framework.refuses)
    if walk:
        request = llama(64, fixed={"schedule": ("1f1b",), "cp": (1,)})
    whole, shared = last(search_cases([request], walk=walk)), last(search_in_processes([request], 2, walk=walk))
    assert [one.plan for one in shared.best] == [one.plan for one in whole.best]
    assert [one.plan for one in shared.best_fitting] == [one.plan for one in whole.best_fitting]
    assert (shared.space, shared.is_whole) == (whole.space, True)
    assert (shared.evaluated == shared.space) is bool(walk)
    assert not multiprocessing.active_children()


def test_a_search_that_is_closed_ends_its_processes() -> None:
    with closing(search_in_processes([llama(256)], 3, walk=True)) as search:
        next(search)
        processes = multiprocessing.active_children()
        assert len(processes) == 2
    assert not multiprocessing.active_children()
    assert not any(alive(process.pid or 0) for process in processes)


def test_a_process_that_is_killed_is_an_error_and_the_others_end() -> None:
    search = search_in_processes([llama(256)], 3, walk=True)
    next(search)
    first, *_ = multiprocessing.active_children()
    assert first.pid
    os.kill(first.pid, signal.SIGKILL)
    with pytest.raises(UnavailableError, match=rf"process {first.pid}, one of 3 .* status -9") as error:
        deque(search, maxlen=0)
    assert "--workers" in error.value.hint
    assert not multiprocessing.active_children()


def children_of(pid: int) -> list[int]:
    found = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


REQUEST = ("--model", "llama-3-70b", "--gpus", "256", "--cluster", "superpod-h100", "--global-batch", "512")
LONG_REQUEST = ("--model", "llama-3-405b", "--gpus", "16384", "--cluster", "superpod-h100", "--global-batch", "2048")
"""Takes some 20 CPU s on a fast processor."""


def family_of(pid: int) -> list[int]:
    return [pid, *children_of(pid)]


def used_cpu_s(pid: int) -> float:
    """Return how long a process has had a processor [s], which is what it has done, however busy the machine is."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, stat[11:13])) / os.sysconf("SC_CLK_TCK")


def test_ctrl_c_gives_the_best_so_far_and_leaves_no_process(tmp_path: Path) -> None:
    """The terminal sends it to the whole group of processes."""
    command = [sys.executable, "-m", "opsk", "plan", *LONG_REQUEST, "--exhaustive", "--workers", "2", "--json"]
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        running = subprocess.Popen(command, stdout=out, stderr=err, start_new_session=True)
        try:
            eventually(lambda: children_of(running.pid), lambda found: len(found) >= 2)
            # some plan is found by then
            eventually(lambda: sum(map(used_cpu_s, family_of(running.pid))), lambda used_s: used_s >= 6.0)
            children = children_of(running.pid)
            os.killpg(running.pid, signal.SIGINT)
            assert running.wait(timeout=60) in (0, 1)
        finally:
            running.kill()
            running.wait()
    said, document = (tmp_path / "err").read_text(), json.loads((tmp_path / "out").read_text())
    assert "Traceback" not in said
    assert document["interrupted"]
    assert document["best"]
    # one of them is multiprocessing's own resource tracker, which ends by itself once this one is gone
    assert not eventually(lambda: [child for child in children if alive(child)], lambda found: not found)


def test_processes_of_one_that_was_killed_end_by_themselves() -> None:
    command = [sys.executable, "-m", "opsk", "plan", *REQUEST, "--exhaustive", "--workers", "2"]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        children = eventually(lambda: children_of(running.pid), lambda found: len(found) >= 2)
    finally:
        running.kill()
        running.wait()
    left = eventually(lambda: [child for child in children if alive(child)], lambda found: not found)
    for child in left:
        os.kill(child, signal.SIGKILL)
    assert not left


def test_the_command_takes_workers() -> None:
    request = (*REQUEST[:2], "--gpus", "8", *REQUEST[4:], "--tp", "8", "--json")
    answers = [
        json.loads(CliRunner().invoke(opsk, ["plan", *request, *more], standalone_mode=False).stdout)
        for more in ([], ["--workers", "2"])
    ]
    for answer in answers:
        del answer["seconds"]
    assert answers[0] == answers[1]
