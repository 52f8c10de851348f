"""Writes ``docs/reference/store.md`` from the tables and records themselves; ``--check`` only compares.

The page depends on the code alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from sqlalchemy import Boolean, Double, Integer, LargeBinary
from sqlmodel import SQLModel

from opsk.store.database import tables
from opsk.store.database.schema import newest_revision
from opsk.store.database.tables import Document, UtcDateTime, Words
from opsk.store.writing import Record

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "store.md"
_REVISION = newest_revision()
_HEAD = f"""# What the store holds

<!-- Written by docs/programs/store_tables.py from the tables and records themselves: change those, not this page. -->

This page lists the tables of the store, revision `{_REVISION}`. To configure its database, see
[choose a database](../howto/choose-a-database.md). Times are UTC, with microseconds. A text can contain all of Unicode;
NUL and invalid characters become �, and a text that is too long is truncated. `key` is the hash of the fields that
identify a record, so that a record that is sent twice is stored once.

## Records

`opsk store export` prints the records: one JSON object per line, with `kind` and the columns below (except `id`, `key`
and columns that opsk computes). Unknown values are omitted.

| kind | content | identified by |
| --- | --- | --- |
"""
_SORTS: tuple[tuple[type[Any], str], ...] = (
    (UtcDateTime, "time"),
    (Document, "JSON"),
    (Boolean, "yes or no"),
    (Integer, "whole number"),
    (Double, "number"),
    (LargeBinary, "bytes"),
)


def page() -> str:
    """Return the page."""
    return _HEAD + "\n".join(_records()) + "\n\n## Tables\n" + "".join(map(_table, _classes()))


def _records() -> Iterator[str]:
    """Yield a line for every kind of record."""
    for record in get_args(Record):
        word = record.__dataclass_fields__["kind"].default
        names = ", ".join(f"`{name}`" for name in record.IDENTITY)
        yield f"| `{word}` | {_first_paragraph(record)} | {names} |"


def _classes() -> list[type[SQLModel]]:
    """Return the tables in the order in which they stand in the code."""
    return [thing for thing in vars(tables).values() if isinstance(thing, type) and hasattr(thing, "__table__")]


def _table(table: Any) -> str:
    """Return the section on one table."""
    lines = [f"\n### {table.__tablename__}\n", f"{_paragraphs(table)}\n", "| column | holds | may be empty |"]
    lines.append("| --- | --- | --- |")
    lines += [
        f"| `{column.name}` | {_sort(column.type)} | {'yes' if column.nullable else ''} |"
        for column in table.__table__.columns
    ]
    return "\n".join(lines) + "\n"


def _sort(kind: Any) -> str:
    """Return what a column holds, in words."""
    if isinstance(kind, Words):
        return f"text of up to {kind.characters}" if kind.characters else "text"
    return next(word for sort, word in _SORTS if isinstance(kind, sort))


def _first_paragraph(thing: Any) -> str:
    return _paragraphs(thing).split("\n\n", 1)[0]


def _paragraphs(thing: Any) -> str:
    paragraphs = (thing.__doc__ or "").strip().replace("``", "`").split("\n\n")
    return "\n\n".join(" ".join(part.split()) for part in paragraphs)


def main() -> int:
    """Write the page, or with ``--check`` only say whether it is as the code says."""
    text = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        print(
            f"{PAGE.relative_to(ROOT)} is not what the tables say: run python docs/programs/store_tables.py",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
