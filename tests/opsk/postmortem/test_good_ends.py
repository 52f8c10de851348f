"""Is a run that ended well called no failure, though errors stand in its text, and a failure one beside such text?

Each text is composed after what a program, a library or Python itself prints in such a case.
"""

from __future__ import annotations

# ruff: noqa: E501 -- lines are quoted as programs print them
from pathlib import Path

import pytest

from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.reasoning import explain

TOP = 'Traceback (most recent call last):\n  File "/home/u/train.py", line 88, in <module>\n    main()\n  File "/home/u/train.py", line 41, in main\n    score(batch)\n'
THREAD = (
    "Exception in thread Thread-3:\nTraceback (most recent call last):\n"
    '  File "/opt/lib/python3.10/threading.py", line 1016, in _bootstrap_inner\n    self.run()\n'
)
LOGGING = (
    "--- Logging error ---\nTraceback (most recent call last):\n"
    '  File "/opt/lib/python3.11/logging/__init__.py", line 1110, in emit\n    msg = self.format(record)\n'
    '  File "/opt/lib/python3.11/logging/__init__.py", line 377, in getMessage\n    msg = msg % self.args\n'
    "TypeError: not all arguments converted during string formatting\n"
    'Call stack:\n  File "/home/u/train.py", line 88, in <module>\n    main()\n'
    "Message: 'model loaded from'\nArguments: ('/data/model',)\n"
)


def steps(first: int, last: int, loss: str = "2.3100") -> str:
    return "".join(f"step {step} | loss: {loss} | 1.23 s/step\n" for step in range(first, last))


def rows(count: int) -> str:
    return "".join(f"sample {number} scored, answer of {number} tokens\n" for number in range(count))


GOOD = {
    "a call of the logger that was wrong": steps(0, 9) + LOGGING,
    "a call of the logger that was wrong, at the start": LOGGING + rows(3),
    "threads of writers whose queue was closed when the program ended": (
        steps(0, 40) + THREAD
        + '  File "/opt/lib/python3.10/multiprocessing/queues.py", line 117, in get\n    res = self._recv_bytes()\n'
        '  File "/opt/lib/python3.10/multiprocessing/connection.py", line 136, in _check_closed\n    raise OSError("handle is closed")\n'
        "OSError: handle is closed\n"
    ),
    "a pool that got work while the interpreter ended": (
        rows(40) + THREAD + "RuntimeError: cannot schedule new futures after interpreter shutdown\n"
    ),
    "a validation loss that is no number now and then": "".join(
        steps(epoch * 20, epoch * 20 + 20, "1.2034") + "epoch average {'loss': nan, 'D1': 0.07}\n" for epoch in range(8)
    ),
    "one loss that is no number, of a batch that was skipped": steps(0, 20) + steps(20, 21, "nan") + steps(21, 60),
    "a message of a handler that a logger writes at level INFO": (
        "INFO:root:Encountered exception when loading checkpoint Error(s) in loading state_dict for Net:\n"
        "INFO:root:training from the beginning\n" + "".join(f"INFO:root:[{at}, 10] loss: 1.234 lr 1e-4\n" for at in range(200))
    ),
    "a trial of a search whose loss became no number, and the trials after it": (
        "wandb: Agent Starting Run: aaaa1111 with config:\n" + steps(0, 20, "nan") + "wandb:     train_loss nan\n"
        "wandb: Agent Starting Run: bbbb2222 with config:\n" + rows(30)
    ),
    "a score that a library refused, and the script's next programs": (
        rows(20) + TOP + "ValueError: Input contains NaN, infinity or a value too large for dtype('float64').\n" + rows(600)
    ),
    "runs that are skipped, and a run's own last words": (
        "INFO:ours:|2024-08-25 07:17:49| Run 1 Error: DataLoader worker (pid(s) 3004121) exited unexpectedly, This run will be skipped.\n"
        "INFO:ours:|2024-08-25 07:21:33| Run 2 Error: DataLoader worker (pid 3036087) is killed by signal: Segmentation fault. , This run will be skipped.\n"
        "INFO:ours:|2024-08-25 07:21:33| MAE: 0.0001\nINFO:ours:|2024-08-25 07:21:33| Experiment Success\n"
    ),
    "a server's client that went away": (
        "Exception occurred during processing of request from ('10.0.0.7', 41222)\nTraceback (most recent call last):\n"
        '  File "/opt/lib/python3.11/socketserver.py", line 691, in process_request_thread\n    self.finish_request(request, client_address)\n'
        "ValueError: not a number\n" + rows(2)
    ),
    "what is registered to be done at the end": (
        steps(0, 40) + "Error in atexit._run_exitfuncs:\nTraceback (most recent call last):\n"
        '  File "/opt/lib/python3.10/site-packages/tool/report.py", line 12, in close\n    self.sink.flush()\nValueError: I/O operation on closed file.\n'
    ),
    "threads of a logger whose service ended before them": (
        steps(0, 40) + "wandb: Waiting for W&B process to finish... (success).\nwandb: Synced 5 W&B file(s)\n"
        "Exception in thread NetStatThr:\nTraceback (most recent call last):\n"
        '  File "/opt/lib/python3.9/site-packages/wandb/sdk/interface/sock.py", line 130, in _send\n    sent = self._sock.send(data)\n'
        "BrokenPipeError: [Errno 32] Broken pipe\n"
    ),
    "a script that asks for its jobs while Slurm's controller is away, and works on": (
        steps(0, 20) + "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n" + steps(20, 80)
    ),
    "tests that ask for exceptions": (
        "============================= test session starts ==============================\ncollected 12 items\n"
        "tests/test_train.py ...x........                                         [100%]\n"
        "Captured: ValueError: shapes (3,4) and (5,) not aligned\n"
        "======================== 11 passed, 1 xfailed in 3.21s =========================\n"
    ),
    "tests that passed, with what one of them printed": (
        "============================= test session starts ==============================\ncollected 3 items\n"
        "----------------------------- Captured stderr call -----------------------------\n"
        + TOP + "ValueError: expected\n============================== 3 passed in 0.12s ===============================\n"
    ),
    "answers in JSON that quote tracebacks": (
        '{"id": 7, "answer": "Traceback (most recent call last):\\n  File \\"a.py\\", line 1, in <module>\\nValueError: x"}\n' * 5
        + "Accuracy: 0.61\n"
    ),
    "a server that a script killed when it was done": (
        rows(20) + "Accuracy: 0.61\nEvaluation finished.\n/var/spool/slurmd/job4711/slurm_script: line 31: 39123 "
        "Killed                  python -m vllm.entrypoints.openai.api_server --model m > server.log\n"
    ),
    "one sample that a program skips, as it says below": (
        rows(4) + 'Traceback (most recent call last):\n  File "/home/u/data.py", line 41, in load\n    img = read(path)\n'
        "ValueError: cannot identify image file 'a.jpg'\nSkipping sample 4711\n" + rows(2)
    ),
    "a model's answer that quotes a traceback": (
        "Prompt 7: why does my program fail?\nAnswer: You see this output:\n```\n" + TOP
        + "KeyError: 'weights'\n```\nThe key is not there: use dict.get.\n" + rows(4)
    ),
}  # fmt: skip
FAILED = {
    "a loss that stays no number": (steps(0, 20) + steps(20, 60, "nan"), "numeric"),
    "a loss that is no number at the end": (steps(0, 20) + steps(20, 21, "nan") + TOP + "FloatingPointError: Loss is nan, stopping\n", "numeric"),
    "a wrong call of the logger above the exception that ended the program": (
        LOGGING + rows(3) + TOP + "KeyError: 'weights'\n", "software",
    ),
    "queues that closed because the program failed": (
        steps(0, 9) + TOP + "IndexError: list index out of range\n" + THREAD
        + '  File "/opt/lib/python3.10/multiprocessing/connection.py", line 136, in _check_closed\n    raise OSError("handle is closed")\n'
        "OSError: handle is closed\n", "software",
    ),
    "a program of training that was killed after it had saved": (
        rows(20) + "Saved checkpoint to out/9.pt\nrun.sh: line 31: 39123 Killed                  python train.py --steps 100\n",
        "host_memory",
    ),
    "a run that failed after another of the same program was uploaded": (
        steps(0, 20) + "wandb: Waiting for W&B process to finish... (success).\n" + steps(0, 9) + TOP + "KeyError: 'weights'\n",
        "software",
    ),
    "tests of which one failed": (
        "collected 3 items\n" + TOP + "KeyError: 'weights'\n"
        "========================= 1 failed, 2 passed in 0.12s ==========================\n", "software",
    ),
    "a score that a library refused last": (rows(20) + TOP + "ValueError: Input contains NaN.\n", "numeric"),
    "a refusal that a logger writes at level INFO as its last": (
        rows(9) + "INFO:root:Error(s) in loading state_dict for Net:\n", "config",
    ),
}  # fmt: skip


