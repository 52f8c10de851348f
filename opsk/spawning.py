"""How does Python start Python without importing what lies in the current directory?

``python -m`` and ``python -c`` put the current directory first on the path: whoever can write there, a user in his home
or anybody in /tmp, would run code as whoever types ``opsk`` there. ``-P`` (Python 3.11) leaves it out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_VARIABLE = "PYTHONSAFEPATH"


@contextmanager
def safe_imports() -> Iterator[None]:
    """Let the processes that multiprocessing starts meanwhile leave the current directory out too."""
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before
