"""Does the advisor's memory stay where it is while questions of all kinds come?

`benchmarks/jobcheck/advisor_flat.py` asks 100,000; here are 1,200.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.jobcheck.advisor_flat import RunningAdvisor

QUESTIONS, LOOKS = 1200, 10
WARM = 4
"""Looks after which all that is kept once is there."""
MOST_MB = 200.0
MOST_GROWTH_MB = 6.0
"""For what is kept of the last answers: up to 2,048 pieces of advice, some hundreds of recipes."""


@pytest.mark.timeout(600)
def test_thousands_of_questions_leave_nothing_behind(tmp_path: Path) -> None:
    with RunningAdvisor(tmp_path, nodes=0) as advisor:
        looks = list(advisor.ask(QUESTIONS, most_s=150.0, looks=LOOKS))
    assert advisor.answers.total() == QUESTIONS
    for name, warm_mb in looks[WARM].rss_mb.items():
        seen = [look.rss_mb[name] for look in looks[WARM:]]
        assert max(seen) < MOST_MB, name
        assert seen[-1] - warm_mb < MOST_GROWTH_MB, f"{name} grows: {seen}"
    by_status = {name.rpartition(": ")[2] for name in advisor.answers}
    assert {"advice", "silent", "error"} <= by_status
