"""Holds the readings of GPUs, ports and training jobs, as arrays of nodes x slots that sources fill and views share.

An array is never changed once a view may hold it: a source replaces it with a new one, so unchanged data is the same
object.
"""

from __future__ import annotations

import math
import re
import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from opsk.metrics.exposition import Sample
from opsk.telemetry.progress.step_estimate import SOURCE as COUNTERS
from opsk_tui.data.view import Metric

MEMORY_USED, MEMORY_SIZE, CLOCK_MAX = "memory_used_bytes", "memory_size_bytes", "clock_max_hertz"
CLOCK_NOW = "clock_hertz"
POWER_LIMIT, HEAT_HELD, POWER_HELD = "power_limit_watts", "held_by_heat", "held_by_power"
SM_ACTIVE, POWER_DEFAULT, SLOWDOWN = "sm_active_ratio", "power_default_limit_watts", "slowdown_celsius"
"""GPU arrays that are no metric of a map, but inputs of metrics and losses."""
RATE, CONGESTION, BYTES, ERRORS = "rate", "congestion", "bytes", "errors"
"""Port arrays."""
HOST_SHARES = ("cpu_busy", "iowait", "cpu_stalled", "io_stalled", "memory_stalled")
"""Columns of the host readings, all of them shares of time; named as in `HostActivity`."""
MAX_SLOTS = 128
MAX_RAILS = 64
HISTORY_POINTS = 240
MAX_LINES = 720
_NUMBER = re.compile(r"\d{1,4}")
_OTHER_ROLES = frozenset({"storage", "management"})


@dataclass(slots=True)
class Progress:
    """Progress of one job from its exporter, or from ``source``; ``None`` unknown.

    ``lines`` are steps with the time at which they had ended, where the time between them is of interest.
    """

    step_s: float | None = None
    tokens_per_s: float | None = None
    tflops_per_gpu: float | None = None
    iteration: int | None = None
    progress_at_s: float | None = None
    history: tuple[tuple[float, float], ...] = ()
    source: str = "log"
    lines: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=MAX_LINES))
    is_read: bool = False

    def note_line(self, iteration: int, ended_at_s: float) -> None:
        """Add the end of a step; after a restart lines begin again."""
        if self.lines and iteration <= self.lines[-1][0]:
            if iteration == self.lines[-1][0]:
                return
            self.lines.clear()
        self.lines.append((iteration, ended_at_s))

    def note(self, at_s: float) -> None:
        """Add the present step time to the history."""
        if self.step_s is None or (self.history and at_s - self.history[-1][0] < 1.0):
            return
        self.history = (*self.history[-HISTORY_POINTS + 1 :], (at_s, self.step_s))


