"""Archives that tests unpack: those that they made themselves and those of the real dumps."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar archive that is known to be harmless: Python 3.11.2, Debian 12's, has no filters yet."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder)
