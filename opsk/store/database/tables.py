"""Defines the tables of the store and the types of their columns.

A change here needs a migration: ``alembic -c opsk/store/database/alembic.ini revision --autogenerate -m "..."``; a test
compares the two, on every database. Columns have the names of the fields of the records (`opsk.store.writing`) that
fill them; ``key`` is the hash of the fields that identify a record.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Text,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine
from sqlmodel import Field, SQLModel

from opsk.store.text import sanitise_text

_MARIADB = ("mysql", "mariadb")
_EXACT = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}
"""All of Unicode, with every character distinct."""


def _text_type(characters: int | None, dialect: Dialect) -> TypeEngine[str]:
    """Return the type of a text of at most so many characters; ``None`` is any length."""
    if dialect.name in _MARIADB:
        return mysql.LONGTEXT(**_EXACT) if characters is None else mysql.VARCHAR(characters, **_EXACT)
    return Text() if characters is None else String(characters)


BIG = BigInteger().with_variant(Integer(), "sqlite")
"""A whole number of 64 bits; SQLite counts up keys of its plain type only, which has as many."""

BLOB = LargeBinary().with_variant(mysql.LONGBLOB(), *_MARIADB)
"""Bytes of any length: MariaDB's plain BLOB ends at 64 KiB."""


class UtcDateTime(TypeDecorator[datetime]):
    """A time with its zone, stored as UTC: SQLite and MariaDB store no zone and return it without."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return what this database has for it, to the microsecond."""
        return mysql.DATETIME(fsp=6) if dialect.name in _MARIADB else DateTime()

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse a time without a zone; store any other as UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a time zone cannot be kept")
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        """Return the time as UTC."""
        return None if value is None else value.replace(tzinfo=UTC)


class Words(TypeDecorator[str]):
    """A text, as far as a database can hold it: see `opsk.store.text`; one that is too long is cut.

    Parameters
    ----------
    characters
        Maximum number of characters that are stored; ``None`` is any number.
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
        """Return the text as it is stored."""
        return None if value is None else sanitise_text(value)[: self.characters]


class Document(TypeDecorator[Any]):
    """A JSON value as its text in ASCII; the databases' own JSON types differ in what they store."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return what this database has for it."""
        return _text_type(None, dialect)

    def process_bind_param(self, value: Any | None, dialect: Dialect) -> str | None:
        """Return the document as text."""
        return None if value is None else json.dumps(value, separators=(",", ":"), allow_nan=False)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """Return the document; text that is no JSON is returned as ``unreadable``."""
        try:
            return None if value is None else json.loads(value)
        except (ValueError, RecursionError):
            return {"unreadable": value}


SQLModel.metadata.naming_convention = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
"""Constraints have names, without which SQLite cannot change them later."""

NAME_CHARACTERS = 255
"""Longest name of a cluster or a file that is stored; MariaDB indexes no longer ones."""
JOB_CHARACTERS = 64
WORD_CHARACTERS = 64
HASH_CHARACTERS = 64


def _id() -> Any:
    return Field(default=None, sa_column=Column(BIG, primary_key=True, autoincrement=True))


def _key() -> Any:
    return Field(sa_column=Column(Words(HASH_CHARACTERS), nullable=False, unique=True))


def _words(characters: int | None = NAME_CHARACTERS, *, empty: bool = False) -> Any:
    return Field(sa_column=Column(Words(characters), nullable=empty))


def _time(*, empty: bool = False) -> Any:
    return Field(sa_column=Column(UtcDateTime(), nullable=empty))


def _amount() -> Any:
    return Field(default=None, sa_column=Column(Double(), nullable=True))


def _count() -> Any:
    return Field(default=None, sa_column=Column(BIG, nullable=True))


def _document() -> Any:
    return Field(default=None, sa_column=Column(Document(), nullable=True))


class ClusterRow(SQLModel, table=True):
    """A cluster, from ``since`` on, as it was ``at``."""

    __tablename__ = "clusters"

    id: int | None = _id()
    key: str = _key()
    cluster: str = _words()
    since: datetime = _time()
    at: datetime = _time()
    slurm_version: str | None = _words(WORD_CHARACTERS, empty=True)
    nodes: int | None = _count()
    gpus: int | None = _count()


class TopologySnapshot(SQLModel, table=True):
    """A fabric as it was from ``taken_at`` until ``last_seen_at``.

    ``content`` is gzipped, ``hash`` that of what is in it (``opsk.fabric.snapshot``); the counts are for listings.
    """

    __tablename__ = "topology_snapshots"
    __table_args__ = (Index(None, "cluster", "last_seen_at"), Index(None, "hash"))

    id: int | None = Field(default=None, primary_key=True)
    cluster: str = _words()
    taken_at: datetime = _time()
    last_seen_at: datetime = _time()
    source: str = _words()
    hash: str = _words(HASH_CHARACTERS)
    switches: int
    hcas: int
    nodes: int
    cables: int
    content: bytes = Field(sa_column=Column(BLOB, nullable=False))


