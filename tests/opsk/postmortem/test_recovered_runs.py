"""Is a job that got over what failed in it no failure, and one that did not get over it still one?

Each text is composed after a kind of real log; what recovers stands beside what differs from it only by not recovering.
"""

from __future__ import annotations

# ruff: noqa: E501 -- lines are quoted as programs print them
from pathlib import Path

import pytest

from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.reasoning import explain

NO_SPACE = "OSError: [Errno 28] No space left on device\n"
KEY = "KeyError: 'tiles'\n"
PREEMPTED = "slurmstepd: error: *** JOB 4711 ON n1 CANCELLED AT 2026-02-03T10:00:00 DUE TO PREEMPTION ***\n"
CONDA = (
    "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'.\n"
    "To initialize your shell, run\n\n    $ conda init <SHELL_NAME>\n\nCurrently supported shells are:\n  - bash\n  - zsh\n\n"
)
NO_JAVA = "  spice computation failed: [Errno 2] No such file or directory: 'java'\n"
NODE_DEAD = (
    "(raylet) The node with node id: 6f21 and address: 10.0.0.1 and node name: 10.0.0.1 has been marked dead because the "
    "detector has missed too many heartbeats from it.\n"
)
RAY_STARTED = "2026-02-03 13:34:52,444\tINFO worker.py:1807 -- Started a local Ray instance. View the dashboard at http://127.0.0.1:8265\n"
TIMED_OUT = "submitit WARNING (2026-02-03 10:00:00,000) - Caught signal SIGUSR2 on n1: this job is timed-out.\n"
REQUEUED = "submitit INFO (2026-02-03 10:00:01,000) - Job has been requeued\n"
SUBMITIT_ENDED = (
    "submitit INFO (2026-02-03 11:00:00,000) - Job completed successfully\n"
    "submitit INFO (2026-02-03 11:00:00,001) - Exiting after successful completion\n"
)


def traced(message: str, *, in_function: str = "load") -> str:
    return f'Traceback (most recent call last):\n  File "/home/u/proj/data.py", line 41, in {in_function}\n    out = read(path)\n{message}'


def threaded(message: str) -> str:
    return (
        'Traceback (most recent call last):\n  File "/usr/lib/python3.11/threading.py", line 1038, in _bootstrap_inner\n'
        f'    self.run()\n  File "/home/u/proj/loop.py", line 154, in run\n    self.turn()\n{message}'
    )


def raised(message: str, program: str = "train.py") -> str:
    return (
        f'Traceback (most recent call last):\n  File "/home/u/proj/{program}", line 88, in <module>\n    main()\n'
        f'  File "/home/u/proj/{program}", line 61, in main\n    run(cfg)\n{message}'
    )


def steps(first: int, last: int) -> str:
    return "".join(f"step {step} | loss: 2.3100 | lr 3.0e-04 | 1.21 s/step\n" for step in range(first, last))


def lines(number: int) -> str:
    return "".join(f"processed shard {each} of {number} in 1.3 s\n" for each in range(1, number + 1))


def stamped(minute: int, text: str, level: str = "INFO") -> str:
    return f"2026-02-03 {10 + minute // 60}:{minute % 60:02d}:07,123 - {level} - {text}\n"


BEGINS = stamped(1, "Starting preprocessing") + stamped(2, "reading config a.yaml")
GOOD_RUN = (
    stamped(101, "Starting preprocessing") + stamped(102, "reading config b.yaml")
    + stamped(150, "Processing year 2001 (2/2)") + stamped(180, "Preprocessing is through")
)  # fmt: skip


def critic(minute: int, value: str) -> str:
    return "".join(
        stamped(minute + each, f"iter={each} reward=0.1 loss_critic={value} loss_policy={value}") for each in range(9)
    )


FILLER = "".join(stamped(30, f"parsed action {each}: moved by 0.5586 to cell {each % 7}") for each in range(400))


