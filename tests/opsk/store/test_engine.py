"""Opening the store: a real SQLite file, from nothing to the newest form and back, by several processes at once."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect, text

from opsk.errors import StoreError
from opsk.store.engine import default_url, migration_config, open_store
from opsk.store.tables import METADATA


def url_of(folder: Path) -> str:
    return f"sqlite:///{folder / 'state' / 'opsk.db'}"


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return open_store(url_of(tmp_path))


def test_a_new_store_has_every_table_and_no_difference_from_the_classes(engine: Engine) -> None:
    assert set(inspect(engine).get_table_names()) == {*METADATA.tables, "alembic_version"}
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), METADATA) == []


def test_opening_again_changes_nothing(engine: Engine, tmp_path: Path) -> None:
    again = open_store(url_of(tmp_path))
    with again.connect() as connection:
        assert connection.execute(text("select count(*) from alembic_version")).scalar() == 1


def test_readers_and_a_writer_work_at_once(engine: Engine) -> None:
    with engine.connect() as connection:
        assert connection.execute(text("pragma journal_mode")).scalar() == "wal"
        assert connection.execute(text("pragma foreign_keys")).scalar() == 1


def test_every_step_can_be_taken_back(engine: Engine) -> None:
    config = migration_config()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    assert inspect(engine).get_table_names() == ["alembic_version"]


def test_the_steps_are_one_line_without_branches() -> None:
    script = ScriptDirectory.from_config(migration_config())
    assert len(script.get_heads()) == len(script.get_bases()) == 1


def test_a_store_of_a_newer_opsk_is_refused(engine: Engine, tmp_path: Path) -> None:
    with engine.begin() as connection:
        connection.execute(text("update alembic_version set version_num = 's9999'"))
    with pytest.raises(StoreError, match="newer opsk"):
        open_store(url_of(tmp_path))


def test_the_folder_is_the_owners_own(engine: Engine, tmp_path: Path) -> None:
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "url", ["", "nonsense", "nosuch://x/y", "sqlite:////proc/no/such/opsk.db", "sqlite:////dev/null/opsk.db"]
)
def test_a_url_that_leads_nowhere_is_an_error_with_a_hint(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        open_store(url)
    assert caught.value.hint


def test_a_file_that_is_no_database_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "opsk.db").write_bytes(b"this is no database, not at all" * 100)
    with pytest.raises(StoreError, match="not a database"):
        open_store(f"sqlite:///{tmp_path / 'opsk.db'}")


def test_a_password_is_not_shown() -> None:
    with pytest.raises(StoreError) as caught:
        open_store("sqlite://user:secret@host/x")
    assert "secret" not in caught.value.message


def test_the_default_is_in_the_users_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/var/tmp/elsewhere")
    assert default_url() == "sqlite:////var/tmp/elsewhere/opsk/opsk.db"


def test_several_processes_may_open_a_new_store_at_once(tmp_path: Path) -> None:
    code = f"from opsk.store.engine import open_store; open_store({url_of(tmp_path)!r})"
    running = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) for _ in range(3)]
    said = [process.communicate(timeout=60)[1] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], said
