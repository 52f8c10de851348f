"""Since when does the site predict with its own fit, and do the jobs before it still count?"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from opsk.app.accuracy.fit import compute_current_errors, find_fit_since
from opsk.config import PUBLISHED_FIT, LearningConfig, SiteConfig
from opsk.diagnosis.accuracy.comparison import ComparedJob, Comparison, Quantity

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def job(number: int, error: float, at: datetime) -> ComparedJob:
    time = Comparison(predicted=1.0 + number, measured=(1.0 + number) * (1 + error))
    return ComparedJob(job=str(number), submitted_at=at, kind="k", time=time)


def test_a_fit_is_in_use_since_it_was_published_where_the_site_learns(tmp_path: Path) -> None:
    site = SiteConfig(learning=LearningConfig(enabled=True, folder=tmp_path))
    assert find_fit_since(site) is None
    (tmp_path / PUBLISHED_FIT).write_text("")
    os.utime(tmp_path / PUBLISHED_FIT, (NOON.timestamp(), NOON.timestamp()))
    assert find_fit_since(site) == NOON
    assert find_fit_since(SiteConfig(learning=LearningConfig(folder=tmp_path))) is None


@pytest.mark.parametrize(("newer", "distance"), [(0, 0.3), (9, 0.3), (10, 0.05)])
def test_errors_are_those_of_the_present_fit_once_there_are_enough(newer: int, distance: float) -> None:
    jobs = [job(number, 0.3, NOON - timedelta(days=1)) for number in range(12)]
    jobs += [job(20 + number, 0.05, NOON + timedelta(days=1)) for number in range(newer)]
    errors = compute_current_errors(jobs, NOON)
    assert errors["k"][Quantity.TIME].distance == pytest.approx(distance)
    assert compute_current_errors(jobs, None)["k"][Quantity.TIME].distance == pytest.approx(0.3)
