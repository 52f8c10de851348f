"""Are the sentences on earlier runs lines of advice: few by default, all in the long form, in ASCII where needed?"""

from __future__ import annotations

import pytest

from opsk.history.findings import Finding, FindingKind, History
from opsk_jobcheck.advice.rendering.history import history_lines

HISTORY = History(
    runs=(),
    is_same_script=True,
    memory=None,
    findings=(
        Finding(kind=FindingKind.MEMORY, text="memory peaked at 1–2 GiB"),
        Finding(kind=FindingKind.CHANGE, text="changed: b 4 → 8"),
        Finding(kind=FindingKind.TIME, text="too short", is_warning=True),
        Finding(kind=FindingKind.IDLE, text="idle", is_warning=True),
    ),
)


@pytest.mark.parametrize(
    ("detail", "is_alone", "starts"),
    [
        ("default", True, ["history  memory", "         ! too", "         ! idle"]),
        ("default", False, ["history  ! too"]),
        ("short", True, ["history  ! too"]),
        ("long", False, ["history  memory", "         changed", "         ! too", "         ! idle"]),
    ],
)
def test_warnings_come_before_facts_where_there_is_room_for_few(detail: str, is_alone: bool, starts: list[str]) -> None:
    rows = history_lines(HISTORY, detail, is_alone=is_alone)
    assert len(rows) == len(starts)
    assert all(row.startswith(start) for row, start in zip(rows, starts, strict=True))


def test_an_ascii_terminal_gets_ascii() -> None:
    assert all(row.isascii() for row in history_lines(HISTORY, "long", ascii_only=True))
