"""Where in the readings does each answer of Prometheus go?"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from opsk.diagnosis.events.from_samples import Sample
from opsk.telemetry.progress.from_counters import SOURCE as COUNTERS
from opsk_tui.data.sources.prometheus.answers import Places, labelled, pairs, scatter
from opsk_tui.data.sources.prometheus.questions import IS, About, Question
from opsk_tui.data.sources.readings import HOST_SHARES, MOST_SLOTS, Readings

_HOST_COLUMN = {name: at for at, name in enumerate(HOST_SHARES)}
_TRAINING = "opsk_training_"


class Taking:
    """Takes answers in, and remembers where series go.

    Attributes
    ----------
    lost
        GPUs, as node and UUID, that only tell of their end, and whose places nobody knows yet.
    """

    def __init__(self, readings: Readings) -> None:
        self._readings = readings
        self._gpus, self._ports, self._hosts = Places(self._gpu), Places(self._port), Places(self._host)
        self._seen: dict[About, Sequence[bytes]] = {}
        self._sick: dict[str, dict[str, list[Sample]]] = {}
        self._not_found: set[tuple[str, str]] = set()
        self.lost: set[tuple[str, str]] = set()

    def forget(self) -> None:
        """Learn all places anew: the nodes are others."""
        self._seen.clear()
        for places in (self._gpus, self._ports, self._hosts):
            places.learn({})

    def take(self, question: Question, body: bytes) -> bool:
        """Take an answer in; tell whether all places are others now."""
        readings = self._readings
        match question.about:
            case About.GPU_INFO:
                return self._take_gpu_info(body)
            case About.PORT_INFO:
                self._take_port_info(body)
            case About.GPUS:
                readings.put_gpus(question.name, self._spread(body, self._gpus, readings.blank_gpus(), question))
            case About.PORTS:
                readings.put_ports(question.name, self._spread(body, self._ports, readings.blank_ports(), question))
            case About.HOSTS:
                readings.hosts = self._spread(body, self._hosts, readings.blank_hosts(), question)
            case About.SICK:
                self._take_sick(question.name, body)
            case About.PROGRESS:
                self._take_progress(body)
        return False

    @staticmethod
    def _spread(body: bytes, places: Places, array: NDArray[np.float64], question: Question) -> NDArray[np.float64]:
        if not math.isnan(question.missing):
            array.fill(question.missing)
        scatter(body, places, array.reshape(-1))
        return array

    def take_by_node(self, question: Question, body: bytes) -> tuple[str, ...]:
        """Take in what all parts of a node have in common; return the nodes that have to be asked about in full."""
        readings = self._readings
        of_gpus = question.about is About.GPUS
        known = readings.known_gpus() if of_gpus else readings.known_ports()
        common = np.full(len(readings.nodes), math.nan)
        counts = known.sum(axis=1)
        mixed, seen = set(), set()
        for labels, count in labelled(body):
            row = readings.rows.get(labels.get("node", ""))
            if row is None:
                continue
            if row in seen or count != counts[row]:
                mixed.add(row)
            seen.add(row)
            common[row] = float(labels.get(IS, "nan"))
        common[list(mixed)] = math.nan
        array = np.where(known, common[:, None], question.missing)
        if of_gpus:
            readings.put_gpus(question.name, array)
        else:
            readings.put_ports(question.name, array)
        return tuple(readings.nodes[row] for row in sorted(mixed))

    def take_more(self, question: Question, body: bytes) -> None:
        """Take in what was asked about some nodes in full."""
        readings = self._readings
        if question.about is About.GPUS:
            array = readings.gpu[question.name].copy()
            scatter(body, Places(self._gpu), array.reshape(-1))
            readings.put_gpus(question.name, array)
        else:
            array = readings.port[question.name].copy()
            scatter(body, Places(self._port), array.reshape(-1))
            readings.put_ports(question.name, array)

    def take_found(self, told: Sequence[tuple[Mapping[str, str], float]]) -> None:
        """Learn where GPUs were that had been lost before anybody looked."""
        self._readings.know_gpus(labels for labels, _ in told)
        self._not_found |= self.lost - self._readings.slot_of.keys()
        self.lost.clear()
        self._readings.version += 1

    def _gpu(self, labels: Mapping[str, str]) -> int:
        found = self._readings.slot_of.get((labels.get("node", ""), labels.get("gpu", "")))
        return -1 if found is None else found[0] * self._readings.slots + found[1]

    def _port(self, labels: Mapping[str, str]) -> int:
        where = (labels.get("node", ""), labels.get("device", ""), labels.get("port", ""))
        found = self._readings.port_of.get(where)
        return -1 if found is None else found[0] * len(self._readings.rails) + found[1]

    def _host(self, labels: Mapping[str, str]) -> int:
        row, column = self._readings.rows.get(labels.get("node", "")), _HOST_COLUMN.get(labels.get(IS, ""))
        return -1 if row is None or column is None else row * len(HOST_SHARES) + column

    def _take_gpu_info(self, body: bytes) -> bool:
        """Learn where GPUs are, unless that is known; tell whether all places are others now."""
        keys, _ = pairs(body)
        if keys and keys == self._seen.get(About.GPU_INFO):
            return False
        told: list[dict[str, str]] = json.loads(b"[" + b",".join(keys) + b"]")
        readings = self._readings
        said = {labels.get("slurm_index") or labels.get("index", "") for labels in told}
        most = max((int(index) + 1 for index in said if len(index) < 5 and index.isdecimal()), default=0)
        is_new = readings.slots < most <= MOST_SLOTS and readings.lay_out(readings.nodes, most)
        if is_new:
            self.forget()
        readings.know_gpus(told)
        slots = readings.slots
        self._gpus.learn(
            {
                f'{{"gpu":"{uuid}","node":"{node}"}}'.encode(): row * slots + slot
                for (node, uuid), (row, slot) in readings.slot_of.items()
            }
        )
        self._seen[About.GPU_INFO] = keys
        readings.version += 1
        return is_new

    def _take_port_info(self, body: bytes) -> None:
        """Learn where ports are, unless that is known."""
        keys, _ = pairs(body)
        if keys and keys == self._seen.get(About.PORT_INFO):
            return
        readings = self._readings
        readings.know_ports(json.loads(b"[" + b",".join(keys) + b"]"))
        columns = len(readings.rails)
        self._ports.learn(
            {
                f'{{"device":"{device}","node":"{node}","port":"{port}"}}'.encode(): row * columns + column
                for (node, device, port), (row, column) in readings.port_of.items()
            }
        )
        self._seen[About.PORT_INFO] = keys

    def _take_sick(self, which: str, body: bytes) -> None:
        found: dict[str, list[Sample]] = {}
        for labels, value in labelled(body):
            node = labels.get("node", "")
            if node in self._readings.rows:
                found.setdefault(node, []).append(Sample(labels.get("__name__", ""), labels, value))
                key = (node, labels.get("gpu", ""))
                if which == "up" and key[1] and key not in self._readings.slot_of and key not in self._not_found:
                    self.lost.add(key)
        if found != self._sick.get(which):
            self._sick[which] = found
            merged: dict[str, list[Sample]] = {}
            for by_node in self._sick.values():
                for node, samples in by_node.items():
                    merged.setdefault(node, []).extend(samples)
            self._readings.sick = merged
            self._readings.version += 1

    def _take_progress(self, body: bytes) -> None:
        seen, known = set(), self._readings.progress
        for labels, value in labelled(body):
            job, name = labels.get("job", ""), labels.get("__name__", "")
            if job and name.startswith(_TRAINING):
                seen.add(job)
                self._readings.put_progress(job, name.removeprefix(_TRAINING), value)
        for job in known.keys() - seen:
            if known[job].source != COUNTERS:
                del known[job]
