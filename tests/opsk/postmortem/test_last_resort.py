"""Is a log that ends in a failure of a kind that nobody listed called one, and a good run with such words none?"""

# ruff: noqa: E501 -- lines are quoted as programs print them
from __future__ import annotations

from pathlib import Path

import pytest

from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.reasoning import explain
from opsk.postmortem.values import Report

HEAD = "Mon Jan  5 10:00:00 UTC 2026\nRunning on host n012\nreading /scratch/ada/data\n"
WORK = "".join(f"shard {number} of 400 is tokenised, 81920 tokens\n" for number in range(400))
LSF = (
    "\n------------------------------------------------------------\nSender: LSF System <lsfadmin@n-62>\n"
    "Subject: Job {job}: <train> in cluster <dcc> {end}\n\nYour job looked like:\n\n# LSBATCH: User input\npython train.py\n\n"
    "{how}\n\nResource usage summary:\n\n    CPU time :                                   12.00 sec.\n"
    "    Max Memory :                                 540 MB\n\nThe output (if any) is above this job summary.\n"
)
BATCH_SYSTEMS = {
    "LSF": ("software", LSF.format(job=71, end="Exited", how="Exited with exit code 1.")),
    "LSF, of a job that crashed": ("software", LSF.format(job=71, end="Exited", how="Exited with exit code 139.")),
    "LSF, of a job that was killed": (
        "host_memory",
        LSF.format(job=71, end="Exited", how="Exited by signal 9. The CPU time used is 9.1 seconds."),
    ),
    "ALPS": ("software", "Application 2211 exit codes: 134\nApplication 2211 resources: utime ~3s, stime ~1s\n"),
    "ALPS, of a process": (
        "software",
        "[NID 04093] 2026-01-05 10:00:00 Apid 2211: initiated application termination\n_pmiu_daemon(SIGCHLD): [NID 04093] [c2-0c0s0n1] [Mon Jan  5 10:00:00 2026] PE RANK 12 exit signal Segmentation fault\n",
    ),
    "JSM": ("software", "ERROR:  One or more process (first noticed rank 3) terminated with signal 11\n"),
    "ParaStation": ("software", "PSIlogger: Child with rank 0 exited with status 1.\n"),
    "HTCondor": (
        "software",
        "005 (071.000.000) 01/05 10:00:00 Job terminated.\n\t(1) Normal termination (return value 1)\n",
    ),
    "Cobalt": (
        "software",
        "Info: task completed normally with an exit code of 1; initiating job cleanup and removal\n",
    ),
    "PBS": ("software", "Job 71.pbs ended\nExit_status=1\nresources_used.walltime=00:01:02\n"),
    "seff": ("software", "Job ID: 71\nCluster: vega\nState: FAILED (exit code 1)\nCores: 1\n"),
    "MPT": ("software", "MPT ERROR: Rank 0(g:0) received signal SIGSEGV(11).\n"),
    "srun": ("software", "srun: error: n012: task 0: Exited with exit code 1\n"),
}
LAST = {
    "a script that misses another": ("config", "Missing Slurm script: /home/ada/jobs/train.slurm\n"),
    "a script that reports how its program ended": ("software", "Job finished with exit code 1\n"),
    "GNU time": ("software", 'Command exited with non-zero status 1\n\tCommand being timed: "./solve"\n'),
    "Docker's builder": ("software", "The command '/bin/sh -c make solver' returned a non-zero code: 1\n"),
    "a program that cannot read its input": ("config", "solver> cannot open mesh.msh for reading\n"),
    "a program that gives up": ("software", "solver> assertion on the residual failed in sweep 3, giving up\n"),
    "MATLAB that crashed": (
        "software",
        "             std::terminate() detected at 2026-01-05 10:00:00 +0100\n\nMATLAB is exiting because of fatal error\n",
    ),
    "a program that did not converge": ("software", "SCF did not converge after 200 iterations\n"),
}
GOOD = {
    "a launcher that ends": "Launcher: Task 3 done. Exiting.\n",
    "a fall-back": "Could not open CTM_CONC_1 for update - try to open new\n",
    "an error that is a number": "mean relative error: 1.2e-05\n",
    "a folder that is there": "mkdir: cannot create directory 'experiments': File exists\n",
    "a tool's exit status of 0": "Job finished with exit code 0\n",
    "a good end of LSF": LSF.format(job=71, end="Done", how="Successfully completed."),
    "a good end of HTCondor": "005 (071.000.000) 01/05 10:00:00 Job terminated.\n\t(1) Normal termination (return value 0)\n",
    "a good end by seff": "Job ID: 71\nState: COMPLETED (exit code 0)\n",
    "no errors": "checked 400 files, 0 errors, 0 failed\n",
    "what it says all the time": "".join(
        f"Error: failed to delete member {number} of the group\n" for number in range(40)
    ),
    "a display that is not there, and a logger below it": "Unable to init server: Could not connect: refused\nWARNING:tensorflow:Using temporary folder\n",
    "words on a part that is not there": "TensorRT is not installed, using the default engine\n",
}
KILLED = "/var/spool/slurmd/job71/slurm_script: line 54: 2454094 Killed                  {program}\n"
JUPYTER = "".join(
    f"[I 20:4{minute}:22.584 NotebookApp] 302 GET /tree (192.168.212.63) 0.450000ms\n" for minute in range(10)
)
NO_MODULES = "/var/spool/slurmd/job71/slurm_script: /usr/bin/modulecmd: No such file or directory\n"
NO_COMPILE = '  File "/home/ada/train.py", line 92\n    if crash =!= 1:\n             ^\nSyntaxError: invalid syntax\n'
RAISED = (
    'Traceback (most recent call last):\n  File "/home/ada/train.py", line 88, in <module>\n    main()\n'
    "  File \"/home/ada/train.py\", line 41, in main\n    names.title()\nAttributeError: 'float' object has no attribute 'title'\n"
)
STALLED = "[2026-01-05 10:10:11.833732: W horovod/common/stall_inspector.cc:107] One or more tensors were submitted to be reduced by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.\nMissing ranks:\n8: [grads_0]\n"


