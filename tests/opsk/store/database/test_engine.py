"""Opening the store: what each kind of database is told, and what is made on disk."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from opsk.store.database.engine import open_store
from opsk.store.database.schema import migration_config
from opsk.store.database.urls import default_url
from tests.fakes import database_servers


def url_of(folder: Path) -> str:
    return f"sqlite:///{folder / 'state' / 'opsk.db'}"


@pytest.fixture
def file_engine(tmp_path: Path) -> Engine:
    return open_store(url_of(tmp_path))


def test_opening_again_changes_nothing(engine: Engine, url: str) -> None:
    again = open_store(url)
    with again.connect() as connection:
        assert connection.execute(text("select count(*) from alembic_version")).scalar() == 1
    again.dispose()


def test_readers_and_a_writer_work_at_once_and_what_is_written_is_on_the_disk(file_engine: Engine) -> None:
    with file_engine.connect() as connection:
        names = ("journal_mode", "foreign_keys", "synchronous")
        settings = [connection.execute(text(f"pragma {name}")).scalar() for name in names]
    assert settings == ["wal", 1, 2]  # 2: FULL


def test_mariadb_refuses_what_does_not_fit_instead_of_cutting_it(mariadb_server: str) -> None:
    engine = open_store(database_servers.new_database(mariadb_server, "mysql"))
    with engine.connect() as connection:
        assert "STRICT_ALL_TABLES" in str(connection.execute(text("select @@sql_mode")).scalar())
        assert connection.execute(text("select @@character_set_connection")).scalar() == "utf8mb4"


def test_the_steps_are_one_line_without_branches() -> None:
    script = ScriptDirectory.from_config(migration_config())
    assert len(script.get_heads()) == len(script.get_bases()) == 1


def test_the_folder_is_the_owners_own(file_engine: Engine, tmp_path: Path) -> None:
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


def test_reading_cannot_change_a_file(file_engine: Engine, tmp_path: Path) -> None:
    reading = open_store(url_of(tmp_path), writing=False)
    with pytest.raises(OperationalError, match="readonly"), reading.begin() as connection:
        connection.execute(text("delete from alembic_version"))


def test_a_store_in_memory_needs_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    open_store("sqlite://").dispose()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_odd_signs_is_one_like_any_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    odd = tmp_path / "a b#c%41?é;:@"
    monkeypatch.setenv("XDG_STATE_HOME", str(odd))
    open_store(default_url()).dispose()
    assert (odd / "opsk" / "opsk.db").exists()
    open_store(default_url(), writing=False).dispose()
