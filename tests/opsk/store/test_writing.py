"""Records on their way: through JSON, into every kind of database, once, all or none, by many at once."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, func
from sqlmodel import Session, select

from opsk.errors import InputError
from opsk.store.database.tables import MeasuredRow
from opsk.store.export import export
from opsk.store.records.jobs import find_jobs
from opsk.store.records.measurements import find_measured
from opsk.store.text import sanitise_text
from opsk.store.writing import DirectWriter, Record, WriteResult, decode, encode
from tests.fakes.store_records import HOSTILE, failure, interval, job, later, one_of_each
from tests.fakes.warm_opsk import WarmProcess, warm

EACH = one_of_each()


@pytest.mark.parametrize("record", EACH, ids=lambda record: record.kind)
def test_a_record_comes_back_from_json_as_it_was(record: Record) -> None:
    line = encode(record)
    assert line.isascii()
    assert "\n" not in line
    assert decode(line) == decode(line.encode()) == record


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "record"),
        ("[]", "record"),
        ("{}", "kind"),
        ('{"kind":"no such"}', "no such"),
        ('{"kind":"job","cluster":"a","job":"1","submitted_at":"2026-03-01T00:00:00Z"}', "job.at"),
        ('{"kind":"cluster","cluster":"a","at":"2026-03-01T00:00:00Z","nodse":3}', "nodse"),
        ('{"kind":"cluster","cluster":"a","at":"2026-03-01T00:00:00Z","nodes":"3"}', "nodes"),
        ('{"kind":"cluster","cluster":"a","at":"2026-03-01T00:00:00Z","nodes":true}', "nodes"),
        ('{"kind":"cluster","cluster":"a","at":"2026-03-01T00:00:00Z","nodes":-1}', "nodes"),
        ('{"kind":"cluster","cluster":"a","at":"2026-03-01T00:00:00Z","nodes":9223372036854775808}', "nodes"),
        ('{"kind":"cluster","cluster":"a","at":"2026-03-01T00:00:00"}', "at"),
        ('{"kind":"cluster","cluster":"a","at":"0001-01-01T00:00:00+14:00"}', "at"),
        ('{"kind":"cluster","cluster":"a","at":"9999-12-31T23:59:59-14:00"}', "at"),
        ('{"kind":"cluster","cluster":"","at":"2026-03-01T00:00:00Z"}', "cluster"),
        ('{"kind":"cluster","cluster":"\\ud800","at":"2026-03-01T00:00:00Z"}', "Invalid JSON"),
        ('{"kind":"remap_move","cluster":"a","remap":"r","at":"2026-03-01T00:00:00Z","state":"won","by":"x"}', "state"),
        ("[" * 100_000, "record"),
    ],
)
def test_what_is_no_record_is_refused_in_words(line: str, told: str) -> None:
    with pytest.raises(InputError, match="no record for the store") as caught:
        decode(line)
    assert told in caught.value.message


def test_every_violation_is_named_at_once() -> None:
    with pytest.raises(InputError) as caught:
        decode('{"kind":"measured","step_s":-1,"loss":"x"}')
    assert all(name in caught.value.message for name in ("cluster", "from_at", "step_s", "loss"))


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_none_is_refused(number: float) -> None:
    with pytest.raises(InputError):
        encode(interval(step_s=number))
    with pytest.raises(InputError):
        encode(job(plan={"a": [number]}))


@given(st.text(alphabet=st.characters(codec=None)), st.recursive(st.none() | st.integers() | st.text(), st.lists))
def test_any_text_can_be_sent_and_is_the_same_each_time(text: str, value: object) -> None:
    sent = decode(encode(job(name=text, plan={"a": value})))
    assert sent.name == sanitise_text(text)
    assert decode(encode(sent)) == sent


def test_every_kind_is_kept_and_comes_back_as_it_was(engine: Engine) -> None:
    assert DirectWriter(engine).write(EACH) == WriteResult(new=len(EACH), known=0)
    kept = {encode(record) for record in map(decode, export(engine))}
    assert kept == {encode(record) for record in EACH}


def test_what_is_sent_twice_is_kept_once(engine: Engine) -> None:
    writer = DirectWriter(engine)
    writer.write(EACH)
    assert writer.write(EACH) == WriteResult(new=0, known=len(EACH))
    assert len(list(export(engine))) == len(EACH)


def test_the_same_instant_in_another_zone_is_the_same_record(engine: Engine) -> None:
    line = encode(job())
    other = line.replace("2026-03-01T12:00:00.123456+00:00", "2026-03-01T21:00:00.123456+09:00")
    assert line != other
    writer = DirectWriter(engine)
    assert [writer.write([decode(sent)]).new for sent in (line, other)] == [1, 0]


def test_all_are_kept_or_none(engine: Engine) -> None:
    unknown = replace(EACH[7], remap="nobody knows it")
    with pytest.raises(InputError, match="no remap"):
        DirectWriter(engine).write([job(), interval(), unknown])
    assert list(export(engine)) == []


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_kept_as_text(engine: Engine, text: str) -> None:
    cut = sanitise_text(text)[:255]
    document = {text[:100]: [text]}
    DirectWriter(engine).write([job(cluster=text[:200], name=text, plan=document), failure(text=text)])
    (kept,) = find_jobs(engine, cluster=text[:200])
    assert kept.name == cut
    assert kept.plan == {sanitise_text(text[:100]): [sanitise_text(text)]}
    assert find_jobs(engine, cluster="titan") == []
    lines = [json.loads(line) for line in export(engine, ["failures"])]
    assert [line["text"] for line in lines] == [sanitise_text(text)]


def test_names_that_differ_in_case_accents_or_blanks_are_others(engine: Engine) -> None:
    names = ["titan", "TITAN", "títan", "titan ", "titan\u200b"]
    DirectWriter(engine).write([job(cluster=name) for name in names])
    assert len(list(export(engine))) == len(names)
    assert [found.cluster for found in find_jobs(engine, cluster="TITAN")] == ["TITAN"]


def test_a_later_look_at_a_job_counts_and_forgets_nothing(engine: Engine) -> None:
    writer = DirectWriter(engine)
    writer.write([job(state="PENDING", user="ada", plan={"tp": 4})])
    writer.write([job(at=later(hours=2), state="RUNNING", started_at=later(hours=1))])
    writer.write([job(at=later(hours=1), state="PENDING", account="physics")])  # was on its way for long
    (kept,) = find_jobs(engine)
    assert (kept.state, kept.user, kept.account, kept.at) == ("RUNNING", "ada", "physics", later(hours=2))
    assert (kept.started_at, kept.plan) == (later(hours=1), {"tp": 4})


_WRITE = """
import os, sys, traceback
from opsk.store.database.engine import open_store
from opsk.store.writing import DirectWriter
from tests.fakes.store_records import NOON, interval, job, later
def write(me, url):
    writer = DirectWriter(open_store(url))
    for number in range(24):
        # Every third is the same job for all: they meet in one row.
        last = job("shared", at=later(seconds=number), user=f"writer {me}") if number % 3 == 0 else None
        records = [interval(number, source=f"writer {me}"), *([last] if last else [])]
        writer.write(records)
