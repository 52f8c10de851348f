"""Is what was first named, and what follows from it not? Logs are laid out as srun, torchrun, Ray and NCCL print them."""

# ruff: noqa: E501 -- lines are quoted as programs print them
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opsk.cli.postmortem.report import format_report
from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.reasoning import explain
from opsk.postmortem.reasoning.owners import describe_owner
from opsk.postmortem.values import Audience, FailureClass, JobFacts, Report

HEAD = "Traceback (most recent call last):\n"
KEY_ERROR = HEAD + '  File "/home/u/train.py", line 88, in step\n    x = table["a"]\nKeyError: \'a\'\n'
STEP_CANCELLED = "slurmstepd: error: *** STEP 4711.0 ON gpu011 CANCELLED AT 2026-01-05T10:10:08 ***\n"
DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"
CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"


def steps(first: int, last: int, label: str = "") -> str:
    """Return lines as Megatron prints them, one every 10 s."""
    return "".join(
        f"{label}[2026-01-05 10:{i // 6:02d}:{i % 6 * 10:02d}] iteration {i:8d}/  500000 | consumed samples: {i * 512}"
        " | elapsed time per iteration (ms): 10230.1 | lm loss: 2.31E+00 | grad norm: 1.2 |\n"
        for i in range(first, last)
    )


def labelled(label: str, text: str) -> str:
    return "".join(f"{label}{line}\n" for line in text.splitlines())


def explained(folder: Path, kernel: dict[str, str] | None = None, **texts: str) -> Report:
    """Explain logs by name (``__`` is ``.``), and kernel logs by node."""
    logs = []
    for name, text in texts.items():
        path = folder / name.replace("__", ".")
        path.write_text(text)
        logs.append(LogFile(path=path))
    for node, text in (kernel or {}).items():
        path = folder / f"{node}.kern"
        path.write_text(text)
        logs.append(LogFile(path=path, kind="kernel", node=node))
    return explain(read_logs(logs, processes=1))


def root_type(report: Report) -> str:
    assert report.root is not None
    return report.root.findings[0].fields["type"]


def test_the_first_of_chained_exceptions_is_the_root(tmp_path: Path) -> None:
    raised = (
        HEAD + '  File "/home/u/train.py", line 91, in get\n    raise DataError("no a") from error\nDataError: no a\n'
    )
    for joined in (DURING, CAUSE):
        report = explained(tmp_path, slurm__out=labelled("3: ", KEY_ERROR + joined + raised))
        assert root_type(report) == "KeyError"
        assert len([moment for moment in report.timeline if "program ended" in moment.what]) == 2


def test_a_look_up_that_failed_is_not_the_root_of_what_failed_on_the_other_way(tmp_path: Path) -> None:
    way = HEAD + '  File "/home/u/cache.py", line 31, in decode\n    return parse(text)\nBadHeaderError: no header\n'
    assert root_type(explained(tmp_path, slurm__out=KEY_ERROR + DURING + way)) == "BadHeaderError"


def test_the_worker_s_own_exception_is_named_not_the_one_of_the_data_loader(tmp_path: Path) -> None:
    text = (
        HEAD + '  File "/opt/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 1344, in _next\n'
        "    data.reraise()\nKeyError: Caught KeyError in DataLoader worker process 3.\n"
        'Original Traceback (most recent call last):\n  File "/home/u/data.py", line 51, in __getitem__\n'
        "    return self.rows[key]\nKeyError: 'text'\n"
    )
    root = explained(tmp_path, slurm__out=text).root
    assert root is not None
    assert root.what == "the program ended by KeyError in data.py:51: 'text'"


@pytest.mark.parametrize("between", ["memory: 41.2 GiB", "INFO: prefetching shard 12", "queue: 12"])
def test_what_another_rank_writes_into_a_traceback_is_not_the_exception(between: str, tmp_path: Path) -> None:
    head, _, raised = KEY_ERROR.rpartition("KeyError")
    assert root_type(explained(tmp_path, slurm__out=f"{head}{between}\nKeyError{raised}")) == "KeyError"


def test_an_exception_that_python_ignored_is_none_even_where_another_rank_writes_in_between(tmp_path: Path) -> None:
    ignored = labelled("[rank0]: ", "Exception ignored in: <function W.__del__ at 0x7f>\n")
    text = ignored + "[rank1]: memory: 41.2 GiB\n" + labelled("[rank0]: ", KEY_ERROR)
    assert explained(tmp_path, slurm__out=steps(1, 60) + text).root is None


