"""Names of shared metrics: each is exported, and consumers take them from one place."""

from __future__ import annotations

import re
from pathlib import Path

from opsk.metrics import names

NAMES = {value for name, value in vars(names).items() if name.isupper()}
CONSUMERS = ("opsk", "tui", "jobcheck")


def test_every_name_is_of_a_metric_that_the_exporters_have(root: Path) -> None:
    """The page of metrics is written from the collectors themselves (`tests/exporters/test_metrics_page.py`)."""
    page = (root / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    assert NAMES - set(re.findall(r"`(opsk_[a-z0-9_]+)", page)) == set()


def test_no_consumer_writes_a_name_out_again(root: Path) -> None:
    written = [
        f"{path.relative_to(root)}: {name}"
        for room in CONSUMERS
        for path in sorted((root / room).rglob("*.py"))
        if path.name != "names.py"
        for name in re.findall(r'"(opsk_[a-z0-9_]+)"', path.read_text(encoding="utf-8"))
        if name in NAMES
    ]
    assert written == [], "use opsk.metrics.names"


def test_a_constant_is_called_as_its_metric() -> None:
    assert all(value == f"opsk_{name.lower()}" for name, value in vars(names).items() if name.isupper())
