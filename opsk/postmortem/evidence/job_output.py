"""Finds the files that a job wrote to, and copies their ends and first errors: users remove logs and submit again.

Only regular files are returned, never through a link; root returns only those of the job's own user. A file that was
last written before the job began belongs to another job with this number, as other clusters have.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from opsk.errors import InputError
from opsk.postmortem.evidence.as_user import Person, read_as
from opsk.postmortem.values import JobFacts
from opsk.telemetry.jobs.job_files import JobFile, resolve_log_paths
from opsk.units import KIB, MIB

MAX_FILES = 4096
SLACK_S = 300.0
"""Clocks of storage and nodes differ by less."""
_MAX_ENTRIES = 100_000
_LOG_ENDS = frozenset(("", ".out", ".err", ".log", ".txt", ".stdout", ".stderr", ".output", ".gz", ".xz", ".bz2"))
MAX_LOGS = 64
TAIL_BYTES = 16 * KIB
_TAIL_FILES_BYTES = MIB
_SCANNED_BYTES = 4 * MIB
_MAX_ERRORS, _MAX_CHARS = 20, 400
_ERROR = re.compile(
    rb"[^\n]{0,300}(?:[Ee]rror|ERROR|[Ff]atal|FATAL|Traceback|[Kk]illed|CANCELLED|[Oo]ut of memory|OOM|No space|"
    rb"[Tt]imed? ?out|\bnan\b|\bNaN\b|Segmentation|Aborted)[^\n]{0,300}"
)
DEADLINE_S = 30.0


def find_output_paths(facts: JobFacts, *, work_dir: str, std_out: str, std_err: str) -> tuple[Path, ...]:
    """Return where the batch script wrote, by Slurm's record, without checking that it exists."""
    label = facts.job_id
    number = re.match(r"\d+", label)
    if number is None:
        return ()
    file = JobFile(
        job_id=number[0], user=facts.user or None, name=facts.name or None,
        node=facts.nodes[0] if facts.nodes else None, work_dir=work_dir or None, stdout=std_out or None,
        stderr=std_err or None, written_unix_s=0.0,
    )  # fmt: skip
    return resolve_log_paths(file, label, facts.name or None)


def find_output_files(
    paths: Iterable[Path], job_id: str, uid: int | None, *, since_s: float | None = None
) -> tuple[Path, ...]:
    """Return the existing files: those of ``paths``, and files next to them with the job's number in their name.

    Parameters
    ----------
    since_s
        When the job began [s since 1970]; ``None`` where it is unknown.
    """
    paths = tuple(dict.fromkeys(paths))
    files: dict[Path, None] = dict.fromkeys(path for path in paths if is_readable_file(path, uid))
    number = re.match(r"\d+", job_id)
    if number is None:
        return tuple(files)
    pattern = re.compile(rf"(?:^|[^0-9A-Za-z])(?:job|jobid|slurm|id|j)?{number[0]}(?![0-9A-Za-z])", re.IGNORECASE)
    for folder in dict.fromkeys(path.parent for path in paths):
        for name in _list_names(folder):
            path = folder / name
            if not pattern.search(name) or path.suffix not in _LOG_ENDS or path in files:
                continue
            if is_readable_file(path, uid, written_since_s=since_s and since_s - SLACK_S):
                files[path] = None
            if len(files) >= MAX_FILES:
                return tuple(files)
    return tuple(files)


def _list_names(folder: Path) -> list[str]:
    """Return some names in a folder, sorted; none where it cannot be listed."""
    names: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                names.append(entry.name)
                if len(names) >= _MAX_ENTRIES:
                    break
    except OSError:
        return []
    return sorted(names)


def is_readable_file(path: Path, uid: int | None, *, written_since_s: float | None = None) -> bool:
    """Return whether the caller may read this as a regular file, no link; root only files of the job's user."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return False
    try:
        facts = os.fstat(handle)
    finally:
        os.close(handle)
    is_own = os.geteuid() != 0 or uid is None or facts.st_uid == uid
    return stat.S_ISREG(facts.st_mode) and is_own and facts.st_mtime >= (written_since_s or 0.0)


def read_output_tails(
    paths: Sequence[Path], job_id: str, person: Person | None, *, since_s: float | None = None
) -> tuple[list[dict[str, Any]], str]:
    """Return the ends of a job's logs, read with its user's rights, and why there may be none.

    Parameters
    ----------
    since_s
        When the job began [s since 1970].
    """

    def read() -> bytes:
        uid = person.uid if person is not None else None
        tails: list[dict[str, Any]] = []
        size = 0
        for path in find_output_files(paths, job_id, uid, since_s=since_s)[:MAX_LOGS]:
            tails.append(_read_tail(path))
            size += len(tails[-1].get("tail", ""))
            if size > _TAIL_FILES_BYTES:
                break
        return json.dumps(tails).encode()

    try:
        tails: list[dict[str, Any]] = json.loads(read_as(person, read, deadline_s=DEADLINE_S))
    except (InputError, ValueError) as error:
        return [], str(error)
    return tails, ""


def _read_tail(path: Path) -> dict[str, Any]:
    """Return size, first error lines and end of one log."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return {"path": str(path), "problem": error.strerror}
    try:
        size = os.fstat(handle).st_size
        start = os.pread(handle, _SCANNED_BYTES, 0)
        if size > _SCANNED_BYTES:
            start += b"\n" + os.pread(handle, _SCANNED_BYTES, max(_SCANNED_BYTES, size - _SCANNED_BYTES))
        end = os.pread(handle, TAIL_BYTES, max(0, size - TAIL_BYTES))
    except OSError as error:
        return {"path": str(path), "problem": error.strerror}
    finally:
        os.close(handle)
    errors = []
    for match in _ERROR.finditer(start):
        errors.append(match[0].decode("utf-8", "replace").strip()[:_MAX_CHARS])
        if len(errors) >= _MAX_ERRORS:
            break
    return {"path": str(path), "size_bytes": size, "errors": errors, "tail": end.decode("utf-8", "replace")}
