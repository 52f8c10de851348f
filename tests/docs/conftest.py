"""The programs of docs/programs import each other as Python finds them when one is run: from their own folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def _beside_each_other(root: Path) -> None:
    folder = str(root / "docs" / "programs")
    if folder not in sys.path:
        sys.path.insert(0, folder)
