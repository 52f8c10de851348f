"""Detects failures in the readings, as often as its CPU budget allows, and not before all GPUs are known."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from operator import is_
from typing import TypeVar

from opsk.diagnosis.events.detection import NOTHING, Known, detect, sort_events
from opsk.diagnosis.events.from_samples import NodeParts, build_job, build_node, build_node_parts
from opsk.diagnosis.events.observations import Event, GpuSeen, JobSeen, NodeSeen, Observations, PortSeen
from opsk.metrics import names as metric_names
from opsk.metrics.exposition import Sample
from opsk.slurm.records import JobRecord, NodeRecord
from opsk.slurm.snapshot import Snapshot
from opsk_tui.data.sources.readings import RATE, Readings

LOOK_ANYWAY_S = 60.0
MAX_AT_ONCE = 8_000
"""GPUs, and ports, that are added at one time; all those of a large cluster would take a tenth of a second."""
_NO_PARTS = NodeParts()
Seen = TypeVar("Seen")
SHARE_OF_CORE = 0.005
"""The largest share of one core for failure detection."""
FIRST_LOOK_AFTER_S = 2.0


class FailureDetector:
    """Detects failures incrementally; unchanged nodes cost nothing."""

    def __init__(self) -> None:
        self._known: Known = NOTHING
        self._parts: dict[str, tuple[object, NodeParts]] = {}
        self._gpus: dict[tuple[str, str], GpuSeen] = {}
        self._complete: tuple[int, int] | None = None
        self._last_gpus: tuple[GpuSeen, ...] = ()
        self._last_ports: tuple[PortSeen, ...] = ()
        self._ports: dict[tuple[str, str, str], PortSeen] = {}
        self._nodes: dict[str, tuple[NodeRecord, NodeParts, NodeSeen]] = {}
        self._jobs: dict[int, tuple[JobRecord, JobSeen]] = {}
        self._last_inputs: tuple[object, ...] = ()
        self._looked_at_s = -math.inf
        self._is_incomplete = False
        self.events: tuple[Event, ...] = ()

    def has_news(
        self, readings: Readings, nodes: Sequence[NodeRecord], jobs: Sequence[JobRecord], now_s: float
    ) -> bool:
        """Return whether to run: inputs have changed, a fault's time has to run on, or the last run is a while ago."""
        inputs = (readings.unhealthy, readings.port.get(RATE), nodes, jobs)
        is_same = len(inputs) == len(self._last_inputs) and all(
            a is b for a, b in zip(inputs, self._last_inputs, strict=True)
        )
        is_settled = not self._known.waiting and not self._known.healthy_since and not self._is_incomplete
        if is_same and is_settled and now_s - self._looked_at_s < LOOK_ANYWAY_S:
            return False
        self._last_inputs, self._looked_at_s = inputs, now_s
        return True

    def is_ready(self, readings: Readings) -> bool:
        """Add new GPUs, not too many at once; return whether all are known: else some would seem missing."""
        layout = (readings.layouts, len(readings.slot_of))
        if self._complete == layout:
            return True
        new = [key for key in readings.slot_of if key not in self._gpus]
        index_of = readings.index_of.get
        for key in new[:MAX_AT_ONCE]:
            self._gpus[key] = GpuSeen(node=key[0], index=index_of(key), uuid=key[1])
        if len(self._gpus) > len(readings.slot_of):
            self._gpus = {key: seen for key, seen in self._gpus.items() if key in readings.slot_of}
        if len(new) > MAX_AT_ONCE:
            return False
        self._complete = layout
        return True

    def observe(
        self,
        readings: Readings,
        nodes: Sequence[NodeRecord],
        jobs: Sequence[JobRecord],
        at_s: float,
        *,
        domains: Mapping[str, tuple[str, ...]],
        silent: frozenset[str] = frozenset(),
    ) -> Observations:
        """Return the present observations; quick, since the readings are locked meanwhile."""
        domain_of = {node: name for name, members in domains.items() for node in members}
        parts = self._build_parts(readings)
        self._last_gpus = gpus = _reuse_if_same(self._build_gpus(readings, parts), self._last_gpus)
        self._last_ports = ports = _reuse_if_same(self._build_ports(readings, parts), self._last_ports)
        seen_nodes = []
        for record in nodes:
            node_parts = parts.get(record.name, _NO_PARTS)
            before = self._nodes.get(record.name)
            if before is None or before[0] is not record or before[1] is not node_parts:
                made = build_node(
                    record,
                    domain=domain_of.get(record.name, ""),
                    is_read=record.name not in silent and bool(readings.slot_of),
                    parts=node_parts,
                )
                before = self._nodes[record.name] = (record, node_parts, made)
            seen_nodes.append(before[2])
        active_jobs = []
        for job in jobs:
            if job.is_active:
                known = self._jobs.get(job.id)
                if known is None or known[0] is not job:
                    known = self._jobs[job.id] = (job, build_job(job))
                active_jobs.append(known[1])
        return Observations(at_s=at_s, nodes=tuple(seen_nodes), gpus=gpus, ports=ports, jobs=tuple(active_jobs))

    def look(self, seen: Observations) -> tuple[Event, ...]:
        """Return the failures; the same object where nothing is new."""
        self._known = detect(seen, self._known)
        events = sort_events(self._known)
        if events != self.events:
            self.events = events
        return self.events

    def _build_parts(self, readings: Readings) -> dict[str, NodeParts]:
        infos: dict[str, list[Sample]] = {}
        for (node, uuid), index in readings.index_of.items():
            if node in readings.unhealthy:
                labels = {"gpu": uuid, "index": str(index)}
                infos.setdefault(node, []).append(Sample(metric_names.GPU_INFO, labels, 1.0))
        parts = {}
        for node, samples in readings.unhealthy.items():
            before = self._parts.get(node)
            if before is None or before[0] is not samples:
                before = self._parts[node] = (samples, build_node_parts(node, [*infos.get(node, ()), *samples]))
            parts[node] = before[1]
        return parts

    def _build_gpus(self, readings: Readings, parts: Mapping[str, NodeParts]) -> tuple[GpuSeen, ...]:
        reported = {(gpu.node, gpu.uuid) for node_parts in parts.values() for gpu in node_parts.gpus}
        while not self.is_ready(readings):
            pass
        faulty = [gpu for node_parts in parts.values() for gpu in node_parts.gpus]
        return (*faulty, *(seen for key, seen in self._gpus.items() if key not in reported))

    def _build_ports(self, readings: Readings, parts: Mapping[str, NodeParts]) -> tuple[PortSeen, ...]:
        known = readings.port.get(RATE)
        rates = known.tolist() if known is not None else []
        down = {
            (port.node, port.device, str(port.port)): port
            for node_parts in parts.values()
            for port in node_parts.ports
            if port.is_up is not None
        }
        rails = [int(rail) if (rail := name.removeprefix("rail ")).isdecimal() else None for name in readings.rails]
        ports, before, leaf_of, budget = [], self._ports.get, readings.leaves.get, MAX_AT_ONCE
        for key, (row, column) in readings.port_of.items():
            reported = down.pop(key, None) if down else None
            if reported is not None and reported.rate_bytes_per_s is not None:
                ports.append(reported)
                continue
            rate = rates[row][column] if row < len(rates) else None
            rate = None if rate is None or rate != rate else rate
            is_up = reported.is_up if reported is not None else None if rate is None else True
            seen = before(key)
            if seen is None or seen.rate_bytes_per_s != rate or seen.is_up != is_up:
                budget -= 1
                if budget < 0 and reported is None:  # the others next time: they are healthy
                    ports += [seen] if seen is not None else []
                    continue
                node, device, port = key
                seen = self._ports[key] = PortSeen(
                    node=node,
                    device=device,
                    port=int(port) if port.isdecimal() else 1,
                    is_up=is_up,
                    rate_bytes_per_s=rate,
                    leaf=leaf_of((node, column), ""),
                    rail=rails[column] if column < len(rails) else None,
                )
            ports.append(seen)
        self._is_incomplete = budget < 0
        return (*ports, *down.values())


