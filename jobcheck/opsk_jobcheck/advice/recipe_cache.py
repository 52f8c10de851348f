"""Caches what a worker computed for a recipe: predictions, searches and placements.

It is the second of two levels; see `opsk_jobcheck.service.advice_cache` for the first and for what each saves. Users
submit a recipe again and again with another seed, folder, length or job name. The text differs, so no stored answer
applies, but what was computed does; only the text of the advice is rendered anew.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from opsk.costmodel.table import PredictionTable
from opsk.lru_cache import LruCache
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan
from opsk.workload.workload import Workload
from opsk_jobcheck.advice.flags import settings_file
from opsk_jobcheck.advice.placement import PlacementAdvice
from opsk_jobcheck.advice.search import SearchResult

MAX_ENTRIES: dict[type, int] = {PredictionTable: 256, SearchResult: 256, PlacementAdvice: 16}
"""Number of cached results: a prediction is some numbers, a search a few plans, a placement may be a thousand ranks."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeKey:
    """What a result depends on, besides the cluster, the fabric and the efficiencies of an adviser.

    Parameters
    ----------
    recipe
        All that the script states, and how that is written, but not where; see `build_recipe`.
    model, plan, gpu
        The completed model and plan, and the name of the GPU.
    spread
        The uncertainty of the efficiencies for this recipe.
    nodes, state
        For a placement: the requested nodes, and the version of the cluster's live state.
    """

    recipe: Hashable
    model: ModelShape
    plan: Plan
    gpu: str
    spread: Hashable
    nodes: Hashable = None
    state: Hashable = None


class RecipeCache:
    """The results of one adviser by recipe."""

    def __init__(self) -> None:
        self._results: dict[type, LruCache[Any]] = {kind: LruCache(size) for kind, size in MAX_ENTRIES.items()}

    def get(self, kind: type[Result], key: RecipeKey, compute: Callable[[], Result]) -> Result:
        """Return the result of this kind for a recipe, computed where it is not cached."""
        return cast("Result", self._results[kind].get(key, compute))

    def holds(self, kind: type, key: RecipeKey) -> bool:
        """Return whether there is a result of this kind for a recipe."""
        return key in self._results[kind]

    def count(self, kind: type) -> int:
        """Return the number of results of this kind."""
        return len(self._results[kind])


_BLANK: dict[str, Any] = {
    "job_name": None,
    "command_line": 0,
    "run_count": 1,
    **dict.fromkeys(("evidence", "facts", "missing_files", "unknown", "problems", "other_runs"), ()),
}
"""Fields of a workload that say where it was read, or which other trainings the script starts."""


def build_recipe(workload: Workload) -> Hashable:
    """Return the part of a workload that advice is computed from."""
    return (
        replace(workload, **_BLANK),
        tuple((entry.field, entry.text, settings_file(entry)) for entry in workload.evidence),
    )
