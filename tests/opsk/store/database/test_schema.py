"""The tables on all databases: as the classes say, and with what was kept before after each step."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Engine, MetaData, event, inspect, text

from opsk.errors import StoreError
from opsk.store.database.engine import connect, open_store
from opsk.store.database.schema import (
    find_differences,
    list_revisions,
    migration_config,
    newest_revision,
    read_revision,
    upgrade,
)
from opsk.store.database.tables import METADATA
from tests.fakes.warm_opsk import warm

NOON = datetime(2026, 3, 1, 12)  # noqa: DTZ001


def a_value(kind: Any, name: str) -> Any:
    """Something that a column of any form can hold."""
    for kind_of_value, value in (
        (bool, True),
        (int, 7),
        (float, 2.5),
        (Decimal, 2.5),
        (datetime, NOON),
        (bytes, b"\x1f\x8b"),
    ):
        if kind.python_type is kind_of_value:
            return value
    return f"{name} é"[:20]


def fill(engine: Engine) -> dict[str, list[Any]]:
    """Put a row into every table as it is now, and return all of them."""
    metadata = MetaData()
    metadata.reflect(engine)
    with engine.begin() as connection:
        for name, table in metadata.tables.items():
            if name != "alembic_version":
                connection.execute(
                    table.insert().values(
                        {c.name: 1 if c.primary_key else a_value(c.type, c.name) for c in table.columns}
                    )
                )
    return kept(engine, metadata)


def kept(engine: Engine, metadata: MetaData) -> dict[str, list[Any]]:
    """Return the rows of the tables of a form, only with the columns that they had."""
    with engine.connect() as connection:
        return {
            name: [tuple(row) for row in connection.execute(table.select())]
            for name, table in metadata.tables.items()
            if name != "alembic_version"
        }


def test_a_new_store_has_every_table_and_no_difference_from_the_classes(engine: Engine) -> None:
    assert set(inspect(engine).get_table_names()) == {*METADATA.tables, "alembic_version"}
    assert find_differences(engine) == []


@pytest.mark.parametrize("revision", list_revisions())
def test_what_was_kept_in_any_form_is_there_after_all_steps(url: str, revision: str) -> None:
    engine = connect(url)
    upgrade(engine, revision)
    assert read_revision(engine) == revision
    before = fill(engine)
    metadata = MetaData()
    metadata.reflect(engine)
    upgrade(engine)
    assert read_revision(engine) == newest_revision()
    assert kept(engine, metadata) == before
    assert find_differences(engine) == []
    engine.dispose()


def test_every_step_can_be_taken_back(engine: Engine) -> None:
    config = migration_config()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    assert inspect(engine).get_table_names() == ["alembic_version"]
    upgrade(engine)
    assert find_differences(engine) == []


def test_a_step_that_was_cut_off_half_way_is_finished(url: str) -> None:
    # MariaDB keeps each table that was made: the number of the form is written last.
    engine = open_store(url)
    with engine.begin() as connection:
        connection.execute(text("update alembic_version set version_num = 's0001'"))
        connection.execute(text("drop table reports"))
    index = "drop index ix_failures_cluster_at"
    with engine.begin() as connection:
        connection.execute(text(index + (" on failures" if engine.dialect.name in ("mysql", "mariadb") else "")))
    upgrade(engine)
    assert find_differences(engine) == []
    engine.dispose()


def test_a_server_of_an_older_form_is_left_to_the_administrator(url: str) -> None:
    engine = connect(url)
    upgrade(engine, list_revisions()[0])
    if engine.dialect.name == "sqlite":
        open_store(url)
        assert read_revision(engine) == newest_revision()
    else:
        with pytest.raises(StoreError, match="older opsk") as caught:
            open_store(url)
        assert "opsk store upgrade" in caught.value.hint
    engine.dispose()


def test_a_store_of_a_newer_opsk_is_refused(engine: Engine, url: str) -> None:
    with engine.begin() as connection:
        connection.execute(text("update alembic_version set version_num = 's9999'"))
    for attempt in (lambda: open_store(url), lambda: open_store(url, writing=False), lambda: upgrade(engine)):
        with pytest.raises(StoreError, match="newer opsk"):
            attempt()


_OPEN = """
import os, sys, traceback
from opsk.store.database.engine import open_store
for me in range(3):  # programs that have loaded opsk, and share nothing from here on
    if not os.fork():
        try:
            open_store(sys.argv[1])
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
sys.exit(any(os.wait()[1] for me in range(3)))
"""


def test_several_processes_may_open_a_new_store_at_once(url: str, tmp_path: Path) -> None:
    program = tmp_path / "open.py"
    program.write_text(_OPEN)
    done = warm().run([url], environment=os.environ, timeout_s=250, program=program)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("url", ["mariadb"], indirect=True)
def test_who_is_next_to_change_tables_on_mariadb_finds_all_that_was_changed(url: str) -> None:
    """The lock is no part of a transaction there: let go before its end, it would let the next one in half way."""
    changing, beside = connect(url), connect(url)
    seen: list[str | None] = []

    def look(*words: Any) -> None:
        if "RELEASE_LOCK" in words[2]:
            seen.append(read_revision(beside))

    event.listen(changing, "before_cursor_execute", look)
    upgrade(changing)
    assert seen == [newest_revision()]
    changing.dispose()
    beside.dispose()


def test_tables_of_other_programs_are_none_of_ours(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("create table somebody_elses (id integer)"))
    assert find_differences(engine) == []


def test_a_difference_is_named(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("alter table failures drop column code"))
    assert find_differences(engine) == ["add_column failures.code"]


def test_developers_write_steps_with_alembics_own_command(root: Path, tmp_path: Path) -> None:
    ini = (root / "opsk" / "store" / "database" / "alembic.ini").read_text(encoding="utf-8")
    folder = root / "opsk" / "store" / "database"
    own = ini.replace("%(here)s/migrations", str(folder / "migrations")).replace("%(here)s/../../..", str(tmp_path))
    (tmp_path / "alembic.ini").write_text(own)
    for words in (["upgrade", "head"], ["check"]):
        command_line = [sys.executable, "-m", "alembic", "-c", str(tmp_path / "alembic.ini"), *words]
        done = subprocess.run(command_line, cwd=root, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "build" / "migrations.db").exists()
