"""Checks the store: its file or server, its tables, and every row in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import col, select

from opsk.errors import InputError, StoreError
from opsk.store.database.engine import OPEN_ERRORS
from opsk.store.database.errors import store_error
from opsk.store.database.network_files import network_mount
from opsk.store.database.schema import find_differences, list_revisions, newest_revision, read_revision
from opsk.store.database.tables import RemapMoveRow, RemapRow, RemapStepRow
from opsk.store.database.transactions import read
from opsk.store.database.urls import find_sqlite_file
from opsk.store.export import export
from opsk.store.records.remaps import STATES
from opsk.store.writing import decode

_MAX_PER_KIND = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is not as it should be: of which ``part``, what, and what to do about it."""

    part: str
    what: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What was found, and how many records were read for it."""

    revision: str | None
    records: int
    findings: tuple[Finding, ...]


def check_store(engine: Engine) -> CheckReport:
    """Read all that is stored and report what is wrong with it; nothing is changed.

    Raises
    ------
    StoreError
        The database does not answer at all.
    """
    findings = [*_check_file(engine)]
    try:
        revision = read_revision(engine)
    except OPEN_ERRORS as error:
        if find_sqlite_file(engine.url) is None:
            raise store_error(error, engine.url) from error
        return CheckReport(
            revision=None, records=0, findings=(*findings, Finding(part="file", what=_format_error(error)))
        )
    if revision != newest_revision():
        return CheckReport(revision=revision, records=0, findings=(*findings, _revision_finding(revision)))
    findings += [
        Finding(part="tables", what=line, hint="opsk store upgrade; else export and take in again")
        for line in find_differences(engine)
    ]
    records, damaged = _check_records(engine)
    findings += damaged
    if not damaged:
        findings += _check_remaps(engine)
    return CheckReport(revision=revision, records=records, findings=tuple(findings))


def _check_file(engine: Engine) -> Iterator[Finding]:
    """Look at a SQLite file as such."""
    path = find_sqlite_file(engine.url)
    if path is None:
        return
    mount = network_mount(path)
    if mount is not None:
        what = f"{path} is on a network file system ({mount.kind} at {mount.point})"
        yield Finding(part="file", what=what, hint="move it to a disk of this machine, or use a server")
    try:
        with engine.connect() as connection:
            for (message,) in connection.execute(text("PRAGMA integrity_check(20)")):
                if message != "ok":
                    yield Finding(part="file", what=message, hint="put a copy back, or export what can be read")
    except SQLAlchemyError as error:
        yield Finding(part="file", what=_format_error(error), hint="put a copy back")


def _revision_finding(revision: str | None) -> Finding:
    if revision is not None and revision not in list_revisions():
        return Finding(part="tables", what=f"of a newer opsk (revision {revision})", hint="update opsk")
    return Finding(part="tables", what=f"of revision {revision}, not {newest_revision()}", hint="opsk store upgrade")


def _check_records(engine: Engine) -> tuple[int, list[Finding]]:
    """Read every record as another store would; return how many are sound, and what is wrong with the others."""
    sound, wrong = 0, []

    def report_damage(what: str) -> None:
        wrong.append(Finding(part="records", what=what, hint="opsk store export leaves it out"))

    try:
        for line in export(engine, damaged=report_damage):
            try:
                decode(line)
                sound += 1
            except InputError as error:
                report_damage(f"{line[:80]}: {error.message}")
    except StoreError as error:
        wrong.append(Finding(part="records", what=error.message, hint=error.hint))
    if len(wrong) > _MAX_PER_KIND:
        wrong[_MAX_PER_KIND:] = [Finding(part="records", what=f"and {len(wrong) - _MAX_PER_KIND} more")]
    return sound, wrong


def _check_remaps(engine: Engine) -> Iterator[Finding]:
    """Look for moves and steps without their remap, and for unknown states."""
    for part in (RemapMoveRow, RemapStepRow):
        known = select(RemapRow.id).where(
            col(RemapRow.cluster) == col(part.cluster), col(RemapRow.remap) == col(part.remap)
        )
        query = select(part.remap).where(~known.exists()).distinct().limit(_MAX_PER_KIND)
        for remap in read(engine, lambda session, query=query: session.exec(query).all()):  # type: ignore[misc]
            yield Finding(part="records", what=f"{part.__tablename__}: there is no remap {remap}")
    states = select(RemapRow.remap, RemapRow.state).where(col(RemapRow.state).not_in(STATES)).limit(_MAX_PER_KIND)
    for remap, state in read(engine, lambda session: session.exec(states).all()):
        yield Finding(part="records", what=f"remap {remap} is {state}, which is no state")


def _format_error(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).split("\n", 1)[0]
