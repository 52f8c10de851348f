"""Translates database errors into one sentence and a hint, without password or traceback."""

from __future__ import annotations

import sqlite3

from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, SQLAlchemyError

from opsk.errors import StoreError
from opsk.store.database.urls import HINT, find_secrets, format_url

_NOT_WRITTEN = "what is kept already is safe, what was to be written is not kept"
_FULL = ("its disk is full", f"make room on it: opsk store prune needs some itself; {_NOT_WRITTEN}")
_READ_ONLY = ("it can only be read", f"let the user of this command write the database; {_NOT_WRITTEN}")
_LOCKED = ("another program has it locked", "try again; if it stays so, end the program that holds it")
_DAMAGED = (
    "its file is damaged",
    "keep the file and its -wal as they are, move both away, and put a copy back; sqlite3's .recover reads the rest",
)
_NO_DATABASE = ("its file is not a database", HINT)
_NOT_OPENED = ("its file cannot be opened", HINT)
_IO = ("its disk cannot be read or written", f"see the kernel's log; {_NOT_WRITTEN}")
_REFUSED = ("the server refuses this user", "see user, password and rights in the store's url")
_AWAY = ("the server does not answer", "start the server, or see host and port in the store's url")
_MISSING = ("there is no such database", "make it on the server first: docs/howto/choose-a-database.md")
_FORM = (
    "it has not the tables that this opsk needs",
    "opsk store check says what is missing, opsk store upgrade makes it",
)

_SQLITE = {
    3: _READ_ONLY, 5: _LOCKED, 6: _LOCKED, 8: _READ_ONLY, 10: _IO, 11: _DAMAGED, 13: _FULL, 14: _NOT_OPENED,
    23: _READ_ONLY, 26: _NO_DATABASE,
}  # fmt: skip
_POSTGRESQL = {
    "25006": _READ_ONLY, "28000": _REFUSED, "28P01": _REFUSED, "3D000": _MISSING, "42501": _READ_ONLY, "42P01": _FORM,
    "42703": _FORM, "53100": _FULL, "55P03": _LOCKED, "57P01": _AWAY, "57P02": _AWAY, "57P03": _AWAY, "XX001": _DAMAGED,
}  # fmt: skip
_MARIADB = {
    126: _DAMAGED, 1021: _FULL, 1036: _READ_ONLY, 1044: _REFUSED, 1045: _REFUSED, 1049: _MISSING, 1054: _FORM,
    1114: _FULL, 1142: _READ_ONLY, 1146: _FORM, 1205: _LOCKED, 1290: _READ_ONLY, 1792: _READ_ONLY, 1836: _READ_ONLY,
    2002: _AWAY, 2003: _AWAY, 2006: _AWAY, 2013: _AWAY,
}  # fmt: skip
_AGAIN_SQLITE = frozenset({5, 6})
_AGAIN_POSTGRESQL = frozenset({"40001", "40P01", "55P03"})
_AGAIN_MARIADB = frozenset({1020, 1205, 1213})
_MAX_DETAIL_CHARACTERS = 200


def store_error(error: Exception, url: URL) -> StoreError:
    """Return the error to show for an error of a database."""
    meaning, hint = _meaning(error)
    detail = _first_line(error, url)
    message = f"{meaning} ({detail})" if meaning else detail
    return StoreError(f"the store {format_url(url)} cannot be used: {message}", hint=hint)


def may_try_again(error: SQLAlchemyError) -> bool:
    """Return whether the same may well succeed a moment later: others wrote the same, or were in the way."""
    if isinstance(error, IntegrityError) or (isinstance(error, DBAPIError) and error.connection_invalidated):
        return True
    code = _code(error)
    return code in _AGAIN_SQLITE if _is_sqlite(error) else code in _AGAIN_POSTGRESQL or code in _AGAIN_MARIADB


def _meaning(error: Exception) -> tuple[str, str]:
    """Return what an error means, and what to do; no meaning where it is unknown."""
    code = _code(error)
    if _is_sqlite(error):
        if "no such table" in str(error) or "no such column" in str(error):
            return _FORM
        return _SQLITE.get(code, ("", HINT)) if isinstance(code, int) else ("", HINT)
    if isinstance(code, str):
        return _POSTGRESQL.get(code, ("", HINT))
    if isinstance(code, int):
        return _MARIADB.get(code, ("", HINT))
    if isinstance(error, OperationalError):
        return _not_connected(str(error.orig))
    return "", HINT


def _not_connected(words: str) -> tuple[str, str]:
    """Return what PostgreSQL's library means where there is no connection yet, and so no code."""
    if "authentication" in words or "no password" in words or "pg_hba" in words:
        return _REFUSED
    return _MISSING if "does not exist" in words else _AWAY


def _code(error: Exception) -> int | str | None:
    """Return the number or the letters by which the database names an error."""
    origin = getattr(error, "orig", None) or error
    number = getattr(origin, "sqlite_errorcode", None)
    if isinstance(number, int):
        return number & 0xFF  # the rest is finer than what is distinguished here
    arguments = getattr(origin, "args", ())
    if arguments and isinstance(arguments[0], int):
        return arguments[0]
    state = getattr(origin, "sqlstate", None) or getattr(origin, "pgcode", None)  # psycopg2's name for it
    return state if isinstance(state, str) else None


def _is_sqlite(error: Exception) -> bool:
    return isinstance(getattr(error, "orig", None) or error, sqlite3.Error)


def _first_line(error: Exception, url: URL) -> str:
    """Return the database's own message, cut, and without the password."""
    text = str(getattr(error, "orig", None) or error).strip().split("\n", 1)[0]
    for secret in find_secrets(url):
        text = text.replace(secret, "***")
    return text if len(text) <= _MAX_DETAIL_CHARACTERS else text[:_MAX_DETAIL_CHARACTERS] + "…"
