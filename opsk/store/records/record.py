"""What is a record, how is it told from another, and how does it become a row and come back?

A record is a frozen dataclass of what one program has to say: a job as Slurm shows it, an interval that was measured.
``IDENTITY`` names the fields that tell it from others of its kind: the same record twice is kept once. A row has the
same fields as its record; rows never leave this package.
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

from opsk.store.text import kept_texts
from opsk.units import MIB

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
"""How records are read: nothing that is not known, no number for a text, no NaN."""

_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
_MOST = 2**63 - 1
_LONGEST_DOCUMENT = 1 << 22
_LONGEST_TEXT = MIB


def _in_range(value: datetime) -> datetime:
    """Refuse what no database can hold; the zones of the ends of the calendar cannot even be changed."""
    if not _EARLIEST <= value <= _LATEST:
        raise ValueError("a time from 1970 to 9000")
    return value.astimezone(UTC)


def _short_enough(value: Any) -> Any:
    """Refuse a document that is no JSON, or more than a record is for."""
    if value is not None and len(json.dumps(value, allow_nan=False)) > _LONGEST_DOCUMENT:
        raise ValueError(f"a document of at most {_LONGEST_DOCUMENT} bytes")
    return value


Time = Annotated[AwareDatetime, AfterValidator(_in_range)]
"""A time with its zone."""
Name = Annotated[str, Field(max_length=_LONGEST_TEXT)]
"""A text that finds something; the store cuts it after 255 signs."""
Given = Annotated[str, Field(min_length=1, max_length=255)]
"""A text without which a record says nothing."""
Word = Annotated[str, Field(min_length=1, max_length=64)]
"""A short text of opsk's or Slurm's own: an id, a state, a hash."""
LongText = Annotated[str, Field(max_length=_LONGEST_TEXT)]
Amount = Annotated[float, Field(ge=0)]
Number = Annotated[float, Field(strict=True)]
Count = Annotated[int, Field(ge=0, le=_MOST)]
Document = Annotated[dict[str, Any] | list[Any], AfterValidator(_short_enough)]


class Kept(Protocol):
    """What every record has."""

    IDENTITY: ClassVar[tuple[str, ...]]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def kind(self) -> str:
        """The word that stands for what it is."""


R = TypeVar("R", bound=Kept)
Row = TypeVar("Row", bound=SQLModel)


def key_of(record: Kept) -> str:
    """Return the hash of what tells a record from others."""
    return key_of_parts(record.kind, *(getattr(record, name) for name in record.IDENTITY))


def key_of_parts(*parts: Any) -> str:
    """Return the key of a record of which only the kind and the fields of its identity are known."""
    return hashlib.sha256(json.dumps(kept_texts([_plain(part) for part in parts])).encode()).hexdigest()


def columns_of(record: Kept) -> dict[str, Any]:
    """Return the fields of a record as the columns of its row."""
    return {item.name: getattr(record, item.name) for item in fields(record) if item.name != "kind"}


def record_of(kind: type[R], row: SQLModel, **instead: Any) -> R:
    """Return the record that a row keeps; ``instead`` are fields that its columns do not have as they are."""
    names = [item.name for item in fields(kind) if item.name != "kind"]
    return kind(**{name: instead[name] if name in instead else getattr(row, name) for name in names})


def row_with(session: Session, table: type[Row], key: str) -> Row | None:
    """Return the row with a key, held until the transaction ends, so that two writers do not take turns in it."""
    return session.exec(select(table).where(table.key == key).with_for_update()).first()  # type: ignore[attr-defined]


def keep(
    session: Session,
    table: type[Row],
    record: Kept,
    merge: Callable[[Row, Mapping[str, Any]], bool] | None = None,
    **more: Any,
) -> bool:
    """Keep a record once; say whether anything changed.

    Parameters
    ----------
    merge
        Brings a row that is there already up to what the record says, and says whether it changed; without it the
        first record of a key stays.
    more
        Columns that the record has no fields for, in a new row.
    """
    key = key_of(record)
    row = row_with(session, table, key)
    if row is not None:
        return merge(row, columns_of(record)) if merge is not None else False
    session.add(table(**{**columns_of(record), **more, "key": key}))
    session.flush()
    return True


def newest_counts(row: SQLModel, said: Mapping[str, Any]) -> bool:
    """Take what a newer record says, and of an older one only what was not known; nothing known is forgotten."""
    newer = said["at"] >= row.at  # type: ignore[attr-defined]
    changes = {
        name: value
        for name, value in said.items()
        if value is not None and getattr(row, name) != value and (newer or getattr(row, name) is None)
    }
    for name, value in changes.items():
        setattr(row, name, value)
    return bool(changes)


def _plain(value: Any) -> Any:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value
