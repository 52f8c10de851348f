"""What do series of opsk's exporters say of the GPUs, ports and hosts of a job?

Gauges are averaged over all scrapes of a node; counters give rates between its first and its last one. A counter that
went back, and a device that one of the two does not have, give nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from opsk.diagnosis.losses.observation import GpuActivity, HostActivity, PortActivity

Labels = frozenset[tuple[str, str]]
Series = tuple[str, Labels]

_TICK_BYTES = 4.0
"""Bytes a tick of ``port_xmit_wait``, as `opsk.telemetry.network.congestion` takes them."""
_GAUGES = {
    "busy": "opsk_gpu_utilization_ratio",
    "sm_active": "opsk_gpu_sm_active_ratio",
    "tensor_active": "opsk_gpu_tensor_active_ratio",
    "power_w": "opsk_gpu_power_watts",
    "power_limit_w": "opsk_gpu_power_limit_watts",
    "power_default_limit_w": "opsk_gpu_power_default_limit_watts",
}
_ERRORS = ("symbol_errors", "link_error_recoveries", "link_downed", "receive_errors", "transmit_discards")
_OTHER_NETWORKS = ("storage", "management")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """What one node's exporter gave at one moment.

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
    """What the scrapes of a job's nodes come to; ``interval_s`` is the longest between first and last scrape [s]."""

    gpus: tuple[GpuActivity, ...] = ()
    ports: tuple[PortActivity, ...] = ()
    hosts: tuple[HostActivity, ...] = ()
    interval_s: float = 0.0


def activities(scrapes: Iterable[Scrape], *, job_id: str = "") -> Activities:
    """Return what scrapes say, of the GPUs of one job where ``job_id`` is given and exporters tell whose they are."""
    by_node: defaultdict[str, list[Scrape]] = defaultdict(list)
    for scrape in scrapes:
        by_node[scrape.node].append(scrape)
    nodes = [_Node(name, found) for name, found in sorted(by_node.items())]
    ports = [port for node in nodes for port in node.ports()]
    return Activities(
        gpus=tuple(gpu for node in nodes for gpu in node.gpus(job_id)),
        ports=tuple(replace(port, rate=_of_best(port, ports)) for port in ports),
        hosts=tuple(host for node in nodes if (host := node.host()) is not None),
        interval_s=max((node.interval_s for node in nodes), default=0.0),
    )


def _of_best(port: PortActivity, ports: Sequence[PortActivity]) -> float | None:
    """Return the rate of a port as part of the best of its like: the port of that name of the job's nodes."""
    rates = [other.rate for other in ports if other.device == port.device and other.rate]
    if port.rate is None or len(rates) < 2:
        return None
    return port.rate / max(rates)


