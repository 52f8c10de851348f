"""Parses database URLs, and formats them without their password.

Drivers that opsk installs are filled in: ``postgresql://`` and ``mariadb://`` need no ``+driver``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from opsk.errors import StoreError

HINT = "name another database with url under [store] in opsk.toml"
_DRIVERS = {
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
_KINDS = ("sqlite", "postgresql", "mysql", "mariadb")
_SECRET = "***"
_SECRET_NAME = re.compile("pass|pwd|secret|token|key", re.IGNORECASE)


def default_url() -> str:
    """Return the URL of the SQLite file of this user: under XDG_STATE_HOME, or ``~/.local/state``."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return URL.create("sqlite", database=str(Path(state) / "opsk" / "opsk.db")).render_as_string()


def store_url(text: str) -> URL:
    """Return the URL of a store, with its driver.

    Raises
    ------
    StoreError
        When it is none, or of another database than opsk keeps a store in.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        # What the parser complains of may be a part of the password.
        raise StoreError(
            "the store's URL cannot be used: it is no URL of a database", hint=f"{HINT}; escape signs in it as %XX"
        ) from error
    if "@" in (url.host or ""):
        # It may be the rest of a password.
        raise StoreError(
            "the store's URL cannot be used: its host holds an @", hint="an @ in user or password is written as %40"
        )
    url = url.set(drivername=_DRIVERS.get(url.drivername, url.drivername))
    kind = url.get_backend_name()
    if kind not in _KINDS:
        raise StoreError(f"the store's URL cannot be used: {kind} is none of SQLite, PostgreSQL and MariaDB", hint=HINT)
    if kind in ("mysql", "mariadb"):
        url = url.update_query_dict({"charset": "utf8mb4"})
    if kind == "sqlite" and (url.database or "").startswith("file:"):
        raise StoreError(
            "the store's URL cannot be used: name the file, without file: and options", hint="sqlite:////PATH"
        )
    if kind == "sqlite" and (url.host or url.username or url.password):
        raise StoreError(
            "the store's URL cannot be used: a file has no host or user", hint="sqlite:////PATH, with four slashes"
        )
    return url


def format_url(url: URL) -> str:
    """Return a URL that can be printed: without password, nor one among its options."""
    options = {name: _SECRET if _SECRET_NAME.search(name) else value for name, value in url.query.items()}
    options.pop("charset", None)
    return unquote(url.set(query=options).render_as_string(hide_password=True))


def find_secrets(url: URL) -> tuple[str, ...]:
    """Return what of a URL must never be printed."""
    secrets = [url.password, *(value for name, value in url.query.items() if _SECRET_NAME.search(name))]
    return tuple(str(secret) for secret in secrets if secret)


def find_sqlite_file(url: URL) -> Path | None:
    """Return the SQLite file that a URL means; ``None`` for a server and for a store in memory."""
    if url.get_backend_name() != "sqlite" or not url.database or url.database == ":memory:":
        return None
    return Path(url.database)
