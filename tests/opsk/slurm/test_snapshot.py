"""Tests that every reader gets what Slurm reported, and nothing that Slurm hides from that user."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk.slurm.records import JobRecord, NodeRecord
from opsk.slurm.snapshot import Snapshot, SnapshotReader, filter_visible, pack, parse_private_data

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
TEXTS = st.text(max_size=20)


def job(number: int, user: str = "ada", **facts: object) -> JobRecord:
    said = {"id": number, "label": str(number), "user": user, "name": "train", "state": "RUNNING", "start_time": START}
    return JobRecord(**{**said, **facts})  # type: ignore[arg-type]


def snapshot(**facts: object) -> Snapshot:
    nodes = tuple(NodeRecord(name=f"n{at}", state="MIXED", gpus=8, gpu_indices_used=(0, 3)) for at in range(3))
    said = {"taken_at_s": 1000.0, "nodes": nodes, "jobs": (job(1), job(2, "bob")), "cluster": "c", "release": (24, 11)}
    return Snapshot(**{**said, **facts})  # type: ignore[arg-type]


def read(data: bytes) -> Snapshot:
    return SnapshotReader().read(data)


@given(
    name=TEXTS, comment=TEXTS, nodes=st.lists(TEXTS, max_size=3).map(tuple),
    seconds=st.one_of(st.none(), st.integers(0, 2**31)), flags=st.lists(TEXTS, max_size=2).map(tuple),
)  # fmt: skip
def test_records_come_back_as_they_were_whatever_users_wrote(
    name: str, comment: str, nodes: tuple[str, ...], seconds: int | None, flags: tuple[str, ...]
) -> None:
    held = dict.fromkeys(nodes, (0, 1))
    pending = job(7, name=name, state="PENDING", comment=comment, nodes=nodes, gpu_indices=held, time_limit_s=seconds)
    node = NodeRecord(name=name, state="DOWN", state_flags=flags, reason=comment, memory_bytes=seconds or 0)
    found = read(pack(snapshot(jobs=(pending,), nodes=(node,))).to_bytes())
    assert found.jobs == (pending,)
    assert found.nodes == (node,)


def test_a_running_job_tells_its_start_and_not_its_age() -> None:
    first = pack(snapshot(jobs=(job(1, run_time_s=60),)))
    later = pack(snapshot(jobs=(job(1, run_time_s=65),), taken_at_s=1005.0))
    assert first.digest == later.digest
    (shown,) = read(later.to_bytes()).jobs
    assert (shown.start_time, shown.run_time_s) == (START, None)


def test_what_did_not_change_is_the_same_object_again() -> None:
    reader = SnapshotReader()
    before = reader.read(pack(snapshot()).to_bytes())
    drained = replace(before.nodes[1], state_flags=("DRAIN",))
    after = reader.read(pack(replace(snapshot(), nodes=(before.nodes[0], drained, before.nodes[2]))).to_bytes())
    assert after.jobs is before.jobs
    assert after.nodes[0] is before.nodes[0]
    assert after.nodes[1] == drained


def test_what_the_asker_has_is_not_sent_again() -> None:
    reader, packed = SnapshotReader(), pack(snapshot())
    reader.read(packed.to_bytes())
    short = filter_visible(pack(snapshot(taken_at_s=1007.0)), 1000, sees_all=True, have=reader.digest).to_bytes()
    assert len(short) < 400
    found = reader.read(short)
    assert found.taken_at_s == 1007.0
    assert len(found.jobs) == 2


def test_jobs_of_others_are_not_told_where_slurm_hides_them() -> None:
    packed = pack(snapshot(private=frozenset({"jobs"})), {"ada": 1000, "bob": 1001}.get)
    own = filter_visible(packed, 1001, sees_all=False).to_bytes()
    assert [each.user for each in read(own).jobs] == ["bob"]
    assert read(own).is_partial
    assert len(read(own).nodes) == 3
    assert read(filter_visible(packed, 4000, sees_all=False).to_bytes()).jobs == ()
    everything = read(filter_visible(packed, 0, sees_all=True).to_bytes())
    assert len(everything.jobs) == 2
    assert not everything.is_partial


def test_what_others_do_does_not_show_in_what_a_user_gets() -> None:
    uids = {"ada": 1000, "bob": 1001}.get
    private = frozenset({"jobs"})
    one = filter_visible(pack(snapshot(private=private), uids), 1001, sees_all=False)
    two = filter_visible(pack(snapshot(private=private, jobs=(job(9), job(2, "bob"))), uids), 1001, sees_all=False)
    assert one.to_bytes() == two.to_bytes()


@pytest.mark.parametrize("word", ["nodes", "partitions"])
def test_nodes_are_not_told_where_slurm_hides_them(word: str) -> None:
    packed = pack(snapshot(private=frozenset({word})), {}.get)
    found = read(filter_visible(packed, 1000, sees_all=False).to_bytes())
    assert found.nodes == ()
    assert found.is_partial


def test_words_of_private_data_are_read_as_scontrol_writes_them() -> None:
    assert parse_private_data({"PrivateData": "jobs,nodes,usage"}) == {"jobs", "nodes", "usage"}
    assert parse_private_data({"PrivateData": "none"}) == frozenset()
    assert parse_private_data({}) == frozenset()


@given(cut=st.integers(0, 400), sign=st.integers(0, 255))
def test_damage_is_refused_and_never_more(cut: int, sign: int) -> None:
    data = pack(snapshot()).to_bytes()
    at = min(cut, len(data) - 1)
    for broken in (data[:at], data[:at] + bytes([sign]) + data[at + 1 :]):
        try:
            SnapshotReader().read(broken)
        except InputError:
            continue