def explain_text(folder: Path, text: str) -> Report:
    path = folder / "job-71.out"
    path.write_text(text)
    return explain(read_logs([LogFile(path=path)], processes=1))


def named(report: Report) -> str:
    return report.root.failure.value if report.root is not None else ""


@pytest.mark.parametrize("kind", BATCH_SYSTEMS)
def test_a_batch_system_that_reports_a_bad_end_is_heard_where_nothing_else_speaks(kind: str, tmp_path: Path) -> None:
    failure, text = BATCH_SYSTEMS[kind]
    report = explain_text(tmp_path, HEAD + text)
    assert (report.state, named(report)) == ("failed", failure)


@pytest.mark.parametrize("kind", LAST)
def test_last_words_of_a_program_that_nobody_listed_are_a_failure(kind: str, tmp_path: Path) -> None:
    failure, text = LAST[kind]
    report = explain_text(tmp_path, HEAD + text)
    assert (report.state, named(report)) == ("failed", failure)
    assert report.root is not None
    assert report.actions


@pytest.mark.parametrize("kind", GOOD)
def test_a_good_run_that_ends_with_such_words_is_none(kind: str, tmp_path: Path) -> None:
    assert named(explain_text(tmp_path, HEAD + WORK + GOOD[kind])) == ""


@pytest.mark.parametrize("kind", [kind for kind, (failure, _) in LAST.items() if "MATLAB" not in kind])
def test_such_words_are_none_where_the_program_works_on(kind: str, tmp_path: Path) -> None:
    assert named(explain_text(tmp_path, HEAD + LAST[kind][1] + WORK)) == ""


def test_an_exception_that_is_known_says_more_than_the_batch_system(tmp_path: Path) -> None:
    report = explain_text(tmp_path, HEAD + RAISED + LSF.format(job=71, end="Exited", how="Exited with exit code 1."))
    assert report.root is not None
    assert report.root.findings[0].signature == "python.exception"


def test_of_several_jobs_of_lsf_in_a_log_the_last_one_counts(tmp_path: Path) -> None:
    failed = LSF.format(job=71, end="Exited", how="Exited with exit code 1.")
    done = LSF.format(job=72, end="Done", how="Successfully completed.")
    assert named(explain_text(tmp_path, HEAD + failed + HEAD + WORK + done)) == ""


