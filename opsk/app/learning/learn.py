"""Learns a site: fits to its jobs and measured nodes, compares with the fit in use, publishes, and goes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from opsk.app.inputs.named_inputs import load_efficiency
from opsk.app.learning.document import build_document
from opsk.app.learning.drivers import read_drivers
from opsk.app.learning.fits import StoredFit, list_fits, lock_folder, publish_fit, read_undone_at
from opsk.app.learning.nodes import SiteNodes, list_stored_nodes, read_nodes, read_probe, store_node
from opsk.app.learning.store_jobs import StoreJobs, read_store_jobs, require_jobs
from opsk.app.site_store import open_site_store
from opsk.calibration.calibration import render_efficiency_toml
from opsk.calibration.learning.evidence import SiteFit
from opsk.calibration.learning.scores import MIN_NEW_JOBS
from opsk.calibration.learning.site_fit import learn_site
from opsk.config import PUBLISHED_FIT, SiteConfig
from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.errors import OpskError
from opsk.text import escape


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningResult:
    """What a fit of the site came to.

    Parameters
    ----------
    text
        The efficiency file; empty where the fit is not taken.
    published
        Where it was published; ``None`` where it was not.
    waits
        Why a fit that is better was not published; empty else.
    """

    fit: SiteFit
    nodes: SiteNodes
    jobs: StoreJobs | None
    text: str
    published: Path | None = None
    waits: str = ""

    @property
    def document(self) -> dict[str, Any]:
        """The answer as JSON values."""
        document = build_document(self.fit, self.nodes, self.jobs)
        return {**document, "published": self.published, "waits": self.waits or None}


def fit_site(site: SiteConfig, probes: Sequence[Path], *, from_store: bool) -> LearningResult:
    """Fit to named measurements, and to the jobs of the store, without publishing anything.

    Raises
    ------
    OpskError
        A measurement is unusable, or the store has no job that can be used.
    """
    nodes = read_nodes(probes, (), site, read_drivers(site.top))
    jobs = require_jobs(_read_jobs(site, None)) if from_store else None
    return _fit(site, nodes, jobs, current=None)


def learn_and_publish(site: SiteConfig, probes: Sequence[Path], *, now: datetime) -> LearningResult:
    """Fit to the jobs of the store and to all measured nodes, and publish the fit if it is better.

    Named measurements are kept for later fits, whether this one is published or not.

    Raises
    ------
    OpskError
        As for `fit_site`; or the folder of learning cannot be written.
    """
    folder = site.learning.folder
    with lock_folder(folder):
        read_nodes(probes, (), site)  # a wrong one is refused before any is kept
        for path in probes:
            store_node(folder, read_probe(path), path.read_text(encoding="utf-8"))
        stored = list_stored_nodes(folder)
        nodes = read_nodes((), stored, site, read_drivers(site.top) if stored else {})
        fits = list_fits(folder)
        jobs = _read_jobs(site, fits[0] if fits else None)
        result = _fit(site, nodes, jobs, current=_load_current(folder) if fits else None)
        if not result.fit.is_taken:
            return result
        if waits := _find_wait(folder, jobs) or _find_equal(folder, result.text):
            return replace(result, waits=waits)
        path = publish_fit(folder, result.text, result.document, made_at=now)
        return replace(result, published=path)


def _read_jobs(site: SiteConfig, before: StoredFit | None) -> StoreJobs:
    since = datetime.now(UTC) - timedelta(days=site.learning.days)
    return read_store_jobs(
        open_site_store(writing=False), since=since, new_since=before.made_at if before is not None else None
    )


def _fit(site: SiteConfig, nodes: SiteNodes, jobs: StoreJobs | None, *, current: Efficiency | None) -> LearningResult:
    base = load_efficiency(site.efficiency) if site.efficiency is not None else DEFAULT
    fit = learn_site(base, jobs.jobs if jobs is not None else (), nodes.measurements, current=current)
    text = ""
    if fit.is_taken:
        origins = {change.name: f"± {change.log_sigma:.2g}, learned" for change in fit.changes}
        text = render_efficiency_toml(fit.efficiency, origins)
    return LearningResult(fit=fit, nodes=nodes, jobs=jobs, text=text)


def _load_current(folder: Path) -> Efficiency | None:
    """Return the published fit; ``None`` where there is none, or it is damaged."""
    path = folder / PUBLISHED_FIT
    try:
        return load_efficiency(path) if path.is_file() else None
    except OpskError:
        return None


def _find_wait(folder: Path, jobs: StoreJobs | None) -> str:
    """Return why a fit waits that would be much like the one that was undone; empty where it need not."""
    undone_at = read_undone_at(folder)
    if undone_at is None:
        return ""
    ended = sum(ended_at > undone_at for ended_at in jobs.ended_at) if jobs is not None else 0
    if ended >= MIN_NEW_JOBS:
        return ""
    return (
        f"a fit was undone at {undone_at:%Y-%m-%d %H:%M} UTC: the next one waits for {MIN_NEW_JOBS} jobs that end "
        f"later ({ended} so far); {escape(str(folder / 'undone.json'))} removed, it waits no longer"
    )


def _find_equal(folder: Path, text: str) -> str:
    """Return why a fit need not be published: it is the one in use; empty where it is not."""
    try:
        is_equal = (folder / PUBLISHED_FIT).read_text(encoding="utf-8") == text
    except (OSError, UnicodeDecodeError):
        return ""
    return "it is the fit in use: no job and no measured node is new" if is_equal else ""
