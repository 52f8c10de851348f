"""Caches analyses by the workload that was read from a script: equal workloads get the same answer.

A recipe with another seed or another length is parsed again, since only the parser knows that nothing else has changed.
Where nothing has, the prediction, the suggestions, the placement and the text are reused; only the record in the job's
comment names another script.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from opsk.lru_cache import LruCache
from opsk.workload.advice_record import AdviceRecord
from opsk.workload.workload import Workload
from opsk_jobcheck.cluster_state.node_constraints import NodeConstraints
from opsk_jobcheck.cluster_state.state import LiveState
from opsk_jobcheck.cluster_state.state_header import OLD_S
from opsk_jobcheck.workers.analysis import Analysis, AnalysisRequest

MAX_CACHED = 128
"""Number of cached answers: some lines each, and the workload that was read for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedAnalysis:
    """An analysis and its record, which names the script."""

    analysis: Analysis
    record: AdviceRecord

    def of_script(self, script_hash: str) -> Analysis:
        """Return the analysis for another script with the same workload."""
        return replace(self.analysis, comment=self.record.render(script_hash=script_hash))


class AnalysisCache:
    """Analyses by workload; it belongs to one adviser."""

    def __init__(self) -> None:
        self._entries: LruCache[CachedAnalysis] = LruCache(MAX_CACHED)

    def get(
        self,
        workload: Workload,
        constraints: NodeConstraints,
        query: AnalysisRequest,
        live: LiveState | None,
        compute: Callable[[], CachedAnalysis],
    ) -> CachedAnalysis:
        """Return the analysis of a workload; computed where it is new, was cut short, or shows its age."""
        if live is not None and live.age_s >= OLD_S:
            return compute()
        key = (
            workload,
            constraints,
            (constraints.memory, constraints.cpus_per_node),
            (
                query.quick,
                query.detail,
                query.ascii_only,
                query.request.is_array,
            ),
            _cluster_key(live),
        )
        return self._entries.get(key, compute, is_stored=lambda entry: not entry.analysis.is_short)


def _cluster_key(live: LiveState | None) -> Hashable:
    """Return the parts of the live state that advice depends on, ``None`` where it is unknown."""
    if live is None:
        return None
    facts = (live.source, live.topology, live.default_partition, live.running, live.hidden_nodes)
    return (live.generation, live.wire is None, *facts)