def test_a_script_that_does_not_compile_is_read_below_the_traceback_of_an_earlier_run(tmp_path: Path) -> None:
    text = RAISED + LSF.format(job=71, end="Exited", how="Exited with exit code 1.") + NO_COMPILE
    report = explain_text(tmp_path, text + LSF.format(job=72, end="Exited", how="Exited with exit code 1."))
    assert report.root is not None
    assert report.root.findings[0].text == "SyntaxError: invalid syntax"


def test_a_line_of_a_script_that_ran_no_command_is_no_cause_of_what_its_program_raised(tmp_path: Path) -> None:
    shell = "/var/spool/jobs/71: line 15: CUDA_VISIBLE_DEVICES: command not found\n"
    report = explain_text(tmp_path, shell + RAISED)
    assert report.root is not None
    assert report.root.findings[0].signature == "python.exception"


def test_a_command_that_is_not_there_for_many_tasks_is_the_cause_where_it_is_the_last_word(tmp_path: Path) -> None:
    line = "/home/ada/bench/run.sh: line 3: ../../bin/sp.D.484: No such file or directory\n"
    assert named(explain_text(tmp_path, "auto-affinity: local task 0: CPUs: 0\n" * 200 + line * 200)) == "config"


def test_a_warning_of_horovod_far_above_the_end_of_a_log_was_survived(tmp_path: Path) -> None:
    harmless = "libibverbs: Warning: couldn't load driver 'libqedr-rdmav22.so'\n"
    assert named(explain_text(tmp_path, STALLED + harmless * 700)) == ""
    assert named(explain_text(tmp_path, harmless * 700 + STALLED)) == "collective_hang"


def test_of_several_jobs_of_lsf_that_ended_in_the_same_way_the_last_one_counts(tmp_path: Path) -> None:
    failed = "".join(LSF.format(job=job, end="Exited", how="Exited with exit code 1.") for job in range(71, 75))
    assert named(explain_text(tmp_path, failed)) == "software"
    report = explain_text(
        tmp_path,
        "".join(RAISED + LSF.format(job=job, end="Exited", how="Exited with exit code 1.") for job in (71, 72)),
    )
    assert report.root is not None
    assert report.root.findings[0].signature == "python.exception"


EXCEPTIONS = {
    "TensorFlow's, of a file": (
        "config",
        "tensorflow.python.framework.errors_impl.NotFoundError: 2 root error(s) found.\n  (0) Not found:  data/train/000318556.jpg; No such file or directory\n\t [[{{node ReadFile}}]]",
    ),
    "gym's, of an environment": ("config", "gymnasium.error.NameNotFound: Environment `Breakout` doesn't exist."),
    "a script that is not there": (
        "config",
        "nextflow.exception.AbortOperationException: Cannot find script file: main.nf",
    ),
    "configparser's": ("config", "configparser.NoSectionError: No section: 'train'"),
    "pandas', of an empty file": ("config", "pandas.errors.EmptyDataError: No columns to parse from file"),
}


@pytest.mark.parametrize("kind", EXCEPTIONS)
def test_an_exception_on_what_a_program_is_given_is_of_the_configuration(kind: str, tmp_path: Path) -> None:
    failure, raised = EXCEPTIONS[kind]
    top = RAISED.rpartition("AttributeError")[0]
    assert named(explain_text(tmp_path, HEAD + top + raised + "\n")) == failure


@pytest.mark.parametrize(
    "program", ["/home/ada/sim/build/accel-sim.out -config .", "./solve 1200", "STAR --runThreadN 8", "my_tool --big"]
)
def test_a_compiled_program_that_was_killed_ran_out_of_memory_perhaps(program: str, tmp_path: Path) -> None:
    moved = "mv: cannot stat '/tmp/71.e6': No such file or directory\n"
    report = explain_text(tmp_path, HEAD + KILLED.format(program=program) + moved)
    assert report.root is not None
    assert (named(report), report.root.confidence < 0.6) == ("host_memory", True)


@pytest.mark.parametrize("program", ["./metrics_exporter --port 9100", "sleep 3600", "/opt/redis/bin/redis-server"])
def test_what_a_script_starts_beside_its_program_and_kills_at_its_end_is_none(program: str, tmp_path: Path) -> None:
    assert named(explain_text(tmp_path, HEAD + WORK + KILLED.format(program=program))) == ""


def test_modules_that_are_not_there_ended_nothing_where_a_server_runs(tmp_path: Path) -> None:
    assert named(explain_text(tmp_path, NO_MODULES + JUPYTER + JUPYTER)) == ""
