"""Caches search results per workload, for scripts whose text differs and whose workload does not.

Users submit a recipe again and again with another seed, folder or length. The text differs, so the stored answer does
not apply; the possible improvements are the same, and searching for them takes nine tenths of the time.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from opsk.costmodel.table import PredictionTable
from opsk.lru_cache import LruCache
from opsk.workload.workload import Workload
from opsk_jobcheck.advice.flags import settings_file
from opsk_jobcheck.advice.placement import PlacementAdvice
from opsk_jobcheck.advice.search import SearchResult

MAX_PREDICTIONS, MAX_SEARCHES, MAX_PLACEMENTS = 256, 256, 16
"""Sizes of the caches: a prediction is some numbers, a search a few plans, a placement may be a thousand ranks."""


@dataclass(slots=True, kw_only=True)
class SearchCache:
    """The results of one adviser: ``predictions`` by plan, ``searches`` by recipe, ``placements`` also by live state.

    Keys do not include the cluster, the fabric and the efficiencies, which are fixed for an adviser.
    """

    predictions: LruCache[PredictionTable] = field(default_factory=lambda: LruCache(MAX_PREDICTIONS))
    searches: LruCache[SearchResult] = field(default_factory=lambda: LruCache(MAX_SEARCHES))
    placements: LruCache[PlacementAdvice] = field(default_factory=lambda: LruCache(MAX_PLACEMENTS))


def recipe_key(workload: Workload) -> Hashable:
    """Return the cache key of a workload: all that it states and how that is written, but not where."""
    return (
        replace(workload, job_name=None, evidence=(), missing_files=(), unknown=(), problems=()),
        tuple((entry.field, entry.text, settings_file(entry)) for entry in workload.evidence),
    )
