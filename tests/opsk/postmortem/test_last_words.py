"""Is the class right of what programs other than trainings say last, and is a survived one none?"""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.reasoning import explain
from opsk.postmortem.values import FailureClass, Report
from tests.fakes.last_words import LAST_WORDS

HEAD = "Mon Jan  5 10:00:00 UTC 2026\nRunning on host n012\nreading /scratch/ada/data\n"
WORK = "".join(f"shard {number} of 400 is tokenised, 81920 tokens\n" for number in range(400))
STEP_CANCELLED = "slurmstepd: error: *** STEP 71.0 ON n012 CANCELLED AT 2026-01-05T11:00:00 ***\n"
JOB_CANCELLED = "slurmstepd: error: *** JOB 71 ON n012 CANCELLED AT 2026-01-05T11:00:00 ***\n"
STUCK = (
    "slurmstepd: error: *** STEP 71.0 STEPD TERMINATED ON n012 AT 2026-01-05T11:01:00 "
    "DUE TO JOB NOT ENDING WITH SIGNALS ***\n"
)
NO_CONDA = "CondaError: Run 'conda init' before 'conda {verb}'\n"
PYTHON_WARNS = "/home/ada/train.py:24: UserWarning: lr_scheduler.step() before optimizer.step()\n"


def explain_text(folder: Path, text: str) -> Report:
    path = folder / "slurm-71.out"
    path.write_text(text)
    return explain(read_logs([LogFile(path=path)], processes=1))


def named(report: Report) -> str:
    return report.root.failure.value if report.root is not None else ""


@pytest.mark.parametrize(("classes", "text"), LAST_WORDS)
def test_last_words_have_their_class(classes: str, text: str, tmp_path: Path) -> None:
    assert named(explain_text(tmp_path, f"{HEAD}{text}\n")) in classes.split(",")


def test_most_of_them_end_nothing_where_the_program_works_on(tmp_path: Path) -> None:
    survivable = {"software", "config"}
    those = [text for classes, text in LAST_WORDS if set(classes.split(",")) <= survivable]
    called = [text for text in those if named(explain_text(tmp_path, f"{HEAD}{text}\n{WORK}{WORK}"))]
    assert len(called) <= len(those) // 50, called


@pytest.mark.parametrize("text", ["Bus error (core dumped)", "Bus error"])
def test_a_bare_bus_error_is_not_sure(text: str, tmp_path: Path) -> None:
    root = explain_text(tmp_path, f"{HEAD}{text}\n").root
    assert root is None or (root.failure is FailureClass.HOST_MEMORY and root.confidence < 0.6)


def test_a_step_that_could_not_be_killed_is_the_nodes_and_no_cancellation(tmp_path: Path) -> None:
    assert named(explain_text(tmp_path, HEAD + STEP_CANCELLED + STUCK)) == "node"
    assert named(explain_text(tmp_path, HEAD + STUCK)) == "node"
    assert named(explain_text(tmp_path, HEAD + JOB_CANCELLED + STUCK)) == "cancelled"


def test_conda_that_was_not_set_up_ended_nothing_where_python_ran(tmp_path: Path) -> None:
    lines = NO_CONDA.format(verb="activate"), PYTHON_WARNS, NO_CONDA.format(verb="deactivate")
    assert named(explain_text(tmp_path, "\n".join(lines))) == ""
    assert named(explain_text(tmp_path, lines[0])) == "config"


def test_a_shell_that_conda_was_not_set_up_for_is_no_cause_of_what_ran_below_it(tmp_path: Path) -> None:
    refused = "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'.\n"
    end = "slurmstepd: error: *** JOB 71 ON n012 CANCELLED AT 2026-01-05T11:00:00 DUE TO TIME LIMIT ***\n"
    assert named(explain_text(tmp_path, refused + WORK + end)) == "time_limit"
    assert named(explain_text(tmp_path, refused + end)) == "time_limit"
    assert named(explain_text(tmp_path, refused)) == "config"