for me in range(8):  # programs that have loaded opsk, and share nothing from here on
    if not os.fork():
        try:
            write(me, sys.argv[1])
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
sys.exit(any(os.wait()[1] for me in range(8)))
"""


@pytest.mark.timeout(600)
def test_eight_programs_at_once_lose_nothing(engine: Engine, url: str, tmp_path: Path) -> None:
    program = tmp_path / "write.py"
    program.write_text(_WRITE)
    done = warm().run([url], environment=os.environ, timeout_s=250, program=program)
    assert done.returncode == 0, done.stderr
    with Session(engine) as session:
        counts = session.exec(select(MeasuredRow.source, func.count()).group_by(MeasuredRow.source)).all()
    assert sorted(counts) == [(f"writer {number}", 24) for number in range(8)]
    (shared,) = find_jobs(engine, job="shared")
    assert shared.at == later(seconds=21)


def test_nothing_to_write_is_no_write() -> None:
    assert DirectWriter(None).write([]) == WriteResult(new=0, known=0)  # type: ignore[arg-type]


_UNTIL_KILLED = """
import sys
from opsk.store.database.engine import open_store
from opsk.store.writing import DirectWriter
from tests.fakes.store_records import interval
writer = DirectWriter(open_store(sys.argv[1]))
for number in range(100_000):
    writer.write([interval(number), interval(number, source="second of the pair")])
    print(number, flush=True)
"""


def test_a_program_that_is_killed_loses_nothing_that_was_said_to_be_kept(
    engine: Engine, url: str, tmp_path: Path
) -> None:
    program = tmp_path / "until_killed.py"
    program.write_text(_UNTIL_KILLED)
    reading, writing = os.pipe()
    running = WarmProcess(program, [url], environment=os.environ, stdout=writing)
    os.close(writing)
    with open(reading, encoding="ascii") as said:  # noqa: PTH123
        for line in said:
            if int(line) >= 50:
                running.kill()
                break
        last = int([line, *said][-1].strip() or line)
    assert running.wait(60) == -signal.SIGKILL
    kept = find_measured(engine, limit=1_000_000)
    assert len(kept) in (2 * (last + 1), 2 * (last + 2))  # one more may be kept and not said; never half of one
    assert DirectWriter(engine).write([interval(number) for number in range(last + 1)]).new == 0


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["2026-03-01T00:00Z"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(EACH), st.data())
def test_a_record_with_anything_changed_is_read_or_refused(record: Record, data: st.DataObject) -> None:
    said = json.loads(encode(record))
    said[data.draw(st.sampled_from(sorted(said)))] = data.draw(_JSON)
    with suppress(InputError):
        read = decode(json.dumps(said))
        assert decode(encode(read)) == read


@given(st.binary(max_size=60) | st.text(alphabet=st.characters(codec=None), max_size=60))
def test_bytes_that_are_no_record_are_refused_in_words(line: bytes | str) -> None:
    with pytest.raises(InputError):
        decode(line)