def find_class(text: str, folder: Path) -> tuple[str, str]:
    log = folder / "slurm-4711.out"
    log.write_text(text)
    report = explain(read_logs([LogFile(path=log)], processes=1))
    return report.root.failure.value if report.root is not None else "", report.state


@pytest.mark.parametrize("kind", GOOD)
def test_a_run_that_ended_well_is_no_failure_whatever_its_text_says(kind: str, tmp_path: Path) -> None:
    failure, state = find_class(GOOD[kind], tmp_path)
    assert (failure, state != "failed") == ("", True)


@pytest.mark.parametrize("kind", FAILED)
def test_a_failure_beside_innocent_text_is_found(kind: str, tmp_path: Path) -> None:
    text, failure = FAILED[kind]
    assert find_class(text, tmp_path)[0] == failure


STEP = "slurmstepd: error: *** STEP {0}.0 ON n1 CANCELLED AT 2026-01-05T10:{1}:00 ***\nsrun: error: n1: task 0: Terminated\n"


def test_a_task_that_failed_in_an_earlier_step_does_not_make_the_next_cancellation_a_clean_up(tmp_path: Path) -> None:
    first = TOP + "KeyError: 'weights'\nsrun: error: n1: task 0: Exited with exit code 1\n" + STEP.format(4711, "01")
    second = rows(2500) + STEP.format(4712, "30")
    assert find_class(first + second, tmp_path)[0] == "cancelled"


def test_a_step_that_was_cancelled_long_before_the_script_went_on_is_no_failure(tmp_path: Path) -> None:
    assert find_class(rows(40) + STEP.format(4711, "01") + rows(2500), tmp_path)[0] == ""


def test_a_task_that_failed_makes_the_cancellation_of_its_own_step_a_clean_up(tmp_path: Path) -> None:
    failed = TOP + "KeyError: 'weights'\nsrun: error: n1: task 0: Exited with exit code 1\n"
    assert find_class(rows(4) + failed + STEP.format(4711, "01"), tmp_path)[0] == "software"
