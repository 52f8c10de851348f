"""Looking after a store: how much there is, what is too old, what is damaged, and how it moves to another database."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from opsk.config import RetentionConfig
from opsk.errors import InputError
from opsk.store.check import check_store
from opsk.store.database.engine import connect, open_store
from opsk.store.database.schema import list_revisions, newest_revision, upgrade
from opsk.store.export import export, import_lines
from opsk.store.records.jobs import find_jobs
from opsk.store.records.kinds import KINDS
from opsk.store.retention import prune, reclaim_space
from opsk.store.sizes import compute_store_size
from opsk.store.writing import DirectWriter, WriteResult, decode
from tests.fakes.store_records import NOON, failure, interval, job, later, moved, one_of_each, proposed

ALL_FOR_A_DAY = {kind.name: 1 for kind in KINDS}


@pytest.fixture
def filled(engine: Engine) -> Engine:
    DirectWriter(engine).write(one_of_each())
    return engine


def test_the_size_is_told_by_kind(filled: Engine) -> None:
    size = compute_store_size(filled)
    assert {kind.kind: kind.records for kind in size.kinds} == {kind.name: 1 for kind in KINDS}
    times = {kind.kind: (kind.first_at, kind.last_at) for kind in size.kinds}
    assert times["jobs"] == (NOON, NOON)
    assert size.total_bytes > 10_000


def test_an_empty_store_has_a_size(engine: Engine) -> None:
    assert all((kind.records, kind.first_at) == (0, None) for kind in compute_store_size(engine).kinds)


def test_what_is_over_for_longer_than_its_days_is_removed(filled: Engine) -> None:
    done = prune(filled, ALL_FOR_A_DAY, now=later(days=2))
    # The newest fabric of the cluster stays, and clusters are never over.
    assert {kind.kind: (kind.removed, kind.kept) for kind in done} == {
        kind.name: (0, 1) if kind.name in ("clusters", "snapshots") else (1, 0) for kind in KINDS
    }
    assert {record.kind for record in map(decode, export(filled))} == {"cluster", "snapshot"}
    assert check_store(filled).findings == ()


def test_what_is_not_old_enough_or_has_no_days_stays(filled: Engine) -> None:
    before = list(export(filled))
    prune(filled, ALL_FOR_A_DAY, now=later(hours=23))
    prune(filled, dict.fromkeys(ALL_FOR_A_DAY, 0), now=later(days=9999))
    prune(filled, {}, now=later(days=9999))
    assert list(export(filled)) == before


def test_a_dry_run_tells_the_same_and_removes_nothing(filled: Engine) -> None:
    told = prune(filled, ALL_FOR_A_DAY, now=later(days=2), dry=True)
    assert len(list(export(filled))) == len(one_of_each())
    assert prune(filled, ALL_FOR_A_DAY, now=later(days=2)) == told


def test_what_is_not_over_stays_however_old(engine: Engine) -> None:
    open_ones = [
        job(),
        failure(),
        proposed("r1"),
        proposed("r2"),
        moved("approved", 1, "r2"),
        moved("applying", 2, "r2"),
    ]
    DirectWriter(engine).write([*open_ones, job(at=later(days=9998))])
    assert sum(kind.removed for kind in prune(engine, ALL_FOR_A_DAY, now=later(days=9999))) == 0


def test_a_job_that_nobody_tells_of_any_more_is_over(engine: Engine) -> None:
    DirectWriter(engine).write([job("lost"), job("running", at=later(days=30))])
    prune(engine, {"jobs": 7}, now=later(days=31))
    assert [found.job for found in find_jobs(engine)] == ["running"]


def test_many_rows_go_some_at_a_time(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opsk.store.retention._AT_ONCE", 7)
    DirectWriter(engine).write([interval(number) for number in range(50)])
    (done,) = (
        kind for kind in prune(engine, {"measured": 1}, now=later(days=1, minutes=31)) if kind.kind == "measured"
    )
    assert (done.removed, done.kept) == (30, 20)


def test_only_older_snapshots_of_a_cluster_go(engine: Engine) -> None:
    seen = one_of_each()[1]
    older = decode(seen_with(seen, hb=True, days=-10))
    DirectWriter(engine).write([older, seen])
    (done,) = (kind for kind in prune(engine, {"snapshots": 1}, now=later(days=100)) if kind.kind == "snapshots")
    assert (done.removed, done.kept) == (1, 1)


def seen_with(record: object, *, hb: bool, days: int) -> str:
    """The same fabric with an HB domain, some days before."""
    import json

    from opsk.store.writing import encode

    said = json.loads(encode(record))  # type: ignore[arg-type]
    content = json.loads(said["content"])
    content["hb_domains"] = [["rack", "multi_node", 8, ["n0", "n1"]]] if hb else []
    said["content"] = json.dumps(content, separators=(",", ":"))
    said["at"] = said["since"] = (NOON + timedelta(days=days)).isoformat()
    return json.dumps(said)


def test_the_room_is_given_back(tmp_path: Path) -> None:
    engine = open_store(f"sqlite:///{tmp_path / 'opsk.db'}")
    DirectWriter(engine).write([job(str(number), plan={"a": "x" * 2000}, ended_at=NOON) for number in range(300)])
    full = compute_store_size(engine).total_bytes
    prune(engine, ALL_FOR_A_DAY, now=later(days=2))
    reclaim_space(engine)
    assert compute_store_size(engine).total_bytes < full / 2


def test_every_kind_can_be_given_days_in_the_configuration() -> None:
    assert set(RetentionConfig.model_fields) == {kind.name for kind in KINDS if kind.over is not None}


def test_a_store_moves_to_another_database_and_nothing_is_lost(filled: Engine, tmp_path: Path) -> None:
    lines = list(export(filled))
    other = open_store(f"sqlite:///{tmp_path / 'other.db'}")
    assert import_lines(DirectWriter(other), lines) == WriteResult(new=len(lines), known=0)
    assert list(export(other)) == lines
    assert import_lines(DirectWriter(other), [*lines, "\n"]) == WriteResult(new=0, known=len(lines))
    assert import_lines(DirectWriter(filled), export(other)).new == 0


def test_only_the_kinds_that_are_asked_for(filled: Engine) -> None:
    assert {decode(line).kind for line in export(filled, ["jobs", "remaps"])} == {
        "job", "remap", "remap_move", "remap_step",
    }  # fmt: skip


def test_a_line_that_is_none_is_named_and_those_before_it_are_kept(filled: Engine, tmp_path: Path) -> None:
    lines = list(export(filled))[:3]
    other = open_store(f"sqlite:///{tmp_path / 'other.db'}")
    with pytest.raises(InputError, match="line 4: no record"):
        import_lines(DirectWriter(other), [*lines, "{cut off"])
    assert list(export(other)) == lines


def test_a_sound_store_has_no_findings(filled: Engine) -> None:
    found = check_store(filled)
    assert (found.revision, found.records, found.findings) == (newest_revision(), len(one_of_each()), ())


def test_damaged_rows_are_named_and_the_others_are_exported(filled: Engine) -> None:
    with filled.begin() as connection:
        connection.execute(text("update topology_snapshots set content = :content"), {"content": b"\x1f\x8brubbish"})
        connection.execute(text("update reports set content = :content"), {"content": b""})
        connection.execute(text("update jobs set verdict = '', predicted_step_s = -1"))
    told = [finding.what for finding in check_store(filled).findings]
    assert any("snapshot 1" in what for what in told)
    assert any("report 1" in what for what in told)
    assert any("verdict" in what and "predicted_step_s" in what for what in told)
    left_out: list[str] = []
    assert len(list(export(filled, damaged=left_out.append))) == len(one_of_each()) - 2
    assert len(left_out) == 2


def test_a_state_or_a_journal_that_cannot_be_is_named(filled: Engine) -> None:
    with filled.begin() as connection:
        connection.execute(text("update remaps set state = 'won', remap = 'r9'"))
    told = " ".join(finding.what for finding in check_store(filled).findings)
    assert "remap r9 is won" in told
    assert "remap_steps: there is no remap r1" in told


def test_an_older_and_a_newer_form_are_named(url: str) -> None:
    engine = connect(url)
    assert "revision None" in check_store(engine).findings[0].what
    upgrade(engine, list_revisions()[0])
    assert check_store(engine).findings[0].hint == "opsk store upgrade"
    upgrade(engine)
    with engine.begin() as connection:
        connection.execute(text("update alembic_version set version_num = 's9999'"))
    assert "newer opsk" in check_store(engine).findings[0].what
    engine.dispose()


def test_a_file_with_holes_is_not_sound(tmp_path: Path) -> None:
    path = tmp_path / "opsk.db"
    engine = open_store(f"sqlite:///{path}")
    DirectWriter(engine).write([job(str(number), plan={"a": "x" * 500}) for number in range(200)])
    engine.dispose()
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(os.urandom(20_000))
    found = check_store(connect(f"sqlite:///{path}", writing=False))
    assert {finding.part for finding in found.findings} >= {"file"}


def test_values_that_sqlite_lets_in_and_opsk_never_wrote_are_named(tmp_path: Path) -> None:
    engine = open_store(f"sqlite:///{tmp_path / 'opsk.db'}")
    DirectWriter(engine).write([job()])
    with engine.begin() as connection:
        connection.execute(text("update jobs set submitted_at = 'yesterday'"))
    assert "what no opsk wrote" in check_store(engine).findings[0].what
