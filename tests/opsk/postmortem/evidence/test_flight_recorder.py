"""Dumps of the flight recorder: what they tell, and that nothing in one can do anything here.

The form is that of PyTorch's ``_dump_nccl_trace``: a pickled dict of entries, ``pg_config`` and ``pg_status``.
"""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk.postmortem.evidence.flight_recorder import build_findings, find_recorder_files, read_dump, read_dumps
from opsk.postmortem.reasoning import explain
from opsk.postmortem.values import Evidence, FailureClass, Finding

AT_NS = 1_700_000_000_000_000_000


def entry(sequence: int, state: str, op: str = "all_reduce", group: str = "0") -> dict[str, Any]:
    return {
        "record_id": sequence, "pg_id": 0, "process_group": (group, "default_pg"), "collective_seq_id": sequence,
        "p2p_seq_id": 0, "op_id": sequence, "profiling_name": f"nccl:{op}", "time_created_ns": AT_NS + sequence,
        "input_sizes": [[1024, 1024]], "output_sizes": [[1024, 1024]], "state": state, "retired": state == "completed",
        "timeout_ms": 600000, "is_p2p": False,
        "frames": [
            {"name": "all_reduce", "filename": "/opt/site-packages/torch/distributed/c10d.py", "line": 1},
            {"name": "step", "filename": "/home/ada/train.py", "line": 42},
        ],
    }  # fmt: skip


def dump(last: int, *, completed: int, group: str = "0") -> dict[str, Any]:
    entries = [entry(number, "completed", group=group) for number in range(1, completed + 1)]
    entries += [entry(number, "started", group=group) for number in range(completed + 1, last + 1)]
    return {
        "version": "2.4",
        "entries": entries,
        "pg_config": {"0": {"name": "0", "desc": "default", "ranks": "[0, 1]"}},
    }


def read_all(folder: Path, count: int) -> tuple[Finding, ...]:
    """Return the findings of the dumps in a folder, of which there have to be so many, all readable."""
    dumps = read_dumps(find_recorder_files([folder]))
    assert [dump.problem for dump in dumps] == [""] * count
    return build_findings(dumps)


def test_the_rank_that_is_behind_is_found(tmp_path: Path) -> None:
    """Ranks 0, 1 and 3 wait in number 9; rank 2 completed 6 only."""
    for rank in range(4):
        done = 6 if rank == 2 else 8
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump(done + (rank != 2), completed=done)))
    findings = read_all(tmp_path, 4)
    waiting = next(finding for finding in findings if finding.place.rank == 0)
    assert (waiting.fields["op"], waiting.fields["seq"], waiting.fields["completed"]) == ("ALL_REDUCE", "9", "8")
    assert "train.py:42" in waiting.fields["frame"]
    report = explain(Evidence(findings=findings, gathered={"flight_recorder": "4 dumps"}))
    assert report.divergence is not None
    assert report.divergence.behind == (2,)
    assert report.root is not None
    assert (report.root.failure, report.root.where.rank) == (FailureClass.COLLECTIVE_HANG, 2)


def test_json_dumps_and_old_dumps_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "rank_0").write_text(json.dumps(dump(3, completed=2)))
    old = [{key: value for key, value in entry(5, "scheduled").items() if key != "collective_seq_id"} | {"seq_id": 5}]
    (tmp_path / "rank_1").write_bytes(pickle.dumps(old))
    findings = read_all(tmp_path, 2)
    assert {finding.place.rank: finding.fields["seq"] for finding in findings} == {0: "3", 1: "5"}


class _Runs:
    """Pickled, it is a call of a program."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, (f"touch {self.path}",))


def test_a_dump_that_would_run_something_runs_nothing(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    path = tmp_path / "rank_0"
    path.write_bytes(pickle.dumps({"entries": [_Runs(ran)]}))
    found = read_dump(path)
    assert "it asks for posix.system" in found.problem
    assert not ran.exists()


@pytest.mark.parametrize(
    "hostile",
    [
        b"cbuiltins\neval\n(S'1+1'\ntR.",
        b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00\x8c\x08builtins\x8c\x04exec\x93.",
        b"\x80\x02P0\n.",
        b"(" * 100_000,
        b"\x80\x04]" + b"\x94h\x00a" * 4,
        b"[" * 100_000,
        b"",
        b"\x80\x05\x8e\xff\xff\xff\xff\xff\xff\xff\x7f",
        pickle.dumps("a text"),
        pickle.dumps({"entries": {"no": "list"}}),
        json.dumps({"entries": [1, None, {"process_group": 7, "collective_seq_id": "x"}]}).encode(),
    ],
    ids=range(11),
)
def test_damaged_and_hostile_dumps_are_problems_or_say_nothing(tmp_path: Path, hostile: bytes) -> None:
    path = tmp_path / "rank_0"
    path.write_bytes(hostile)
    found = read_dump(path)
    assert found.problem or not found.stuck


def test_a_dump_of_some_bytes_cannot_unfold_to_terabytes(tmp_path: Path) -> None:
    """A list of itself twice, 40 times over: 2 ** 40 entries if somebody printed it."""
    path = tmp_path / "rank_0"
    nested: list[Any] = []
    for _ in range(40):
        nested = [nested, nested]
    path.write_bytes(pickle.dumps({"entries": [{"input_sizes": nested, "state": nested, "collective_seq_id": 1}]}))
    found = read_dump(path, deadline_s=40.0)
    assert not found.problem
    assert found.stuck[0]["shape"] == "[]"


def test_links_and_devices_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "rank_0").symlink_to("/dev/zero")
    assert read_dump(tmp_path / "rank_0").problem
    assert read_dump(Path("/dev/zero")).problem
    assert read_dump(tmp_path / "rank_1").problem


@settings(max_examples=10)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_problem_or_a_dump(data: bytes) -> None:
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"opsk-test-dump-{os.getpid()}.0"
    path.write_bytes(data)
    try:
        dump = read_dump(path)
    finally:
        path.unlink()
    assert dump.path == path
    assert not (dump.problem and (dump.groups or dump.stuck))