def test_the_frame_of_the_program_is_named_not_that_of_a_library(tmp_path: Path) -> None:
    text = (
        HEAD + '  File "/home/u/io.py", line 18, in load\n    return json.load(f)\n'
        '  File "/usr/lib/python3.11/json/decoder.py", line 355, in raw_decode\n    raise JSONDecodeError("x")\n'
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)\n"
    )
    root = explained(tmp_path, slurm__out=text).root
    assert root is not None
    assert "in io.py:18" in root.what


def test_an_exception_that_training_survived_does_not_hide_the_one_that_ended_it(tmp_path: Path) -> None:
    logged = HEAD + '  File "/opt/wandb.py", line 3, in sample\n    x.sample()\nAttributeError: no sample\n'
    report = explained(tmp_path, slurm__out=logged + steps(1, 60) + KEY_ERROR)
    assert root_type(report) == "KeyError"
    assert report.root is not None
    assert len(report.root.findings) == 1


def test_one_step_that_was_under_way_is_not_survival(tmp_path: Path) -> None:
    text = steps(1, 60, "0: ") + labelled("3: ", KEY_ERROR) + steps(60, 61, "0: ")
    report = explained(tmp_path, slurm__out=text)
    assert report.root is not None
    assert report.root.where.rank == 3
    more = text + steps(61, 70, "0: ")
    assert explained(tmp_path, slurm__out=more).root is None