def _reuse_if_same(current: tuple[Seen, ...], before: tuple[Seen, ...]) -> tuple[Seen, ...]:
    """Return the previous tuple where the current one has the same objects: values derived from it stay valid."""
    return before if len(current) == len(before) and all(map(is_, current, before)) else current


class DetectionSchedule:
    """Runs failure detection at intervals."""

    def __init__(self) -> None:
        self._failures = FailureDetector()
        self._due_s, self._spent_s = -math.inf, 0.0

    @property
    def events(self) -> tuple[Event, ...]:
        """The detected failures."""
        return self._failures.events

    def pop_spent_s(self) -> float:
        """Return the time of detection since the last call [s of CPU]."""
        spent_s, self._spent_s = self._spent_s, 0.0
        return spent_s

    def turn(
        self, readings: Readings, slurm: Snapshot, now_s: float, *, domains: Mapping[str, tuple[str, ...]]
    ) -> None:
        """Run detection, where it is due and there are data.

        Parameters
        ----------
        domains
            Nodes of each HB domain.
        """
        began_s, cpu_s = time.monotonic(), time.thread_time()
        with readings.lock:
            if not self._failures.is_ready(readings):
                return
        if self._due_s == -math.inf:
            self._due_s = began_s + FIRST_LOOK_AFTER_S
        if began_s < self._due_s or not self._failures.has_news(readings, slurm.nodes, slurm.jobs, now_s):
            return
        with readings.lock:
            seen = self._failures.observe(readings, slurm.nodes, slurm.jobs, now_s, domains=domains)
        self._failures.look(seen)
        self._spent_s = time.thread_time() - cpu_s
        self._due_s = began_s + self._spent_s / SHARE_OF_CORE
