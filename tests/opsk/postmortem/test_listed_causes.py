"""Is a process that ended without a word, or that waited in vain, named modestly, and only where nothing says more?

Ray lists what may have ended a process: that list is no sign of any of its items. What is expected of each log is what
the sources say that its lines mean: ray python/ray/exceptions.py and src/ray/raylet/node_manager.cc, pytorch
distributed_c10d.py, bash and dash jobs.c, horovod stall_inspector.cc, DeepEP csrc.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.reasoning import explain
from opsk.postmortem.values import Report

# ruff: noqa: E501 -- lines are quoted as programs print them
STEPS = "".join(f"step {step} | loss: 2.3100 | 1.23 s/step\n" for step in range(100, 110))
RAISED = 'Traceback (most recent call last):\n  File "/home/ada/run/train.py", line 41, in <module>\n    main()\n  File "/opt/venv/lib/python3.11/site-packages/ray/_private/worker.py", line 81, in get\n    raise value\n'
DIED = (
    RAISED
    + "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tclass_name: Worker\n\tactor_id: 3f\n\tpid: 31\n\tip: 10.0.0.5\n"
)
LISTED = {
    "until 2.50": "Worker unexpectedly exits with a connection error code 2. End of file. There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage. (2) ray stop --force is called. (3) The worker is crashed unexpectedly due to SIGSEGV or other unexpected errors.",
    "now": "Worker unexpectedly exits with a connection error code 2. End of file. Some common causes include: (1) the process was killed by the OOM killer due to high memory usage, (2) ray stop --force was called, or (3) the worker crashed unexpectedly due to SIGSEGV or another unexpected error.",
}
WORKER_DIED = (
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: "
)
BARRIER = "[2026-01-05 10:00:{at:02d},123] torch.distributed.distributed_c10d: [INFO] Waiting in store based barrier to initialize process group for rank: 3, key: store_based_barrier_key:1 (world_size=16, num_workers_joined=12, timeout=0:30:00)\n"
TIME_LIMIT = "slurmstepd: error: *** JOB 4711 ON gpu012 CANCELLED AT 2026-01-05T10:20:00 DUE TO TIME LIMIT ***\n"
MODEST = 0.6


def read(folder: Path, text: str) -> Report:
    log = folder / "slurm-4711.out"
    log.write_text(text)
    return explain(read_logs([LogFile(path=log)], processes=1))


@pytest.mark.parametrize("release", LISTED)
def test_what_ray_lists_is_memory_first_and_never_sure(release: str, tmp_path: Path) -> None:
    root = read(tmp_path, STEPS + DIED + WORKER_DIED + LISTED[release] + "\n").root
    assert root is not None
    assert root.failure == "host_memory"
    assert root.confidence < MODEST


@pytest.mark.parametrize(
    "text",
    [
        RAISED + "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.\n",
        RAISED
        + "ray.exceptions.WorkerCrashedError: The worker died unexpectedly while executing this task. Check python-core-worker-*.log files for more information.\n",
        "Killed\n",
        "/var/spool/slurmd/job4711/slurm_script: line 28:  8156 Killed                  python3 train.py --lr 1e-4\n",
    ],
)
def test_a_bare_end_is_named_modestly(text: str, tmp_path: Path) -> None:
    report = read(tmp_path, STEPS + text)
    assert report.root is not None
    assert (report.root.failure, report.root.confidence < MODEST) == ("host_memory", True)
    assert any("kernel log" in action.what for action in report.actions)


def test_another_sign_explains_what_ray_lists(tmp_path: Path) -> None:
    said = "(Worker pid=31) " + "\n(Worker pid=31) ".join((RAISED + "KeyError: 'labels'").splitlines()) + "\n"
    root = read(tmp_path, STEPS + said + DIED + WORKER_DIED + LISTED["now"] + "\n").root
    assert root is not None
    assert (root.failure, "KeyError" in root.what) == ("software", True)


@pytest.mark.parametrize(
    "why",
    [
        "The actor is dead because it was killed by `ray.kill`.",
        "The actor is dead because its owner has died. Owner Id: 3f",
        "The actor is dead because all references to the actor were removed.",
    ],
)
def test_an_actor_that_was_asked_to_end_is_no_cause(why: str, tmp_path: Path) -> None:
    assert read(tmp_path, STEPS + DIED + why + "\n").root is None


def test_a_monitor_that_the_script_kills_is_no_failure_of_memory(tmp_path: Path) -> None:
    text = "slurm_script: line 30:  8156 Killed                  nvidia-smi -l 5 > gpu.log\n"
    assert read(tmp_path, STEPS + text).root is None


def test_ranks_that_waited_until_the_time_was_up_had_not_found_each_other(tmp_path: Path) -> None:
    report = read(tmp_path, "".join(BARRIER.format(at=at) for at in (10, 20, 30)) + TIME_LIMIT)
    assert report.root is not None
    assert report.root.failure == "rendezvous"


def test_ranks_that_waited_and_then_met_had_found_each_other(tmp_path: Path) -> None:
    met = "torch.distributed.distributed_c10d: [INFO] Rank 3: Completed store-based barrier for key:store_based_barrier_key:1 with 16 nodes.\n"
    report = read(tmp_path, BARRIER.format(at=10) + met + TIME_LIMIT)
    assert report.root is not None
    assert report.root.failure == "time_limit"


def test_ranks_that_met_once_and_then_waited_in_vain_had_not_found_each_other(tmp_path: Path) -> None:
    met = "torch.distributed.distributed_c10d: [INFO] Rank 3: Completed store-based barrier for key:store_based_barrier_key:1 with 16 nodes.\n"
    report = read(tmp_path, met + BARRIER.format(at=20).replace("key:1", "key:2") + TIME_LIMIT)
    assert report.root is not None
    assert report.root.failure == "rendezvous"


def test_why_others_did_not_come_is_what_they_say(tmp_path: Path) -> None:
    report = read(tmp_path, BARRIER.format(at=10) + RAISED + "torch.OutOfMemoryError: CUDA out of memory.\n")
    assert report.root is not None
    assert report.root.failure == "gpu_memory"


HANGS = {
    "Horovod": "[1]<stderr>:[2026-01-05 10:05:00.000000: W horovod/common/stall_inspector.cc:107] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds. \n",
    "Gloo": RAISED
    + "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete\n",
    "DeepEP": "DeepEP dispatch NVL receiver timeout, channel: 3, RDMA: 0, nvl: 2, src NVL: 1, head: 2, tail: 2\n",
    "PyTorch": "[rank3]:[E105 11:00:00.1 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1312, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.\n",
}


@pytest.mark.parametrize("program", HANGS)
def test_only_pytorch_is_said_to_have_a_flight_recorder(program: str, tmp_path: Path) -> None:
    report = read(tmp_path, STEPS + HANGS[program])
    assert report.root is not None
    assert report.root.failure == "collective_hang"
    advice = " ".join(action.what for action in report.actions)
    assert ("flight recorder" in advice) is (program == "PyTorch")
    assert "py-spy dump" in advice
