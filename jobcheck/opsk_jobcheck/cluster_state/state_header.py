"""Reads the generation and the age of the current live state from its file header, without reading the state."""

from __future__ import annotations

import contextlib
import mmap
import struct
from collections.abc import Callable
from pathlib import Path

CURRENT = "current"
MAGIC = b"opsklive"
HEAD = struct.Struct("<8sdQ")
"""Magic, time of the last good round on the machine's monotonic clock [s], length of the JSON text [bytes]."""
CLOCK_AT = 8
MAX_AGE_S = 300.0
"""Older states are not used: jobs of minutes have ended since."""
OLD_S = 60.0
"""From this age on users are shown the age."""


class LiveHead:
    """The header of the latest state in a folder; reading it takes some microseconds.

    Parameters
    ----------
    clock
        The machine's monotonic clock, the same for all processes [s].
    """

    def __init__(self, folder: Path, clock: Callable[[], float]) -> None:
        self._link = folder / CURRENT
        self._clock = clock
        self._name = ""
        self._map: mmap.mmap | None = None

    def generation(self) -> str:
        """Return the name of the present state, "" where there is none; it changes with the content."""
        try:
            return self._link.readlink().name
        except OSError:
            return ""

    def age_s(self) -> float | None:
        """Return the age of Slurm's last answer [s]; ``None`` where there is none."""
        mapped = self.map_file()
        return None if mapped is None else max(0.0, self._clock() - float(HEAD.unpack_from(mapped)[1]))

    def map_file(self) -> mmap.mmap | None:
        """Return the file of the present state."""
        name = self.generation()
        if not name:
            self._name, self._map = "", None
        elif name != self._name or self._map is None:
            self._name, self._map = name, None
            with contextlib.suppress(OSError, ValueError), (self._link.parent / name).open("rb") as file:
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                self._map = content if content[: len(MAGIC)] == MAGIC else None
        return self._map
