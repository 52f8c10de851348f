"""Writes and reads the small file of the site's own errors by kind of job: one JSON document.

The publisher replaces it as a whole, and each worker reads it again when it was replaced: advice looks up one key.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from opsk.diagnosis.accuracy.comparison import Quantity
from opsk.diagnosis.accuracy.site_error import SiteError, SiteErrors
from opsk.units import MIB

FILE_NAME = "site-errors"
FOLDER_VARIABLE = "OPSK_ADVISOR_HISTORY"
"""Passes the folder of the published files to workers."""
MAX_BYTES = MIB
"""More is no such file: a kind of job takes about 120 bytes."""
LOOK_EVERY_S = 2.0
"""How often a worker looks whether the file was replaced."""


def write_site_errors(path: Path, errors: Mapping[str, SiteErrors]) -> None:
    """Replace the file; it can be read by this user alone.

    Raises
    ------
    OSError
        There is no room, or the folder is gone.
    """
    document = {
        kind: {quantity.value: [error.jobs, error.distance] for quantity, error in by_quantity.items()}
        for kind, by_quantity in errors.items()
    }
    draft = path.with_name(f"{path.name}.new")
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
        json.dump(document, file)
    draft.replace(path)


def read_site_errors(path: Path) -> dict[str, SiteErrors]:
    """Return the errors by kind of job.

    Raises
    ------
    OSError
        It cannot be read.
    ValueError
        It is no such file.
    """
    with path.open("rb") as file:
        document = json.loads(file.read(MAX_BYTES))
    try:
        return {
            kind: {
                Quantity(name): SiteError(jobs=int(jobs), distance=float(distance))
                for name, (jobs, distance) in by_quantity.items()
            }
            for kind, by_quantity in document.items()
        }
    except (AttributeError, TypeError) as error:
        raise ValueError(f"{path} holds no errors by kind of job") from error


class SiteErrorsFile:
    """The file of one advisor, read again when it was replaced; a damaged or missing one has no errors.

    Parameters
    ----------
    path
        Where it is, or will be.
    clock
        A monotonic clock [s].
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._looked_s = float("-inf")
        self._stamp: tuple[int, int] | None = None
        self._errors: Mapping[str, SiteErrors] = {}

    def find(self, kind: str) -> SiteErrors | None:
        """Return the errors of a kind of job; ``None`` where the site has too few such jobs."""
        if self._clock() - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = self._clock()
            self._look()
        return self._errors.get(kind) if kind else None

    def _look(self) -> None:
        """Read the file again where it was replaced."""
        with suppress(OSError, ValueError):
            facts = self._path.stat()
            stamp = (facts.st_ino, facts.st_mtime_ns)
            if stamp != self._stamp:
                self._stamp = stamp
                self._errors = read_site_errors(self._path)
