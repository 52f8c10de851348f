"""Of which form are the tables of a database, and how do they come to the newest one?

Only one process changes them at a time: SQLite is locked for writing, servers have locks of their own for it.
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
def revisions() -> tuple[str, ...]:
    """Return every form that the tables have had, the first one first."""
    walked = ScriptDirectory.from_config(migration_config()).walk_revisions()
    return tuple(entry.revision for entry in walked)[::-1]


def newest() -> str:
    """Return the form that this opsk needs."""
    return revisions()[-1]


def revision_of(engine: Engine) -> str | None:
    """Return the form of a database's tables; ``None`` where nothing is kept yet."""
    with engine.connect() as connection:
        return _revision(connection)


def settled_revision(engine: Engine) -> str | None:
    """Return the form of the tables while nobody changes them: who does so on MariaDB is seen half way."""
    with _alone(engine) as connection:
        return _revision(connection)


def refuse_newer(revision: str | None) -> None:
    """Refuse a form that this opsk does not know.

    Raises
    ------
    StoreError
        A newer opsk has changed the tables.
    """
    if revision is not None and revision not in revisions():
        raise StoreError(f"the store was changed by a newer opsk (revision {revision[:40]})", hint="update opsk")


def upgrade(engine: Engine, to: str = "head") -> str | None:
    """Bring a database to the newest form and return the one that it had; what is kept in it stays.

    Raises
    ------
    StoreError
        A newer opsk has changed the tables.
    """
    with _alone(engine) as connection:
        before = _revision(connection)
        refuse_newer(before)
        _refuse_part_of_unicode(connection)
        if before != newest():
            config = migration_config()
            config.attributes["connection"] = connection
            command.upgrade(config, to)
        return before


def _refuse_part_of_unicode(connection: Connection) -> None:
    """Refuse a database of PostgreSQL that holds some of all texts only; the other two are told how by opsk."""
    if connection.dialect.name != "postgresql":
        return
    encoding = connection.execute(text("SHOW server_encoding")).scalar()
    if encoding != "UTF8":
        raise StoreError(
            f"the store's database keeps texts as {encoding}, which cannot hold all of them",
            hint="make it with createdb --encoding UTF8 --template template0",
        )


def differences(engine: Engine) -> list[str]:
    """Say how the tables differ from what this opsk writes into; nothing where they are as they should be."""
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "include_name": _is_ours})
        return [_said(change) for change in compare_metadata(context, METADATA)]


def _is_ours(name: str | None, kind: str, parents: object) -> bool:
    """Say whether a thing is opsk's: a database may be shared with other programs."""
    return kind != "table" or name in METADATA.tables


def _said(change: object) -> str:
    """Return a difference in a line."""
    if isinstance(change, list):
        return "; ".join(map(_said, change))
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
def _alone(engine: Engine) -> Iterator[Connection]:
    """Give the one connection that changes tables; what it changed is kept before the next one gets in."""
    writing = engine.execution_options(**{WRITING: True})
    with writing.connect() as connection, _lock_of_a_session(connection), connection.begin():
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        yield connection


@contextmanager
def _lock_of_a_session(connection: Connection) -> Iterator[None]:
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
