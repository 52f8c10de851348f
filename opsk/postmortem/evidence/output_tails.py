"""Copies the ends and first errors of a job's output, because users remove logs and submit again."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opsk.errors import InputError
from opsk.postmortem.evidence.as_user import Person, read_as
from opsk.postmortem.evidence.job_output import find_output_files
from opsk.units import KIB, MIB

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
