"""Converts series of opsk's exporters into the activity of a job's GPUs, ports and hosts.

Gauges are averaged over all scrapes of a node; counters give rates between its first and its last one. A counter that
went back, and a device that one of the two does not have, give nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from opsk.diagnosis.losses.observation import GpuActivity, HostActivity, PortActivity
from opsk.metrics import names as metric_names
from opsk.metrics.quantities import GPU_GAUGES, PORT_ERRORS, name_port_counter

Labels = frozenset[tuple[str, str]]
Series = tuple[str, Labels]

_TICK_BYTES = 4.0
"""Bytes a tick of ``port_xmit_wait``, as `opsk.telemetry.network.infiniband` takes them."""
_GPU_VALUES = (
    *("busy", "sm_active", "tensor_active"),
    *("power_w", "power_limit_w", "power_default_limit_w", "temperature_c", "slowdown_at_c"),
)
_OTHER_NETWORKS = ("storage", "management")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """The series of one node's exporter at one moment.

    Parameters
    ----------
    at_s
        When, on any clock [s]; where the node's processors are counted their time is taken instead.
    values
        By name and labels.
    """

    node: str
    values: Mapping[Series, float]
    at_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Activities:
    """The activity of a job's nodes; ``interval_s`` is the longest time between first and last scrape [s]."""

    gpus: tuple[GpuActivity, ...] = ()
    ports: tuple[PortActivity, ...] = ()
    hosts: tuple[HostActivity, ...] = ()
    interval_s: float = 0.0


def compute_activities(scrapes: Iterable[Scrape], *, job_id: str = "") -> Activities:
    """Return the activity, of the GPUs of one job where ``job_id`` is given and exporters report their jobs."""
    by_node: defaultdict[str, list[Scrape]] = defaultdict(list)
    for scrape in scrapes:
        by_node[scrape.node].append(scrape)
    nodes = [_Node(name, node_scrapes) for name, node_scrapes in sorted(by_node.items())]
    ports = [port for node in nodes for port in node.ports()]
    return Activities(
        gpus=tuple(gpu for node in nodes for gpu in node.gpus(job_id)),
        ports=tuple(replace(port, rate=_compute_rate_ratio(port, ports)) for port in ports),
        hosts=tuple(host for node in nodes if (host := node.host()) is not None),
        interval_s=max((node.interval_s for node in nodes), default=0.0),
    )


def _compute_rate_ratio(port: PortActivity, ports: Sequence[PortActivity]) -> float | None:
    """Return the rate of a port as part of the best of its like: the port of that name of the job's nodes."""
    rates = [other.rate for other in ports if other.device == port.device and other.rate]
    if port.rate is None or len(rates) < 2:
        return None
    return port.rate / max(rates)