class _Node:
    """The scrapes of one node, in order."""

    def __init__(self, name: str, scrapes: Sequence[Scrape]) -> None:
        self.name = name
        self._scrapes = sorted(scrapes, key=lambda scrape: (scrape.at_s or 0.0, _processor_s(scrape)))
        self._first, self._last = self._scrapes[0].values, self._scrapes[-1].values
        self.interval_s = self._interval_s()

    def _interval_s(self) -> float:
        """Return the time between first and last scrape: that of a processor, which every mode together spends."""
        first, last = self._scrapes[0], self._scrapes[-1]
        count = next((value for (name, _), value in last.values.items() if name == "opsk_host_cpus"), 0.0)
        passed = (_processor_s(last) - _processor_s(first)) / count if count else 0.0
        if passed > 0:
            return passed
        return max((last.at_s or 0.0) - (first.at_s or 0.0), 0.0)

    def _mean(self, name: str, labels: Mapping[str, str]) -> float | None:
        """Return the mean of a gauge over all scrapes that have it."""
        series = (name, frozenset(labels.items()))
        known = [scrape.values[series] for scrape in self._scrapes if series in scrape.values]
        return sum(known) / len(known) if known else None

    def _grown(self, series: Series) -> float | None:
        """Return how much a counter grew from the first scrape to the last."""
        if series not in self._first or series not in self._last or self._first is self._last:
            return None
        grown = self._last[series] - self._first[series]
        return grown if grown >= 0 else None

    def _named(self, name: str) -> list[tuple[dict[str, str], Series]]:
        """Return the series of a name in the last scrape, with their labels."""
        return [(dict(labels), (found, labels)) for found, labels in self._last if found == name]

    def gpus(self, job_id: str) -> list[GpuActivity]:
        """Return the GPUs, those of a job where that is told."""
        mine = self._gpus_of(job_id)
        found: list[GpuActivity] = []
        for labels, _ in self._named("opsk_gpu_info"):
            uuid = labels.get("gpu", "")
            if mine is None or uuid in mine:
                index = labels.get("slurm_index") or labels.get("index") or ""
                number = int(index) if index.isascii() and index.isdecimal() and len(index) < 6 else len(found)
                found.append(self._gpu(uuid, number))
        return sorted(found, key=lambda gpu: gpu.index)

    def _gpus_of(self, job_id: str) -> set[str] | None:
        """Return the UUIDs of a job's GPUs; ``None`` where nobody tells."""
        jobs = {labels.get("job", "") for labels, _ in self._named("opsk_job_info") if labels.get("job_id") == job_id}
        found = {labels.get("gpu", "") for labels, _ in self._named("opsk_job_gpu") if labels.get("job") in jobs}
        return found or None

    def _gpu(self, uuid: str, index: int) -> GpuActivity:
        """Return what is told of one GPU."""
        clock = self._mean("opsk_gpu_clock_hertz", {"gpu": uuid, "clock": "sm"})
        most = self._mean("opsk_gpu_clock_max_hertz", {"gpu": uuid, "clock": "sm"})
        return GpuActivity(
            node=self.name,
            index=index,
            clock=clock / most if clock is not None and most else None,
            temperature_c=self._mean("opsk_gpu_temperature_celsius", {"gpu": uuid, "sensor": "gpu"}),
            slowdown_at_c=self._mean("opsk_gpu_temperature_limit_celsius", {"gpu": uuid, "limit": "slowdown"}),
            throttled=self._throttled(uuid),
            **{field: self._mean(name, {"gpu": uuid}) for field, name in _GAUGES.items()},  # type: ignore[arg-type]
        )

    def _throttled(self, uuid: str) -> dict[str, float]:
        """Return the share of time by reason."""
        found: dict[str, float] = {}
        for labels, series in self._named("opsk_gpu_throttle_seconds_total"):
            grown = self._grown(series) if labels.get("gpu") == uuid else None
            if grown is not None and self.interval_s > 0:
                found[labels.get("reason", "")] = min(grown / self.interval_s, 1.0)
        return found

    def ports(self) -> list[PortActivity]:
        """Return the ports of the compute network; ``rate`` is in bytes a second still."""
        found: list[PortActivity] = []
        for labels, _ in self._named("opsk_infiniband_port_info"):
            if labels.get("role", "") in _OTHER_NETWORKS:
                continue
            own: dict[str, str] = {name: labels[name] for name in ("device", "port") if name in labels}
            number = own.get("port", "1")
            found.append(
                PortActivity(
                    node=self.name,
                    device=own.get("device", "") + ("" if number == "1" else f"/{number}"),
                    leaf=labels.get("leaf", ""),
                    rail=labels.get("rail", ""),
                    congestion=self._congestion(own),
                    rate=self._mean("opsk_infiniband_port_rate_bytes_per_second", own),
                    errors=self._errors(own),
                    bytes_per_s=self._port_bytes_per_s(own),
                )
            )
        return sorted(found, key=lambda port: port.device)

    def _counter(self, what: str, own: Mapping[str, str]) -> float | None:
        return self._grown((f"opsk_infiniband_port_{what}_total", frozenset(own.items())))

    def _congestion(self, own: Mapping[str, str]) -> float | None:
        """Return the congestion between first and last scrape, else the mean of what the exporter says."""
        ticks, sent = self._counter("transmit_wait_ticks", own), self._counter("transmitted_bytes", own)
        if ticks is not None and sent is not None:
            lost = ticks * _TICK_BYTES
            return lost / (lost + sent) if lost else 0.0
        return self._mean("opsk_infiniband_port_congestion_ratio", own)

    def _errors(self, own: Mapping[str, str]) -> float | None:
        known = [grown for what in _ERRORS if (grown := self._counter(what, own)) is not None]
        return sum(known) if known else None

    def _port_bytes_per_s(self, own: Mapping[str, str]) -> float | None:
        sent, received = self._counter("transmitted_bytes", own), self._counter("received_bytes", own)
        if sent is None or received is None or self.interval_s <= 0:
            return None
        return (sent + received) / self.interval_s

    def host(self) -> HostActivity | None:
        """Return what the processors did; ``None`` where that is not told."""
        modes = {labels.get("mode", ""): self._grown(series) for labels, series in self._named(_PROCESSORS)}
        spent = {mode: grown for mode, grown in modes.items() if grown is not None}
        total = sum(spent.values())
        stalled = {name: self._stalled(name) for name in ("cpu", "io", "memory")}
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

    def _stalled(self, resource: str) -> float | None:
        labels = frozenset({"resource": resource, "share": "some"}.items())
        grown = self._grown(("opsk_host_pressure_seconds_total", labels))
        return min(grown / self.interval_s, 1.0) if grown is not None and self.interval_s > 0 else None


_PROCESSORS = "opsk_host_cpu_seconds_total"


def _processor_s(scrape: Scrape) -> float:
    """Return the time that all processors of a node have spent [s]."""
    return sum(value for (name, _), value in scrape.values.items() if name == _PROCESSORS)
