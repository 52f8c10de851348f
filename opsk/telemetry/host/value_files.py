"""Reads the small files of one folder, and records which exist and give no value.

The kernel shows each value in a file of its own. A missing file is normal; one that exists and cannot be read is
recorded by name and reason, and yields no value: never a zero.
"""

from __future__ import annotations

import errno
import os
import re

_LONGEST_BYTES = 4096
_WHOLE = re.compile(r"-?[0-9]{1,20}")
_NO_VALUE_NOW = {errno.ENODATA, errno.EOPNOTSUPP}
"""Errors with which drivers report that a sensor has no value now (a device that sleeps), or never."""

PERMISSION = "permission"
ERROR = "error"
MALFORMED = "malformed"


class ValueFiles:
    """Files below one folder.

    Parameters
    ----------
    folder
        Path of the folder.

    Attributes
    ----------
    unreadable
        Files that are there and gave no value, by path below the folder: ``permission``, ``error`` (the read failed)
        or ``malformed`` (the content has the wrong format).
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.unreadable: dict[str, str] = {}

    def read(self, name: str, longest_bytes: int = _LONGEST_BYTES) -> bytes | None:
        """Return a file's bytes, at most so many; ``None`` when it is missing or unreadable."""
        try:
            descriptor = os.open(f"{self._folder}/{name}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self.unreadable[name] = PERMISSION if isinstance(error, PermissionError) else ERROR
            return None
        try:
            return os.read(descriptor, longest_bytes)
        except OSError as error:
            # Some drivers return EPERM during a reset; a file that could be opened may be read.
            if error.errno not in _NO_VALUE_NOW:
                self.unreadable[name] = ERROR
            return None
        finally:
            os.close(descriptor)

    def text(self, name: str, longest_bytes: int = _LONGEST_BYTES) -> str | None:
        """Return a file's text, stripped; ``None`` when it is missing, empty or unreadable."""
        data = self.read(name, longest_bytes)
        return None if data is None else data.decode("utf-8", "replace").strip() or None

    def whole(self, name: str) -> int | None:
        """Return a file's whole number; ``None`` when it has none."""
        text = self.text(name)
        if text is None:
            return None
        if _WHOLE.fullmatch(text) is None:
            self.unreadable[name] = MALFORMED
            return None
        return int(text)

    def count(self, name: str) -> int | None:
        """Return a file's whole number unless it is negative, which no quantity here can be."""
        value = self.whole(name)
        if value is not None and value < 0:
            self.unreadable[name] = MALFORMED
            return None
        return value


def list_names(folder: str) -> list[str]:
    """Return the names in a folder, sorted; none where it is missing or cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries)
    except OSError:
        return []


def natural_sort_key(name: str) -> tuple[tuple[int, int | str], ...]:
    """Sort key that puts ``hwmon10`` after ``hwmon9``."""
    parts = re.split(r"([0-9]+)", name)
    return tuple((0, int(part)) if part.isdigit() else (1, part) for part in parts if part)
