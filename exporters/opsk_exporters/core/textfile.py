"""Writes metrics to a file for node_exporter's textfile collector (``--collector.textfile.directory``).

The file is written completely under a temporary name and then renamed: a reader sees the old scrape or the new one. The
temporary name does not end in ``.prom``, so that nobody reads it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from opsk.errors import UnavailableError


def write_textfile(path: Path, content: bytes) -> None:
    """Write one scrape.

    Raises
    ------
    UnavailableError
        The file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), 0o644)  # node_exporter has a user of its own, whatever our umask is
            file.write(content)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise UnavailableError(f"{path}: {error.strerror}", hint="the folder must be there and writable") from error
