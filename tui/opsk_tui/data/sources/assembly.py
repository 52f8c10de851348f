"""Builds the parts of a cluster view from the sources' readings; unchanged parts are the same objects as before."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from opsk.hardware.xids import XidClass, xid
from opsk.metrics import names as metric_names
from opsk.metrics.exposition import Sample
from opsk.slurm.records import JobRecord, NodeRecord
from opsk.workload.advice_record import AdviceRecord
from opsk_tui.data.sources.readings import (
    BYTES,
    CONGESTION,
    ERRORS,
    HEAT_HELD,
    MEMORY_SIZE,
    MEMORY_USED,
    RATE,
    Progress,
    Readings,
    compute_metric,
)
from opsk_tui.data.view import FabricView, GpuTable, Health, JobView, Measured, Metric, PortTable

HOT = 0.1
"""Share of the time throttled by heat from which a GPU is marked as watch [ratio]."""
CONGESTED = 0.3
RECENT_S = 86400.0
"""Older XIDs make no GPU unhealthy."""
MAX_HISTORY = 240
_INDEX = re.compile(r"index-([0-9]{1,3})")
_UNHEALTHY_CLASSES = frozenset({XidClass.RESET, XidClass.DRAIN, XidClass.REBOOT, XidClass.SERVICE, XidClass.NVLINK})
_WATCH_CLASSES = frozenset({XidClass.WATCH, XidClass.RESET_WHEN_IDLE, XidClass.SUMMARY, XidClass.UNKNOWN})


class GpuTables:
    """Builds the table of all GPUs, and rebuilds only changed parts."""

    def __init__(self) -> None:
        self._values: dict[Metric, NDArray[np.float32]] = {}
        self._job: tuple[tuple[object, ...], NDArray[np.int64]] | None = None
        self._present: tuple[tuple[object, ...], NDArray[np.bool_]] | None = None
        self._health: tuple[tuple[object, ...], NDArray[np.int8]] | None = None
        self._table: GpuTable | None = None

    def table(
        self, readings: Readings, nodes: Sequence[NodeRecord], jobs: Sequence[JobRecord], now_s: float
    ) -> GpuTable:
        """Return the table; the same as before where nothing has changed."""
        shape = (len(nodes), max(1, readings.slots))
        values = {}
        for metric in Metric:
            array = compute_metric(readings, metric)
            if array is not None and array.shape == shape:
                values[metric] = self._to_single(metric, array, shape)
        present = self._compute_present(readings, nodes, shape)
        job = self._compute_jobs(readings, jobs, shape)
        health = self._compute_health(readings, nodes, values, present, now_s)
        before = self._table
        is_same = (
            before is not None
            and before.values.keys() == values.keys()
            and all(before.values[name] is array for name, array in values.items())
            and (before.health is health and before.job is job and before.present is present)
            and len(before.uuids) == len(readings.uuids)
        )
        if before is None or not is_same:
            sizes = readings.gpu.get(MEMORY_SIZE)
            self._table = before = GpuTable(
                values=values, health=health, job=job, present=present, uuids=dict(readings.uuids),
                memory_size_bytes=sizes.astype(np.float32) if sizes is not None and sizes.shape == shape else None,
            )  # fmt: skip
        return before

    def _to_single(self, metric: Metric, array: NDArray[np.float64], shape: tuple[int, int]) -> NDArray[np.float32]:
        """Return an array in single precision, the same object where it holds the same."""
        made = array.astype(np.float32)
        known = self._values.get(metric)
        if known is not None and known.shape == shape and np.array_equal(known, made, equal_nan=True):
            return known
        self._values[metric] = made
        return made

    def _compute_present(
        self, readings: Readings, nodes: Sequence[NodeRecord], shape: tuple[int, int]
    ) -> NDArray[np.bool_]:
        key = (nodes, len(readings.uuids), *shape)
        if self._present is None or not _are_same(self._present[0], key):
            counts = np.fromiter((node.gpus for node in nodes), np.int64, len(nodes))
            present = np.arange(shape[1])[None, :] < counts[:, None]
            if readings.slot_of:
                present |= readings.known_gpus()
            if self._present is not None and np.array_equal(self._present[1], present):
                present = self._present[1]
            self._present = (key, present)
        return self._present[1]

    def _compute_jobs(self, readings: Readings, jobs: Sequence[JobRecord], shape: tuple[int, int]) -> NDArray[np.int64]:
        key = (jobs, readings.nodes, *shape)
        if self._job is None or not _are_same(self._job[0], key):
            held = map_jobs(jobs, readings.rows, shape)
            if self._job is not None and np.array_equal(self._job[1], held):
                held = self._job[1]
            self._job = (key, held)
        return self._job[1]

    def _compute_health(
        self,
        readings: Readings,
        nodes: Sequence[NodeRecord],
        values: Mapping[Metric, NDArray[np.float32]],
        present: NDArray[np.bool_],
        now_s: float,
    ) -> NDArray[np.int8]:
        heat = readings.gpu.get(HEAT_HELD)
        key = (nodes, readings.unhealthy, len(readings.slot_of), heat, present, int(now_s / 600),
               *(values.get(name) for name in (Metric.POWER, Metric.TEMPERATURE)))  # fmt: skip
        if self._health is None or not _are_same(self._health[0], key):
            health_codes: NDArray[np.int8] = np.full(present.shape, Health.UNKNOWN, np.int8)
            for metric in (Metric.POWER, Metric.TEMPERATURE, Metric.UTILISATION):
                if metric in values:
                    health_codes[present & ~np.isnan(values[metric])] = Health.OK
            if heat is not None and heat.shape == present.shape:
                # a power cap is normal under full load, heat is not
                with np.errstate(invalid="ignore"):
                    health_codes[present & (heat > HOT)] = Health.WATCH
            for node, samples in readings.unhealthy.items():
                for uuid, health in compute_gpu_health(samples, now_s).items():
                    place = readings.slot_of.get((node, uuid)) or _find_by_index(readings, node, uuid)
                    if place is not None and place[0] < health_codes.shape[0] and place[1] < health_codes.shape[1]:
                        row, slot = place
                        health_codes[row, slot] = max(int(health_codes[row, slot]), int(health))
            if self._health is not None and np.array_equal(self._health[1], health_codes):
                health_codes = self._health[1]
            self._health = (key, health_codes)
        return self._health[1]


def _find_by_index(readings: Readings, node: str, name: str) -> tuple[int, int] | None:
    """Return the place of a GPU that was lost before its UUID was read: exporters name it by its index."""
    match, row = _INDEX.fullmatch(name), readings.rows.get(node)
    if match is None or row is None:
        return None
    known = {index: place for (host, uuid), index in readings.index_of.items() if host == node
             and (place := readings.slot_of.get((host, uuid))) is not None}  # fmt: skip
    return known.get(int(match[1]), (row, int(match[1])))


def _are_same(first: tuple[object, ...], second: tuple[object, ...]) -> bool:
    """Return whether the inputs of a cached value are the same: the same objects, or equal numbers."""
    return len(first) == len(second) and all(
        a is b or (isinstance(a, int | str) and a == b) for a, b in zip(first, second, strict=True)
    )


def map_jobs(jobs: Sequence[JobRecord], rows: Mapping[str, int], shape: tuple[int, int]) -> NDArray[np.int64]:
    """Return which job holds which GPU: by Slurm's indices, else all GPUs of its nodes where it uses them all."""
    held = np.full(shape, -1, np.int64)
    for job in jobs:
        if not job.is_active or not job.gpus:
            continue
        for node, indices in job.gpu_indices.items():
            row = rows.get(node)
            if row is not None:
                for index in indices:
                    if index < shape[1]:
                        held[row, index] = job.id
        if not job.gpu_indices and job.gpus_per_node:
            for node in job.nodes:
                row = rows.get(node)
                if row is not None and job.gpus_per_node >= shape[1]:
                    held[row, :] = job.id
    return held


