"""Caches analyses by what was read in a script: where the same was read, the same is answered.

A recipe with another seed or another length is read again, for only its reader knows that nothing else has changed.
Where nothing has, the prediction, the suggestions, the placement and the text are those of last time; only the record
in the job's comment names another script.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from opsk.workload.advice_record import AdviceRecord
from opsk.workload.workload import Workload
from opsk_jobcheck.cluster_state.heading import OLD_S
from opsk_jobcheck.cluster_state.state import LiveState
from opsk_jobcheck.cluster_state.wanted import NodesWanted
from opsk_jobcheck.service.analysis import Analysis, AnalysisRequest
from opsk_jobcheck.submission.lru_cache import LruCache

MAX_CACHED = 128
"""Answers that are kept: some lines each, and what was read for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedAnalysis:
    """What is told, and the record of it, which names the script."""

    analysis: Analysis
    record: AdviceRecord

    def of_script(self, script_hash: str) -> Analysis:
        """Return what is told of another script in which the same was read."""
        return replace(self.analysis, comment=self.record.render(script_hash=script_hash))


class AnalysisCache:
    """What one adviser told of what was read; it belongs to that adviser."""

    def __init__(self) -> None:
        self._told: LruCache[CachedAnalysis] = LruCache(MAX_CACHED)

    def get(
        self,
        workload: Workload,
        wanted: NodesWanted,
        query: AnalysisRequest,
        live: LiveState | None,
        work_out: Callable[[], CachedAnalysis],
    ) -> CachedAnalysis:
        """Return what is told of a workload; worked out where it is new, was cut short, or tells its age."""
        if live is not None and live.age_s >= OLD_S:
            return work_out()
        key = (
            workload,
            wanted,
            (wanted.memory, wanted.cpus_per_node),
            (
                query.quick,
                query.detail,
                query.ascii_only,
                query.request.is_array,
            ),
            _cluster_now(live),
        )
        return self._told.get(key, work_out, is_kept=lambda told: not told.analysis.is_short)


def _cluster_now(live: LiveState | None) -> Hashable:
    """Return what advice depends on of the state of the cluster, ``None`` where nobody knows it."""
    if live is None:
        return None
    asked = (live.source, live.topology, live.default_partition, live.running, live.hidden_nodes)
    return (live.generation, live.wire is None, *asked)
