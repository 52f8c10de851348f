"""Published runs of sources that no fit has seen are all predicted, and half of their step times well.

The runs are those of ``benchmarks/published/first_looks.csv``. What the model missed at first sight is in
``docs/accuracy.md``; since then their largest errors were looked at, so this bounds what a change may break.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

from opsk.calibration.accuracy.validation import validate_runs
from opsk.calibration.runs.runs import read_runs

MEDIAN_ERROR = 0.17
"""16 % are reached; 22 % of the last 130 rows at first sight."""


def test_every_one_is_predicted(root: Path) -> None:
    found = validate_runs(read_runs(root / "benchmarks" / "published" / "first_looks.csv"))
    assert not found.unpredictable
    assert len(found.rows) == 417
    assert not found.unknown_columns
    errors = [abs(row.time.error) for row in found.rows if row.time is not None]
    assert len(errors) > 140
    assert median(errors) < MEDIAN_ERROR
