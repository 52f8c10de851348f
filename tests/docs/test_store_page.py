"""Does the page on the store say what its tables and records say?"""

from __future__ import annotations

import runpy
from pathlib import Path

from opsk.store.database.tables import METADATA


def test_the_page_is_what_the_tables_say(root: Path) -> None:
    generator = runpy.run_path(str(root / "docs" / "programs" / "store_tables.py"))
    page = (root / "docs" / "reference" / "store.md").read_text(encoding="utf-8")
    assert page == generator["page"](), "run python docs/programs/store_tables.py"
    assert all(f"\n### {name}\n" in page for name in METADATA.tables)