def test_what_a_launcher_had_buffered_is_no_other_run(tmp_path: Path) -> None:
    raised = (
        'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    step()\n'
        "RuntimeError: Expected object of scalar type float but got scalar type half\n"
    )
    notice = "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default\n"
    assert named(explain_text(tmp_path, HEAD + raised + notice + "done\n")) == "software"
    assert named(explain_text(tmp_path, HEAD + raised + notice + WORK)) == ""


def test_of_several_jobs_on_one_node_the_last_end_counts(tmp_path: Path) -> None:
    """A job that is preempted and requeued appends to its log, and may come to the same node again."""
    end = "slurmstepd: error: *** JOB {job} ON n012 CANCELLED AT 2026-01-{day:02}T11:00:00 DUE TO PREEMPTION ***\n"
    text = "".join(HEAD + WORK + end.format(job=70 + day, day=day) for day in range(1, 5))
    assert named(explain_text(tmp_path, text)) == "preempted"


def test_what_a_thread_could_not_read_is_no_cause_long_before_slurm_ends_the_job(tmp_path: Path) -> None:
    broken = (
        'Exception in thread Thread-5:\nTraceback (most recent call last):\n  File "/usr/lib/python3.9/threading.py", '
        "line 980, in _bootstrap_inner\n    self.run()\n"
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory\n"
    )
    end = "slurmstepd: error: *** JOB 71 ON n012 CANCELLED AT 2026-01-05T11:00:00 DUE TO PREEMPTION ***\n"
    assert named(explain_text(tmp_path, HEAD + broken + WORK * 6 + end)) == "preempted"
    assert named(explain_text(tmp_path, HEAD + broken)) == "storage"


def test_a_proposal_that_stan_rejects_is_no_failure(tmp_path: Path) -> None:
    rejected = (
        "Informational Message: The current Metropolis proposal is about to be rejected because of the following "
        "issue:\nException: normal_cdf: Random variable is nan, but must not be nan!  (in 'model.stan' at line 36)\n\n"
    )
    assert named(explain_text(tmp_path, HEAD + rejected * 3)) == ""


def test_a_look_up_that_a_signal_came_into_is_no_cause(tmp_path: Path) -> None:
    joint = "\nDuring handling of the above exception, another exception occurred:\n\n"
    head = 'Traceback (most recent call last):\n  File "/opt/torch/run.py", line 797, in <module>\n    run()\n'
    signal = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 47068 got signal: 1\n"
    text = HEAD + head + signal + joint + head + "KeyError: 30\n" + joint + head + signal
    assert named(explain_text(tmp_path, text)) == "cancelled"


def test_a_driver_whose_programs_fail_again_and_again_is_judged_by_its_last_ones(tmp_path: Path) -> None:
    failed = (
        'run {number}\nTraceback (most recent call last):\n  File "fit.py", line 9, in <module>\n    fit()\n'
        "RuntimeError: graph {number} is not connected\n"
    )
    text = "".join(failed.format(number=number) for number in range(120))
    assert named(explain_text(tmp_path, HEAD + text + WORK[:2000])) == ""
    assert named(explain_text(tmp_path, HEAD + WORK[:2000] + text)) == "software"


def test_a_start_that_nohup_refused_is_none_of_the_next_start(tmp_path: Path) -> None:
    refused = "nohup: run.sh: No such file or directory\n"
    assert named(explain_text(tmp_path, refused + WORK[:1000])) == ""
    assert named(explain_text(tmp_path, refused)) == "config"


def test_an_xid_that_a_logger_tells_as_news_is_no_fault(tmp_path: Path) -> None:
    xid = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.\n"
    failed = "RuntimeError: CUDA error: unspecified launch failure\n"
    raised = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    step()\n' + failed
    assert named(explain_text(tmp_path, HEAD + raised + "[ 7512.1] " + xid)) == "gpu_hardware"
    assert named(explain_text(tmp_path, HEAD + "INFO - self-test pattern: " + xid + raised)) != "gpu_hardware"
