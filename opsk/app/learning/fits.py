"""Keeps the last fits of a site in its folder of learning, publishes the newest, and goes back one.

``efficiency.toml`` is the published fit, which predictions use. ``fits`` has the last ten, each with the evidence for
it; ``nodes`` the measured nodes that every fit uses. Files are replaced whole, so readers need no lock.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from opsk.config import PUBLISHED_FIT
from opsk.errors import InputError
from opsk.text import escape

MAX_FITS = 10
"""Number of fits that are kept."""
FITS, UNDONE = "fits", "undone.json"
_STAMP = "%Y%m%dT%H%M%SZ"
_PUBLIC, _PRIVATE = 0o644, 0o640
"""Everyone predicts with a fit; its evidence names users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFit:
    """One fit: its file, when it was made, and its evidence as ``opsk calibrate --json`` prints it."""

    path: Path
    made_at: datetime
    evidence: Mapping[str, Any]


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the folder for one writer.

    Raises
    ------
    InputError
        It cannot be written, or another process learns.
    """
    try:
        _make_folder(folder / FITS)
        handle = os.open(folder / ".lock", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        _give_to_owner(handle, folder)
    except OSError as error:
        raise InputError(
            escape(f"{folder}: {error.strerror}"), hint="run it as the advisor's user, or change learning.folder"
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise InputError(escape(f"{folder}: another process is learning"), hint="wait until it has ended") from error
    finally:
        os.close(handle)


def list_fits(folder: Path) -> list[StoredFit]:
    """Return the fits that are kept, the newest first; one whose files are damaged is passed over."""
    fits = []
    for path in sorted((folder / FITS).glob("*.toml"), reverse=True):
        try:
            made_at = datetime.strptime(path.stem.partition("-")[0], _STAMP).replace(tzinfo=UTC)
            evidence = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            continue
        fits.append(StoredFit(path=path, made_at=made_at, evidence=evidence if isinstance(evidence, dict) else {}))
    return fits


def publish_fit(folder: Path, text: str, evidence: Mapping[str, Any], *, made_at: datetime) -> Path:
    """Add a fit, publish it, and remove those beyond the last ten.

    Raises
    ------
    InputError
        The folder cannot be written.
    """
    stamp = made_at.astimezone(UTC).strftime(_STAMP)
    stem, number = stamp, 1
    while (folder / FITS / f"{stem}.toml").exists():
        number += 1
        stem = f"{stamp}-{number}"
    path = folder / FITS / f"{stem}.toml"
    replace_file(path.with_suffix(".json"), json.dumps(evidence, allow_nan=False), mode=_PRIVATE)
    replace_file(path, text)
    replace_file(folder / PUBLISHED_FIT, text)
    (folder / UNDONE).unlink(missing_ok=True)
    for old in sorted((folder / FITS).glob("*.toml"), reverse=True)[MAX_FITS:]:
        old.unlink(missing_ok=True)
        old.with_suffix(".json").unlink(missing_ok=True)
    return path


def undo_fit(folder: Path, *, now: datetime) -> tuple[StoredFit, StoredFit | None]:
    """Remove the newest fit and publish the one before it; return both, ``None`` for the efficiencies of the site.

    Raises
    ------
    InputError
        There is no fit to go back from.
    """
    fits = list_fits(folder)
    if not fits:
        raise InputError(escape(f"{folder}: no fit to go back from"), hint="opsk calibrate --learn makes one")
    newest, before = fits[0], fits[1] if len(fits) > 1 else None
    replace_file(folder / UNDONE, json.dumps({"undone_at": now.astimezone(UTC).isoformat()}))
    if before is None:
        (folder / PUBLISHED_FIT).unlink(missing_ok=True)
    else:
        replace_file(folder / PUBLISHED_FIT, before.path.read_text(encoding="utf-8"))
    newest.path.unlink(missing_ok=True)
    newest.path.with_suffix(".json").unlink(missing_ok=True)
    return newest, before


def read_undone_at(folder: Path) -> datetime | None:
    """Return when a fit was last undone; ``None`` where none was since the last one that was published."""
    try:
        document = json.loads((folder / UNDONE).read_text(encoding="utf-8"))
        return datetime.fromisoformat(document["undone_at"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def replace_file(path: Path, text: str, *, mode: int = _PUBLIC) -> None:
    """Write a file whole or not at all, to the disk.

    Raises
    ------
    InputError
        It cannot be written.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        _make_folder(path.parent)
        handle = os.open(unfinished, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            os.fchmod(stream.fileno(), mode)
            _give_to_owner(stream.fileno(), path.parent)
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise InputError(escape(f"{path}: {error.strerror}"), hint="is there room, and may you write there?") from error


def _make_folder(folder: Path) -> None:
    """Make a folder, which belongs to the owner of the one that it is in."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if not folder.exists():
        folder.mkdir()
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        _give_to_owner(handle, folder.parent)
        os.close(handle)


def _give_to_owner(handle: int, folder: Path) -> None:
    """Give a file that root has written to the owner of its folder: the timer runs as the advisor's user."""
    if os.geteuid() == 0:
        facts = folder.stat()
        os.fchown(handle, facts.st_uid, facts.st_gid)
