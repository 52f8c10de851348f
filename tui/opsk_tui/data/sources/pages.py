"""Converts exporter pages to readings, and computes rates from consecutive pages of one node.

Counters alone carry no rate: rates are differences between pages. Rates of hosts are over a minute, like the waits of a
job; energy and bytes are stored for an hour, to derive step times that no log reports.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from opsk.diagnosis.events.from_samples import NAMES
from opsk.metrics import names as metric_names
from opsk.metrics.exposition import Sample, read_samples
from opsk.metrics.quantities import GPU_GAUGES, HEAT_REASONS, PORT_ERRORS, POWER_REASONS, name_port_counter
from opsk_tui.data.sources.readings import (
    BYTES,
    CLOCK_MAX,
    CLOCK_NOW,
    CONGESTION,
    ERRORS,
    HEAT_HELD,
    HOST_SHARES,
    MEMORY_SIZE,
    MEMORY_USED,
    POWER_DEFAULT,
    POWER_HELD,
    POWER_LIMIT,
    RATE,
    SLOWDOWN,
    SM_ACTIVE,
    Readings,
)
from opsk_tui.data.view import Metric

_READINGS = {
    "busy": Metric.UTILISATION, "tensor_active": Metric.TENSOR, "memory_used_bytes": MEMORY_USED,
    "memory_size_bytes": MEMORY_SIZE, "power_w": Metric.POWER, "power_average_w": Metric.POWER,
    "power_limit_w": POWER_LIMIT, "power_default_limit_w": POWER_DEFAULT, "sm_active": SM_ACTIVE,
    "temperature_c": Metric.TEMPERATURE, "clock_hz": CLOCK_NOW, "max_clock_hz": CLOCK_MAX, "slowdown_at_c": SLOWDOWN,
}  # fmt: skip
"""The reading of each gauge of a GPU."""
_GAUGES = {gauge.metric: (gauge, _READINGS[name]) for name, gauge in GPU_GAUGES.items()}
_THROTTLE = metric_names.GPU_THROTTLE_SECONDS_TOTAL
_HELD_DOWN = {**dict.fromkeys(POWER_REASONS, POWER_HELD), **dict.fromkeys(HEAT_REASONS, HEAT_HELD)}
_XIDS, _ECC = metric_names.GPU_XID_ERRORS_TOTAL, metric_names.GPU_ECC_VOLATILE_ERRORS_TOTAL
_PORT_GAUGES = {
    metric_names.INFINIBAND_PORT_RATE_BYTES_PER_SECOND: RATE,
    metric_names.INFINIBAND_PORT_CONGESTION_RATIO: CONGESTION,
}
_PORT_BYTES = (metric_names.INFINIBAND_PORT_TRANSMITTED_BYTES_TOTAL, metric_names.INFINIBAND_PORT_RECEIVED_BYTES_TOTAL)
_PORT_ERRORS = (
    *PORT_ERRORS,
    name_port_counter("local_link_integrity_errors"),
    name_port_counter("excessive_buffer_overrun_errors"),
)
_PROGRESS = tuple(
    f"opsk_training_{name}"
    for name in (
        *("step_seconds", "tokens_per_second", "tflops_per_gpu", "iteration"),
        "last_progress_timestamp_seconds",
    )
)
_CPU, _PRESSURE, _ENERGY = (
    metric_names.HOST_CPU_SECONDS_TOTAL,
    metric_names.HOST_PRESSURE_SECONDS_TOTAL,
    metric_names.GPU_ENERGY_JOULES_TOTAL,
)
METRIC_NAMES = tuple(
    sorted(
        {
            *_GAUGES,
            _THROTTLE,
            _XIDS,
            _ECC,
            *_PORT_GAUGES,
            *_PORT_BYTES,
            *_PORT_ERRORS,
            *_PROGRESS,
            *NAMES,
            _CPU,
            _PRESSURE,
            _ENERGY,
        }
    )
)
_SENT, _STALLED = "sent", "_stalled"
HOST_OVER_S = 60.0
RETENTION_S, MAX_GAP_S = 3600.0 + 60.0, 30.0
"""Energy and bytes are stored for so long, and only for a node that is read at least so often [s]."""

_ONLY = {_PRESSURE: 'share="some"'} | {name: gauge.selector for name, (gauge, _) in _GAUGES.items() if gauge.label}
_WITHOUT_ZEROS = frozenset(
    {
        *(
            metric_names.GPU_RECOVERY_ACTION,
            metric_names.GPU_FABRIC_FAULT,
            metric_names.GPU_FABRIC_STATE,
            metric_names.GPU_NVLINKS,
        ),
        *(metric_names.GPU_ROW_REMAP_PENDING, metric_names.GPU_ROW_REMAP_FAILED),
    }
)


@dataclass(slots=True)
class PageHistory:
    """The values of earlier pages of one node.

    Parameters
    ----------
    read_at_s
        When the last page was read [s since 1970].
    counters
        Counters of GPUs and ports, by name, row and column.
    host
        Counters of the host of the last minute: processor time by mode, and stalled time by resource.
    moved
        Time, energy of all GPUs [J] and bytes sent by all ports.
    """

    read_at_s: float = -math.inf
    counters: dict[tuple[str, int, int], float] = field(default_factory=dict)
    host: deque[tuple[float, dict[str, float]]] = field(default_factory=deque)
    moved: deque[tuple[float, float, float]] = field(default_factory=deque)

    def clear(self) -> None:
        """Remove everything."""
        self.read_at_s = -math.inf
        for known in (self.counters, self.host, self.moved):
            known.clear()

    def keep(
        self, now_s: float, counters: dict[tuple[str, int, int], float], host: dict[str, float], energy_j: float
    ) -> None:
        """Append the values of a page."""
        sent_bytes = sum(value for (what, _, _), value in counters.items() if what == _SENT)
        if now_s - self.read_at_s > MAX_GAP_S:
            self.moved.clear()
        self.moved.append((now_s, energy_j, sent_bytes))
        while self.moved[0][0] < now_s - RETENTION_S:
            self.moved.popleft()
        self.host.append((now_s, host))
        while len(self.host) > 2 and self.host[1][0] <= now_s - HOST_OVER_S:
            self.host.popleft()
        self.counters, self.read_at_s = counters, now_s

    def host_shares(self) -> dict[str, float]:
        """Return the shares of time over the last minute, or since the previous page; see `HostActivity`."""
        (began_s, first), (ended_s, last) = self.host[0], self.host[-1]
        grown = {name: last[name] - first[name] for name in last.keys() & first.keys() if last[name] >= first[name]}
        spent_s = {name: grown[name] for name in grown if not name.endswith(_STALLED)}
        total_s, shares = sum(spent_s.values()), {}
        if total_s > 0:
            waiting_s = spent_s.get("iowait", 0.0)
            shares = {"iowait": waiting_s / total_s, "cpu_busy": 1 - (waiting_s + spent_s.get("idle", 0.0)) / total_s}
        if ended_s > began_s:
            shares |= {name: min(1.0, grown[name] / (ended_s - began_s)) for name in grown if name.endswith(_STALLED)}
        return shares


class Batch:
    """New arrays for the pages of one refresh."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings
        self._gpu: dict[str, NDArray[np.float64]] = {}
        self._port: dict[str, NDArray[np.float64]] = {}
        self._hosts: NDArray[np.float64] | None = None
        self.jobs: set[str] = set()
        self._unhealthy = dict(readings.unhealthy)

    def take(self, node: str, page: bytes, known: PageHistory, now_s: float) -> None:
        """Add the page of one node."""
        row = self._readings.rows.get(node)
        if row is None:
            return
        page_samples = list(read_samples(page, METRIC_NAMES, only=_ONLY, without_zeros=_WITHOUT_ZEROS))
        slots = self._learn_places(node, page_samples)
        self._clear_row(row)
        before, elapsed_s = known.counters, now_s - known.read_at_s
        counters: dict[tuple[str, int, int], float] = {}
        host: dict[str, float] = {}
        energy_j = 0.0
        unhealthy: list[Sample] = []
        errors = dict.fromkeys(slots, 0.0)
        for sample in page_samples:
            name, labels, value = sample
            if name in NAMES:
                unhealthy.append(sample)
            if name in _PROGRESS:
                self._readings.put_progress(labels.get("job", ""), name.removeprefix("opsk_training_"), value)
                self.jobs.add(labels.get("job", ""))
            elif name == _CPU:
                host[labels.get("mode", "")] = value
            elif name == _PRESSURE:
                host[labels.get("resource", "") + _STALLED] = value
            elif name == _ENERGY:
                energy_j += value
            elif name.startswith("opsk_infiniband_"):
                self._port_sample(node, sample, counters)
            else:
                self._gpu_sample(node, sample, counters, errors)
        for slot, count in errors.items():
            self._put(self._gpu_array(Metric.ERRORS), row, slot, count)
        if before:
            for key, value in counters.items():
                rate = max(0.0, value - before[key]) / elapsed_s if key in before and elapsed_s > 0 else math.nan
                what, _, column = key
                if what in (HEAT_HELD, POWER_HELD):
                    self._put(self._gpu_array(what), row, column, min(1.0, rate))
                elif what == BYTES:
                    self._put(self._port_array(BYTES), row, column, rate)
                elif what == ERRORS:
                    self._put(self._port_array(ERRORS), row, column, rate * 300.0)
        known.keep(now_s, counters, host, energy_j)
        self._put_host(row, known.host_shares())
        self._unhealthy[node] = unhealthy

    def _put_host(self, row: int, shares: dict[str, float]) -> None:
        if self._hosts is None:
            hosts = self._readings.hosts
            self._hosts = hosts.copy() if hosts is not None else self._readings.blank_hosts()
        self._hosts[row] = [shares.get(name, math.nan) for name in HOST_SHARES]

    def _clear_row(self, row: int) -> None:
        """Set all readings of a node to unknown: readings that its page lacks, of a lost GPU, must not stay."""
        for name in self._readings.gpu:
            self._gpu_array(name)
        for name in self._readings.port:
            self._port_array(name)
        for array in (*self._gpu.values(), *self._port.values()):
            if row < len(array):
                array[row] = math.nan

    def put(self) -> None:
        """Store the arrays in the readings."""
        for name, array in self._gpu.items():
            self._readings.put_gpus(name, array)
        for name, array in self._port.items():
            self._readings.put_ports(name, array)
        if self._hosts is not None:
            self._readings.hosts = self._hosts
        self._readings.unhealthy = self._unhealthy
        self._readings.version += 1

    def _learn_places(self, node: str, page_samples: Sequence[Sample]) -> list[int]:
        """Learn the places of this node's GPUs and ports; return the slots of its GPUs."""
        readings = self._readings
        gpus = {
            labels["gpu"]: labels
            for name, labels, _ in page_samples
            if name == metric_names.GPU_INFO and "gpu" in labels
        }
        readings.learn_gpus(
            {**labels, "node": node} for uuid, labels in gpus.items() if (node, uuid) not in readings.slot_of
        )
        ports = [
            {**labels, "node": node} for name, labels, _ in page_samples if name == metric_names.INFINIBAND_PORT_INFO
        ]
        keys = {(node, labels.get("device", ""), labels.get("port", "1")) for labels in ports}
        if keys and not keys & readings.port_of.keys():
            others = [
                {"node": other_node, "device": device, "port": port, "rail": _rail_number(readings.rails[column]),
                 "leaf": readings.leaves.get((other_node, column), "")}
                for (other_node, device, port), (_, column) in readings.port_of.items()
            ]  # fmt: skip
            readings.learn_ports([*others, *ports])
        return [readings.slot_of[node, uuid][1] for uuid in gpus if (node, uuid) in readings.slot_of]

    def _gpu_sample(
        self, node: str, sample: Sample, counters: dict[tuple[str, int, int], float], errors: dict[int, float]
    ) -> None:
        name, labels, value = sample
        place = self._readings.slot_of.get((node, labels.get("gpu", "")))
        if place is None:
            return
        row, slot = place
        if name in _GAUGES:
            gauge, reading = _GAUGES[name]
            if not gauge.label or labels.get(gauge.label) == gauge.value:
                self._put(self._gpu_array(reading), row, slot, value)
        elif name == _THROTTLE and labels.get("reason") in _HELD_DOWN:
            what = _HELD_DOWN[labels["reason"]]
            counters[what, row, slot] = counters.get((what, row, slot), 0.0) + value
        elif name == _XIDS or (name == _ECC and labels.get("error") == "uncorrected"):
            errors[slot] = errors.get(slot, 0.0) + value

    def _port_sample(self, node: str, sample: Sample, counters: dict[tuple[str, int, int], float]) -> None:
        name, labels, value = sample
        place = self._readings.port_of.get((node, labels.get("device", ""), labels.get("port", "1")))
        if place is None:
            return
        row, column = place
        if name in _PORT_GAUGES:
            self._put(self._port_array(_PORT_GAUGES[name]), row, column, value)
        elif name in _PORT_BYTES or name in _PORT_ERRORS:
            what = BYTES if name in _PORT_BYTES else ERRORS
            counters[what, row, column] = counters.get((what, row, column), 0.0) + value
            if name == _PORT_BYTES[0]:
                counters[_SENT, row, column] = counters.get((_SENT, row, column), 0.0) + value

    def _gpu_array(self, name: str) -> NDArray[np.float64]:
        if name not in self._gpu:
            known = self._readings.gpu.get(name)
            self._gpu[name] = known.copy() if known is not None else self._readings.blank_gpus()
        return self._gpu[name]

    def _port_array(self, name: str) -> NDArray[np.float64]:
        shape = (len(self._readings.nodes), len(self._readings.rails))
        if name not in self._port or self._port[name].shape != shape:
            known = self._readings.port.get(name)
            fits = known is not None and known.shape == shape
            self._port[name] = known.copy() if known is not None and fits else self._readings.blank_ports()
        return self._port[name]

    @staticmethod
    def _put(array: NDArray[np.float64], row: int, column: int, value: float) -> None:
        if row < array.shape[0] and column < array.shape[1]:
            array[row, column] = value


def _rail_number(name: str) -> str:
    return name.removeprefix("rail ") if name.startswith("rail ") else ""
