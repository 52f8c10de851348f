"""Opens the store: SQLite in write-ahead mode unless the site names another database.

A SQLite file, and an empty database, is migrated to the newest schema when it is opened. A server that others use as
well is changed by ``opsk store upgrade`` only. A database that a newer opsk has changed is refused.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from alembic.util import CommandError
from sqlalchemy import Connection, Engine, QueuePool, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from opsk.errors import StoreError
from opsk.store.database.errors import may_try_again, store_error
from opsk.store.database.network_files import network_mount
from opsk.store.database.schema import newest_revision, read_revision, read_settled_revision, refuse_newer, upgrade
from opsk.store.database.transactions import WRITING
from opsk.store.database.urls import HINT, default_url, find_sqlite_file, format_url, store_url

__all__ = ["BUSY_TIMEOUT_MS", "OPEN_ERRORS", "connect", "default_url", "open_store"]

BUSY_TIMEOUT_MS = 10_000
"""How long one writer of a SQLite file waits for another."""
_CONNECT_TIMEOUT_S = 10
_ATTEMPTS = 20
_BETWEEN_ATTEMPTS_S = 0.1
_PATIENCE_S = 20.0
OPEN_ERRORS = (SQLAlchemyError, CommandError, TypeError, ValueError, RuntimeError, OSError)
"""What drivers raise for options that they do not know, files that are not there, and libraries that they lack."""
_SQL_MODE = "STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
"""MariaDB cuts and changes what does not fit, unless it is configured to refuse it."""


def open_store(url: str, *, writing: bool = True) -> Engine:
    """Return an engine on a database whose tables are of the newest revision.

    Parameters
    ----------
    writing
        ``False`` only reads: nothing is created, changed or migrated, and the file may be on any file system.

    Raises
    ------
    StoreError
        When the URL is none, its driver is not installed, or the database cannot be opened, written or brought up.
    """
    engine = connect(url, writing=writing)
    try:
        _migrate(engine, writing=writing)
    except StoreError:
        engine.dispose()
        raise
    return engine


def upgrade_store(url: str) -> tuple[Engine, str | None, str]:
    """Migrate a database to the newest schema; return its engine, the revision that it had and the one that it has.

    Raises
    ------
    StoreError
        As `open_store` does.
    """
    engine = connect(url)
    try:
        return engine, upgrade(engine), newest_revision()
    except OPEN_ERRORS as error:
        engine.dispose()
        raise store_error(error, engine.url) from error


def connect(url: str, *, writing: bool = True) -> Engine:
    """Return an engine on a database of any schema revision.

    Raises
    ------
    StoreError
        When the URL is none, its driver is not installed, or SQLite would be written on a network file system.
    """
    parsed = store_url(url)
    path = find_sqlite_file(parsed)
    try:
        if path is not None and writing:
            _refuse_network(path)
            _create_file(path)
        if path is not None and not writing:
            return _create_read_only_engine(parsed, path)
        engine = create_engine(parsed, **_options(parsed))
    except ModuleNotFoundError as error:
        kind = "postgresql" if parsed.get_backend_name() == "postgresql" else "mariadb"
        raise StoreError(
            f"the store {format_url(parsed)} cannot be used: {error.name} is not installed",
            hint=f'install it with: pip install "opsk[store-{kind}]"',
        ) from error
    except OSError as error:
        raise StoreError(f"{error.filename}: cannot be made: {error.strerror}", hint=HINT) from error
    except (SQLAlchemyError, TypeError) as error:
        raise store_error(error, parsed) from error
    _listen(engine, writing=writing)
    return engine


def _migrate(engine: Engine, *, writing: bool) -> None:
    """Migrate a database to the newest revision where this program may do so; concurrent migrations are waited for."""
    started_s = time.monotonic()
    for attempt in range(_ATTEMPTS):
        try:
            revision = read_revision(engine)
            refuse_newer(revision)
            if revision != newest_revision():
                _refuse_older(engine, revision, writing=writing)
                upgrade(engine)
        except OPEN_ERRORS as error:
            again = isinstance(error, SQLAlchemyError) and may_try_again(error)
            late = attempt + 1 == _ATTEMPTS or time.monotonic() - started_s > _PATIENCE_S
            if late or not again:
                raise store_error(error, engine.url) from error
            time.sleep(_BETWEEN_ATTEMPTS_S)
        else:
            return


def _refuse_older(engine: Engine, revision: str | None, *, writing: bool) -> None:
    """Refuse to change tables that others use as well, or that are opened read-only."""
    if not writing:
        known = (
            f"its tables are of revision {revision}, and this opsk reads {newest_revision()}"
            if revision
            else "it is empty"
        )
        raise StoreError(f"the store {format_url(engine.url)} cannot be read: {known}", hint="opsk store upgrade")
    if revision is None or engine.dialect.name == "sqlite":
        return
    revision = read_settled_revision(engine)
    if revision != newest_revision():
        raise StoreError(
            f"the store {format_url(engine.url)} is of an older opsk (revision {revision}, this one needs "
            f"{newest_revision()})",
            hint="opsk store upgrade, once all that write to it are of this version",
        )


def _create_file(path: Path) -> None:
    """Create a SQLite file readable for its owner only, as it names users and their jobs; an existing one stays."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def _refuse_network(path: Path) -> None:
    """Refuse to write a file that other machines may write at the same time."""
    mount = network_mount(path)
    if mount is not None:
        raise StoreError(
            f"{path} is on a network file system ({mount.kind} at {mount.point}), where SQLite loses what is written",
            hint="name a file on a disk of this machine, or a PostgreSQL or MariaDB server, with url under [store] in "
            "opsk.toml: docs/howto/choose-a-database.md",
        )


