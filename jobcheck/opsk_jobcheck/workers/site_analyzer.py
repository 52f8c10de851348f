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
from opsk_jobcheck.advice.advice import (
    Advice,
    explain_oom,
    find_kind,
    find_memory_guesses,
    oom_probability,
    would_fit,
)
from opsk_jobcheck.advice.adviser import build_site_adviser
from opsk_jobcheck.advice.recipe_cache import RecipeCache
from opsk_jobcheck.advice.rendering.document import record, render_stored_document
from opsk_jobcheck.advice.rendering.terminal import lines, mark_array_task, short_lines
from opsk_jobcheck.advice.site_errors_file import FILE_NAME as SITE_ERRORS
from opsk_jobcheck.advice.site_errors_file import FOLDER_VARIABLE as HISTORY_VARIABLE
from opsk_jobcheck.advice.site_errors_file import SiteErrorsFile
from opsk_jobcheck.cluster_state.node_constraints import ANY_NODES, parse_node_constraints
from opsk_jobcheck.cluster_state.state import LiveReader, fingerprint
from opsk_jobcheck.scripts.free_numbers import FreeNumbers, Numbered, text_digest
from opsk_jobcheck.scripts.script import read_script
from opsk_jobcheck.submission.protocol import MAX_FILES
from opsk_jobcheck.submission.request import SlurmRequest
from opsk_jobcheck.workers.analysis import Analysis, AnalysisRequest, short_hash
from opsk_jobcheck.workers.supervision import FOLDER_VARIABLE, is_watched

log = logging.getLogger(__name__)

WARM_UP = (
    "#!/bin/bash\ntorchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --bf16 --num-layers 24 --hidden-size 2048 "
    "--num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 "
    "--global-batch-size 128 --vocab-size 50257 --train-iters 1 --use-distributed-optimizer\n"
)
SLOW_S = 0.05
"""A script that takes longer to parse is not parsed again to find its free numbers."""


class SiteAnalyzer:
    """The real analysis for one site.

    Raises
    ------
    OpskError
        When the site names a cluster or a fabric that cannot be read.
    """

    def __init__(self, site: SiteConfig) -> None:
        self._has_store = site.store.url is not None
        folder = os.environ.get(FOLDER_VARIABLE, "") if is_watched(site) else ""
        self._adviser = replace(build_site_adviser(site, with_fabric_links=bool(folder)), cache=RecipeCache())
        self._verdicts_only = replace(self._adviser, search=False)
        self._free_numbers = FreeNumbers()
        self._live: LiveReader | None = None
        if folder and self._adviser.fabric_links is not None:
            self._live = LiveReader(Path(folder), time.monotonic, fingerprint(self._adviser.fabric_links))
        published = os.environ.get(HISTORY_VARIABLE, "")
        self._site_errors = SiteErrorsFile(Path(published) / SITE_ERRORS) if published else None
        self._warm_up()

    def _warm_up(self) -> None:
        """Analyse a built-in script once, so that the first user does not wait for lazy imports."""
        query = AnalysisRequest(text=WARM_UP, file="", request=SlurmRequest(nodes=2, gpus_per_node=8), files={})
        try:
            for quick in (True, False):
                self.analyze(replace(query, quick=quick))
        except Exception:
            log.exception("no advice on a script of our own")

    def analyze(self, query: AnalysisRequest) -> Analysis:
        """Return the advice; nothing here opens a path that the script names."""
        request = self._fill_partition_defaults(query.request)
        read = partial(
            read_script, query.text, file=query.file, request=request, files=query.files, unread=query.unread
        )
        began = time.monotonic()
        workload = read()
        is_slow = query.is_hurried or time.monotonic() - began > SLOW_S
        free = () if is_slow else self._find_free_numbers(query, request, workload, read)
        analysis = self._build_analysis(query, workload)
        return replace(analysis, free=free) if free else analysis

    def _find_free_numbers(
        self, query: AnalysisRequest, request: SlurmRequest, workload: Workload, read: Callable[..., Workload]
    ) -> tuple[int, ...]:
        """Return the numbers of the script that the workload does not depend on, as far as that is known."""
        numbered = Numbered.parse(query.text)
        if numbered is None:
            return ()
        files = tuple((path, text_digest(text)) for path, text in sorted(query.files.items()))
        context = (query.file, request, files, query.unread)
        return self._free_numbers.find(numbered, context, workload, lambda places: read(number_spans=places))

    def _build_analysis(self, query: AnalysisRequest, workload: Workload) -> Analysis:
        """Return the advice on a workload."""
        missing = workload.missing_files[:MAX_FILES]
        if missing and query.may_want:
            # a wrapper trains nothing by itself: a script that it starts or sources may
            return Analysis(missing_files=missing)
        if self._adviser.leaves_alone(workload):
            return Analysis(silent=True)
        live = self._live.state() if self._live is not None and not query.quick else None
        is_open = workload.plan.gpus is None
        constraints = parse_node_constraints(query.text, query.request) if is_open or not query.quick else ANY_NODES
        full = replace(self._adviser, live=live, is_hurried=query.is_hurried)
        advice = (self._verdicts_only if query.quick else full).advise(workload, constraints)
        if self._site_errors is not None and advice.prediction is not None:
            advice = replace(advice, site_errors=self._site_errors.find(find_kind(advice)))
        analysis = render_analysis(advice, query)
        return replace(analysis, document=render_stored_document(advice)) if self._has_store else analysis

    def _fill_partition_defaults(self, request: SlurmRequest) -> SlurmRequest:
        """Return a request with what its partition gives where nothing is requested and Slurm was queried.

        That is the number of nodes, and the time limit.
        """
        is_open = request.is_left_to_partition or request.time_limit_s is None
        live = self._live.state() if self._live is not None and is_open else None
        if live is None:
            return request
        default = self._adviser.default_partition
        return live.fill_default_time(live.fill_min_nodes(request, default), default)


def render_analysis(advice: Advice, query: AnalysisRequest) -> Analysis:
    """Return the advice as the advisor hands it on."""
    is_array, plain = query.request.is_array, query.ascii_only
    rendered = lines(advice, query.detail, ascii_only=plain) if not query.quick else ()
    return Analysis(
        opted_out=advice.workload.opted_out,
        verdict=str(advice.verdict),
        is_short=advice.is_short,
        lines=mark_array_task(rendered, is_array=is_array, ascii_only=plain),
        short_lines=mark_array_task(short_lines(advice, ascii_only=plain), is_array=is_array, ascii_only=plain),
        comment=record(advice, script_hash=short_hash(query.text)).render(),
        oom_probability=oom_probability(advice),
        guessed=find_memory_guesses(advice),
        why=explain_oom(advice),
        would_fit=would_fit(advice),
    )
