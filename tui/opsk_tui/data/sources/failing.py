"""Which failures do the readings show? What is observed, handed to the planner's detection, look after look."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import is_
from typing import TypeVar

from opsk.diagnosis.events.detection import NOTHING, Known, detect, told
from opsk.diagnosis.events.from_samples import NodeParts, Sample, job_of_slurm, node_of_slurm, parts_of_node
from opsk.diagnosis.events.observations import GpuSeen, JobSeen, NodeSeen, Observations, PortSeen
from opsk.diagnosis.events.values import Event
from opsk.slurm.records import JobRecord, NodeRecord
from opsk_tui.data.sources.readings import RATE, Readings

LOOK_ANYWAY_S = 60.0
MOST_AT_ONCE = 8_000
"""GPUs, and ports, that are taken in at one time; those of a large cluster would take a tenth of a second."""
_NO_PARTS = NodeParts()
Seen = TypeVar("Seen")


class Failures:
    """Remembers what is known of failures; nodes of which nothing has changed cost nothing."""

    def __init__(self) -> None:
        self._known: Known = NOTHING
        self._parts: dict[str, tuple[object, NodeParts]] = {}
        self._gpus: dict[tuple[str, str], GpuSeen] = {}
        self._complete: tuple[int, int] | None = None
        self._gpus_told: tuple[GpuSeen, ...] = ()
        self._ports_told: tuple[PortSeen, ...] = ()
        self._ports: dict[tuple[str, str, str], PortSeen] = {}
        self._nodes: dict[str, tuple[NodeRecord, NodeParts, NodeSeen]] = {}
        self._jobs: dict[int, tuple[JobRecord, JobSeen]] = {}
        self._seen: tuple[object, ...] = ()
        self._looked_at_s = -math.inf
        self._is_behind = False
        self.events: tuple[Event, ...] = ()

    def has_news(
        self, readings: Readings, nodes: Sequence[NodeRecord], jobs: Sequence[JobRecord], now_s: float
    ) -> bool:
        """Tell whether to look: something has changed, some fault's time has to run on, or it is a while ago."""
        seen = (readings.sick, readings.port.get(RATE), nodes, jobs)
        is_same = len(seen) == len(self._seen) and all(a is b for a, b in zip(seen, self._seen, strict=True))
        is_settled = not self._known.waiting and not self._known.well_since and not self._is_behind
        if is_same and is_settled and now_s - self._looked_at_s < LOOK_ANYWAY_S:
            return False
        self._seen, self._looked_at_s = seen, now_s
        return True

    def is_ready(self, readings: Readings) -> bool:
        """Take in GPUs that are new, not too many at once; tell whether all are known: else some would seem missing."""
        there = (readings.layouts, len(readings.slot_of))
        if self._complete == there:
            return True
        new = [key for key in readings.slot_of if key not in self._gpus]
        index_of = readings.index_of.get
        for key in new[:MOST_AT_ONCE]:
            self._gpus[key] = GpuSeen(node=key[0], index=index_of(key), uuid=key[1])
        if len(self._gpus) > len(readings.slot_of):
            self._gpus = {key: seen for key, seen in self._gpus.items() if key in readings.slot_of}
        if len(new) > MOST_AT_ONCE:
            return False
        self._complete = there
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
        """Return what is seen now; quick, for the readings are locked meanwhile."""
        domain_of = {node: name for name, members in domains.items() for node in members}
        parts = self._parts_of(readings)
        self._gpus_told = gpus = _as_before(self._gpus_of(readings, parts), self._gpus_told)
        self._ports_told = ports = _as_before(self._ports_of(readings, parts), self._ports_told)
        seen = []
        for record in nodes:
            found = parts.get(record.name, _NO_PARTS)
            before = self._nodes.get(record.name)
            if before is None or before[0] is not record or before[1] is not found:
                made = node_of_slurm(
                    record,
                    domain=domain_of.get(record.name, ""),
                    is_read=record.name not in silent and bool(readings.slot_of),
                    parts=found,
                )
                before = self._nodes[record.name] = (record, found, made)
            seen.append(before[2])
        held = []
        for job in jobs:
            if job.is_active:
                known = self._jobs.get(job.id)
                if known is None or known[0] is not job:
                    known = self._jobs[job.id] = (job, job_of_slurm(job))
                held.append(known[1])
        return Observations(at_s=at_s, nodes=tuple(seen), gpus=gpus, ports=ports, jobs=tuple(held))

    def look(self, seen: Observations) -> tuple[Event, ...]:
        """Return the failures; the same object where nothing is new."""
        self._known = detect(seen, self._known)
        events = told(self._known)
        if events != self.events:
            self.events = events
        return self.events

    def _parts_of(self, readings: Readings) -> dict[str, NodeParts]:
        infos: dict[str, list[Sample]] = {}
        for (node, uuid), index in readings.index_of.items():
            if node in readings.sick:
                labels = {"gpu": uuid, "index": str(index)}
                infos.setdefault(node, []).append(Sample("opsk_gpu_info", labels, 1.0))
        found = {}
        for node, samples in readings.sick.items():
            before = self._parts.get(node)
            if before is None or before[0] is not samples:
                before = self._parts[node] = (samples, parts_of_node(node, [*infos.get(node, ()), *samples]))
            found[node] = before[1]
        return found

    def _gpus_of(self, readings: Readings, parts: Mapping[str, NodeParts]) -> tuple[GpuSeen, ...]:
        told = {(gpu.node, gpu.uuid) for found in parts.values() for gpu in found.gpus}
        while not self.is_ready(readings):
            pass
        sick = [gpu for found in parts.values() for gpu in found.gpus]
        return (*sick, *(seen for key, seen in self._gpus.items() if key not in told))

    def _ports_of(self, readings: Readings, parts: Mapping[str, NodeParts]) -> tuple[PortSeen, ...]:
        known = readings.port.get(RATE)
        rates = known.tolist() if known is not None else []
        down = {
            (port.node, port.device, str(port.port)): port
            for found in parts.values()
            for port in found.ports
            if port.is_up is not None
        }
        rails = [int(rail) if (rail := name.removeprefix("rail ")).isdecimal() else None for name in readings.rails]
        ports, before, leaf_of, left = [], self._ports.get, readings.leaves.get, MOST_AT_ONCE
        for key, (row, column) in readings.port_of.items():
            told = down.pop(key, None) if down else None
            if told is not None and told.rate_bytes_per_s is not None:
                ports.append(told)
                continue
            rate = rates[row][column] if row < len(rates) else None
            rate = None if rate is None or rate != rate else rate
            is_up = told.is_up if told is not None else None if rate is None else True
            seen = before(key)
            if seen is None or seen.rate_bytes_per_s != rate or seen.is_up != is_up:
                left -= 1
                if left < 0 and told is None:  # the others next time: nothing is wrong with them
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
        self._is_behind = left < 0
        return (*ports, *down.values())


def _as_before(told: tuple[Seen, ...], before: tuple[Seen, ...]) -> tuple[Seen, ...]:
    """Return what was told before where that is the same: what was worked out of it then still holds."""
    return before if len(told) == len(before) and all(map(is_, told, before)) else told
