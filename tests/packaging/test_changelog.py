"""Does the check of the changelog find what would make a release that says nothing, or says it of the wrong version?"""

from __future__ import annotations

import re

import pytest

from deploy.packages.changelog import faults

GOOD = """# Changelog

## [Unreleased]

## [0.2.0] - 2026-02-01

- Something new.

## [0.1.0] - 2026-01-01

### Added

- Everything.
"""


def test_a_good_one_has_no_faults() -> None:
    assert faults(GOOD, "0.2.0") == []


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("## [0.2.0] - 2026-02-01\n\n- Something new.\n", "", r"no section \[0\.2\.0\]"),
        ("- Something new.", "", r"\[0\.2\.0\] says nothing"),
        ("0.2.0] - 2026-02-01", "0.2.0]", r"\[0\.2\.0\] has no day"),
        ("2026-02-01", "2026-02-31", r"\[0\.2\.0\] has no day"),
        ("2026-02-01", "2025-02-01", "days do not go back"),
        ("[0.1.0]", "[0.3.0]", "versions do not go down"),
        ("[0.1.0]", "[0.2.0]", "versions do not go down"),
        ("[0.1.0]", "[first]", r"\[first\] is no version"),
        ("## [Unreleased]\n", "## [0.3.0] - 2026-03-01\n- x\n## [Unreleased]\n", "not the first"),
    ],
)
def test_each_fault_is_named(before: str, after: str, said: str) -> None:
    text = GOOD.replace(before, after)
    assert text != GOOD
    assert any(re.search(said, fault) for fault in faults(text, "0.2.0"))