class _Node:
    """The scrapes of one node, in order."""

    def __init__(self, name: str, scrapes: Sequence[Scrape]) -> None:
        self.name = name
        self._scrapes = sorted(scrapes, key=lambda scrape: (scrape.at_s or 0.0, _sum_processor_s(scrape)))
        self._first, self._last = self._scrapes[0].values, self._scrapes[-1].values
        self.interval_s = self._compute_interval_s()

    def _compute_interval_s(self) -> float:
        """Return the time between first and last scrape: that of a processor, which every mode together spends."""
        first, last = self._scrapes[0], self._scrapes[-1]
        count = next((value for (name, _), value in last.values.items() if name == metric_names.HOST_CPUS), 0.0)
        passed = (_sum_processor_s(last) - _sum_processor_s(first)) / count if count else 0.0
        if passed > 0:
            return passed
        return max((last.at_s or 0.0) - (first.at_s or 0.0), 0.0)

    def _compute_mean(self, name: str, labels: Mapping[str, str]) -> float | None:
        """Return the mean of a gauge over all scrapes that have it."""
        series = (name, frozenset(labels.items()))
        known = [scrape.values[series] for scrape in self._scrapes if series in scrape.values]
        return sum(known) / len(known) if known else None

    def _compute_growth(self, series: Series) -> float | None:
        """Return how much a counter grew from the first scrape to the last."""
        if series not in self._first or series not in self._last or self._first is self._last:
            return None
        grown = self._last[series] - self._first[series]
        return grown if grown >= 0 else None

    def _find_series(self, name: str) -> list[tuple[dict[str, str], Series]]:
        """Return the series of a name in the last scrape, with their labels."""
        return [(dict(labels), (series_name, labels)) for series_name, labels in self._last if series_name == name]

    def gpus(self, job_id: str) -> list[GpuActivity]:
        """Return the GPUs, those of a job where they are known."""
        mine = self._find_job_gpus(job_id)
        gpus: list[GpuActivity] = []
        for labels, _ in self._find_series(metric_names.GPU_INFO):
            uuid = labels.get("gpu", "")
            if mine is None or uuid in mine:
                index = labels.get("slurm_index") or labels.get("index") or ""
                number = int(index) if index.isascii() and index.isdecimal() and len(index) < 6 else len(gpus)
                gpus.append(self._build_gpu(uuid, number))
        return sorted(gpus, key=lambda gpu: gpu.index)

    def _find_job_gpus(self, job_id: str) -> set[str] | None:
        """Return the UUIDs of a job's GPUs; ``None`` where they are unknown."""
        jobs = {
            labels.get("job", "")
            for labels, _ in self._find_series(metric_names.JOB_INFO)
            if labels.get("job_id") == job_id
        }
        gpus = {
            labels.get("gpu", "") for labels, _ in self._find_series(metric_names.JOB_GPU) if labels.get("job") in jobs
        }
        return gpus or None

    def _build_gpu(self, uuid: str, index: int) -> GpuActivity:
        """Return the activity of one GPU."""
        values = {name: self._compute_mean(gauge.metric, gauge.get_labels(uuid)) for name, gauge in GPU_GAUGES.items()}
        clock_hz, max_clock_hz = values["clock_hz"], values["max_clock_hz"]
        return GpuActivity(
            node=self.name,
            index=index,
            clock=clock_hz / max_clock_hz if clock_hz is not None and max_clock_hz else None,
            throttled=self._compute_throttled(uuid),
            **{name: values[name] for name in _GPU_VALUES},  # type: ignore[arg-type]
        )

    def _compute_throttled(self, uuid: str) -> dict[str, float]:
        """Return the share of time by reason."""
        shares: dict[str, float] = {}
        for labels, series in self._find_series(metric_names.GPU_THROTTLE_SECONDS_TOTAL):
            grown = self._compute_growth(series) if labels.get("gpu") == uuid else None
            if grown is not None and self.interval_s > 0:
                shares[labels.get("reason", "")] = min(grown / self.interval_s, 1.0)
        return shares

    def ports(self) -> list[PortActivity]:
        """Return the ports of the compute network; ``rate`` is in bytes a second still."""
        ports: list[PortActivity] = []
        for labels, _ in self._find_series(metric_names.INFINIBAND_PORT_INFO):
            if labels.get("role", "") in _OTHER_NETWORKS:
                continue
            port_labels: dict[str, str] = {name: labels[name] for name in ("device", "port") if name in labels}
            number = port_labels.get("port", "1")
            ports.append(
                PortActivity(
                    node=self.name,
                    device=port_labels.get("device", "") + ("" if number == "1" else f"/{number}"),
                    leaf=labels.get("leaf", ""),
                    rail=labels.get("rail", ""),
                    congestion=self._compute_congestion(port_labels),
                    rate=self._compute_mean(metric_names.INFINIBAND_PORT_RATE_BYTES_PER_SECOND, port_labels),
                    errors=self._sum_errors(port_labels),
                    bytes_per_s=self._compute_port_rate(port_labels),
                )
            )
        return sorted(ports, key=lambda port: port.device)

    def _compute_counter_growth(self, metric: str, port_labels: Mapping[str, str]) -> float | None:
        return self._compute_growth((metric, frozenset(port_labels.items())))

    def _compute_congestion(self, port_labels: Mapping[str, str]) -> float | None:
        """Return the congestion between first and last scrape, else the mean of the exporter's ratio."""
        ticks = self._compute_counter_growth(name_port_counter("transmit_wait_ticks"), port_labels)
        sent = self._compute_counter_growth(metric_names.INFINIBAND_PORT_TRANSMITTED_BYTES_TOTAL, port_labels)
        if ticks is not None and sent is not None:
            lost = ticks * _TICK_BYTES
            return lost / (lost + sent) if lost else 0.0
        return self._compute_mean(metric_names.INFINIBAND_PORT_CONGESTION_RATIO, port_labels)

    def _sum_errors(self, port_labels: Mapping[str, str]) -> float | None:
        known = [
            grown for metric in PORT_ERRORS if (grown := self._compute_counter_growth(metric, port_labels)) is not None
        ]
        return sum(known) if known else None

    def _compute_port_rate(self, port_labels: Mapping[str, str]) -> float | None:
        sent = self._compute_counter_growth(metric_names.INFINIBAND_PORT_TRANSMITTED_BYTES_TOTAL, port_labels)
        received = self._compute_counter_growth(metric_names.INFINIBAND_PORT_RECEIVED_BYTES_TOTAL, port_labels)
        if sent is None or received is None or self.interval_s <= 0:
            return None
        return (sent + received) / self.interval_s

    def host(self) -> HostActivity | None:
        """Return the activity of the processors; ``None`` where it is unknown."""
        modes = {
            labels.get("mode", ""): self._compute_growth(series) for labels, series in self._find_series(_PROCESSORS)
        }
        spent = {mode: grown for mode, grown in modes.items() if grown is not None}
        total = sum(spent.values())
        stalled = {name: self._compute_stalled(name) for name in ("cpu", "io", "memory")}
        if total <= 0 and all(value is None for value in stalled.values()):
            return None
        resting = spent.get("idle", 0.0) + spent.get("iowait", 0.0)
        return HostActivity(
            node=self.name,
            cpu_busy=(total - resting) / total if total > 0 else None,
            iowait=spent.get("iowait", 0.0) / total if total > 0 else None,
            cpu_stalled=stalled["cpu"],
            io_stalled=stalled["io"],
            memory_stalled=stalled["memory"],
        )

    def _compute_stalled(self, resource: str) -> float | None:
        labels = frozenset({"resource": resource, "share": "some"}.items())
        grown = self._compute_growth((metric_names.HOST_PRESSURE_SECONDS_TOTAL, labels))
        return min(grown / self.interval_s, 1.0) if grown is not None and self.interval_s > 0 else None


_PROCESSORS = metric_names.HOST_CPU_SECONDS_TOTAL


def _sum_processor_s(scrape: Scrape) -> float:
    """Return the time that all processors of a node have spent [s]."""
    return sum(value for (name, _), value in scrape.values.items() if name == _PROCESSORS)