class JobRow(SQLModel, table=True):
    """A job, one row each time that it was submitted or requeued, with its plan and what was predicted of it."""

    __tablename__ = "jobs"
    __table_args__ = (Index(None, "cluster", "job"), Index(None, "submitted_at"), Index(None, "script_hash"))

    id: int | None = _id()
    key: str = _key()
    cluster: str = _words()
    job: str = _words(JOB_CHARACTERS)
    submitted_at: datetime = _time()
    at: datetime = _time()
    sluid: str | None = _words(WORD_CHARACTERS, empty=True)
    user: str | None = _words(empty=True)
    account: str | None = _words(empty=True)
    partition: str | None = _words(empty=True)
    qos: str | None = _words(empty=True)
    name: str | None = _words(empty=True)
    state: str | None = _words(WORD_CHARACTERS, empty=True)
    exit_code: str | None = _words(WORD_CHARACTERS, empty=True)
    started_at: datetime | None = _time(empty=True)
    ended_at: datetime | None = _time(empty=True)
    node_list: str | None = _words(None, empty=True)
    nodes: int | None = _count()
    gpus: int | None = _count()
    script_hash: str | None = _words(HASH_CHARACTERS, empty=True)
    fabric_hash: str | None = _words(HASH_CHARACTERS, empty=True)
    framework: str | None = _words(WORD_CHARACTERS, empty=True)
    model: str | None = _words(empty=True)
    verdict: str | None = _words(WORD_CHARACTERS, empty=True)
    predicted_step_s: float | None = _amount()
    predicted_tokens_per_s_per_gpu: float | None = _amount()
    predicted_tflops_per_gpu: float | None = _amount()
    predicted_mfu: float | None = _amount()
    predicted_memory_bytes: float | None = _amount()
    plan: Any = _document()
    prediction: Any = _document()


class AdviceRow(SQLModel, table=True):
    """Advice that was given, to whom and on which script."""

    __tablename__ = "advice"
    __table_args__ = (Index(None, "cluster", "at"), Index(None, "script_hash"))

    id: int | None = _id()
    key: str = _key()
    cluster: str = _words()
    at: datetime = _time()
    uid: int = Field(sa_column=Column(BIG, nullable=False))
    user: str | None = _words(empty=True)
    script_hash: str = _words(HASH_CHARACTERS)
    job: str | None = _words(JOB_CHARACTERS, empty=True)
    verdict: str = _words(WORD_CHARACTERS)
    action: str | None = _words(WORD_CHARACTERS, empty=True)
    shown: bool = Field(sa_column=Column(Boolean(create_constraint=False), nullable=False))
    document: Any = _document()


class MeasuredRow(SQLModel, table=True):
    """How fast a job was in an interval, and who says so."""

    __tablename__ = "measured_intervals"
    __table_args__ = (Index(None, "cluster", "job", "from_at"), Index(None, "until_at"))

    id: int | None = _id()
    key: str = _key()
    cluster: str = _words()
    job: str = _words(JOB_CHARACTERS)
    source: str = _words(WORD_CHARACTERS)
    from_at: datetime = _time()
    until_at: datetime = _time()
    steps: int | None = _count()
    first_iteration: int | None = _count()
    last_iteration: int | None = _count()
    step_s: float | None = _amount()
    tokens_per_s: float | None = _amount()
    tokens_per_s_per_gpu: float | None = _amount()
    tflops_per_gpu: float | None = _amount()
    mfu: float | None = _amount()
    memory_peak_bytes: int | None = _count()
    loss: float | None = _amount()


class SubmissionRow(SQLModel, table=True):
    """A submission that requested GPUs, as the advisor recognises it; its job has no number yet."""

    __tablename__ = "submissions"
    __table_args__ = (Index(None, "cluster", "at"),)

    id: int | None = _id()
    key: str = _key()
    cluster: str = _words()
    at: datetime = _time()
    uid: int = Field(sa_column=Column(BIG, nullable=False))
    name: str | None = _words(empty=True)
    script_key: str = _words(HASH_CHARACTERS)
    command_key: str = _words(HASH_CHARACTERS)
    command: str | None = _words(empty=True)
    settings: Any = _document()
    gpus: int | None = _count()


