"""Is the store sound: its file or server, its tables, and every row in them?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import col, select

from opsk.errors import InputError, StoreError
from opsk.store.database.engine import NOT_OPENED
from opsk.store.database.errors import store_error
from opsk.store.database.network_files import network_mount
from opsk.store.database.schema import differences, newest, revision_of, revisions
from opsk.store.database.tables import RemapMoveRow, RemapRow, RemapStepRow
from opsk.store.database.transactions import read
from opsk.store.database.urls import file_of
from opsk.store.export import export
from opsk.store.records.remaps import STATES
from opsk.store.writing import decode

_MOST_OF_A_KIND = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is not as it should be: of which ``part``, what, and what to do about it."""

    part: str
    what: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What was found, and how many records were read for it."""

    revision: str | None
    records: int
    findings: tuple[Finding, ...]


def check(engine: Engine) -> Checked:
    """Read all that is kept and say what is wrong with it; nothing is changed.

    Raises
    ------
    StoreError
        The database does not answer at all.
    """
    findings = [*_file(engine)]
    try:
        revision = revision_of(engine)
    except NOT_OPENED as error:
        if file_of(engine.url) is None:
            raise store_error(error, engine.url) from error
        return Checked(revision=None, records=0, findings=(*findings, Finding(part="file", what=_words(error))))
    if revision != newest():
        return Checked(revision=revision, records=0, findings=(*findings, _form(revision)))
    findings += [
        Finding(part="tables", what=line, hint="opsk store upgrade; else export and take in again")
        for line in differences(engine)
    ]
    records, damaged = _records(engine)
    findings += damaged
    if not damaged:
        findings += _remaps(engine)
    return Checked(revision=revision, records=records, findings=tuple(findings))


def _file(engine: Engine) -> Iterator[Finding]:
    """Look at a SQLite file as such."""
    path = file_of(engine.url)
    if path is None:
        return
    mount = network_mount(path)
    if mount is not None:
        what = f"{path} is on a network file system ({mount.kind} at {mount.point})"
        yield Finding(part="file", what=what, hint="move it to a disk of this machine, or use a server")
    try:
        with engine.connect() as connection:
            for (said,) in connection.execute(text("PRAGMA integrity_check(20)")):
                if said != "ok":
                    yield Finding(part="file", what=said, hint="put a copy back, or export what can be read")
    except SQLAlchemyError as error:
        yield Finding(part="file", what=_words(error), hint="put a copy back")


def _form(revision: str | None) -> Finding:
    if revision is not None and revision not in revisions():
        return Finding(part="tables", what=f"of a newer opsk (revision {revision})", hint="update opsk")
    return Finding(part="tables", what=f"of revision {revision}, not {newest()}", hint="opsk store upgrade")


def _records(engine: Engine) -> tuple[int, list[Finding]]:
    """Read every record as another store would; return how many are sound, and what is wrong with the others."""
    sound, wrong = 0, []

    def damaged(what: str) -> None:
        wrong.append(Finding(part="records", what=what, hint="opsk store export leaves it out"))

    try:
        for line in export(engine, damaged=damaged):
            try:
                decode(line)
                sound += 1
            except InputError as error:
                damaged(f"{line[:80]}: {error.message}")
    except StoreError as error:
        wrong.append(Finding(part="records", what=error.message, hint=error.hint))
    if len(wrong) > _MOST_OF_A_KIND:
        wrong[_MOST_OF_A_KIND:] = [Finding(part="records", what=f"and {len(wrong) - _MOST_OF_A_KIND} more")]
    return sound, wrong


def _remaps(engine: Engine) -> Iterator[Finding]:
    """Look for moves and steps without their remap, and for states that nobody knows."""
    for part in (RemapMoveRow, RemapStepRow):
        known = select(RemapRow.id).where(
            col(RemapRow.cluster) == col(part.cluster), col(RemapRow.remap) == col(part.remap)
        )
        query = select(part.remap).where(~known.exists()).distinct().limit(_MOST_OF_A_KIND)
        for remap in read(engine, lambda session, query=query: session.exec(query).all()):  # type: ignore[misc]
            yield Finding(part="records", what=f"{part.__tablename__}: there is no remap {remap}")
    states = select(RemapRow.remap, RemapRow.state).where(col(RemapRow.state).not_in(STATES)).limit(_MOST_OF_A_KIND)
    for remap, state in read(engine, lambda session: session.exec(states).all()):
        yield Finding(part="records", what=f"remap {remap} is {state}, which is no state")


def _words(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).split("\n", 1)[0]
