"""Finds since when predictions use the fit that the site has learned."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from opsk.config import PUBLISHED_FIT, SiteConfig
from opsk.diagnosis.accuracy.comparison import ComparedJob
from opsk.diagnosis.accuracy.site_error import SiteErrors, compute_site_errors


def find_fit_since(site: SiteConfig) -> datetime | None:
    """Return when the present fit was published, or gone back to; ``None`` where the site predicts with no such fit."""
    path = site.learning.folder / PUBLISHED_FIT
    if not site.learning.enabled:
        return None
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError:
        return None


def compute_current_errors(jobs: Iterable[ComparedJob], fit_since: datetime | None) -> dict[str, SiteErrors]:
    """Return the site's errors by kind of job: of jobs since the present fit where there are enough, else of all.

    Parameters
    ----------
    fit_since
        As `find_fit_since` returns it.
    """
    members = tuple(jobs)
    errors = compute_site_errors(members)
    if fit_since is not None:
        for kind, newer in compute_site_errors(job for job in members if job.submitted_at >= fit_since).items():
            errors[kind] = {**errors.get(kind, {}), **newer}
    return errors
