"""Can what is measured of a job be drawn from its very first steps on?"""

from __future__ import annotations

import pytest

from opsk.slurm.records import JobRecord
from opsk_tui.data.view import JobView, Measured
from opsk_tui.screens.job_sections import comparison, history
from opsk_tui.text import UNICODE

RECORD = JobRecord(id=7, label="7", user="ada", name="train", state="RUNNING")


@pytest.mark.parametrize("width", [20, 60, 200])
@pytest.mark.parametrize("points", [0, 1, 2, 3, 5, 7, 8, 9, 40, 240])
def test_a_history_of_any_length_is_drawn(points: int, width: int) -> None:
    """Five points in eight columns ended the screen once, on a job that had run for half a minute."""
    told = tuple((float(at), 1.0 + at % 3) for at in range(points))
    drawn = history(JobView(record=RECORD, measured=Measured(step_s=1.0, history=told)), UNICODE, width)
    assert bool([drawn.make(number) for number in range(drawn.count)]) == (points >= 2)


@pytest.mark.parametrize(
    ("measured", "told"),
    [
        (Measured(memory_peak_bytes=7e10), "nobody tells of its steps"),
        (Measured(step_s=1.0, iteration=12, age_s=3.0, source="log"), "step 12, 3 s ago, from log"),
    ],
)
def test_it_is_told_where_steps_come_from_and_when_from_nowhere(measured: Measured, told: str) -> None:
    shown = comparison(JobView(record=RECORD, measured=measured))
    lines = ["".join(text for text, _ in shown.make(number)) for number in range(shown.count)]
    assert told in lines[-1]
