"""Can somebody who does not see the log act on a report: nothing twice, nothing invented, the failure by its name?"""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk.cli.postmortem.report import format_report
from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.logs.header import parse_log_name
from opsk.postmortem.reasoning import explain
from opsk.postmortem.report import render_html, render_markdown
from opsk.postmortem.values import Report

TOP = 'Traceback (most recent call last):\n  File "/home/u/train.py", line 88, in <module>\n    main()\n'
SPAWNED = (
    TOP + '  File "/opt/lib/python3.10/site-packages/torch/multiprocessing/spawn.py", line 160, in join\n'
    "    raise ProcessRaisedException(msg, error_index, failed_process.pid)\n"
    "torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 2 terminated with the following error:\n"
    'Traceback (most recent call last):\n  File "/opt/lib/python3.10/site-packages/torch/multiprocessing/spawn.py", '
    'line 69, in _wrap\n    fn(i, *args)\n  File "/home/u/gait.py", line 230, in infer\n    x = x.permute(2, 1, 0)\n'
    "RuntimeError: number of dimensions in the tensor input does not match the length of the ordering\n"
)
OF_NO_RANK = (
    "train_seq_20250923_132847.log", "eval_2025-09-23_13-28.log", "run-2025-01-05.out", "exp-3-slurm-680308.out",
    "run.7-job-48213.out", "fit_12_680308.err",
)  # fmt: skip


def read(text: str, folder: Path) -> Report:
    log = folder / "slurm-4711.out"
    log.write_text(text)
    return explain(read_logs([LogFile(path=log)], processes=1))


@pytest.mark.parametrize("name", OF_NO_RANK)
def test_a_time_a_date_or_a_job_in_the_name_of_a_log_is_no_rank(name: str) -> None:
    assert parse_log_name(name).rank is None


def test_the_exception_of_a_spawned_process_is_the_cause_and_not_that_it_was_passed_on(tmp_path: Path) -> None:
    root = read(SPAWNED, tmp_path).root
    assert root is not None
    assert "RuntimeError in gait.py:230" in root.what


def test_what_cpp_threw_is_named(tmp_path: Path) -> None:
    thrown = "terminate called after throwing an instance of 'cl::sycl::runtime_error'\n  what():  Native API failed\n"
    root = read("step 1\n" + thrown, tmp_path).root
    assert root is not None
    assert "cl::sycl::runtime_error: Native API failed" in root.what


def test_what_a_program_of_another_language_says_is_named(tmp_path: Path) -> None:
    root = read("ERROR: LoadError: MethodError: no method matching step(::Int64)\nStacktrace:\n", tmp_path).root
    assert root is not None
    assert "MethodError: no method matching step(::Int64)" in root.what


def test_a_directory_in_place_of_a_file_is_no_missing_file(tmp_path: Path) -> None:
    report = read(TOP + "IsADirectoryError: [Errno 21] Is a directory: './data/predictions/'\n", tmp_path)
    assert not any("a file is missing" in action.what for action in report.actions)
    assert any("directory" in action.what for action in report.actions)


def test_two_actions_do_not_begin_with_the_same_words(tmp_path: Path) -> None:
    report = read(
        "[W socket.cpp:464] [c10d] The server socket has failed to bind to [::]:40112 (errno: 98 - Address already in "
        "use).\n[E socket.cpp:500] [c10d] The server socket has failed to listen on any local network address.\n"
        + TOP + "RuntimeError: The server socket has failed to listen on any local network address. The server socket "
        "has failed to bind to [::]:40112 (errno: 98 - Address already in use).\n", tmp_path,
    )  # fmt: skip
    beginnings = [action.what.split(",")[0].split(";")[0] for action in report.actions]
    assert len(beginnings) == len(set(beginnings))


def test_only_the_argument_that_the_last_run_refused_is_shown(tmp_path: Path) -> None:
    first = "train.py: error: argument --mode: invalid choice: 'p-tuning'\n"
    last = "train.py: error: argument --fp16: expected one argument\n"
    report = read("usage: train.py [-h]\n" + first + "usage: train.py [-h]\n" + last, tmp_path)
    assert report.root is not None
    shown = [line.text for line in report.root.lines]
    assert any("--fp16" in text for text in shown)
    assert not any("--mode" in text for text in shown)


def test_the_cause_stands_once_where_it_is_all_that_is_known(tmp_path: Path) -> None:
    report = read(TOP + "KeyError: 'weights'\n", tmp_path)
    assert report.root is not None
    lines = format_report(report)
    assert sum(report.root.what in line for line in lines) == 1


def test_no_form_of_a_report_repeats_the_cause_as_its_only_event(tmp_path: Path) -> None:
    report = read(TOP + "KeyError: 'weights'\n", tmp_path)
    assert report.root is not None
    assert "What happened" not in render_markdown(report)
    assert "What happened" not in render_html(report)


def test_what_torchrun_saw_is_shown_with_the_exit_code(tmp_path: Path) -> None:
    torchrun = (
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-02-02_16:56:08\n  host      : gpu012\n"
        "  rank      : 0 (local_rank: 0)\n  exitcode  : -9 (pid: 76739)\n  error_file: <N/A>\n"
    )
    lines = format_report(read("step 1\n" + torchrun, tmp_path))
    assert any("exitcode: -9" in line for line in lines)
    assert any("exit code -9 (SIGKILL)" in line for line in lines)


def test_events_without_times_are_listed_without_a_column_for_them(tmp_path: Path) -> None:
    report = read(TOP + "KeyError: 'weights'\nsrun: error: gpu012: task 0: Exited with exit code 1\n", tmp_path)
    lines = format_report(report)
    assert not any("no time on the line" in line for line in lines)
    assert any(line.startswith("when") and "order" in line for line in lines)


def test_that_no_cause_is_shown_is_said_once(tmp_path: Path) -> None:
    lines = format_report(read("step 1\n" + TOP, tmp_path))
    assert sum("the evidence" in line for line in lines) == 1


def test_a_module_that_is_missing_may_be_the_programs_own(tmp_path: Path) -> None:
    report = read(TOP + "ModuleNotFoundError: No module named 'src'\n", tmp_path)
    assert any("PYTHONPATH" in action.what for action in report.actions)
    assert report.root is not None
    assert report.root.what.endswith(": src")


def test_a_job_with_a_cause_has_failed_though_steps_stand_below_it(tmp_path: Path) -> None:
    died = (
        "(raylet) A worker died or was killed while executing a task by an unexpected system error. "
        "To troubleshoot the problem, check the logs for the dead worker.\n"
    )
    report = read("step 1 | loss: 2.31\n" + died + "step 2 | loss: 2.30\n", tmp_path)
    assert (report.root is None) == (report.state != "failed")