CLEAN_UP = {
    "srun names the task in the batch output": (
        {"train-4711-0__out": steps(1, 60) + STEP_CANCELLED, "train-4711-2__out": "loading\n" + KEY_ERROR,
         "slurm-4711__out": "srun: error: gpu012: task 2: Exited with exit code 1\nsrun: Terminating StepId=4711.0\n"}
    ),
    "only the step's end is there": (
        {"train-4711-0__out": steps(1, 60) + STEP_CANCELLED, "train-4711-2__out": "loading\n" + KEY_ERROR}
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", CLEAN_UP)
def test_clean_up_after_a_failure_is_no_cancellation_by_somebody(how: str, tmp_path: Path) -> None:
    report = explained(tmp_path, **CLEAN_UP[how])
    assert report.root is not None
    assert (report.root.failure, report.root.where.rank) == (FailureClass.SOFTWARE, 2)
    text = "\n".join(format_report(report))
    assert "somebody cancelled" not in text
    assert "srun ended the step, because a task of it had failed" in text


def test_a_step_that_somebody_cancelled_was_cancelled(tmp_path: Path) -> None:
    job = STEP_CANCELLED.replace("STEP 4711.0", "JOB 4711")
    for text in (STEP_CANCELLED, job + STEP_CANCELLED):
        root = explained(tmp_path, slurm__out=steps(1, 60, "0: ") + text).root
        assert root is not None
        assert root.failure is FailureClass.CANCELLED


def test_an_exception_after_the_network_failed_under_the_same_rank_is_a_consequence(tmp_path: Path) -> None:
    ib = (
        "gpu013:3112:3390 [4] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.5<41234> with"
        " status=12 opcode=0 len=0 vendor err 129 (Recv) localGid fe80::1 remoteGids fe80::2 hca mlx5_4\n"
    )
    later = KEY_ERROR.replace("KeyError: 'a'", "UnboundLocalError: cannot access local variable 'loss'")
    report = explained(tmp_path, slurm__out=steps(1, 60, "0: ") + labelled("12: ", ib + later))
    assert report.root is not None
    assert report.root.failure is FailureClass.FABRIC
    assert not report.alternatives


def test_an_exception_after_storage_failed_on_the_node_is_a_consequence(tmp_path: Path) -> None:
    stale = HEAD + "OSError: [Errno 116] Stale file handle: '/lustre/ckpt/rank5.pt'\n"
    text = labelled("5: ", stale) + labelled("6: ", KEY_ERROR)
    srun = "srun: error: gpu012: tasks 5-6: Exited with exit code 1\n"
    kernel = {
        "gpu012": "[Mon Jan  5 10:09:50 2026] LustreError: 167-0: s-OST0012-osc: This client was evicted by s-OST0012\n"
    }
    report = explained(tmp_path, kernel, slurm__out=steps(1, 60, "0: ") + text + srun)
    assert report.root is not None
    assert (report.root.failure, report.root.where.node) == (FailureClass.STORAGE, "gpu012")
    assert not report.alternatives
    assert describe_owner(report) == "the cluster"


def test_the_kernel_s_lines_on_the_node_s_own_programs_are_background(tmp_path: Path) -> None:
    kernel = (
        "[Mon Jan  5 10:09:45 2026] Memory cgroup out of memory: Killed process 5512 (node_exporter) total-vm:1234kB,"
        " anon-rss:1000kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:100kB oom_score_adj:0\n"
        "[Mon Jan  5 10:09:46 2026] nv-hostengine[800]: segfault at 0 ip 00007f2e1a sp 00007ffd error 4 in x.so[7f+10]\n"
    )
    report = explained(tmp_path, {"gpu012": kernel}, slurm__out=steps(1, 60, "0: ") + labelled("3: ", KEY_ERROR))
    assert report.root is not None
    assert report.root.failure is FailureClass.SOFTWARE
    assert not report.alternatives


PLACES = {
    "srun": ("3: ", (3, "", ())),
    "PyTorch": ("[rank3]: ", (3, "", ())),
    "node and rank": ("[gpu014:3]: ", (3, "gpu014", ())),
    "a word and a number is no node": ("[worker:3]: ", (3, "", ())),
    "a list of tasks": ("14-15: ", (None, "", (14, 15))),
    "a date is no list of tasks": ("2026-01-05: ", (None, "", ())),
    "mpirun --tag-output": ("[1,3]<stderr>:", (3, "", ())),
    "pdsh": ("node1: ", (None, "node1", ())),
    "Ray": ("(WorkerProc pid=3112, ip=10.0.0.5) ", (None, "10.0.0.5", ())),
}


@pytest.mark.parametrize("label", PLACES)
def test_labels_tell_task_and_node_and_nothing_is_invented(label: str, tmp_path: Path) -> None:
    text, place = PLACES[label]
    root = explained(tmp_path, slurm__out=labelled(text, KEY_ERROR)).root
    assert root is not None
    assert (root.where.rank, root.where.node, root.where.ranks) == place
    assert root.where.gpu_index is None


def test_srun_tells_the_node_of_a_list_of_tasks(tmp_path: Path) -> None:
    srun = "srun: error: gpu012: tasks 14-15: Exited with exit code 1\n"
    root = explained(tmp_path, slurm__out=labelled("14-15: ", KEY_ERROR) + srun).root
    assert root is not None
    assert (root.where.node, root.where.ranks) == ("gpu012", (14, 15))


def test_no_command_names_an_address_as_a_node(tmp_path: Path) -> None:
    text = labelled("(W pid=3, ip=10.0.0.5) ", HEAD + "RuntimeError: CUDA error: uncorrectable ECC error encountered\n")
    report = explained(tmp_path, slurm__out=text)
    assert report.root is not None
    assert report.root.where.node == "10.0.0.5"
    assert not any(action.command for action in report.actions)


OOM = (
    HEAD + '  File "/home/u/pretrain.py", line 301, in <module>\n    pretrain()\n'
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked} GiB. GPU {gpu} has a total capacity of 79.10 GiB"
    " of which 1.02 GiB is free. Of the allocated memory 71.90 GiB is allocated by PyTorch, and 4.75 GiB is reserved by"
    " PyTorch but unallocated.\n"
)
TORCHRUN = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Failures:
[1]:
  time      : 2026-01-05_10:00:35
  host      : gpu021
  rank      : 11 (local_rank: 3)
  exitcode  : 1 (pid: 3114)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-05_10:00:35
  host      : gpu021
  rank      : 9 (local_rank: 1)
  exitcode  : 1 (pid: 3112)
srun: error: gpu021: task 1: Exited with exit code 1
"""


def test_memory_that_ran_out_is_said_with_step_sizes_ranks_and_node(tmp_path: Path) -> None:
    text = steps(1, 3) + labelled("[rank9]: ", OOM.format(asked="2.50", gpu=1))
    text += labelled("[rank11]: ", OOM.format(asked="3.00", gpu=3)) + TORCHRUN
    report = explained(tmp_path, slurm__out=text)
    assert report.root is not None
    where = report.root.where
    assert (where.rank, where.ranks, where.node) == (9, (9, 11), "gpu021")
    assert not report.alternatives
    memory = next(line for line in format_report(report) if line.startswith("memory"))
    assert memory == (
        "memory  in the step after 2: asked for 2.50 GiB, at most 3.00 GiB, free 1.02 GiB, held by PyTorch 71.90 GiB,"
        " more reserved by it 4.75 GiB, the GPU has 79.10 GiB"
    )


def test_the_gpu_that_a_process_of_ray_sees_is_no_local_rank(tmp_path: Path) -> None:
    text = "(WorkerDict pid=31112, ip=10.0.0.5) step:1\n" + OOM.format(asked="2.50", gpu=0)
    root = explained(tmp_path, slurm__out=text).root
    assert root is not None
    assert (root.where.rank, root.where.local_rank) == (None, None)


def test_a_task_of_srun_is_no_rank_where_torchrun_starts_the_ranks(tmp_path: Path) -> None:
    report = explained(tmp_path, slurm__out=steps(1, 3) + TORCHRUN.replace("exitcode  : 1", "exitcode  : -11"))
    assert report.root is not None
    assert (report.root.where.rank, report.root.where.node) == (9, "gpu021")


def waited(rank: int, seq: int, completed: int) -> str:
    return (
        f"[rank{rank}]:[E105 11:00:0{rank}.100 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation"
        f" timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012"
        " milliseconds before timing out.\n"
        f"[rank{rank}]:[E105 11:00:0{rank}.200 ProcessGroupNCCL.cpp:2271] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]"
        f"  failure detected by watchdog at work sequence id: {seq} PG status: last enqueued work: {seq}, last completed"
        f" work: {completed}\n"
    )


def test_a_hang_names_the_rank_that_is_behind_by_its_sequence_number(tmp_path: Path) -> None:
    text = "".join(waited(rank, 1312, 1311) for rank in range(8) if rank != 5) + waited(5, 1310, 1309)
    report = explained(tmp_path, slurm__out=steps(1, 60) + text)
    assert describe_owner(report) == "not known yet: look at rank 5, which the others waited for"
    assert any("behind: rank 5 (completed 1309, the others 1311)" in line for line in format_report(report))


def test_a_hang_accuses_nobody_where_all_wait_in_one_collective(tmp_path: Path) -> None:
    report = explained(tmp_path, slurm__out=steps(1, 60) + "".join(waited(rank, 1312, 1311) for rank in range(8)))
    assert report.root is not None
    assert report.root.where.rank is None
    assert describe_owner(report).startswith("not known yet: ranks waited for each other")


def test_a_hang_says_of_which_rank_no_line_is_there(tmp_path: Path) -> None:
    text = "".join(waited(rank, 1312, 1311) for rank in range(8) if rank != 5)
    report = explained(tmp_path, slurm__out=steps(1, 60) + text)
    assert any("no line there is of rank 5" in line for line in format_report(report))
    assert [each.what for each in report.missing if "rank 5" in each.what] == ["logs of rank 5"]


def test_what_many_ranks_print_is_one_event(tmp_path: Path) -> None:
    report = explained(tmp_path, slurm__out="".join(waited(rank, 1312, 1311) for rank in range(8)))
    assert len({moment.what for moment in report.timeline}) == len(report.timeline) == 2
    assert report.timeline[0].place.ranks == tuple(range(8))


def test_the_timeline_begins_with_the_root_and_the_last_step_stands_before_it(tmp_path: Path) -> None:
    srun = "srun: error: gpu012: task 3: Exited with exit code 1\nsrun: Terminating StepId=4711.0\n"
    text = steps(1, 60, "0: ") + labelled("3: ", KEY_ERROR) + srun + STEP_CANCELLED
    report = explained(tmp_path, slurm__out=text)
    assert [moment.what for moment in report.timeline] == [
        "the program ended by KeyError in train.py:88: 'a'",
        "task 3 exited with exit code 1",
        "srun ends the other tasks of the step",
        "srun ended the step, because a task of it had failed",
    ]
    assert [moment.what for moment in report.before] == ["iteration 59 was the last step that was reported"]


def test_no_action_is_given_twice_and_one_is_for_the_on_call(tmp_path: Path) -> None:
    text = (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have been OOM Killed.\n"
        "srun: error: gpu012: task 6: Out Of Memory\n"
    )
    report = explained(tmp_path, slurm__out=steps(1, 60, "0: ") + text)
    said = [action.what for action in report.actions]
    assert len(said) == len(set(said))
    assert report.actions[0].audience is Audience.ADMINISTRATOR
    assert report.actions[0].what == "not the cluster: hand it to the job's owner"


def test_a_bare_exception_has_a_confidence_of_its_own_whatever_reports_the_end(tmp_path: Path) -> None:
    ends = (
        "",
        "[rank: 3] Child process with PID 31112 terminated with code 1. Forcefully terminating all other processes\n",
        "srun: error: gpu012: task 3: Exited with exit code 1\n",
    )
    for end in ends:
        root = explained(tmp_path, slurm__out=end + steps(1, 60) + KEY_ERROR + end).root
        assert root is not None
        assert root.confidence == 0.65
        assert root.what == "the program ended by KeyError in train.py:88: 'a'"


def test_it_is_said_how_odds_became_a_confidence(tmp_path: Path) -> None:
    report = explained(tmp_path, slurm__out=OOM.format(asked="2.50", gpu=1))
    assert report.root is not None
    # weights.toml: 0.94 alone are 0.94 / 0.06 = 15.7 to 1; 15.7 / (15.7 + 0.12) = 99.2 %, said as at most 98.5 %
    assert report.root.why[0] == "94% by itself, which is 16 to 1"
    assert report.root.why[-1] == ("16 against 0.12 of a cause that left no sign: 99.2%, capped at 98.5%")


DATES = {
    "[W105 10:00:00.1 socket.cpp:464] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).": 1767607200.1,
    "(W pid=3) ERROR 01-05 10:00:00 [core.py:596] RuntimeError: CUDA error: an illegal memory access was encountered": 1767607200.0,
}  # fmt: skip


@pytest.mark.parametrize("line", DATES)
def test_dates_without_a_year_are_read_as_their_programs_print_them(line: str, tmp_path: Path) -> None:
    # `date -u -d '2026-01-05 10:00:00' +%s` is 1767607200; the file may be of any later day of the year
    path = tmp_path / "a.out"
    path.write_text(line + "\n")
    evidence = read_logs([LogFile(path=path)], processes=1, not_after_s=1795896000.0)
    assert next(finding.time_s for finding in evidence.findings if finding.time_s is not None) == DATES[line]


def test_a_log_of_another_job_is_said_to_be_one(tmp_path: Path) -> None:
    path = tmp_path / "slurm.out"
    path.write_text(STEP_CANCELLED)
    evidence = read_logs([LogFile(path=path)], processes=1)

    def notes(job: JobFacts | None) -> tuple[str, ...]:
        return explain(replace(evidence, job=job)).evidence.notes

    assert notes(JobFacts(job_id="999", number="999")) == (f"{path}: Slurm's lines there are of job 4711, not of 999",)
    assert not notes(JobFacts(job_id="4711", number="4711"))
    assert not notes(JobFacts(job_id="4700_3", number="4711"))
    assert not notes(JobFacts(job_id="4700_3", number="4700_3"))  # its own number is not known
    assert not notes(None)


def test_a_log_that_ends_within_a_traceback_says_so(tmp_path: Path) -> None:
    cut = KEY_ERROR[: KEY_ERROR.index("KeyError")]
    report = explained(tmp_path, slurm__out=steps(1, 60) + cut)
    assert report.root is None
    assert any("ends within a traceback" in each.why for each in report.missing)


def test_an_error_that_was_tried_again_hides_no_later_one(tmp_path: Path) -> None:
    full = "OSError: [Errno 28] No space left on device: '/scratch/ckpt'"
    report = explained(tmp_path, slurm__out=f"[rank0]: {full}, retrying in 5 s\n[rank0]: {full}\n")
    assert report.root is not None
    assert report.root.failure is FailureClass.STORAGE
    assert report.root.findings[0].line == 2


STALLED = (
    "[2026-01-05 10:01:00.1: W horovod/common/stall_inspector.cc:105] One or more tensors were submitted to be reduced, "
    "gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.\n"
)


def test_ranks_that_waited_for_late_ones_hang_only_where_training_does_not_go_on(tmp_path: Path) -> None:
    hung = explained(tmp_path, hung__out=steps(0, 6) + STALLED)
    assert hung.root is not None
    assert hung.root.failure is FailureClass.COLLECTIVE_HANG
    assert explained(tmp_path, late__out=steps(0, 6) + STALLED + steps(12, 40)).root is None


@pytest.mark.parametrize(
    ("label", "rank"),
    [
        ("(Worker_TP3 pid=4711) ERROR 01-05 10:00:00 [multiproc_executor.py:597] ", 3),
        ("(VllmWorker TP3 pid=4711) ERROR 01-05 10:00:00 [multiproc_executor.py:597] ", 3),
        ("(VllmWorker rank=3 pid=4711) ERROR 01-05 10:00:00 [multiproc_executor.py:597] ", 3),
        ("(Worker_PP1_TP3 pid=4711) ERROR 01-05 10:00:00 [multiproc_executor.py:597] ", None),
        ("[2026-01-05 10:00:00 TP3] ", 3),
        ("[2026-01-05 10:00:00 DP1 TP3] ", None),
    ],
)
def test_the_worker_of_a_serving_engine_is_a_rank_where_its_name_says_which(
    label: str, rank: int | None, tmp_path: Path
) -> None:
    report = explained(
        tmp_path, serve__out=label + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.\n"
    )
    assert report.root is not None
    assert report.root.where.rank == rank


def test_the_first_process_that_mpirun_names_is_where_it_began(tmp_path: Path) -> None:
    text = "mpirun detected that one or more processes exited with non-zero status\n\n  Process name: [[38212,1],5]\n"
    report = explained(tmp_path, mpi__out=text + "  Exit code:    139\n")
    assert report.root is not None
    assert (report.root.failure, report.root.where.rank) == (FailureClass.SOFTWARE, 5)


@pytest.mark.parametrize(
    ("line", "failure"),
    [
        ("ERROR:composer.cli.launcher:Rank 2 crashed with exit code -7.\n", FailureClass.HOST_MEMORY),
        ("ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 4 (pid: 8) of binary: p\n",
         FailureClass.HOST_MEMORY),
        ("ERROR:composer.cli.launcher:Rank 2 crashed with exit code 2.\n", FailureClass.CONFIG),
        ("CalledProcessError: Command '['python', 't.py']' died with <Signals.SIGKILL: 9>.\n", FailureClass.HOST_MEMORY),
    ],
)  # fmt: skip
def test_how_a_process_ended_is_said_where_nothing_else_is(line: str, failure: FailureClass, tmp_path: Path) -> None:
    report = explained(tmp_path, job__out=line)
    assert report.root is not None
    assert (report.root.failure, report.root.confidence < 0.7) == (failure, True)


FRAME = '  File "/home/u/mp.py", line 5, in f\n    raise RuntimeError(text)\n'


@pytest.mark.parametrize(
    ("text", "root"),
    [
        (FRAME + "RuntimeError: world_size (1) is not divisible by 2\n" + "x\n" * 2000, "config"),
        ("AssertionError: 250682 is not divisible by 8\n", "config"),
        ("ValueError: bad value 7\n" + "the program goes on\n" * 200, None),
        ("Note: Error: the sample says so\n", None),
        ("Error: the sample says so\n", "software"),
    ],
)
def test_an_exception_counts_without_the_head_of_its_traceback(text: str, root: str | None, tmp_path: Path) -> None:
    report = explained(tmp_path, job__out=text)
    assert (report.root.failure.value if report.root is not None else None) == root


def test_nvlink_faults_of_the_gpus_of_a_node_are_one_cause(tmp_path: Path) -> None:
    xids = "".join(
        f"kernel: NVRM: Xid (PCI:0000:{bus}:00): 74, pid=7, name=python3, NVLink: fatal error\n"
        for bus in ("1a", "2b", "3c", "4d")
    )
    report = explained(tmp_path, dmesg__txt=xids)
    assert report.root is not None
    assert (report.root.failure, report.root.where.pci) == (FailureClass.NVLINK, "")
    assert report.root.confidence > 0.6


@pytest.mark.parametrize(
    ("says", "owner"),
    [
        ("OSError: [Errno 122] Disk quota exceeded: '/home/u/a.pt'", "the job's owner"),
        (
            "OSError: [Errno 28] No space left on device: '/lustre/a.pt'",
            "the job's owner, or the cluster where df shows the whole file system full",
        ),
        ("OSError: [Errno 5] Input/output error: '/lustre/a.pt'", "the cluster"),
        ("Please set max locked memory (ulimit -l) to unlimited (current: 64 kbytes)", "the cluster"),
        ("srun: fatal: Could not establish a configuration source", "the cluster"),
        ("Failed to initialize NVML: Driver/library version mismatch", "the cluster"),
        ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-05T10:10:08 ***", "nobody: it was ended on purpose"),
        (
            f"{HEAD}torch.distributed.elastic.multiprocessing.api.SignalException: Process 37 got signal: 15",
            "probably nobody: it was asked to end",
        ),
    ],
)
def test_the_first_line_says_whose_problem_it_is(says: str, owner: str, tmp_path: Path) -> None:
    assert describe_owner(explained(tmp_path, slurm__out=says + "\n")) == owner