def _create_read_only_engine(url: URL, path: Path) -> Engine:
    """Return an engine that cannot change a SQLite file."""
    if not path.exists():
        raise StoreError(
            f"the store {format_url(url)} is not there yet: nothing is kept", hint="opsk store upgrade makes it"
        )

    def open_connection(flags: str) -> sqlite3.Connection:
        address = f"file:{quote(str(path))}?mode=ro{flags}"
        return sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_MS / 1000, check_same_thread=False)

    def creator() -> sqlite3.Connection:
        connection = open_connection("")
        try:
            connection.execute("SELECT 1 FROM sqlite_master").close()
        except sqlite3.OperationalError:
            # In a folder that cannot be written SQLite reads a write-ahead file that no other program has open only so.
            connection.close()
            connection = open_connection("&immutable=1" if not path.with_name(path.name + "-wal").exists() else "")
        return connection

    engine = create_engine(url, creator=creator, poolclass=QueuePool)
    _listen(engine, writing=False)
    return engine


def _options(url: URL) -> dict[str, object]:
    """Return what a server needs besides its URL."""
    kind = url.get_backend_name()
    if kind == "sqlite":
        return {}
    options: dict[str, object] = {"isolation_level": "READ COMMITTED", "pool_pre_ping": True}
    if "connect_timeout" not in url.query:
        options["connect_args"] = {"connect_timeout": _CONNECT_TIMEOUT_S}
    return options


def _listen(engine: Engine, *, writing: bool) -> None:
    """Prepare every connection as its database needs it."""
    prepare: dict[str, Callable[[DBAPIConnection, ConnectionPoolEntry], None]] = {
        "sqlite": _prepare_sqlite if writing else _prepare_reading,
        "postgresql": _prepare_postgresql,
    }
    event.listen(engine, "connect", prepare.get(engine.dialect.name, _prepare_mariadb))
    if engine.dialect.name == "sqlite":
        event.listen(engine, "begin", _begin)


def _begin(connection: Connection) -> None:
    """Begin as SQLite should: who will write waits for the lock here, where nothing is lost by waiting."""
    writing = connection.get_execution_options().get(WRITING)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def _prepare_sqlite(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    """Let readers and a writer work at once, wait for other writers, heed foreign keys, and be on disk when done."""
    _prepare_reading(connection, _record)
    _run(connection, "PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "PRAGMA foreign_keys=ON")


def _prepare_reading(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    # Python would begin transactions by itself, and only before some statements: not around changes of tables.
    connection.isolation_level = None
    _run(connection, f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")


def _prepare_postgresql(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    _run(connection, "SET TIME ZONE 'UTC'", "SET lock_timeout = '30s'")
    connection.commit()


def _prepare_mariadb(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    _run(connection, f"SET SESSION sql_mode = '{_SQL_MODE}', time_zone = '+00:00'")


def _run(connection: DBAPIConnection, *statements: str) -> None:
    cursor = connection.cursor()
    for statement in statements:
        cursor.execute(statement)
    cursor.close()