def compute_gpu_health(samples: Sequence[Sample], now_s: float) -> dict[str, Health]:
    """Return the health of a node's GPUs by UUID, from their series; GPUs without series are left out."""
    health_of_gpu: dict[str, Health] = {}
    times = {
        (labels.get("gpu", ""), labels.get("xid", "")): value
        for name, labels, value in samples
        if name == metric_names.GPU_XID_LAST_SEEN_TIMESTAMP_SECONDS
    }
    for name, labels, value in samples:
        gpu = labels.get("gpu", "")
        worse = Health.OK
        match name:
            case metric_names.GPU_UP if value == 0:
                worse = Health.UNHEALTHY
            case metric_names.GPU_ROW_REMAP_FAILED | metric_names.GPU_FABRIC_FAULT if value > 0:
                worse = Health.UNHEALTHY
            case metric_names.GPU_FABRIC_HEALTHY if value == 0:
                worse = Health.UNHEALTHY
            case metric_names.GPU_ROW_REMAP_PENDING if value > 0:
                worse = Health.WATCH
            case metric_names.GPU_RECOVERY_ACTION if value > 0 and labels.get("action", "none") != "none":
                worse = Health.UNHEALTHY
            case metric_names.GPU_ECC_VOLATILE_ERRORS_TOTAL if value > 0 and labels.get("error") == "uncorrected":
                worse = Health.WATCH
            case metric_names.GPU_XID_ERRORS_TOTAL if value > 0:
                worse = _xid_health(labels.get("xid", ""), times.get((gpu, labels.get("xid", ""))), now_s)
            case _:
                continue
        if gpu and worse > health_of_gpu.get(gpu, Health.UNKNOWN):
            health_of_gpu[gpu] = worse
    return health_of_gpu


