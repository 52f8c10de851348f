"""Analyses scripts for one site: reads, predicts, places and renders, as a worker does for each request."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from opsk.config import SiteConfig
from opsk.workload.workload import Workload
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.document import kept_text, record
from opsk_jobcheck.advice.rendering import lines, per_task, short_lines
from opsk_jobcheck.advice.search_cache import SearchCache
from opsk_jobcheck.cluster_state.handing import LiveReader, fingerprint
from opsk_jobcheck.cluster_state.wanted import ANY_NODES, wanted_nodes
from opsk_jobcheck.scripts.free_numbers import FreeNumbers, Numbered, text_digest
from opsk_jobcheck.scripts.script import read_script
from opsk_jobcheck.service.advice_cache import short_hash
from opsk_jobcheck.service.analysis import Analysis, AnalysisRequest
from opsk_jobcheck.service.analysis_cache import AnalysisCache, CachedAnalysis
from opsk_jobcheck.service.policy import memory_guesses, oom_probability, why_oom, would_fit
from opsk_jobcheck.service.site import site_adviser
from opsk_jobcheck.service.watching import FOLDER_VARIABLE, is_watched
from opsk_jobcheck.submission.protocol import MAX_FILES
from opsk_jobcheck.submission.request import SlurmRequest

log = logging.getLogger(__name__)

WARM_UP = (
    "#!/bin/bash\ntorchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --bf16 --num-layers 24 --hidden-size 2048 "
    "--num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 "
    "--global-batch-size 128 --vocab-size 50257 --train-iters 1 --use-distributed-optimizer\n"
)
SLOW_S = 0.05
"""A script whose reading takes longer is not read once more to learn about it."""


class SiteAnalyzer:
    """The real analysis for one site.

    Raises
    ------
    OpskError
        When the site names a cluster or a fabric that cannot be read.
    """

    def __init__(self, site: SiteConfig) -> None:
        self._is_kept = site.store.url is not None
        folder = os.environ.get(FOLDER_VARIABLE, "") if is_watched(site) else ""
        self._adviser = replace(site_adviser(site, with_wires=bool(folder)), kept=SearchCache())
        self._verdicts_only = replace(self._adviser, search=False)
        self._analysis_cache = AnalysisCache()
        self._free_numbers = FreeNumbers()
        self._live: LiveReader | None = None
        if folder and self._adviser.wires is not None:
            self._live = LiveReader(Path(folder), time.monotonic, fingerprint(self._adviser.wires))
        self._warm_up()

    def _warm_up(self) -> None:
        """Think once about a script of our own: the first user is not to wait for what every process loads once."""
        query = AnalysisRequest(text=WARM_UP, file="", request=SlurmRequest(nodes=2, gpus_per_node=8), files={})
        try:
            for quick in (True, False):
                self.analyze(replace(query, quick=quick))
        except Exception:
            log.exception("no advice on a script of our own")

    def analyze(self, query: AnalysisRequest) -> Analysis:
        """Return the advice; nothing here opens a path that the script names."""
        request = self._on_partition(query.request)
        read = partial(
            read_script,
            query.text,
            file=query.file,
            request=request,
            files=query.files,
        )
        began = time.monotonic()
        workload = read()
        is_slow = query.is_hurried or time.monotonic() - began > SLOW_S
        free = () if is_slow else self._free(query, request, workload, read)
        analysis = self._build_analysis(query, workload)
        return replace(analysis, free=free) if free else analysis

    def _free(
        self,
        query: AnalysisRequest,
        request: SlurmRequest,
        workload: Workload,
        read: Callable[..., Workload],
    ) -> tuple[int, ...]:
        """Return which numbers of the script what was read does not depend on, as far as that is known."""
        numbered = Numbered.of(query.text)
        if numbered is None:
            return ()
        files = tuple((path, text_digest(text)) for path, text in sorted(query.files.items()))
        context = (query.file, request, files)
        return self._free_numbers.of(numbered, context, workload, lambda places: read(numbers_at=places))

    def _build_analysis(self, query: AnalysisRequest, workload: Workload) -> Analysis:
        """Return the advice on what was read."""
        known = {*query.files, *query.unread}
        wanted = tuple(path for path in workload.wanted_files if path not in known)[:MAX_FILES]
        if wanted and query.may_want:
            # a wrapper trains nothing by itself: what it starts or sources may
            return Analysis(wanted=wanted)
        if not workload.is_training:
            return Analysis(silent=True)
        live = self._live.state() if self._live is not None and not query.quick else None
        asked = ANY_NODES if query.quick else wanted_nodes(query.text, query.request)

        def worked_out() -> CachedAnalysis:
            adviser = self._verdicts_only
            if not query.quick:
                adviser = replace(self._adviser, live=live, is_hurried=query.is_hurried)
            return self._told(adviser.advise(workload, asked), query)

        told = self._analysis_cache.get(workload, asked, query, live, worked_out)
        return told.of_script(short_hash(query.text))

    def _told(self, advice: Advice, query: AnalysisRequest) -> CachedAnalysis:
        said = _build_analysis(advice, query)
        return CachedAnalysis(
            analysis=replace(said, kept=kept_text(advice)) if self._is_kept else said, record=record(advice)
        )

    def _on_partition(self, request: SlurmRequest) -> SlurmRequest:
        """Return a request with the nodes that its partition gives, where it asks for no number and Slurm was asked."""
        live = self._live.state() if self._live is not None and request.is_left_to_partition else None
        return live.with_least_nodes(request, self._adviser.default_partition) if live is not None else request


def _build_analysis(advice: Advice, query: AnalysisRequest) -> Analysis:
    """Return what is said of one piece of advice, without its record."""
    is_array, plain = query.request.is_array, query.ascii_only
    told = lines(advice, query.detail, ascii_only=plain) if not query.quick else ()
    return Analysis(
        opted_out=advice.workload.opted_out,
        verdict=str(advice.verdict),
        is_short=advice.is_short,
        lines=per_task(told, is_array=is_array, ascii_only=plain),
        short_lines=per_task(short_lines(advice, ascii_only=plain), is_array=is_array, ascii_only=plain),
        oom_probability=oom_probability(advice),
        guessed=memory_guesses(advice),
        why=why_oom(advice),
        would_fit=would_fit(advice),
    )
