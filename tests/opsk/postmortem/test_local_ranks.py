"""torchrun's ``[default3]:`` is rank 3 of a node: is it ever taken for rank 3 of the job?

The label is torch's TailLog (role name and local rank); nodes have four ranks here, numbered one node after the other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.reasoning import explain
from opsk.postmortem.reasoning.places import describe_place
from opsk.postmortem.values import Evidence, JobFacts, Report
from opsk.telemetry.progress.lines import parse_label

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB"
TRACEBACK = "Traceback (most recent call last):\n{0}  File \"train.py\", line 1, in <module>\n{0}KeyError: 'x'"
WORDS = [f"[default{local}]:loading shard {part}" for part in range(4) for local in range(4)]


def report(folder: Path, logs: Mapping[str, Sequence[str]], job: JobFacts | None = None) -> Report:
    for name, lines in logs.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join([*lines, ""]))
    found = read_logs([LogFile(path=folder / name) for name in logs], processes=1)
    return explain(Evidence(job=job, findings=found.findings, ranks=found.ranks, gathered=found.gathered))


def of_nodes(nodes: int, tasks: int | None = None) -> JobFacts:
    names = tuple(f"gpu-{number:02d}" for number in range(nodes))
    return JobFacts(job_id="4711", state="FAILED", nodes=names, tasks=tasks)


@pytest.mark.parametrize(
    ("line", "who"),
    [
        ("[default3]:x", (None, 3, None)), ("[trainer3]: x", (None, 3, None)), ("1: [default3]:x", (None, 3, 1)),
        ("[default3]:[rank11]: x", (11, 3, None)), ("1: [default3]:[rank7]: x", (7, 3, 1)),
        ("[rank3]:[rank11]: x", (11, 3, None)), ("3: x", (3, None, None)), ("[rank3]: x", (3, None, None)),
    ],
)  # fmt: skip
def test_labels_tell_ranks_of_the_job_from_those_of_a_node(line: str, who: tuple[int | None, ...]) -> None:
    found = parse_label(line)
    assert (found.rank, found.local_rank, found.node_rank) == who
    assert found.text == "x"


def test_in_a_log_of_all_nodes_a_local_rank_stays_one(tmp_path: Path) -> None:
    said = report(tmp_path, {"slurm-4711.out": [*WORDS, f"[default3]:{OOM}", *WORDS[:3]]}, of_nodes(2, 8))
    assert said.root is not None
    assert (said.root.where.rank, said.root.where.local_rank) == (None, 3)
    assert describe_place(said.root.where) == "local rank 3 GPU 3"
    assert all(each.rank is None for each in said.evidence.ranks)


def test_what_the_same_local_rank_of_two_nodes_says_is_of_two_places(tmp_path: Path) -> None:
    logs = {
        "run_gpu-00.log": [*WORDS, f"[default3]:{TRACEBACK.format('[default3]:')}"],
        "run_gpu-01.log": [*WORDS, f"[default3]:{OOM}"],
    }
    said = report(tmp_path, logs)
    places = {(cause.failure, cause.where.node, cause.where.local_rank) for cause in (said.root, *said.alternatives)
              if cause is not None}  # fmt: skip
    assert places == {("gpu_memory", "gpu-01", 3), ("software", "gpu-00", 3)}
    assert {each.rank for each in said.evidence.ranks} == {None}


@pytest.mark.parametrize("job", [None, of_nodes(2, 8)])
def test_the_number_in_the_name_of_a_log_is_that_of_its_node(tmp_path: Path, job: JobFacts | None) -> None:
    said = report(tmp_path, {"train_4711_0.out": WORDS, "train_4711_1.out": [*WORDS, f"[default2]:{OOM}"]}, job)
    assert said.root is not None
    assert said.root.where.rank == 6
    assert {each.rank for each in said.evidence.ranks} == set(range(8))


def test_so_is_what_srun_writes_before_it(tmp_path: Path) -> None:
    lines = [f"{task}: {line}" for task in (0, 1) for line in WORDS]
    agent = "1: [2026-01-05 10:00:00] failed (exitcode: 1) local_rank: 2 (pid: 412) of binary: /usr/bin/python"
    said = report(tmp_path, {"slurm-4711.out": [*lines, f"1: [default2]:{OOM}", agent]})
    assert said.root is not None
    assert said.root.where.rank == 6
    assert {each.rank for each in said.evidence.ranks} == set(range(8))


def test_one_rank_that_tells_both_its_numbers_tells_those_of_its_node(tmp_path: Path) -> None:
    """Rendezvous numbered the nodes the other way round: what is told counts, not the name of the log."""
    logs = {
        "train_4711_0.out": [*WORDS, "[default1]:[rank5]:[W105 10:00:00 ProcessGroupNCCL.cpp:1] x", *WORDS[:2]],
        "train_4711_1.out": [*WORDS, "[default0]:[rank0]:[W105 10:00:00 ProcessGroupNCCL.cpp:1] x",
                             f"[default2]:{OOM}"],
    }  # fmt: skip
    said = report(tmp_path, logs)
    assert said.root is not None
    assert said.root.where.rank == 2
    assert {each.rank for each in said.evidence.ranks} == set(range(8))
    assert len(said.evidence.ranks) == 8


def test_torchrun_tells_which_ranks_a_node_got(tmp_path: Path) -> None:
    said = report(tmp_path, {"out.log": ["  global_ranks=[12, 13, 14, 15]", *WORDS, f"[default2]:{OOM}"]})
    assert said.root is not None
    assert said.root.where.rank == 14


def test_nccl_tells_which_rank_sits_where(tmp_path: Path) -> None:
    lines = [
        f"[default{rank % 4}]:gpu-0{rank // 4}:100{rank}:200{rank} [{rank % 4}] NCCL INFO comm 0x55d0 rank {rank} "
        f"nranks 8 cudaDev {rank % 4} nvmlDev {rank % 4} busId {0x1B + rank % 4:x}000 commId 0x1 - Init COMPLETE"
        for rank in range(8)
    ]
    warn = (
        "[default2]:gpu-01:1006:2006 [2] NCCL WARN NET/IB: Got completion from peer 10.0.0.1<41000> with status=12"
        " opcode=0 len=0 vendor err 129 (Send) hca mlx5_1"
    )
    said = report(tmp_path, {"slurm-4711.out": [*lines, *WORDS, warn, f"[default2]:{OOM}"]})
    (lost,) = [finding for finding in said.evidence.findings if finding.place.hca]
    assert (lost.place.rank, lost.place.node) == (6, "gpu-01")
    (ran_out,) = [finding for finding in said.evidence.findings if finding.failure == "gpu_memory"]
    assert (ran_out.place.rank, ran_out.place.local_rank, ran_out.place.node) == (None, 2, "")


def test_logs_that_torchrun_keeps_apart_are_of_a_node_by_their_folder(tmp_path: Path) -> None:
    logs = {
        "logs/none_a1/attempt_0/0/stderr.log": ["[rank0]: up"], "logs/none_a1/attempt_0/1/stderr.log": ["up"],
        "logs/none_b2/attempt_0/0/stderr.log": ["1: [default0]:[rank4]: up", "x"],
        "logs/none_b2/attempt_0/1/stderr.log": [OOM],
    }  # fmt: skip
    said = report(tmp_path, logs)
    assert said.root is not None
    assert said.root.where.rank == 5


def test_on_one_node_a_local_rank_is_the_rank(tmp_path: Path) -> None:
    said = report(tmp_path, {"slurm-4711.out": [*WORDS, f"[default3]:{OOM}"]}, of_nodes(1))
    assert said.root is not None
    assert said.root.where.rank == 3


def test_a_task_that_srun_saw_end_is_a_node_where_it_is_torchrun(tmp_path: Path) -> None:
    """Task 3 is torchrun of the fourth node, not the fourth rank."""
    lines = [f"{task}: {line}" for task in range(4) for line in WORDS]
    said = report(tmp_path, {"slurm-4711.out": [*lines, "srun: error: gpu-03: task 3: Killed"]})
    (killed,) = [finding for finding in said.evidence.findings if re.search("task_killed", finding.signature)]
    assert (killed.place.rank, killed.place.node_rank) == (None, 3)
    causes = [cause for cause in (said.root, *said.alternatives) if cause is not None]
    assert all(cause.where.rank is None for cause in causes)


def test_two_local_ranks_of_a_log_of_all_nodes_are_not_one(tmp_path: Path) -> None:
    first = [f"[default3]:2026-01-05 10:00:00 {OOM}"]
    second = [f"[default1]:2026-01-05 10:09:00 {OOM}"]
    said = report(tmp_path, {"slurm-4711.out": [*WORDS, *first, *WORDS, *second]})
    causes = [cause for cause in (said.root, *said.alternatives) if cause is not None]
    assert {cause.where.local_rank for cause in causes} == {1, 3}