def _xid_health(code: str, last_s: float | None, now_s: float) -> Health:
    if not code.isdecimal() or (last_s is not None and now_s - last_s > RECENT_S):
        return Health.OK
    kind = xid(int(code)).class_ if len(code) < 6 else XidClass.UNKNOWN
    if kind in _UNHEALTHY_CLASSES:
        return Health.UNHEALTHY
    return Health.WATCH if kind in _WATCH_CLASSES else Health.OK


class PortTables:
    """Builds the port table, and rebuilds it only after a change."""

    def __init__(self) -> None:
        self._key: tuple[object, ...] = ()
        self._table: PortTable | None = None

    def table(self, readings: Readings, best_bytes_per_s: float = 0.0) -> PortTable | None:
        """Return the table; ``None`` where no port is known."""
        if not readings.rails:
            return None
        key = (readings.rails, *(readings.port.get(name) for name in (RATE, CONGESTION, BYTES, ERRORS)))
        if _are_same(key, self._key):
            return self._table
        unknown = readings.blank_ports()
        rate, congestion, moved, errors = (
            array if array is not None and array.shape == unknown.shape else unknown
            for array in (readings.port.get(name) for name in (RATE, CONGESTION, BYTES, ERRORS))
        )
        best = max(best_bytes_per_s, float(np.nanmax(rate)) if np.isfinite(rate).any() else 0.0)
        ratio = rate / best if best > 0 else unknown
        health = np.full(unknown.shape, Health.UNKNOWN, np.int8)
        with np.errstate(invalid="ignore"):
            health[~np.isnan(ratio)] = Health.OK
            health[(congestion > CONGESTED) | (errors > 0)] = Health.WATCH
            health[ratio < 0.99] = Health.UNHEALTHY
        self._key = key
        self._table = PortTable(
            rails=readings.rails,
            rate_ratio=ratio.astype(np.float32),
            congestion=congestion.astype(np.float32),
            bytes_per_s=moved.astype(np.float32),
            errors=errors.astype(np.float32),
            health=health,
            leaves=readings.leaves,
        )
        return self._table


