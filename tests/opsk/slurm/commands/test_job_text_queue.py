"""Tests counting of the queue: arrays, partitions, GPUs in every form of request, and the advice given."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import SlurmError
from opsk.slurm.commands.job_text import MAX_TASKS, QUEUE_COLUMNS, QueuedJobs, count_tasks, parse_queue
from tests.fakes.slurm_captures import tables

SEPARATOR = "|0123|"
ROW = {
    "JobID": "7", "JobArrayID": "7", "ArrayTaskID": "N/A", "Partition": "gpu", "State": "PENDING",
    "Reason": "Resources", "UserName": "ann", "NumNodes": "2", "NumTasks": "16",
    "tres-alloc": "cpu=1,node=2", "tres-per-node": "N/A", "tres-per-job": "N/A",
    "tres-per-task": "N/A", "EligibleTime": "1795285727", "admin_comment": "(null)",
}  # fmt: skip


def text_of(*rows: dict[str, str]) -> str:
    return "".join("".join(row.get(name, "") + SEPARATOR for name in QUEUE_COLUMNS) + "\n" for row in rows)


def parsed(**changes: str) -> QueuedJobs:
    (row,) = parse_queue(text_of(ROW | changes), QUEUE_COLUMNS, SEPARATOR)
    return row


@pytest.mark.parametrize(
    ("asked", "gpus"),
    [
        ({}, 0),
        ({"tres-alloc": "cpu=4,gres/gpu=16,gres/gpu:h100=16"}, 16),
        ({"tres-alloc": "cpu=4,gres/gpu:h100=16"}, 16),
        ({"tres-per-job": "gres/gpu:5"}, 5),
        ({"tres-per-job": "gres:gpu:h100:5"}, 5),
        ({"tres-per-node": "gres/gpu:h100:8"}, 16),
        ({"tres-per-task": "cpu=4,gres/gpu=2"}, 32),
        ({"tres-per-node": "gres/gpu:1g.10gb:3"}, 6),
        ({"tres-per-node": "gres/shard:4,gres/mps:10"}, 0),
    ],
)
def test_gpus_are_counted_however_they_were_asked_for(asked: dict[str, str], gpus: int) -> None:
    """Slurm tracks GPUs in TRES only where AccountingStorageTRES says so; else the request is all there is."""
    assert parsed(**asked).gpus == gpus


def test_a_pending_job_may_be_of_several_partitions() -> None:
    assert parsed(Partition="gpu,debug,gpu").partitions == ("gpu", "debug")


def test_what_is_held_was_never_eligible() -> None:
    assert (parsed().eligible_unix_s, parsed(EligibleTime="N/A").eligible_unix_s) == (1795285727, None)


@pytest.mark.parametrize(("said", "label"), [("7", "7"), ("5_3", "5_3"), ("6+1", "6+1"), ("N/A", "7"), ("", "7")])
def test_a_job_is_called_as_people_write_it(said: str, label: str) -> None:
    assert parsed(JobArrayID=said).label == label


def test_the_administrators_comment_is_kept() -> None:
    assert parsed(admin_comment="opsk:v1 verdict=oom").admin_comment == "opsk:v1 verdict=oom"
    assert parsed().admin_comment is None


@pytest.mark.parametrize(
    ("text", "tasks"),
    [("N/A", 1), ("", 1), ("0", 1), ("1-99%4", 99), ("1,3,5-6", 4), ("0-9:3", 4), ("9-1", 1), ("0-9999999", MAX_TASKS)],
)
def test_tasks_of_an_array_are_counted(text: str, tasks: int) -> None:
    assert count_tasks(text) == tasks


@given(st.sets(st.integers(0, 300), min_size=1), st.integers(1, 9))
def test_a_list_of_tasks_has_as_many_as_are_in_it(tasks: set[int], at_once: int) -> None:
    assert count_tasks(",".join(map(str, sorted(tasks))) + f"%{at_once}") == len(tasks)


@pytest.mark.parametrize("text", [text_of(ROW)[:-9], text_of(ROW | {"JobID": "x"}), "squeue: nonsense"])
def test_half_an_answer_is_none(text: str) -> None:
    with pytest.raises(SlurmError):
        parse_queue(text, QUEUE_COLUMNS, SEPARATOR)


@pytest.mark.shared
@pytest.mark.parametrize("release", ["22.05", "24.11", "25.11", "26.05"])
def test_real_queues_count_as_their_json_says(shared: Path, release: str) -> None:
    folder = shared / "data" / "real" / "slurm-json" / release
    rows = parse_queue(text_of(*tables(folder)["squeue"]), QUEUE_COLUMNS, SEPARATOR)
    jobs, gpus = Counter[str](), Counter[str]()
    for row in rows:
        jobs[row.state] += 1
        gpus[row.state] += row.gpus
    truth = json.loads((folder / "squeue_all.json").read_text(encoding="utf-8"))["jobs"]
    assert jobs == Counter(map(_state, truth))
    for state in ("RUNNING", "PENDING"):
        assert gpus[state] == sum(map(_gpus, (job for job in truth if _state(job) == state)))
    assert [row.tasks for row in rows if row.tasks > 1] == [2], "the array's tasks 3 and 4"


def _state(job: dict[str, Any]) -> str:
    words = job["job_state"] if isinstance(job["job_state"], list) else [job["job_state"]]
    return next((word for word in ("COMPLETING", "SPECIAL_EXIT") if word in words), words[0])


def _gpus(job: dict[str, Any]) -> int:
    found = re.search(r"gres/gpu=(\d+)", job["tres_alloc_str"] or job["tres_req_str"] or "")
    return int(found[1]) if found else 0