@dataclass
class Readings:
    """All readings of exporters, through Prometheus or directly.

    Attributes
    ----------
    rows
        Row of each node.
    slot_of
        Row and slot of a GPU, by node and UUID.
    hosts
        Shares of time, one row per node; columns as in ``HOST_SHARES``.
    unhealthy
        By node: series that report a fault; series without a fault are removed.
    progress
        By job as users write it (``4711``, ``4711_3``).
    version
        Counts changes.
    layouts
        Counts changes of the nodes: until then GPUs are only added, and none is removed.
    lock
        Held while readings are stored or read, never while waiting for a source.
    """

    nodes: tuple[str, ...] = ()
    slots: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    gpu: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    uuids: dict[tuple[str, int], str] = field(default_factory=dict)
    slot_of: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    index_of: dict[tuple[str, str], int] = field(default_factory=dict)
    rails: tuple[str, ...] = ()
    port: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    port_of: dict[tuple[str, str, str], tuple[int, int]] = field(default_factory=dict)
    hosts: NDArray[np.float64] | None = None
    leaves: dict[tuple[str, int], str] = field(default_factory=dict)
    unhealthy: dict[str, list[Sample]] = field(default_factory=dict)
    progress: dict[str, Progress] = field(default_factory=dict)
    heard: dict[str, float] = field(default_factory=dict)
    version: int = 0
    layouts: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)
    _known_gpus: NDArray[np.bool_] = field(default_factory=lambda: np.zeros((0, 0), np.bool_))
    _known_count: int = 0

    def set_layout(self, nodes: Sequence[str], slots: int) -> bool:
        """Set the nodes and their order; return whether everything has to be read again."""
        names = tuple(nodes)
        slots = min(max(slots, self.slots), MAX_SLOTS)
        if names == self.nodes and slots == self.slots:
            return False
        self.nodes, self.slots = names, slots
        self.rows = {name: row for row, name in enumerate(names)}
        self.gpu.clear()
        self.port.clear()
        self.slot_of.clear()
        self.uuids.clear()
        self.index_of.clear()
        self.port_of.clear()
        self.leaves.clear()
        self.hosts = None
        self._known_count = -1
        self.version += 1
        self.layouts += 1
        return True

    def learn_gpus(self, infos: Iterable[Mapping[str, str]]) -> None:
        """Learn the slots of GPUs; those for which there is no room are left out."""
        rows, slot_count = self.rows.get, min(self.slots, MAX_SLOTS)
        for labels in infos:
            node, uuid = labels.get("node", ""), labels.get("gpu", "")
            index = _parse_index(labels.get("index", ""))
            slot = _parse_index(labels.get("slurm_index", ""))
            slot = index if slot is None else slot
            row = rows(node)
            if row is None or slot is None or slot >= slot_count:
                continue
            self.slot_of[node, uuid] = row, slot
            self.uuids[node, slot] = uuid
            if index is not None:
                self.index_of[node, uuid] = index

    def learn_ports(self, infos: Iterable[Mapping[str, str]]) -> None:
        """Learn the rail of each port: as in the rails file, else by the order of a node's devices."""
        by_node: dict[str, list[Mapping[str, str]]] = {}
        for labels in infos:
            node = labels.get("node", "")
            if node in self.rows and labels.get("role", "") not in _OTHER_ROLES:
                by_node.setdefault(node, []).append(labels)
        railed = {
            rail
            for port_labels in by_node.values()
            for labels_of_port in port_labels
            if (rail := _parse_index(labels_of_port.get("rail", ""))) is not None
        }
        columns = {rail: position for position, rail in enumerate(sorted(railed)[:MAX_RAILS])}
        names = [f"rail {rail}" for rail in columns]
        places: dict[tuple[str, str, str], tuple[int, int]] = {}
        leaves: dict[tuple[str, int], str] = {}
        for node, port_labels in by_node.items():
            row = self.rows[node]
            if not columns:
                port_labels.sort(key=_device_order)
                names += [labels_of_port.get("device", "") for labels_of_port in port_labels[len(names) : MAX_RAILS]]
            for position, labels in enumerate(port_labels):
                column: int | None = position
                if columns:
                    rail = _parse_index(labels.get("rail", ""))
                    column = columns.get(rail) if rail is not None else None
                if column is None or column >= MAX_RAILS:
                    continue
                places[node, labels.get("device", ""), labels.get("port", "1")] = row, column
                leaf = labels.get("leaf", "")
                # of two ports on one rail the same one counts whatever their order
                if leaf and leaf >= leaves.get((node, column), ""):
                    leaves[node, column] = leaf
        if not places:
            return
        if tuple(names) != self.rails or places.keys() != self.port_of.keys():
            self.port.clear()
        self.rails, self.port_of, self.leaves = tuple(names), places, leaves
        self.version += 1

    def blank_gpus(self) -> NDArray[np.float64]:
        """Return an array in which all GPUs are unknown."""
        return np.full((len(self.nodes), self.slots), math.nan)

    def blank_ports(self) -> NDArray[np.float64]:
        """Return an array in which all ports are unknown."""
        return np.full((len(self.nodes), len(self.rails)), math.nan)

    def blank_hosts(self) -> NDArray[np.float64]:
        """Return an array in which all hosts are unknown."""
        return np.full((len(self.nodes), len(HOST_SHARES)), math.nan)

    def known_gpus(self) -> NDArray[np.bool_]:
        """Return the mask of the known GPUs."""
        shape = (len(self.nodes), self.slots)
        if self._known_gpus.shape != shape or self._known_count != len(self.slot_of):
            self._known_gpus, self._known_count = _build_mask(self.slot_of.values(), shape), len(self.slot_of)
        return self._known_gpus

    def known_ports(self) -> NDArray[np.bool_]:
        """Return the mask of the known ports."""
        return _build_mask(self.port_of.values(), (len(self.nodes), len(self.rails)))

    def put_gpus(self, name: str, array: NDArray[np.float64]) -> None:
        """Replace a reading of all GPUs, unless it is the same."""
        before = self.gpu.get(name)
        if before is None or not np.array_equal(before, array, equal_nan=True):
            self.gpu[name] = array
            self.version += 1

    def put_ports(self, name: str, array: NDArray[np.float64]) -> None:
        """Replace a reading of all ports, unless it is the same."""
        before = self.port.get(name)
        if before is None or not np.array_equal(before, array, equal_nan=True):
            self.port[name] = array
            self.version += 1

    def put_progress(self, job: str, name: str, value: float) -> None:
        """Store one value of a job's progress; values of the log replace derived ones."""
        if not math.isfinite(value):
            return
        progress = self.progress.get(job)
        if progress is None or progress.source == COUNTERS:
            progress = self.progress[job] = Progress()
        match name:
            case "step_seconds":
                progress.step_s = value
            case "tokens_per_second":
                progress.tokens_per_s = value
            case "tflops_per_gpu":
                progress.tflops_per_gpu = value
            case "iteration":
                progress.iteration = int(value)
            case "last_progress_timestamp_seconds":
                progress.progress_at_s = value
            case _:
                return
        self.version += 1