class JobViews:
    """Builds the job views; an unchanged job is the same object again."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, JobView]] = {}
        self._advice: dict[str, AdviceRecord | None] = {}
        self._views: tuple[JobView, ...] = ()

    def views(
        self, jobs: Sequence[JobRecord], readings: Readings, held: NDArray[np.int64] | None, now_s: float
    ) -> tuple[JobView, ...]:
        """Return all jobs, in Slurm's order."""
        peaks = compute_memory_peaks(readings, held)
        advice = {text: self._advice.get(text, _UNREAD) for text in {job.admin_comment or "" for job in jobs}}
        self._advice = {
            text: AdviceRecord.parse(text) if record is _UNREAD else record  # type: ignore[misc]
            for text, record in advice.items()
        }
        known = {}
        for job in jobs:
            progress = readings.progress.get(job.label) or readings.progress.get(str(job.id))
            key = (_progress_key(progress), peaks.get(job.id))
            before = self._known.get(job.id)
            if before is not None and before[0] == key and before[1].record is job:
                known[job.id] = before
                continue
            advice_record = self._advice[job.admin_comment or ""]
            measured = build_measured(job, progress, advice_record, peaks.get(job.id), now_s)
            known[job.id] = (key, JobView(record=job, advice=advice_record, measured=measured))
        self._known = known
        views = tuple(view for _, view in known.values())
        if len(views) != len(self._views) or any(a is not b for a, b in zip(views, self._views, strict=True)):
            self._views = views
        return self._views


_UNREAD = object()


def _progress_key(progress: Progress | None) -> object:
    if progress is None:
        return None
    last = progress.history[-1] if progress.history else None
    return (progress.step_s, progress.tokens_per_s, progress.tflops_per_gpu, progress.iteration, last)


def compute_memory_peaks(readings: Readings, held: NDArray[np.int64] | None) -> dict[int, float]:
    """Return the memory in use on the fullest GPU of each job [bytes]."""
    used = readings.gpu.get(MEMORY_USED)
    if used is None or held is None or used.shape != held.shape:
        return {}
    is_known = (held >= 0) & ~np.isnan(used)
    jobs, index = np.unique(held[is_known], return_inverse=True)
    peaks = np.zeros(len(jobs))
    np.maximum.at(peaks, index, used[is_known])
    return dict(zip(jobs.tolist(), peaks.tolist(), strict=True))


def build_measured(
    job: JobRecord, progress: Progress | None, advice: AdviceRecord | None, peak_bytes: float | None, now_s: float
) -> Measured | None:
    """Return the measurements of a job; ``None`` where there are none.

    MFU is the predicted one times predicted over measured step time: it uses the model's own count of FLOPs, whatever
    the framework counts.
    """
    if progress is None and peak_bytes is None:
        return None
    if progress is None:
        return Measured(memory_peak_bytes=peak_bytes)
    mfu = None
    if advice is not None and advice.mfu and advice.step_s and progress.step_s:
        mfu = min(1.0, advice.mfu * advice.step_s / progress.step_s)
    age_s = max(0.0, now_s - progress.progress_at_s) if progress.progress_at_s is not None else None
    return Measured(
        step_s=progress.step_s,
        tokens_per_s=progress.tokens_per_s,
        tflops_per_gpu=progress.tflops_per_gpu,
        mfu=mfu,
        memory_peak_bytes=peak_bytes,
        iteration=progress.iteration,
        age_s=age_s,
        source=progress.source if progress.step_s is not None else "",
        history=progress.history[-MAX_HISTORY:],
    )


def fabric_view(known: FabricView | None, ports: PortTable | None) -> FabricView | None:
    """Return the fabric from dumps and exporters together; the same object where nothing has changed."""
    if known is None and ports is None:
        return None
    if ports is None:
        return known
    if known is None:
        return FabricView(ports=ports)
    return FabricView(ports=ports, tiers=known.tiers, hb_domains=known.hb_domains, faults=known.faults)
