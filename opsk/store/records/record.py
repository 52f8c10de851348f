"""Defines what all records have in common: field types, identity, and the conversion to and from rows.

A record is a frozen dataclass of what one program reports: a job as Slurm shows it, an interval that was measured.
``IDENTITY`` names the fields that distinguish it from others of its kind: the same record twice is stored once. A row
has the same fields as its record; rows never leave this package.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Protocol, TypeVar

from pydantic import AfterValidator, AwareDatetime, ConfigDict, Field
from sqlmodel import Session, SQLModel, select

from opsk.store.text import sanitise_texts
from opsk.units import MIB

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
"""How records are read: nothing that is not known, no number for a text, no NaN."""

_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
_MAX_COUNT = 2**63 - 1
_MAX_DOCUMENT_BYTES = 1 << 22
_MAX_TEXT_CHARACTERS = MIB


def _check_range(value: datetime) -> datetime:
    """Refuse what no database can hold; the zones of the ends of the calendar cannot even be changed."""
    if not _EARLIEST <= value <= _LATEST:
        raise ValueError("a time from 1970 to 9000")
    return value.astimezone(UTC)


def _check_length(value: Any) -> Any:
    """Refuse a document that is no JSON, or more than a record is for."""
    if value is not None and len(json.dumps(value, allow_nan=False)) > _MAX_DOCUMENT_BYTES:
        raise ValueError(f"a document of at most {_MAX_DOCUMENT_BYTES} bytes")
    return value


Time = Annotated[AwareDatetime, AfterValidator(_check_range)]
"""A time with its zone."""
Name = Annotated[str, Field(max_length=_MAX_TEXT_CHARACTERS)]
"""A text that is searched for; the store cuts it after 255 characters."""
Given = Annotated[str, Field(min_length=1, max_length=255)]
"""A text that every record needs."""
Word = Annotated[str, Field(min_length=1, max_length=64)]
"""A short text of opsk's or Slurm's own: an id, a state, a hash."""
LongText = Annotated[str, Field(max_length=_MAX_TEXT_CHARACTERS)]
Amount = Annotated[float, Field(ge=0)]
Number = Annotated[float, Field(strict=True)]
Count = Annotated[int, Field(ge=0, le=_MAX_COUNT)]
Document = Annotated[dict[str, Any] | list[Any], AfterValidator(_check_length)]


class StoredRecord(Protocol):
    """The attributes of every record."""

    IDENTITY: ClassVar[tuple[str, ...]]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def kind(self) -> str:
        """The name of its kind."""


R = TypeVar("R", bound=StoredRecord)
Row = TypeVar("Row", bound=SQLModel)


def compute_key(record: StoredRecord) -> str:
    """Return the hash of the fields that identify a record."""
    return hash_parts(record.kind, *(getattr(record, name) for name in record.IDENTITY))


def hash_parts(*parts: Any) -> str:
    """Return the key of a record of which only the kind and the fields of its identity are known."""
    return hashlib.sha256(json.dumps(sanitise_texts([_plain(part) for part in parts])).encode()).hexdigest()


def to_columns(record: StoredRecord) -> dict[str, Any]:
    """Return the fields of a record as the columns of its row."""
    return {item.name: getattr(record, item.name) for item in fields(record) if item.name != "kind"}


def build_record(kind: type[R], row: SQLModel, **instead: Any) -> R:
    """Return the record of a row; ``instead`` are fields that its columns do not have as they are."""
    names = [item.name for item in fields(kind) if item.name != "kind"]
    return kind(**{name: instead[name] if name in instead else getattr(row, name) for name in names})


def lock_row(session: Session, table: type[Row], key: str) -> Row | None:
    """Return the row with a key, held until the transaction ends, so that two writers do not take turns in it."""
    return session.exec(select(table).where(table.key == key).with_for_update()).first()  # type: ignore[attr-defined]


def store_record(
    session: Session,
    table: type[Row],
    record: StoredRecord,
    merge: Callable[[Row, Mapping[str, Any]], bool] | None = None,
    **more: Any,
) -> bool:
    """Store a record once; return whether anything changed.

    Parameters
    ----------
    merge
        Updates an existing row from the record, and returns whether it changed; without it the
        first record of a key stays.
    more
        Columns that the record has no fields for, in a new row.
    """
    key = compute_key(record)
    row = lock_row(session, table, key)
    if row is not None:
        return merge(row, to_columns(record)) if merge is not None else False
    session.add(table(**{**to_columns(record), **more, "key": key}))
    session.flush()
    return True


def merge_newest(row: SQLModel, values: Mapping[str, Any]) -> bool:
    """Take the values of a newer record, and of an older one only unknown ones; no known value is removed."""
    newer = values["at"] >= row.at  # type: ignore[attr-defined]
    changes = {
        name: value
        for name, value in values.items()
        if value is not None and getattr(row, name) != value and (newer or getattr(row, name) is None)
    }
    for name, value in changes.items():
        setattr(row, name, value)
    return bool(changes)


def _plain(value: Any) -> Any:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value
