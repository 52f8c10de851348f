"""How is an output compared with the one that was read and accepted in review?

``OPSK_GOLDEN=write pytest ...`` rewrites the files; nothing else does, and a run that writes reports no success.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

GOLDEN = Path(__file__).resolve().parent
WRITE = os.environ.get("OPSK_GOLDEN") == "write"


def assert_as_golden(name: str, text: str) -> None:
    """Compare ``text`` with the golden file ``name``, or write it when that was asked for."""
    path = GOLDEN / name
    if WRITE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        pytest.skip(f"{name} was written, not compared (OPSK_GOLDEN=write): read the change")
    assert text == path.read_text(encoding="utf-8"), f"{name} differs; OPSK_GOLDEN=write rewrites it"