class JobUseRow(SQLModel, table=True):
    """What a job used of its GPUs and hosts, and which program it was."""

    __tablename__ = "job_use"
    __table_args__ = (Index(None, "cluster", "job"), Index(None, "at"), Index(None, "uid", "script_key"))

    id: int | None = _id()
    key: str = _key()
    cluster: str = _words()
    job: str = _words(JOB_CHARACTERS)
    submitted_at: datetime = _time()
    at: datetime = _time()
    uid: int = Field(sa_column=Column(BIG, nullable=False))
    user: str | None = _words(empty=True)
    account: str | None = _words(empty=True)
    script_key: str = _words(HASH_CHARACTERS)
    command_key: str = _words(HASH_CHARACTERS)
    command: str | None = _words(empty=True)
    settings: Any = _document()
    gpu_type: str | None = _words(WORD_CHARACTERS, empty=True)
    gpus: int | None = _count()
    nodes: int | None = _count()
    started_at: datetime | None = _time(empty=True)
    ended_at: datetime | None = _time(empty=True)
    time_limit_s: float | None = _amount()
    state: str | None = _words(WORD_CHARACTERS, empty=True)
    observed_s: float | None = _amount()
    capacity_bytes: float | None = _amount()
    memory_peak_bytes: float | None = _amount()
    memory_peaks: Any = _document()
    activity: float | None = _amount()
    idle_gpus: int | None = _count()
    power_w: float | None = _amount()
    host_memory_peak_bytes: float | None = _amount()


class FailureRow(SQLModel, table=True):
    """Something that broke, or a job that failed, until it was well again."""

    __tablename__ = "failures"
    __table_args__ = (Index(None, "cluster", "at"), Index(None, "cluster", "job"))

    id: int | None = _id()
    key: str = _key()
    cluster: str = _words()
    at: datetime = _time()
    failure: str = _words(WORD_CHARACTERS)
    what: str = _words()
    source: str = _words(WORD_CHARACTERS)
    node: str | None = _words(empty=True)
    job: str | None = _words(JOB_CHARACTERS, empty=True)
    code: str | None = _words(WORD_CHARACTERS, empty=True)
    action: str | None = _words(WORD_CHARACTERS, empty=True)
    text: str | None = _words(None, empty=True)
    cleared_at: datetime | None = _time(empty=True)
    document: Any = _document()


class RemapRow(SQLModel, table=True):
    """A way around a failure that was proposed, and how far it got: its last move."""

    __tablename__ = "remaps"
    __table_args__ = (Index(None, "cluster", "at"), Index(None, "cluster", "job"))

    id: int | None = _id()
    key: str = _key()
    cluster: str = _words()
    remap: str = _words(WORD_CHARACTERS)
    at: datetime = _time()
    by: str = _words()
    job: str = _words(JOB_CHARACTERS)
    failed: str = _words()
    option: str = _words(WORD_CHARACTERS)
    title: str | None = _words(None, empty=True)
    world: str | None = _words(HASH_CHARACTERS, empty=True)
    document: Any = _document()
    state: str = _words(WORD_CHARACTERS)
    state_at: datetime = _time()
    state_by: str = _words()


class RemapMoveRow(SQLModel, table=True):
    """One move of a remap from state to state, by whom and why; never changed."""

    __tablename__ = "remap_moves"
    __table_args__ = (Index(None, "cluster", "remap"),)

    id: int | None = _id()
    key: str = _key()
    cluster: str = _words()
    remap: str = _words(WORD_CHARACTERS)
    at: datetime = _time()
    state: str = _words(WORD_CHARACTERS)
    by: str = _words()
    text: str | None = _words(None, empty=True)


class RemapStepRow(SQLModel, table=True):
    """One line of the journal of a remap's steps: a command is written down before and after it is run."""

    __tablename__ = "remap_steps"
    __table_args__ = (Index(None, "cluster", "remap"),)

    id: int | None = _id()
    key: str = _key()
    cluster: str = _words()
    remap: str = _words(WORD_CHARACTERS)
    number: int = Field(sa_column=Column(Integer, nullable=False))
    state: str = _words(WORD_CHARACTERS)
    at: datetime = _time()
    command: str = _words(None)
    said: str | None = _words(None, empty=True)


class ReportRow(SQLModel, table=True):
    """A report on a job, as it was written; ``content`` is gzipped."""

    __tablename__ = "reports"
    __table_args__ = (Index(None, "cluster", "job"), Index(None, "at"))

    id: int | None = _id()
    key: str = _key()
    cluster: str = _words()
    job: str = _words(JOB_CHARACTERS)
    at: datetime = _time()
    report: str = _words(WORD_CHARACTERS)
    form: str = _words(WORD_CHARACTERS)
    title: str | None = _words(None, empty=True)
    root_cause: str | None = _words(WORD_CHARACTERS, empty=True)
    content: bytes = Field(sa_column=Column(BLOB, nullable=False))


METADATA: MetaData = SQLModel.metadata
