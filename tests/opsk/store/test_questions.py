"""What is asked of the store, kind by kind, on every kind of database."""

from __future__ import annotations

from datetime import timedelta
from threading import Barrier, Thread

import pytest
from sqlalchemy import Engine

from opsk.errors import InputError
from opsk.store.database.engine import open_store
from opsk.store.records.advice import find_advice
from opsk.store.records.clusters import ClusterSeen, find_clusters
from opsk.store.records.failures import find_failures
from opsk.store.records.jobs import find_jobs, find_known_jobs
from opsk.store.records.measurements import find_measured
from opsk.store.records.remaps import RemapStep
from opsk.store.records.reports import find_reports
from opsk.store.records.snapshots import list_snapshots, load_snapshot
from opsk.store.records.use import find_submitted, find_used
from opsk.store.writing import DirectWriter
from tests.fakes.store_records import HASH, NOON, failure, interval, job, later, moved, one_of_each, proposed
from tests.fakes.stored_remaps import find_remaps


@pytest.fixture
def writer(engine: Engine) -> DirectWriter:
    return DirectWriter(engine)


def test_each_kind_is_found_by_what_people_know_of_it(engine: Engine, writer: DirectWriter) -> None:
    each = one_of_each()
    writer.write(each)
    assert find_jobs(engine, cluster="titan", job="4711_3") == [each[2]]
    assert find_advice(engine, script_hash=HASH) == [each[3]]
    assert find_measured(engine, job="4711_3", source="log:megatron") == [each[4]]
    assert find_failures(engine, job="4711") == [each[5]]
    assert find_reports(engine, report="postmortem", since=NOON) == [each[-1]]
    assert find_clusters(engine) == [each[0]]
    assert find_submitted(engine, cluster="titan", since=NOON) == [each[-3]]
    assert find_used(engine, cluster="titan", jobs=["4711_3"], uid=1000, since=NOON) == [each[-2]]
    assert find_submitted(engine, cluster="x", since=NOON) == find_used(engine, running=True) == []
    assert find_used(engine, uid=1001) == find_used(engine, since=later(hours=3)) == []
    assert (
        find_jobs(engine, cluster="x")
        == find_advice(engine, since=later(days=1))
        == find_measured(engine, job="1")
        == []
    )
    assert (
        find_failures(engine, since=later(days=1))
        == find_reports(engine, job="1")
        == find_remaps(engine, remap="r2")
        == []
    )


def test_a_requeued_job_is_two_and_the_last_comes_first(engine: Engine, writer: DirectWriter) -> None:
    again = job(submitted_at=later(hours=1), at=later(hours=1))
    writer.write([job(ended_at=later(hours=1)), again])
    assert [found.submitted_at for found in find_jobs(engine, job="4711")] == [later(hours=1), NOON]
    assert find_jobs(engine, running=True) == [again]
    assert find_jobs(engine, since=later(minutes=1), limit=1) == [again]


def test_of_many_jobs_it_is_told_in_one_question_which_are_known_and_how_they_ended(
    engine: Engine, writer: DirectWriter
) -> None:
    again = job(submitted_at=later(hours=1), at=later(hours=1), state="RUNNING")
    writer.write([job(ended_at=later(hours=1), state="FAILED"), again, job(cluster="other", job="1")])
    assert find_known_jobs(engine, again.cluster, [str(number) for number in range(5000)]) == {
        ("4711", NOON): (NOON, "FAILED"),
        ("4711", later(hours=1)): (later(hours=1), None),
    }
    assert find_known_jobs(engine, again.cluster, []) == {}


def test_an_interval_grows_and_never_shrinks(engine: Engine, writer: DirectWriter) -> None:
    writer.write([interval(until_at=later(minutes=5), steps=30), interval(until_at=later(minutes=2), steps=12)])
    (kept,) = find_measured(engine)
    assert (kept.until_at, kept.steps) == (later(minutes=5), 30)


def test_intervals_are_told_in_the_order_of_time_the_last_ones_first_to_stay(
    engine: Engine, writer: DirectWriter
) -> None:
    writer.write([interval(number) for number in (3, 1, 0, 2)])
    assert [found.from_at for found in find_measured(engine, limit=3)] == [
        later(minutes=number) for number in (1, 2, 3)
    ]
    between = find_measured(engine, since=later(minutes=1), until=later(minutes=3))
    assert [found.from_at for found in between] == [later(minutes=1), later(minutes=2)]