def compute_metric(readings: Readings, metric: Metric) -> NDArray[np.float64] | None:
    """Return a metric of all GPUs; ratios of two readings are computed here."""
    if metric is Metric.THROTTLE:
        return _compute_throttle(readings)
    operands = {Metric.MEMORY: (MEMORY_USED, MEMORY_SIZE), Metric.CLOCK: (CLOCK_NOW, CLOCK_MAX)}.get(metric)
    if operands is None:
        return readings.gpu.get(metric)
    part, whole = readings.gpu.get(operands[0]), readings.gpu.get(operands[1])
    if part is None or whole is None or part.shape != whole.shape:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(whole > 0, part / whole, math.nan)


def _compute_throttle(readings: Readings) -> NDArray[np.float64] | None:
    """Return the share of time in which heat or power limited clocks; unknown for GPUs without readings."""
    heat, power, seen = (readings.gpu.get(name) for name in (HEAT_HELD, POWER_HELD, Metric.POWER))
    if heat is None or power is None or heat.shape != power.shape:
        return None
    held = np.minimum(1.0, np.fmax(heat, power))
    return np.where(np.isnan(seen), math.nan, held) if seen is not None and seen.shape == held.shape else held


def _build_mask(places: Collection[tuple[int, int]], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Return an array that is true at some places."""
    mask = np.zeros(shape, np.bool_)
    if places:
        rows, columns = np.array(list(chain.from_iterable(places)), np.intp).reshape(-1, 2).T
        mask[rows, columns] = True
    return mask


@lru_cache(1024)
def _parse_index(text: str) -> int | None:
    """Return a small number in a label, ``None`` where it is none."""
    return int(text) if _NUMBER.fullmatch(text) else None


def _device_order(labels: Mapping[str, str]) -> tuple[str, int, str]:
    """Order ``mlx5_10`` after ``mlx5_9``."""
    return (*_split_device(labels.get("device", "")), labels.get("port", ""))


@lru_cache(1024)
def _split_device(device: str) -> tuple[str, int]:
    stem = device.rstrip("0123456789")
    tail = device[len(stem) :]
    return stem, int(tail) if tail and len(tail) < 10 else -1