RECOVERED = {
    "a program that says of a part that it failed, and writes its results": (
        lines(6) + NO_JAVA + "\nResults saved to results/eval.json\n=====\nSUMMARY\n  images:  5000\n  bleu-4:  10.05\n  cider:   0.000\n=====\n"
    ),
    "a file that could not be read, in another language": (
        "Erreur de lecture du fichier 3: [Errno 2] No such file or directory: 'c.txt' -- ignoré\n"
        "Fichier 4 sur 6 traité\nFichier 5 sur 6 traité\nFichier 6 sur 6 traité\nTerminé\n"
    ),
    "an exception that Cython cannot pass on": (
        lines(5) + (NO_SPACE + "Exception ignored in: 'solver.logcallbackstub'\n" + NO_SPACE) * 3 + "rows 9\n"
    ),
    "an exception that Cython cannot pass on, with its frames": (
        lines(5) + traced(KEY) + "Exception ignored in: 'lib.callback'\n" + traced(KEY) + "wrote the table\n"
    ),
    "a full disk within a destructor": (
        lines(5) + "Exception ignored in: <function Writer.__del__ at 0x7f2c>\n" + traced(NO_SPACE, in_function="__del__")
    ),
    "fits that a search for settings left out": (
        "5 fits failed out of a total of 30.\nThe score on these train-test partitions for these parameters will be set to nan.\n"
        "5 fits failed with the following error:\n"
        'Traceback (most recent call last):\n  File "/usr/lib/python3/site-packages/sklearn/model_selection/_validation.py", line 732, in _fit_and_score\n    estimator.fit(X_train, y_train, **fit_params)\n'
        "ValueError: Solver lbfgs supports only 'l2' or 'none' penalties, got l1 penalty.\n\n  warnings.warn(message, FitFailedWarning)\nTest accuracy: 0.91\n"
    ),
    "samples that could not be read, and a summary": (
        "".join(stamped(each, f"sample {each} could not be read", "ERROR") + traced("ValueError: not enough values to unpack (expected 2, got 1)\n") for each in range(5))
        + stamped(30, "read 995 of 1000 samples") + stamped(31, "wrote out.parquet")
    ),
    "a logger's file: a run that raised, and a good one with another config": BEGINS + raised(KEY, "prep.py") + GOOD_RUN,
    "a logger's file: a run that was interrupted, and a good one": BEGINS + raised("KeyboardInterrupt\n", "prep.py") + GOOD_RUN,
    "a logger's file: losses of an earlier run that were no numbers": critic(1, "nan") + FILLER + critic(301, "0.52") + stamped(390, "actor is in a.pt"),
    "a run that raised at once below a file's first lines": (
        "Loading data from data/x.csv\nUsing 12 features\n" + raised(KEY) + "Loading data from data/x.csv\nUsing 12 features\nR2 score: 0.81\n"
    ),
    "runs that have but one first line": (
        "Better speed with apex installed\n" + raised("ValueError: Input contains NaN, infinity or a value too large for dtype('float64').\n", "main.py")
        + "Better speed with apex installed\nTest AUC: 62.40%\nBetter speed with apex installed\nTest AUC: 61.31%\n"
    ),
    "a job that was preempted, ran again and ended well": PREEMPTED + "Resuming from step 30\n" + steps(31, 300) + "Training complete\n",
    "a job that submitit put back, and that ended well": steps(0, 20) + TIMED_OUT + REQUEUED + steps(20, 60) + SUBMITIT_ENDED,
    "a start of Ray that lost a node, and another start": (
        "2026-02-03 13:04:52,444\tINFO worker.py:1807 -- Started a local Ray instance.\n" + NODE_DEAD
        + raised("ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n", "driver.py") + RAY_STARTED + "Welcome\nwandb: Syncing run hollow-dance-21\n"
    ),
    "a process of Ray whose tasks ran again": (
        "(raylet) A worker died or was killed while executing a task by an unexpected system error.\n"
        + "".join(f"(train pid=12) epoch {each} is through, all is well\n" for each in range(600))
    ),
    "a step of a workflow that was tried again": (
        "Error in rule align:\n    jobid: 3\n    output: a.bam\n\nTrying to restart job 3.\nFinished job 3.\n10 of 10 steps (100%) done\n"
    ),
    "unit tests of what is not there": (
        "test_bad_path (tests.T) ... ERROR:root:could not read /nope: [Errno 2] No such file or directory: '/nope'\nok\n"
        "test_nan (tests.T) ... WARNING:root:loss is nan\nok\n\n----------------------------------------------------------------------\nRan 12 tests in 0.412s\n\nOK\n"
    ),
    "a thread of wandb that outlives its service": (
        steps(0, 60) + "Exception in thread ChkStopThr:\n" + threaded("wandb.errors.MailboxClosedError: mailbox closed\n")
    ),
    "a worker of the data loader that is terminated at the end": (
        steps(0, 80) + "Process SpawnProcess-1:\n" + threaded("RuntimeError: DataLoader worker (pid 120) is killed by signal: Terminated. \n")
        + "Training complete\n"
    ),
    "training that somebody stopped early, and the test that follows": (
        steps(0, 30) + "\nDetected KeyboardInterrupt, attempting graceful shutdown ...\n"
        "Testing DataLoader 0: 100%|##########| 10/10 [00:01<00:00]\ntest_acc 0.91\nResults saved to out/r.csv\n"
    ),
    "what a check of half precision may lead to": (
        "AMP: checks failed. Anomalies were detected with AMP on your system that may lead to NaN losses or zero-mAP results, so AMP will be disabled during training.\n"
        "10 epochs completed in 0.1 hours.\n"
    ),
    "a package that pip built in another way": (
        "  ERROR: Failed building wheel for x\n  Running setup.py clean for x\nFailed to build x\n  Running setup.py install for x ... done\nSuccessfully installed x-1.0\n"
    ),
    "what a history, a help text and an answer say of memory": (
        "commit 1a2b3c\n    Fix CUDA out of memory in evaluation\n  --oom   what to do on CUDA out of memory\n"
        "slurmstepd: error: Detected 1 oom_kill event means that your job ran out of memory.\n" + lines(8)
    ),
    "a test that panics as it should": (
        "running 2 tests\nthread 'panics' panicked at 'boom', src/lib.rs:3:5\ntest panics - should panic ... ok\n"
        "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n"
    ),
    "a task of a workflow that failed once": (
        "[2026-02-03 10:00:00,000] {taskinstance.py:1} ERROR - Task failed with exception\n" + traced("ConnectionError: refused\n")
        + "[2026-02-03 10:05:00,000] {taskinstance.py:3} INFO - Starting attempt 2 of 3\n[2026-02-03 10:06:00,000] {taskinstance.py:4} INFO - Marking task as SUCCESS. dag_id=x\n"
    ),
    "a target whose name alarms": "[ 50%] Building CXX object fatal.o\n[100%] Built target fatal\n",
    "scripts without the sign of their first line": (
        "run1_4.qsub: line 1: !/usr/bin/bash: No such file or directory\n" + lines(6) + "Launcher: Done. Job exited without errors\n"
    ),
    "conda that was not set up, and a program that runs all the same": CONDA + lines(80),
}  # fmt: skip

