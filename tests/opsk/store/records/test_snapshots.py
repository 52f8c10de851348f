"""Snapshots in a real SQLite file: kept once, seen again, told apart, found by what people call them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from opsk.errors import InputError, StoreError
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.fabric import Fabric
from opsk.fabric.hb_domains import HbDomain
from opsk.fabric.snapshot import serialise_snapshot
from opsk.store.database.engine import open_store
from opsk.store.records.snapshots import StoredSnapshot, list_snapshots, load_snapshot, save_snapshot

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
A = rail_optimized_fabric(nodes=4, hcas=2, leaves=2, spines=2)
B = rail_optimized_fabric(nodes=5, hcas=2, leaves=2, spines=2)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return open_store(f"sqlite:///{tmp_path / 'opsk.db'}")


def save(engine: Engine, fabric: Fabric, hours: int, cluster: str = "titan") -> StoredSnapshot:
    return save_snapshot(engine, fabric, cluster=cluster, now=NOON + timedelta(hours=hours))


def test_a_snapshot_comes_back_as_it_was_stored(engine: Engine) -> None:
    rack = HbDomain(name="rack", nodes=("n0", "n1"), kind="multi_node", gpus=8)
    kept = save_snapshot(engine, A, [rack], cluster="titan", now=NOON)
    assert (kept.new, kept.switches, kept.hcas, kept.nodes, kept.cables) == (True, 4, 8, 4, 12)
    shown, snapshot = load_snapshot(engine, str(kept.id), cluster="titan")
    assert serialise_snapshot(snapshot.fabric, snapshot.hb_domains) == serialise_snapshot(A, [rack])
    assert (shown.taken_at, shown.last_seen_at) == (NOON, NOON)


def test_the_same_fabric_is_not_stored_again_but_seen_again(engine: Engine) -> None:
    first, second = save(engine, A, 0), save(engine, A, 5)
    assert (first.id, first.new, second.new) == (second.id, True, False)
    (only,) = list_snapshots(engine)
    assert (only.taken_at, only.last_seen_at) == (NOON, NOON + timedelta(hours=5))


def test_an_older_look_does_not_turn_the_clock_back(engine: Engine) -> None:
    save(engine, A, 5)
    assert save(engine, A, 1).last_seen_at == NOON + timedelta(hours=5)


def test_a_fabric_that_went_back_is_a_row_of_its_own(engine: Engine) -> None:
    ids = [save(engine, fabric, hours).id for hours, fabric in enumerate((A, B, A))]
    assert len(set(ids)) == 3
    assert [row.id for row in list_snapshots(engine)] == ids[::-1]
    assert load_snapshot(engine, "latest", cluster="titan")[0].id == ids[2]
    assert load_snapshot(engine, "previous", cluster="titan")[0].id == ids[1]


def test_clusters_are_kept_apart(engine: Engine) -> None:
    save(engine, A, 0)
    save(engine, A, 1, cluster="other")
    assert len(list_snapshots(engine)) == 2
    assert [row.cluster for row in list_snapshots(engine, cluster="other")] == ["other"]


def test_a_snapshot_is_found_by_the_start_of_its_hash(engine: Engine) -> None:
    kept = save(engine, A, 0)
    save(engine, B, 1)
    assert load_snapshot(engine, kept.hash[:12], cluster="titan")[0].id == kept.id
    assert load_snapshot(engine, kept.hash.upper(), cluster="titan")[0].id == kept.id


@pytest.mark.parametrize("which", ["7", "latest", "previous", "", "abcdef012345", "'; drop table x; --", "9" * 40])
def test_what_is_not_there_is_an_error_that_says_where_to_look(engine: Engine, which: str) -> None:
    with pytest.raises(InputError) as caught:
        load_snapshot(engine, which, cluster="titan")
    assert "--history" in caught.value.hint


def test_one_snapshot_has_no_previous(engine: Engine) -> None:
    save(engine, A, 0)
    with pytest.raises(InputError):
        load_snapshot(engine, "previous", cluster="titan")


@pytest.mark.parametrize("content", [b"", b"rubbish"])
def test_a_damaged_row_is_refused(engine: Engine, content: bytes) -> None:
    kept = save(engine, A, 0)
    with engine.begin() as connection:
        connection.execute(text("update topology_snapshots set content = :content"), {"content": content})
    with pytest.raises(InputError, match=f"snapshot {kept.id}"):
        load_snapshot(engine, "latest", cluster="titan")


def test_long_names_are_cut_not_refused(engine: Engine) -> None:
    assert len(save(engine, A, 0, cluster="x" * 1000).cluster) == 255


def test_a_time_without_a_zone_is_refused(engine: Engine) -> None:
    with pytest.raises(StoreError, match="time zone"):
        save_snapshot(engine, A, cluster="titan", now=datetime(2026, 3, 1))  # noqa: DTZ001


def test_a_store_without_its_table_says_so(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("drop table topology_snapshots"))
    with pytest.raises(StoreError, match="no such table"):
        list_snapshots(engine)
