"""Parses Prometheus answers of 16,000 series quickly.

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

_SERIES, _END = b'"result":[{"metric":', b'"]}]}'
_BETWEEN = b'"]},{"metric":'
_TO_VALUE = re.compile(rb',"value":\[[0-9.eE+]+,"')
_NONE: NDArray[np.float64] = np.zeros(0)


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
