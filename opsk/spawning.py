"""Starts Python child processes that import nothing from the current directory.

``python -m`` and ``python -c`` put the current directory first on the path: whoever can write there, a user in their
home or anybody in /tmp, could run code as the caller of ``opsk``. ``-P`` (Python 3.11) leaves it out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_VARIABLE = "PYTHONSAFEPATH"


@contextmanager
def safe_imports() -> Iterator[None]:
    """Make processes that multiprocessing starts in this context leave out the current directory, too."""
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before
