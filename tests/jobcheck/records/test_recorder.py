"""Are records that come over the socket kept, by whom they may come from, and does a sick store delay nobody?"""

from __future__ import annotations

import asyncio
import json
import pwd
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from opsk.config import SiteConfig
from opsk.errors import InputError, SlurmError, StoreError
from opsk.slurm.records import JobRecord
from opsk.slurm.snapshot import Snapshot, pack
from opsk.store.database.engine import open_store
from opsk.store.records.advice import find_advice
from opsk.store.records.measurements import Measured, find_measured
from opsk.store.writing import Record, WriteResult, encode
from opsk_jobcheck.cluster_state.snapshots import SNAPSHOT
from opsk_jobcheck.records.record_queue import MAX_WAITING_BYTES, RecordQueue
from opsk_jobcheck.records.recorder import (
    OF_ONE_USER_A_MINUTE,
    OWNER_QUESTIONS_A_MINUTE,
    OWNERS_KNOWN_FOR_S,
    Owners,
    filter_records,
    store_records,
)
from tests.fakes.advisor_process import Client, config_text, start_advisor

AT = datetime(2026, 5, 1, tzinfo=UTC)


def interval(job: str = "4711", step_s: float = 8.0) -> Measured:
    return Measured(cluster="c", job=job, source="report", from_at=AT, until_at=AT, step_s=step_s)


def test_records_that_are_none_and_those_not_allowed_are_left_out() -> None:
    lines = [encode(interval("1")), "{", "[]", '{"kind":"measured"}', encode(interval("2"))]
    found = filter_records(lines, cluster=lambda: "c", may=lambda record: getattr(record, "job", "") == "2")
    assert found == [interval("2")]


def test_a_record_without_cluster_is_this_ones() -> None:
    said = json.loads(encode(interval()))
    del said["cluster"]
    (found,) = filter_records([json.dumps(said)], cluster=lambda: "here", may=lambda _: True)
    assert isinstance(found, Measured)
    assert found.cluster == "here"


def test_whose_a_job_is_is_asked_once_and_seldom() -> None:
    now, asked = [0.0], []

    def user_of(job: str) -> str:
        asked.append(job)
        if job == "9":
            raise SlurmError("silent")
        return "root"

    owners = Owners(user_of=user_of, clock=lambda: now[0])
    assert owners.is_owner(0, "7")
    assert not owners.is_owner(1, "7")
    assert not owners.is_owner(0, "9")
    assert asked == ["7", "9"]
    now[0] += OWNERS_KNOWN_FOR_S + 1
    assert owners.is_owner(0, "7")
    for job in range(100, 200):
        owners.is_owner(0, str(job))
    assert len(asked) == 2 + OF_ONE_USER_A_MINUTE, "a flood of made-up jobs is no flood of questions"


def test_who_names_jobs_that_are_not_his_uses_up_nobody_elses_questions() -> None:
    asked: list[str] = []

    def user_of(job: str) -> str:
        asked.append(job)
        return "root"

    owners = Owners(user_of=user_of, clock=lambda: 0.0)
    for job in range(100):
        assert not owners.is_owner(1000, str(job))
    assert len(asked) == OF_ONE_USER_A_MINUTE
    assert owners.is_owner(0, "4711"), "the flood of one user costs no other his records"
    for uid in range(2000, 2010):
        for job in range(100):
            owners.is_owner(uid, f"{uid}{job}")
    assert len(asked) == OWNER_QUESTIONS_A_MINUTE, "many users together are no flood either"


class SickStore:
    """Is locked a few times, and refuses batches with a bad record."""

    def __init__(self, locked: int) -> None:
        self.locked, self.kept = locked, list[Record]()

    def write(self, records: list[Record]) -> WriteResult:
        if self.locked:
            self.locked -= 1
            raise StoreError("another program has it locked")
        if any(getattr(record, "job", "") == "bad" for record in records):
            raise InputError("says what cannot be")
        self.kept += records
        return WriteResult(new=len(records), known=0)


def test_a_locked_store_is_tried_again_and_a_bad_record_costs_itself() -> None:
    pauses, store = [], SickStore(locked=3)
    store_records([interval("1"), interval("bad"), interval("2")], store, clock=lambda: 0.0, sleep=pauses.append)  # type: ignore[arg-type]
    assert store.kept == [interval("1"), interval("2")]
    assert pauses == [1.0, 2.0, 4.0]


