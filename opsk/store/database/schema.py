"""Reads the schema revision of a database, and migrates the tables to the newest one.

Only one process changes them at a time: SQLite is locked for writing, servers have locks for this purpose.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from opsk.errors import StoreError
from opsk.store.database.tables import METADATA
from opsk.store.database.transactions import WRITING

MIGRATIONS = Path(__file__).parent / "migrations"
_LOCK = 0x6F70736B
"""The number of the lock on PostgreSQL: "opsk" in ASCII."""
_LOCK_WAIT_S = 120


def migration_config() -> Config:
    """Return Alembic's configuration, without any file."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


@cache
def list_revisions() -> tuple[str, ...]:
    """Return every revision that the tables have had, the first one first."""
    walked = ScriptDirectory.from_config(migration_config()).walk_revisions()
    return tuple(entry.revision for entry in walked)[::-1]


def newest_revision() -> str:
    """Return the revision that this opsk needs."""
    return list_revisions()[-1]


def read_revision(engine: Engine) -> str | None:
    """Return the revision of a database's tables; ``None`` where nothing is stored yet."""
    with engine.connect() as connection:
        return _revision(connection)


def read_settled_revision(engine: Engine) -> str | None:
    """Return the revision of the tables under the lock: on MariaDB a migration in progress is visible half way."""
    with _exclusive_connection(engine) as connection:
        return _revision(connection)


def refuse_newer(revision: str | None) -> None:
    """Refuse a revision that this opsk does not know.

    Raises
    ------
    StoreError
        A newer opsk has changed the tables.
    """
    if revision is not None and revision not in list_revisions():
        raise StoreError(f"the store was changed by a newer opsk (revision {revision[:40]})", hint="update opsk")


def upgrade(engine: Engine, to: str = "head") -> str | None:
    """Migrate a database to the newest revision and return the one that it had; its records stay.

    Raises
    ------
    StoreError
        A newer opsk has changed the tables.
    """
    with _exclusive_connection(engine) as connection:
        before = _revision(connection)
        refuse_newer(before)
        _refuse_part_of_unicode(connection)
        if before != newest_revision():
            config = migration_config()
            config.attributes["connection"] = connection
            command.upgrade(config, to)
        return before


def _refuse_part_of_unicode(connection: Connection) -> None:
    """Refuse a database of PostgreSQL that cannot hold all texts; opsk configures the other two."""
    if connection.dialect.name != "postgresql":
        return
    encoding = connection.execute(text("SHOW server_encoding")).scalar()
    if encoding != "UTF8":
        raise StoreError(
            f"the store's database keeps texts as {encoding}, which cannot hold all of them",
            hint="make it with createdb --encoding UTF8 --template template0",
        )


def find_differences(engine: Engine) -> list[str]:
    """Describe how the tables differ from those of this opsk; empty where they are equal."""
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "include_name": _is_ours})
        return [_describe_change(change) for change in compare_metadata(context, METADATA)]


def _is_ours(name: str | None, kind: str, parents: object) -> bool:
    """Return whether a thing is opsk's: a database may be shared with other programs."""
    return kind != "table" or name in METADATA.tables


def _describe_change(change: object) -> str:
    """Return a difference in a line."""
    if isinstance(change, list):
        return "; ".join(map(_describe_change, change))
    if not isinstance(change, tuple):
        return str(change)
    verb, *rest = change
    if verb.startswith("modify_"):
        return f"{verb} {rest[1]}.{rest[2]}"
    thing = rest[-1]
    table = getattr(getattr(thing, "table", None), "name", None)
    name = getattr(thing, "name", None)
    return f"{verb} {table}.{name}" if table else f"{verb} {name}"


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


@contextmanager
def _exclusive_connection(engine: Engine) -> Iterator[Connection]:
    """Provide the one connection that changes tables; its changes are committed before the next one starts."""
    writing = engine.execution_options(**{WRITING: True})
    with writing.connect() as connection, _hold_session_lock(connection), connection.begin():
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        yield connection


@contextmanager
def _hold_session_lock(connection: Connection) -> Iterator[None]:
    """Hold MariaDB's lock around the whole transaction, of which it is no part; the others have one within it."""
    if connection.dialect.name in ("postgresql", "sqlite"):
        yield
        return
    got = connection.execute(text("SELECT GET_LOCK('opsk store', :wait)"), {"wait": _LOCK_WAIT_S}).scalar()
    connection.rollback()
    if got != 1:
        raise StoreError("the store is being changed by another program", hint="try again when it is done")
    try:
        yield
    finally:
        connection.execute(text("SELECT RELEASE_LOCK('opsk store')"))
        connection.rollback()
