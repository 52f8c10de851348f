"""Caches what was searched for a workload, for scripts whose text differs and whose workload does not.

People submit a recipe again and again, with another seed, another folder, another length. The text differs, so the
stored answer does not count; what may be done better does not differ, and takes nine tenths of the time.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from opsk.costmodel.table import PredictionTable
from opsk.workload.workload import Workload
from opsk_jobcheck.advice.advice import PlacementAdvice
from opsk_jobcheck.advice.option_syntax.named import settings_file
from opsk_jobcheck.advice.searching import Searched
from opsk_jobcheck.submission.lru_cache import LruCache

MOST_PREDICTED, MOST_SEARCHED, MOST_PLACED = 256, 256, 16
"""Answers that are kept: a prediction is some numbers, a search a few plans, a placement may be a thousand ranks."""


@dataclass(slots=True, kw_only=True)
class SearchCache:
    """What one adviser has worked out: ``predicted`` by plan, ``searched`` by recipe, ``placed`` also by the state.

    Keys do not hold the cluster, the fabric and the efficiencies: they are one adviser's own.
    """

    predicted: LruCache[PredictionTable] = field(default_factory=lambda: LruCache(MOST_PREDICTED))
    searched: LruCache[Searched] = field(default_factory=lambda: LruCache(MOST_SEARCHED))
    placed: LruCache[PlacementAdvice] = field(default_factory=lambda: LruCache(MOST_PLACED))


def recipe_of(workload: Workload) -> Hashable:
    """Return what of a workload ways out depend on: all that it states, and how that is spelled, but not where."""
    return (
        replace(workload, job_name=None, evidence=(), wanted_files=(), unknown=(), problems=()),
        tuple((entry.field, entry.text, settings_file(entry)) for entry in workload.evidence),
    )