def test_a_store_that_is_away_for_long_is_given_up() -> None:
    now = [0.0]

    def sleep(pause_s: float) -> None:
        now[0] += pause_s

    store = SickStore(locked=10**9)
    store_records([interval()], store, clock=lambda: now[0], sleep=sleep)  # type: ignore[arg-type]
    assert 3600 < now[0] < 3700


def test_what_was_sent_is_in_the_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'opsk.db'}"
    open_store(url).dispose()
    site = SiteConfig.model_validate({"store": {"url": url}})

    async def run() -> None:
        recording = RecordQueue(site, lambda uid: uid == 0)
        assert recording.record(0, [encode(interval()), encode(interval())])
        assert recording.record(65534, [encode(interval("of another"))]), "taken; whose job it is is looked at later"
        recording.analysis(
            {"cluster": "c", "uid": 5, "script_hash": "abc", "verdict": "fits", "document": {"lines": []}}
        )
        engine = open_store(url, writing=False)
        end = time.monotonic() + 60
        while len(find_measured(engine)) + len(find_advice(engine)) < 2:
            assert time.monotonic() < end
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.5)
        assert find_measured(engine) == [interval()]
        assert [given.script_hash for given in find_advice(engine)] == ["abc"]
        engine.dispose()
        await recording.close()

    asyncio.run(run())


def test_a_users_measurements_are_kept_where_the_advisor_has_no_way_to_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the shipped unit: no network, and what opsk-watcher hands over."""
    url, live = f"sqlite:///{tmp_path / 'opsk.db'}", tmp_path / "live"
    live.mkdir()
    open_store(url).dispose()
    jobs = (JobRecord(id=7, label="7", user="nobody", name="n", state="RUNNING"),)
    (live / SNAPSHOT).write_bytes(pack(Snapshot(taken_at_s=time.time(), jobs=jobs, cluster="vega")).to_bytes())
    site = SiteConfig.model_validate({"store": {"url": url}, "advisor": {"live_folder": str(live)}})
    monkeypatch.setenv("PATH", "/nonexistent")
    said = json.loads(encode(interval("7")))
    del said["cluster"]
    uid = pwd.getpwnam("nobody").pw_uid

    engine = open_store(url, writing=False)

    async def run() -> None:
        recording = RecordQueue(site, lambda _: False)
        assert recording.record(uid + 1, [json.dumps(said)])
        assert recording.record(uid, [json.dumps(said)])
        end = time.monotonic() + 60
        while not find_measured(engine):
            assert time.monotonic() < end
            await asyncio.sleep(0.2)
        await recording.close()

    asyncio.run(run())
    assert [(each.cluster, each.job) for each in find_measured(engine)] == [("vega", "7")]


def test_a_writer_that_hangs_costs_a_refusal_and_no_time() -> None:
    hangs = (sys.executable, "-c", "import time; time.sleep(600)")
    line = encode(interval("x" * 60))
    batch = [line] * 100

    async def run() -> None:
        recording = RecordQueue(SiteConfig(), lambda _: True, command=hangs)
        taken, slowest = 0, 0.0
        for _ in range(MAX_WAITING_BYTES // (len(line) * 100) + 50):
            began = time.process_time()
            is_taken = recording.record(0, batch)
            slowest = max(slowest, time.process_time() - began)
            taken += is_taken
            await asyncio.sleep(0)
            if not is_taken:
                break
        assert not is_taken
        assert taken * len(line) * 100 <= 1.1 * MAX_WAITING_BYTES
        await recording.close()

    asyncio.run(run())


def test_advice_is_kept_only_where_the_site_has_a_store() -> None:
    async def run() -> None:
        recording = RecordQueue(SiteConfig(), lambda _: True)
        recording.analysis({"uid": 1})
        assert recording._writer.process is None
        await recording.close()

    asyncio.run(run())


def test_the_service_takes_records_and_says_so(tmp_path: Path) -> None:
    store = f'[store]\nurl = "sqlite:///{tmp_path}/opsk.db"\n'
    advisor = start_advisor(tmp_path, text=config_text(tmp_path) + store)
    try:
        with Client(advisor.socket) as client:
            assert client.ask(kind="record", records=[encode(interval())])["status"] == "taken"
            assert client.ask(kind="record", records=[])["status"] == "error"
    finally:
        advisor.process.terminate()
        advisor.process.wait(20)