NOT_RECOVERED = {
    "a program that says of a part that it failed, and no more": (lines(6) + NO_JAVA, "config"),
    "a program that says what it could not read, and writes what it leaves behind": (
        lines(6) + "evaluation failed: [Errno 2] No such file or directory: 'java'\nState was saved to crash/emergency.pt\n", "config",
    ),
    "a full disk that ends the program": (lines(5) + raised(NO_SPACE), "storage"),
    "a logger's file: a good run, and one that raised": (BEGINS + GOOD_RUN + BEGINS + raised(KEY, "prep.py"), "software"),
    "a logger's file: losses that are no numbers to the end": (critic(1, "0.52") + FILLER + critic(301, "nan"), "numeric"),
    "a run below a file's first lines that raised as well": (
        "Loading data from data/x.csv\nUsing 12 features\n" + raised(KEY) + "Loading data from data/x.csv\nUsing 12 features\n" + raised(KEY), "software",
    ),
    "a job that was preempted, and what it still wrote": (steps(0, 30) + PREEMPTED + steps(30, 34), "preempted"),
    "a job that submitit put back, and that is not there again": (steps(0, 20) + TIMED_OUT + REQUEUED, "time_limit"),
    "the node that Ray lost": (RAY_STARTED + NODE_DEAD, "node"),
    "a step of a workflow that failed for good": (
        "Error in rule align:\n    jobid: 3\n    output: a.bam\n\n2 of 10 steps (20%) done\nExiting because a job execution failed. Look above for error message\n", "software",
    ),
    "conda that was not set up, and its advice": (CONDA, "config"),
    "a package that pip could not build": ("  ERROR: Failed building wheel for x\n  Running setup.py clean for x\nFailed to build x\n", "config"),
    "a thread of the program's own": (
        steps(0, 60) + "Exception in thread Loader-1:\n" + threaded("ValueError: too many values to unpack (expected 2)\n"), "software",
    ),
    "python that cannot open what it is to run": (
        "python: can't open file '/home/u/run.py': [Errno 2] No such file or directory\n", "config",
    ),
}  # fmt: skip


ENDS = (
    "10 of 10 steps (100%) done\n", "\nRan 12 tests in 0.412s\n\nOK\n", "100% tests passed, 0 tests failed out of 2\n",
    " Normal termination of Gaussian 16 at Mon Feb  1 10:40:44 2021.\n", "State: COMPLETED (exit code 0)\n",
    stamped(9, "Spatial analysis pipeline completed successfully."), "Saved to results/masks.json\n", "Array task 6 completed with exit code: 0\n",
)  # fmt: skip


def find_class(text: str, folder: Path) -> str:
    log = folder / "slurm-4711.out"
    log.write_text(text)
    root = explain(read_logs([LogFile(path=log)], processes=1)).root
    return root.failure.value if root is not None else ""


@pytest.mark.parametrize("kind", RECOVERED)
def test_what_a_job_got_over_is_no_failure(kind: str, tmp_path: Path) -> None:
    assert find_class(RECOVERED[kind], tmp_path) == ""