def test_a_failure_that_is_well_again_stays_known_as_such(engine: Engine, writer: DirectWriter) -> None:
    writer.write([failure()])
    assert len(find_failures(engine, still=True)) == 1
    writer.write([failure(cleared_at=later(hours=1)), failure(cleared_at=later(hours=2)), failure()])
    assert find_failures(engine, still=True) == []
    assert find_failures(engine)[0].cleared_at == later(hours=1)


def test_of_a_cluster_the_newest_counts_and_the_first_time_stays(engine: Engine, writer: DirectWriter) -> None:
    for hours, nodes in ((5, 510), (1, 512)):
        writer.write([ClusterSeen(cluster="titan", at=later(hours=hours), nodes=nodes)])
    (kept,) = find_clusters(engine)
    assert (kept.since, kept.at, kept.nodes) == (later(hours=1), later(hours=5), 510)


def test_a_fabric_that_was_sent_is_a_snapshot_like_any_other(engine: Engine, writer: DirectWriter) -> None:
    sent = one_of_each()[1]
    writer.write([sent])
    (row,) = list_snapshots(engine)
    assert (row.taken_at, row.last_seen_at, row.hcas) == (NOON, later(hours=3), 8)
    assert len(load_snapshot(engine, "latest", cluster="titan")[1].fabric.switches) == 4


def test_a_remap_is_told_with_its_moves_and_its_journal(engine: Engine, writer: DirectWriter) -> None:
    writer.write([proposed(), moved("approved", 1, by="grace"), moved("applying", 2)])
    for number, state in ((1, "started"), (1, "done"), (2, "started")):
        step = RemapStep(
            cluster="titan", remap="r1", number=number, state=state, at=later(minutes=3), command=f"c{number}"
        )
        writer.write([step])
    (found,) = find_remaps(engine, job="4711", unfinished=True)
    assert (found.state, found.state_at, found.over) == ("applying", later(minutes=2), False)
    assert [(move.state, move.by) for move in found.moves] == [("approved", "grace"), ("applying", "root")]
    assert [(step.number, step.state) for step in found.steps] == [(1, "started"), (1, "done"), (2, "started")]
    writer.write([moved("applied", 4)])
    assert find_remaps(engine, unfinished=True) == []
    assert find_remaps(engine, cluster="titan")[0].over


def test_of_two_who_decide_the_second_is_told_who_was_first(writer: DirectWriter) -> None:
    writer.write([proposed(), moved("refused", 1, by="grace")])
    with pytest.raises(InputError, match="refused by grace since 2026-03-01 12:01"):
        writer.write([moved("approved", 2, by="ada")])
    writer.write([moved("refused", 1, by="grace")])  # sent again: known


def test_of_two_who_decide_at_once_one_is_refused(url: str, writer: DirectWriter) -> None:
    names = [f"r{number}" for number in range(20)]
    writer.write([proposed(name) for name in names])
    refused: list[str] = []
    start = Barrier(2)

    def decide(who: str, state: str) -> None:
        own = DirectWriter(open_store(url))
        start.wait()
        for name in names:
            try:
                own.write([moved(state, 1, name, by=who)])
            except InputError:
                refused.append(name)

    both = [Thread(target=decide, args=words) for words in (("ada", "approved"), ("grace", "outdated"))]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    # Who approved first may still see it outdated: of each remap the state is that of its last move.
    engine = open_store(url)
    for remap in find_remaps(engine):
        assert remap.state == remap.moves[-1].state
        assert len(remap.moves) + refused.count(remap.proposed.remap) == 2


def test_a_remap_cannot_be_applied_before_it_is_approved(writer: DirectWriter) -> None:
    writer.write([proposed()])
    with pytest.raises(InputError, match="cannot become applying: it is proposed by root"):
        writer.write([moved("applying", 1)])


def test_what_nobody_proposed_cannot_be_moved(writer: DirectWriter) -> None:
    with pytest.raises(InputError, match="no remap r7"):
        writer.write([moved("approved", 1, name="r7")])


def test_clocks_of_microseconds_are_kept(engine: Engine, writer: DirectWriter) -> None:
    writer.write([failure(at=NOON + timedelta(microseconds=number)) for number in range(3)])
    assert [found.at.microsecond for found in find_failures(engine)] == [123458, 123457, 123456]
