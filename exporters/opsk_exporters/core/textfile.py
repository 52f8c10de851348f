"""How do metrics reach a node_exporter that reads files (``--collector.textfile.directory``)?

The file is made whole beside its name and then renamed: a reader sees the old scrape or the new one. Its name while it
is made does not end in ``.prom``, so that nobody reads it.
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
    made = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), 0o644)  # node_exporter has a user of its own, whatever our umask is
            file.write(content)
        made.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            made.unlink(missing_ok=True)
        raise UnavailableError(f"{path}: {error.strerror}", hint="the folder must be there and writable") from error