@pytest.mark.parametrize("kind", NOT_RECOVERED)
def test_what_a_job_did_not_get_over_is_its_failure(kind: str, tmp_path: Path) -> None:
    text, failure = NOT_RECOVERED[kind]
    assert find_class(text, tmp_path) == failure


def find_state(text: str, folder: Path) -> str:
    log = folder / "slurm-4711.out"
    log.write_text(text)
    return explain(read_logs([LogFile(path=log)], processes=1)).state


@pytest.mark.parametrize(
    "text",
    [
        "Signal 15 received, saving\n" + raised("SystemExit: 0\n"),
        "Exception in thread NetStatThr:\n" + threaded("BrokenPipeError: [Errno 32] Broken pipe\n"),
        "Exception ignored in: <module 'threading' from '/usr/lib/python3.11/threading.py'>\n"
        + threaded("KeyboardInterrupt\n"),
        "ERROR:    Exception in ASGI application\n"
        + traced("ValueError: bad request\n")
        + "INFO:     10.0.0.1:1 - 200 OK\n",
    ],
)
def test_what_ends_nothing_makes_no_job_a_failed_one(text: str, tmp_path: Path) -> None:
    assert find_state(steps(0, 60) + text, tmp_path) == "unknown"


@pytest.mark.parametrize("end", ENDS)
def test_an_end_that_says_that_all_went_well_is_told(end: str, tmp_path: Path) -> None:
    assert find_state(lines(5) + end, tmp_path) == "ended well"


@pytest.mark.parametrize(
    "text",
    [
        raised(KEY) + "Job completed successfully\n",
        lines(6) + "srun: error: n1: task 0: Exited with exit code 1\nJob completed successfully\n",
        lines(6)
        + "slurmstepd: error: *** JOB 4711 ON n1 CANCELLED AT 2026-02-03T10:00:00 ***\nJob completed successfully\n",
    ],
)
def test_last_words_of_a_script_do_not_make_a_failure_good(text: str, tmp_path: Path) -> None:
    assert find_state(text, tmp_path) == "failed"


def items(number: int) -> str:
    return "".join(
        f"[{each:05d}] evaluated item {each}: score 0.{each % 97:02d}, {each * 3} tokens\n" for each in range(number)
    )


OUTLIVED = (
    "CUDA error: uncorrectable ECC error encountered",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have been OOM Killed.",
    "[1699] [n1] transport/net_ib.cc:112 NCCL WARN NET/IB : Got completion from peer 10.0.0.1 with status=12 opcode=0 len=0",
)


@pytest.mark.parametrize("line", OUTLIVED)
def test_what_a_program_works_on_after_for_long_did_not_end_it(line: str, tmp_path: Path) -> None:
    text = items(60) + line + "\n"
    assert find_class(text + items(1600), tmp_path) == ""
    assert find_class(text + items(900) + "Results saved to out/results.json\n", tmp_path) == ""
    assert find_class(text + items(20), tmp_path) != ""


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd: error: *** JOB 4711 ON n1 CANCELLED AT 2026-02-03T10:00:00 DUE TO TIME LIMIT ***",
        "loss is nan at step 12",
    ],
)
def test_what_stays_is_outlived_by_nobody(line: str, tmp_path: Path) -> None:
    assert find_class(items(60) + line + "\n" + items(900) + "Results saved to out/results.json\n", tmp_path) != ""


def test_a_tool_that_could_not_make_its_folder_ends_no_program(tmp_path: Path) -> None:
    text = "cannot create directory ‘/.mozilla’: Permission denied\n" + lines(8)
    assert find_class(text, tmp_path) == ""


SCRIPT_LINE = "/var/spool/slurmd/job4711/slurm_script: line 9: activat: command not found\n"
CANCELLED = "slurmstepd: error: *** JOB 4711 ON n1 CANCELLED AT 2026-02-03T10:00:00 ***\n"


WEIGHTS = (
    "The model and loaded state dict do not match exactly\n\n"
    "size mismatch for head.weight: copying a param with shape torch.Size([3]) from checkpoint, the shape in current model is torch.Size([8]).\n"
)
"""mmcv lists without a tab what it leaves out, and raises the same list where it may leave nothing out (runner/checkpoint.py)."""


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        (stamped(1, WEIGHTS, "WARNING") + CANCELLED, "cancelled"),
        (raised("RuntimeError: " + WEIGHTS), "config"),
        (SCRIPT_LINE + lines(60) + CANCELLED, "cancelled"),
        (SCRIPT_LINE + CANCELLED, "config"),
    ],
)
def test_a_job_that_is_cancelled_at_work_got_over_what_its_shell_said(tmp_path: Path, text: str, failure: str) -> None:
    assert find_class(text, tmp_path) == failure
