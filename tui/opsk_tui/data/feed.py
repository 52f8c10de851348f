"""Combines the answers of all sources into a sequence of cluster views.

Each source is asked in a thread of its own, never twice at a time. While it does not answer, its last answer stays in
the view, with its age and the reason. Nothing here delays the handling of a key.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from opsk.config import SiteConfig
from opsk.errors import InputError, OpskError
from opsk.remapping.commands import find_caller_rights
from opsk.slurm.adapter import slurm_client
from opsk.slurm.client import SlurmClient
from opsk.slurm.commands.remap_commands import Who
from opsk.slurm.records import NodeRecord
from opsk.slurm.snapshot import Snapshot
from opsk.text import format_count
from opsk.workload.advice_record import AdviceRecord
from opsk_tui.data.feed_port import JobDetails, RankTable
from opsk_tui.data.sources.assembly import GpuTables, JobViews, PortTables, fabric_view
from opsk_tui.data.sources.exporters import ExportersSource, find_exporters
from opsk_tui.data.sources.fabric import FabricSource
from opsk_tui.data.sources.failure_detection import DetectionSchedule
from opsk_tui.data.sources.job_log import log_path, log_tail
from opsk_tui.data.sources.job_losses import JobLosses
from opsk_tui.data.sources.progress import DerivedProgress, PastProgress, PrometheusSignals
from opsk_tui.data.sources.prometheus.client import PrometheusSource
from opsk_tui.data.sources.prometheus.http import build_access
from opsk_tui.data.sources.readings import MEMORY_USED, Readings
from opsk_tui.data.sources.reports import ReportFolder
from opsk_tui.data.sources.slurm import DIRECTLY, SlurmSource
from opsk_tui.data.sources.store import StoreSource
from opsk_tui.data.view import ClusterView, FabricView, GpuTable, JobView, ReportRow, Source, SourceState

SELDOM_S = 60.0
SETTLE_S, MAX_SETTLE_S = 0.15, 0.5
"""Answers within this time are combined into one view; pending answers are waited for a little longer."""
LOG_WITHIN_S = 5.0
COLLECT_AFTER = 50_000
"""Allocations before Python looks for reference cycles."""


def build_rank_table(job: JobView, readings: Readings, gpus: GpuTable | None) -> RankTable | None:
    """Return the ranks of a job: node after node in Slurm's order, on each its GPUs in order, as srun places them.

    ``None`` where neither Slurm nor the table has the job's GPUs.
    """
    record = job.record
    gpu_slots: list[tuple[str, int]] = []
    for node in record.nodes:
        held = record.gpu_indices.get(node)
        if held is None and gpus is not None and node in readings.rows and readings.rows[node] < len(gpus.job):
            held = tuple(np.flatnonzero(gpus.job[readings.rows[node]] == record.id).tolist())
        gpu_slots += [(node, index) for index in sorted(held or ())]
    if not gpu_slots:
        return None
    rows = np.array([readings.rows.get(node, -1) for node, _ in gpu_slots])
    slots = np.array([slot for _, slot in gpu_slots])
    values = {}
    memory = None
    if gpus is not None:
        inside = (rows >= 0) & (rows < gpus.job.shape[0]) & (slots < gpus.job.shape[1])
        cells = np.where(inside, rows, 0), np.where(inside, slots, 0)
        values = {
            metric: np.where(inside, array[cells], np.float32(np.nan)).astype(np.float32)
            for metric, array in gpus.values.items()
        }
        used = readings.gpu.get(MEMORY_USED)
        if used is not None and used.shape == gpus.job.shape:
            memory = np.where(inside, used[cells], np.nan)
    return RankTable(
        nodes=tuple(node for node, _ in gpu_slots),
        gpus=slots.astype(np.int16),
        values=values,
        memory_bytes=memory,
        places=format_plan_positions(job.advice, len(gpu_slots)),
    )


def format_plan_positions(advice: AdviceRecord | None, ranks: int) -> tuple[str, ...]:
    """Return each rank's position in the plan, in the order of Megatron and most others: TP, CP, DP, then PP.

    Empty where the plan does not fill exactly these ranks.
    """
    if advice is None or not (advice.tp or advice.pp or advice.dp):
        return ()
    sizes = {"tp": advice.tp or 1, "cp": advice.cp or 1, "dp": advice.dp or 1, "pp": advice.pp or 1}
    if np.prod(list(sizes.values())) != ranks:
        return ()
    shown = [name for name, size in sizes.items() if size > 1] or ["dp"]
    positions = []
    for rank in range(ranks):
        indices, rest = {}, rank
        for name, size in sizes.items():
            indices[name] = rest % size
            rest //= size
        positions.append(" ".join(f"{name}{indices[name]}" for name in ("tp", "pp", "cp", "dp") if name in shown))
    return tuple(positions)


@dataclass(slots=True)
class _Answers:
    """The last answers of the sources."""

    slurm: Snapshot = field(default_factory=lambda: Snapshot(taken_at_s=0.0))
    fabric: FabricView | None = None
    reports: tuple[ReportRow, ...] = ()
    rights: tuple[Who, ...] = ()
    states: dict[Source, SourceState] = field(default_factory=dict)


class ClusterFeed:
    """Delivers cluster views; implements `opsk_tui.data.feed_port.Feed`.

    Parameters
    ----------
    site
        The site configuration.
    slurm
        The Slurm client where no advisor shares a snapshot; by default the site's.
    prometheus
        URL instead of the site's; "" for none.
    refresh_s
        Interval instead of the site's [s].
    clock
        Seconds since 1970.
    rights
        Returns the caller's rights; by default from Slurm's accounting.
    """

    def __init__(
        self,
        site: SiteConfig,
        *,
        slurm: SlurmClient | None = None,
        prometheus: str | None = None,
        refresh_s: float | None = None,
        clock: Callable[[], float] = time.time,
        rights: Callable[[], tuple[Who, ...]] = lambda: find_caller_rights(None),
    ) -> None:
        top = site.top
        self._site, self._clock, self._rights = site, clock, rights
        self._refresh_s = refresh_s or top.refresh_s
        self._answers = _Answers()
        self._readings = Readings()
        self._gpus, self._ports, self._jobs = GpuTables(), PortTables(), JobViews()
        self._detection, self._losses = DetectionSchedule(), JobLosses()
        self._slurm = SlurmSource(
            site.advisor.socket if top.slurm_interval_s else None,
            slurm or slurm_client(),
            top.slurm_interval_s or 10.0,
            sees_more=lambda: len(self._answers.rights) > 1,
        )
        access = build_access(top)
        url = top.prometheus if prometheus is None else prometheus
        self._prometheus = (
            PrometheusSource(url, self._readings, access=access, labels=top.prometheus_labels, clock=clock)
            if url
            else None
        )
        self._past = PastProgress(self._prometheus, self._readings) if self._prometheus is not None else None
        self._exporters = ExportersSource(self._readings, {}, access=access, clock=clock)
        knows_past = PrometheusSignals(self._prometheus) if self._prometheus is not None else self._exporters
        self._derived = DerivedProgress(knows_past, self._readings)
        self._fabric, self._store = FabricSource(site.fabric), StoreSource(site.store.url)
        self._reports = ReportFolder(site.postmortem.folder)
        self._changed, self._now = asyncio.Event(), asyncio.Event()
        self._pending = set[Source]()
        self._threads = {
            name: ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"opsk-{name}")
            for name in ("slurm", "metrics", "seldom", "store", "look", "log", "rights")
        }
        self._viewed_nodes: tuple[str, ...] = ()
        self._view = ClusterView(taken_at_s=clock())
        self._tasks = list[asyncio.Task[None]]()

    async def views(self) -> AsyncIterator[ClusterView]:
        """Yield a view as soon as there is any, then one whenever something has changed; never ends by itself."""
        self._start()
        try:
            while True:
                await self._changed.wait()
                await self._settle()
                self._changed.clear()
                view = await self._in("look", self._assemble)
                if view is not self._view:
                    self._view = view
                    yield view
        finally:
            await self.close()

    async def _settle(self) -> None:
        """Wait for further answers of this moment; briefly before anything is visible."""
        end_s = time.monotonic() + (MAX_SETTLE_S if self._view.nodes else SETTLE_S)
        await asyncio.sleep(SETTLE_S)
        while self._pending and (remaining_s := end_s - time.monotonic()) > 0:
            await asyncio.sleep(min(remaining_s, SETTLE_S / 3))

    def ask_now(self) -> None:
        """Query the sources again without waiting for the interval."""
        self._now.set()

    async def job_details(self, job_id: int) -> JobDetails:
        """Return what is known of one job; see `opsk_tui.data.feed_port.Feed`."""
        job = next((job for job in self._view.jobs if job.record.id == job_id), None)
        if job is None:
            raise InputError(f"there is no job {job_id} (any more)", hint="sacct knows jobs that have ended")
        self._viewed_nodes = job.record.nodes
        problems: list[str] = []
        with self._readings.lock:
            ranks = build_rank_table(job, self._readings, self._view.gpus)
        path, lines = await self._read_log(job, problems)
        advice = await self._read_advice(job, problems)
        return JobDetails(
            job_id=job_id,
            ranks=ranks,
            log_path=path,
            log=lines,
            advice=advice,
            problems=tuple(problems),
        )

    async def report_text(self, path: str) -> str:
        """Return the text of a report; see `opsk_tui.data.feed_port.Feed`."""
        if path not in {report.path for report in self._view.reports}:
            raise InputError("no report that was listed")
        if self._reports.is_report(path):
            content: str = await self._in("store", lambda: self._reports.text(path))
            return content
        text: str | None = await self._in("store", lambda: self._store.report_text(path, self._answers.slurm.cluster))
        if text is None:
            raise InputError("the report is not in the store any more")
        return text

    async def accuracy(self) -> Mapping[str, Any]:
        """Return how good predictions have been; see `opsk_tui.data.feed_port.Feed`."""
        document: Mapping[str, Any] = await self._in("store", lambda: self._store.accuracy(self._answers.slurm.cluster))
        return document

    async def close(self) -> None:
        """Stop the sources."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._exporters.close()
        self._store.close()
        for thread in self._threads.values():
            thread.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> None:
        if not self._tasks:
            # loaded objects stay, and thousands of readings have no reference cycles: scanning all of them again and
            # again took a quarter of a full reload
            gc.freeze()
            gc.set_threshold(COLLECT_AFTER, 10, 10)
            metrics = Source.PROMETHEUS if self._prometheus is not None else Source.EXPORTERS
            self._tasks = [
                asyncio.create_task(self._poll(Source.SLURM, "slurm", self._ask_slurm, self._refresh_s)),
                asyncio.create_task(self._poll(metrics, "metrics", self._ask_metrics, self._refresh_s)),
                asyncio.create_task(self._poll(Source.FABRIC, "seldom", self._ask_fabric, SELDOM_S)),
                asyncio.create_task(self._poll(Source.STORE, "store", self._ask_store, SELDOM_S)),
                asyncio.create_task(self._ask_rights()),
            ]

    async def _poll(self, source: Source, thread: str, ask: Callable[[], str | None], every_s: float) -> None:
        """Query one source again and again; the query returns its name, ``None`` where it does not exist."""
        while True:
            began_s = time.monotonic()
            before = self._answers.states.get(source, SourceState(source=source))
            self._pending.add(source)
            try:
                where = await self._in(thread, ask)
                state = replace(before, where=where or "", taken_at_s=self._clock(), problem="", hint="")
            except OpskError as error:
                where = ""
                state = replace(before, problem=error.message, hint=error.hint)
            except Exception as error:  # noqa: BLE001 - one source that is broken must not take the others along
                where = ""
                state = replace(before, problem=f"{type(error).__name__}: {error}"[:200])
            self._pending.discard(source)
            if where is None:
                self._answers.states.pop(source, None)
            else:
                self._answers.states[source] = state
            self._changed.set()
            remaining_s = max(0.2, every_s - (time.monotonic() - began_s))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._now.wait(), remaining_s)
                await asyncio.sleep(0.05)
                self._now.clear()

    async def _ask_rights(self) -> None:
        self._answers.rights = await self._in("rights", self._rights)
        self._changed.set()

    def _ask_slurm(self) -> str:
        answer = self._slurm.read()
        snapshot = answer.snapshot
        if snapshot is self._answers.slurm:
            return self._describe_route(answer.route)
        before = self._answers.slurm
        self._answers.slurm = snapshot
        if snapshot.nodes is not before.nodes:
            self._update_layout(snapshot.nodes)
        if snapshot.problem:
            raise OpskError(snapshot.problem, hint=snapshot.hint)
        return self._describe_route(answer.route)

    @staticmethod
    def _describe_route(route: str) -> str:
        return route if route == DIRECTLY else f"shared by {route}"

    def _update_layout(self, nodes: Sequence[NodeRecord]) -> None:
        """Set the nodes; where they have changed, everything is read again."""
        with self._readings.lock:
            slots = max((node.gpus for node in nodes), default=0)
            is_new = self._readings.set_layout([node.name for node in nodes], slots)
            if is_new and self._prometheus is not None:
                self._prometheus.forget()
            if is_new:
                self._exporters.forget()
        if self._prometheus is None and self._site.top.exporter_port:
            self._exporters.aim(find_exporters(nodes, self._site.top))

    def _ask_metrics(self) -> str | None:
        if self._prometheus is None and not self._site.top.exporter_port:
            return None
        if not self._readings.nodes:
            return ""
        if self._prometheus is not None:
            now_s = self._clock()
            if self._past is not None and self._past.is_due(now_s):
                self._past.turn(now_s)  # instead of a refresh: both in one would take noticeably longer
            else:
                self._prometheus.refresh(spent_s=self._detection.pop_spent_s())
                if self._past is not None:
                    self._past.read_pending_lines(now_s)
            self._derived.turn(self._answers.slurm.jobs, self._clock())
            return self._prometheus.shown
        turn = self._exporters.refresh(self._viewed_nodes)
        self._derived.turn(self._answers.slurm.jobs, self._clock())
        silent = f", {turn.silent} silent" if turn.silent else ""
        pace = f", each every {turn.turn_s:.0f} s" if turn.turn_s > 2 * self._refresh_s else ""
        return f"{format_count(len(self._readings.nodes), 'node')}{silent}{pace}"

    def _ask_fabric(self) -> str | None:
        self._answers.fabric = self._fabric.read()
        return self._fabric.shown if self._answers.fabric is not None else None

    def _ask_store(self) -> str | None:
        """List the reports: those of the store, and those of the evidence folder."""
        if not self._store.is_there and not self._reports.is_there:
            return None
        self._answers.reports = in_folder = self._reports.reports(self._answers.slurm.cluster)
        known_reports = {(report.job, report.kind) for report in in_folder}
        in_store = self._store.reports(self._answers.slurm.cluster) if self._store.is_there else ()
        # the same post-mortem is in both
        in_store = tuple(report for report in in_store if (report.job, report.kind) not in known_reports)
        self._answers.reports = tuple(sorted((*in_folder, *in_store), key=lambda report: -report.made_at_s))
        return format_count(len(self._answers.reports), "report")

    def _assemble(self) -> ClusterView:
        """Return a view of the present data; the same as before where nothing has changed."""
        answers, now_s = self._answers, self._clock()
        slurm = answers.slurm
        with self._readings.lock:
            gpus = self._gpus.table(self._readings, slurm.nodes, slurm.jobs, now_s) if slurm.nodes else None
            ports = self._ports.table(self._readings)
            jobs = self._jobs.views(slurm.jobs, self._readings, gpus.job if gpus is not None else None, now_s)
            jobs = self._losses.turn(jobs, self._readings, gpus, ports, now_s)
        if slurm.nodes and self._has_metrics():
            domains = answers.fabric.hb_domains if answers.fabric is not None else {}
            self._detection.turn(self._readings, slurm, now_s, domains=domains)
        before = self._view
        if len(jobs) == len(before.jobs) and all(a is b for a, b in zip(jobs, before.jobs, strict=True)):
            jobs = before.jobs
        parts: dict[str, Any] = {
            "cluster": slurm.cluster,
            "nodes": slurm.nodes,
            "gpus": gpus,
            "jobs": jobs,
            "fabric": self._current_fabric(answers.fabric, ports),
            "events": self._detection.events,
            "reports": answers.reports,
            "sources": tuple(answers.states.values()),
            "rights": answers.rights,
        }
        same = all(parts[name] is getattr(before, name) for name in ("nodes", "gpus", "jobs", "fabric", "events"))
        if same and all(parts[name] == getattr(before, name) for name in ("cluster", "sources", "rights", "reports")):
            return before
        return ClusterView(taken_at_s=now_s, **parts)

    def _current_fabric(self, fabric: FabricView | None, ports: Any) -> FabricView | None:
        made = fabric_view(fabric, ports)
        before = self._view.fabric
        if made is None or before is None:
            return made
        is_same = made.ports is before.ports and made.tiers is before.tiers and made.faults is before.faults
        return before if is_same else made

    def _has_metrics(self) -> bool:
        """Return whether the sources of GPUs have answered: a node that was not queried yet has lost nothing."""
        asked = (self._answers.states.get(source) for source in (Source.PROMETHEUS, Source.EXPORTERS))
        # before there were nodes no source was queried, and their names are empty
        has_answered = any(state is not None and (state.where or state.problem) for state in asked)
        return has_answered or (self._prometheus is None and not self._site.top.exporter_port)

    async def _read_log(self, job: JobView, problems: list[str]) -> tuple[str, tuple[str, ...]]:
        path: Path | None = None
        try:
            path = log_path(job.record)
            if path is None:
                problems.append("Slurm does not tell where the job writes")
                return "", ()
            where, owner = path, job.record.user
            asked = self._in("log", lambda: log_tail(where, owner))
            return str(path), await asyncio.wait_for(asked, LOG_WITHIN_S)
        except TimeoutError:
            problems.append(f"{path}: no answer of its file system within {LOG_WITHIN_S:.0f} s")
        except OpskError as error:
            problems.append(error.message)
        return str(path or ""), ()

    async def _read_advice(self, job: JobView, problems: list[str]) -> tuple[str, ...]:
        cluster, record, submitted = self._answers.slurm.cluster, job.advice, job.record.submit_time
        lines: tuple[str, ...] = ()
        if not self._store.is_there:
            return lines
        try:
            lines = await self._in("store", lambda: self._store.advice_lines(cluster, record, submitted))
        except OpskError as error:
            problems.append(error.message)
        return lines

    async def _in(self, thread: str, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads[thread], work)
