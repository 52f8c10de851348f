"""How is the store opened? SQLite in write-ahead mode unless the site names another database; always the newest form.

A database is brought to the newest form when it is opened. One that a newer opsk has changed is refused.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import (
    ArgumentError,
    IntegrityError,
    NoSuchModuleError,
    OperationalError,
    ProgrammingError,
    SQLAlchemyError,
)
from sqlalchemy.pool import ConnectionPoolEntry

from opsk.errors import StoreError

MIGRATIONS = Path(__file__).parent / "migrations"
BUSY_TIMEOUT_MS = 10_000
"""How long one writer of a SQLite file waits for another."""
_ATTEMPTS = 20
_BETWEEN_ATTEMPTS_S = 0.1
_HINT = "name another database with url under [store] in opsk.toml"


def default_url() -> str:
    """Return the URL of the SQLite file of this user: under XDG_STATE_HOME, or ``~/.local/state``."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return f"sqlite:///{Path(state) / 'opsk' / 'opsk.db'}"


def open_store(url: str) -> Engine:
    """Return an engine on a database whose tables are of the newest form.

    Raises
    ------
    StoreError
        When the URL is none, its driver is not installed, or the database cannot be opened, written or brought up.
    """
    try:
        parsed = make_url(url)
        _make_folder(parsed)
        engine = create_engine(parsed)
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        raise StoreError(f"the store's URL cannot be used: {_first_line(error)}", hint=_HINT) from error
    except OSError as error:
        raise StoreError(f"{error.filename}: cannot be made: {error.strerror}", hint=_HINT) from error
    if parsed.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
    try:
        bring_up(engine)
    except (SQLAlchemyError, CommandError, OSError) as error:
        engine.dispose()
        shown = parsed.render_as_string(hide_password=True)
        raise StoreError(f"the store {shown} cannot be opened: {_first_line(error)}", hint=_HINT) from error
    return engine


def bring_up(engine: Engine) -> None:
    """Bring a database to the newest form; another process that does so at the same moment is waited for."""
    for attempt in range(_ATTEMPTS):
        try:
            _bring_up(engine)
        except (OperationalError, ProgrammingError, IntegrityError):
            if attempt + 1 == _ATTEMPTS:
                raise
            time.sleep(_BETWEEN_ATTEMPTS_S)
        else:
            return


def _bring_up(engine: Engine) -> None:
    """Bring a database to the newest form; the common case, that it is there already, needs one query."""
    config = migration_config()
    script = ScriptDirectory.from_config(config)
    with engine.connect() as connection:
        revision = MigrationContext.configure(connection).get_current_revision()
    if revision == script.get_current_head():
        return
    if revision is not None and revision not in {entry.revision for entry in script.walk_revisions()}:
        raise StoreError(f"the store was changed by a newer opsk (revision {revision})", hint="update opsk")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def migration_config() -> Config:
    """Return Alembic's configuration, without any file."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _make_folder(url: URL) -> None:
    """Make the folder of a SQLite file, readable for its owner only: the store names users and their jobs."""
    if url.get_backend_name() == "sqlite" and url.database and url.database != ":memory:":
        Path(url.database).parent.mkdir(parents=True, exist_ok=True, mode=0o700)


def _prepare_sqlite(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    """Let readers and a writer work at once, wait for other writers, and heed foreign keys."""
    cursor = connection.cursor()
    for pragma in (f"busy_timeout={BUSY_TIMEOUT_MS}", "journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _first_line(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).split("\n", 1)[0]
