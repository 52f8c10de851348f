"""What can a column hold, the same on SQLite, PostgreSQL and MariaDB?

Left alone, the three differ: in the case of letters (MariaDB's ``a`` is ``A``), parts of a second, the length of texts
and of bytes, and in which signs they refuse.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, DateTime, Integer, LargeBinary, String, Text
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

from opsk.store.kept_text import kept_text

_MARIADB = ("mysql", "mariadb")
_EXACT = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}
"""All of Unicode, every sign unlike any other."""


def _text_type(characters: int | None, dialect: Dialect) -> TypeEngine[str]:
    """Return the type of a text of at most so many signs; ``None`` is any length."""
    if dialect.name in _MARIADB:
        return mysql.LONGTEXT(**_EXACT) if characters is None else mysql.VARCHAR(characters, **_EXACT)
    return Text() if characters is None else String(characters)


BIG = BigInteger().with_variant(Integer(), "sqlite")
"""A whole number of 64 bits; SQLite counts up keys of its plain type only, which has as many."""

BLOB = LargeBinary().with_variant(mysql.LONGBLOB(), *_MARIADB)
"""Bytes of any length: MariaDB's plain BLOB ends at 64 KiB."""


class UtcDateTime(TypeDecorator[datetime]):
    """A time with its zone, kept as UTC: SQLite and MariaDB keep none, and give it back without."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return what this database has for it, to the microsecond."""
        return mysql.DATETIME(fsp=6) if dialect.name in _MARIADB else DateTime()

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse a time without a zone; keep any other as UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a time zone cannot be kept")
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        """Return the time as UTC."""
        return None if value is None else value.replace(tzinfo=UTC)


class Words(TypeDecorator[str]):
    """A text, as far as a database can hold it: see `opsk.store.kept_text`; one that is too long is cut.

    Parameters
    ----------
    characters
        Most signs that are kept; ``None`` is any number.
    """

    impl = String
    cache_ok = True

    def __init__(self, characters: int | None = None) -> None:
        super().__init__()
        self.characters = characters

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return what this database has for it."""
        return _text_type(self.characters, dialect)

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Return what is kept of a text."""
        return None if value is None else kept_text(value)[: self.characters]


class Document(TypeDecorator[Any]):
    """What JSON can say, as its text in ASCII; the databases' own types of JSON differ in what they keep."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return what this database has for it."""
        return _text_type(None, dialect)

    def process_bind_param(self, value: Any | None, dialect: Dialect) -> str | None:
        """Return the document as text."""
        return None if value is None else json.dumps(value, separators=(",", ":"), allow_nan=False)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """Return the document; the database may be anybody's, and what is none is kept as the text that it is."""
        try:
            return None if value is None else json.loads(value)
        except (ValueError, RecursionError):
            return {"unreadable": value}
