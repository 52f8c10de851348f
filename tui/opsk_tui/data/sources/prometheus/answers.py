"""Parses Prometheus answers of 16,000 series quickly, and maps their series to places in the readings.

No object is made per series: labels are looked up as raw bytes, since the same series always have the same bytes. An
answer that cannot be parsed that way is parsed as JSON.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opsk.errors import UnavailableError
from opsk.metrics.exposition import Sample
from opsk.telemetry.progress.step_estimate import SOURCE as COUNTERS
from opsk_tui.data.sources.prometheus.queries import IS, About, Question
from opsk_tui.data.sources.readings import HOST_SHARES, MAX_SLOTS, Readings

_SERIES, _END = b'"result":[{"metric":', b'"]}]}'
_BETWEEN = b'"]},{"metric":'
_TO_VALUE = re.compile(rb',"value":\[[0-9.eE+]+,"')
_NONE: NDArray[np.float64] = np.zeros(0)
_HOST_COLUMN = {name: at for at, name in enumerate(HOST_SHARES)}
_TRAINING = "opsk_training_"


class SeriesIndex:
    """The positions of series by their raw label bytes; one for all queries with the same labels.

    Parameters
    ----------
    place
        Finds the position of labels that are not known yet; -1 is none.
    """

    def __init__(self, place: Callable[[Mapping[str, str]], int]) -> None:
        self._find_place = place
        self._known: dict[bytes, int] = {}
        self._keys: Sequence[bytes] = ()
        self._positions: NDArray[np.intp] = np.zeros(0, np.intp)

    def learn(self, places: Mapping[bytes, int]) -> None:
        """Set the positions of labels, and remove all others."""
        self._known, self._keys = dict(places), ()

    def of(self, keys: Sequence[bytes]) -> NDArray[np.intp]:
        """Return the position of each series; the same labels as before cost nothing."""
        if keys != self._keys:
            known = self._known
            try:
                self._positions = np.fromiter(map(known.__getitem__, keys), np.intp, len(keys))
            except KeyError:
                for key in keys:
                    if key not in known:
                        known[key] = self._find_place(json.loads(key))
                self._positions = np.fromiter(map(known.__getitem__, keys), np.intp, len(keys))
            self._keys = keys
        return self._positions


def parse_pairs(body: bytes) -> tuple[Sequence[bytes], NDArray[np.float64]]:
    """Return an instant vector: raw label bytes, and values; invalid values are NaN.

    The bytes between labels and value are the same in every series, since all have the same time, and the bytes between
    two series have no backslash before their quotes, so they occur in no label: one split finds everything.

    Raises
    ------
    UnavailableError
        It is no such answer.
    """
    begin, end = body.find(_SERIES), body.rfind(_END)
    to_value = _TO_VALUE.search(body, begin) if 0 <= begin < end else None
    if to_value is not None:
        # lists of bytes, no tuples: 16,000 tuples would start a garbage collection each time
        parts = body[begin + len(_SERIES) : end].replace(to_value[0], _BETWEEN).split(_BETWEEN)
        keys = parts[::2]
        try:
            numbers = np.fromiter(map(float, parts[1::2]), np.float64)
        except ValueError:
            numbers = _NONE
        # where a series is split elsewhere some labels are among the values, which are then no numbers; a series with
        # a histogram instead of a value is not split at all
        if len(numbers) == len(keys) == body.count(b'{"metric":'):
            return keys, numbers
    return _parse_pairs_as_json(body)


def _parse_pairs_as_json(body: bytes) -> tuple[list[bytes], NDArray[np.float64]]:
    """Return the same for an answer in another layout."""
    keys, numbers = [], []
    for series in _parse_result(body, "vector"):
        try:
            value = series["value"][1]
            keys.append(json.dumps(series["metric"], separators=(",", ":")).encode())
        except (KeyError, TypeError, IndexError):
            continue
        numbers.append(_parse_number(value))
    return keys, np.array(numbers, np.float64)


def parse_vector(body: bytes) -> Iterator[tuple[Mapping[str, str], float]]:
    """Yield labels and value of an instant vector."""
    for series in _parse_result(body, "vector"):
        try:
            yield series["metric"], float(series["value"][1])
        except (KeyError, TypeError, ValueError, IndexError):
            continue


def parse_matrix(body: bytes) -> Iterator[tuple[Mapping[str, str], tuple[tuple[float, float], ...]]]:
    """Yield labels and points of a range."""
    for series in _parse_result(body, "matrix"):
        try:
            points = tuple([(float(at_s), value) for at_s, text in series["values"] if isfinite(value := float(text))])
            yield series["metric"], points
        except (KeyError, TypeError, ValueError):
            continue


def _parse_result(body: bytes, kind: str) -> list[dict[str, Any]]:
    try:
        document = json.loads(body)
        if document["status"] == "success" and document["data"]["resultType"] == kind:
            return list(document["data"]["result"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnavailableError("Prometheus answers what is no answer of its API") from error
    raise UnavailableError(f"Prometheus refuses: {str(document.get('error', ''))[:120]}")


def scatter_values(body: bytes, places: SeriesIndex, array: NDArray[np.float64]) -> None:
    """Store the values of an instant vector at their positions."""
    keys, numbers = parse_pairs(body)
    where = places.of(keys)
    known = (where >= 0) & (where < array.size)
    array[where[known]] = numbers[known]


def _parse_number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return math.nan


class AnswerStore:
    """Stores answers in the readings, and remembers the positions of series.

    Attributes
    ----------
    lost
        GPUs, as node and UUID, that only report their loss, and whose positions are unknown.
    """

    def __init__(self, readings: Readings) -> None:
        self._readings = readings
        self._gpus, self._ports, self._hosts = SeriesIndex(self._gpu), SeriesIndex(self._port), SeriesIndex(self._host)
        self._last_keys: dict[About, Sequence[bytes]] = {}
        self._faults: dict[str, dict[str, list[Sample]]] = {}
        self._unlocated: set[tuple[str, str]] = set()
        self.lost: set[tuple[str, str]] = set()

    def forget(self) -> None:
        """Learn all positions again: the nodes have changed."""
        self._last_keys.clear()
        for places in (self._gpus, self._ports, self._hosts):
            places.learn({})

    def take(self, question: Question, body: bytes) -> bool:
        """Store an answer; return whether all positions have changed."""
        readings = self._readings
        match question.about:
            case About.GPU_INFO:
                return self._store_gpu_info(body)
            case About.PORT_INFO:
                self._store_port_info(body)
            case About.GPUS:
                readings.put_gpus(question.name, self._spread(body, self._gpus, readings.blank_gpus(), question))
            case About.PORTS:
                readings.put_ports(question.name, self._spread(body, self._ports, readings.blank_ports(), question))
            case About.HOSTS:
                readings.hosts = self._spread(body, self._hosts, readings.blank_hosts(), question)
            case About.UNHEALTHY:
                self._store_faults(question.name, body)
            case About.PROGRESS:
                self._store_progress(body)
        return False

    @staticmethod
    def _spread(
        body: bytes, places: SeriesIndex, array: NDArray[np.float64], question: Question
    ) -> NDArray[np.float64]:
        if not math.isnan(question.missing):
            array.fill(question.missing)
        scatter_values(body, places, array.reshape(-1))
        return array

    def take_by_node(self, question: Question, body: bytes) -> tuple[str, ...]:
        """Store the value that all parts of a node share; return the nodes that have to be queried in full."""
        readings = self._readings
        is_for_gpus = question.about is About.GPUS
        known = readings.known_gpus() if is_for_gpus else readings.known_ports()
        common = np.full(len(readings.nodes), math.nan)
        counts = known.sum(axis=1)
        mixed, seen = set(), set()
        for labels, count in parse_vector(body):
            row = readings.rows.get(labels.get("node", ""))
            if row is None:
                continue
            if row in seen or count != counts[row]:
                mixed.add(row)
            seen.add(row)
            common[row] = float(labels.get(IS, "nan"))
        common[list(mixed)] = math.nan
        array = np.where(known, common[:, None], question.missing)
        if is_for_gpus:
            readings.put_gpus(question.name, array)
        else:
            readings.put_ports(question.name, array)
        return tuple(readings.nodes[row] for row in sorted(mixed))

    def take_more(self, question: Question, body: bytes) -> None:
        """Store the answer on some nodes in full."""
        readings = self._readings
        if question.about is About.GPUS:
            array = readings.gpu[question.name].copy()
            scatter_values(body, SeriesIndex(self._gpu), array.reshape(-1))
            readings.put_gpus(question.name, array)
        else:
            array = readings.port[question.name].copy()
            scatter_values(body, SeriesIndex(self._port), array.reshape(-1))
            readings.put_ports(question.name, array)

    def take_infos(self, infos: Sequence[tuple[Mapping[str, str], float]]) -> None:
        """Learn the positions of GPUs that were lost before the start."""
        self._readings.learn_gpus(labels for labels, _ in infos)
        self._unlocated |= self.lost - self._readings.slot_of.keys()
        self.lost.clear()
        self._readings.version += 1

    def _gpu(self, labels: Mapping[str, str]) -> int:
        place = self._readings.slot_of.get((labels.get("node", ""), labels.get("gpu", "")))
        return -1 if place is None else place[0] * self._readings.slots + place[1]

    def _port(self, labels: Mapping[str, str]) -> int:
        key = (labels.get("node", ""), labels.get("device", ""), labels.get("port", ""))
        place = self._readings.port_of.get(key)
        return -1 if place is None else place[0] * len(self._readings.rails) + place[1]

    def _host(self, labels: Mapping[str, str]) -> int:
        row, column = self._readings.rows.get(labels.get("node", "")), _HOST_COLUMN.get(labels.get(IS, ""))
        return -1 if row is None or column is None else row * len(HOST_SHARES) + column

    def _store_gpu_info(self, body: bytes) -> bool:
        """Learn the positions of GPUs, unless they are known; return whether all positions have changed."""
        keys, _ = parse_pairs(body)
        if keys and keys == self._last_keys.get(About.GPU_INFO):
            return False
        infos: list[dict[str, str]] = json.loads(b"[" + b",".join(keys) + b"]")
        readings = self._readings
        indices = {labels.get("slurm_index") or labels.get("index", "") for labels in infos}
        slots_needed = max((int(index) + 1 for index in indices if len(index) < 5 and index.isdecimal()), default=0)
        is_new = readings.slots < slots_needed <= MAX_SLOTS and readings.set_layout(readings.nodes, slots_needed)
        if is_new:
            self.forget()
        readings.learn_gpus(infos)
        slots = readings.slots
        self._gpus.learn(
            {
                f'{{"gpu":"{uuid}","node":"{node}"}}'.encode(): row * slots + slot
                for (node, uuid), (row, slot) in readings.slot_of.items()
            }
        )
        self._last_keys[About.GPU_INFO] = keys
        readings.version += 1
        return is_new

    def _store_port_info(self, body: bytes) -> None:
        """Learn the positions of ports, unless they are known."""
        keys, _ = parse_pairs(body)
        if keys and keys == self._last_keys.get(About.PORT_INFO):
            return
        readings = self._readings
        readings.learn_ports(json.loads(b"[" + b",".join(keys) + b"]"))
        columns = len(readings.rails)
        self._ports.learn(
            {
                f'{{"device":"{device}","node":"{node}","port":"{port}"}}'.encode(): row * columns + column
                for (node, device, port), (row, column) in readings.port_of.items()
            }
        )
        self._last_keys[About.PORT_INFO] = keys

    def _store_faults(self, which: str, body: bytes) -> None:
        samples_by_node: dict[str, list[Sample]] = {}
        for labels, value in parse_vector(body):
            node = labels.get("node", "")
            if node in self._readings.rows:
                samples_by_node.setdefault(node, []).append(Sample(labels.get("__name__", ""), labels, value))
                key = (node, labels.get("gpu", ""))
                if which == "up" and key[1] and key not in self._readings.slot_of and key not in self._unlocated:
                    self.lost.add(key)
        if samples_by_node != self._faults.get(which):
            self._faults[which] = samples_by_node
            merged: dict[str, list[Sample]] = {}
            for by_node in self._faults.values():
                for node, samples in by_node.items():
                    merged.setdefault(node, []).extend(samples)
            self._readings.unhealthy = merged
            self._readings.version += 1

    def _store_progress(self, body: bytes) -> None:
        seen, known = set(), self._readings.progress
        for labels, value in parse_vector(body):
            job, name = labels.get("job", ""), labels.get("__name__", "")
            if job and name.startswith(_TRAINING):
                seen.add(job)
                self._readings.put_progress(job, name.removeprefix(_TRAINING), value)
        for job in known.keys() - seen:
            if known[job].source != COUNTERS:
                del known[job]
