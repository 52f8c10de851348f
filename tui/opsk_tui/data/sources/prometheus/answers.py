"""How is an answer of Prometheus read, when it has 16,000 series?

Without making an object of each: labels are looked up as the bytes that they are, since the same series have the same
bytes again. An answer in which that cannot be done is read the long way.
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


class Places:
    """Where series go, by their labels as the bytes that they are; one for all questions that have the same labels.

    Parameters
    ----------
    place
        Finds the place of labels that are not known yet; -1 is nowhere.
    """

    def __init__(self, place: Callable[[Mapping[str, str]], int]) -> None:
        self._place = place
        self._known: dict[bytes, int] = {}
        self._keys: Sequence[bytes] = ()
        self._found: NDArray[np.intp] = np.zeros(0, np.intp)

    def learn(self, places: Mapping[bytes, int]) -> None:
        """Take over where labels go, and forget all others."""
        self._known, self._keys = dict(places), ()

    def of(self, keys: Sequence[bytes]) -> NDArray[np.intp]:
        """Return where each series' value goes; the same labels as before cost nothing."""
        if keys != self._keys:
            known = self._known
            try:
                self._found = np.fromiter(map(known.__getitem__, keys), np.intp, len(keys))
            except KeyError:
                for key in keys:
                    if key not in known:
                        known[key] = self._place(json.loads(key))
                self._found = np.fromiter(map(known.__getitem__, keys), np.intp, len(keys))
            self._keys = keys
        return self._found


def pairs(body: bytes) -> tuple[Sequence[bytes], NDArray[np.float64]]:
    """Return an instant vector: labels as the bytes that they are, and values; NaN is no number.

    Between labels and value stand the same bytes in every series, for all are told at one moment, and what stands
    between two series has no backslash before its quotes, so that it is in no label: one cut finds everything.

    Raises
    ------
    UnavailableError
        It is no such answer.
    """
    begin, end = body.find(_SERIES), body.rfind(_END)
    to_value = _TO_VALUE.search(body, begin) if 0 <= begin < end else None
    if to_value is not None:
        # lists of bytes, and no tuples: 16,000 of those would have Python look for garbage each time
        parts = body[begin + len(_SERIES) : end].replace(to_value[0], _BETWEEN).split(_BETWEEN)
        keys = parts[::2]
        try:
            numbers = np.fromiter(map(float, parts[1::2]), np.float64)
        except ValueError:
            numbers = _NONE
        # where a series is cut elsewhere some labels stand among the values, which are then no numbers; one that has
        # a histogram instead of a value is not cut at all
        if len(numbers) == len(keys) == body.count(b'{"metric":'):
            return keys, numbers
    return _pairs_slowly(body)


def _pairs_slowly(body: bytes) -> tuple[list[bytes], NDArray[np.float64]]:
    """Return the same of an answer that is written otherwise."""
    keys, numbers = [], []
    for series in _result(body, "vector"):
        try:
            value = series["value"][1]
            keys.append(json.dumps(series["metric"], separators=(",", ":")).encode())
        except (KeyError, TypeError, IndexError):
            continue
        numbers.append(_number(value))
    return keys, np.array(numbers, np.float64)


def labelled(body: bytes) -> Iterator[tuple[Mapping[str, str], float]]:
    """Yield labels and value of an instant vector."""
    for series in _result(body, "vector"):
        try:
            yield series["metric"], float(series["value"][1])
        except (KeyError, TypeError, ValueError, IndexError):
            continue


def matrix(body: bytes) -> Iterator[tuple[Mapping[str, str], tuple[tuple[float, float], ...]]]:
    """Yield labels and points of a range."""
    for series in _result(body, "matrix"):
        try:
            points = tuple([(float(at_s), value) for at_s, said in series["values"] if isfinite(value := float(said))])
            yield series["metric"], points
        except (KeyError, TypeError, ValueError):
            continue


def _result(body: bytes, kind: str) -> list[dict[str, Any]]:
    try:
        document = json.loads(body)
        if document["status"] == "success" and document["data"]["resultType"] == kind:
            return list(document["data"]["result"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnavailableError("Prometheus answers what is no answer of its API") from error
    raise UnavailableError(f"Prometheus refuses: {str(document.get('error', ''))[:120]}")


def scatter(body: bytes, places: Places, array: NDArray[np.float64]) -> None:
    """Put the values of an instant vector where they go."""
    keys, numbers = pairs(body)
    where = places.of(keys)
    known = (where >= 0) & (where < array.size)
    array[where[known]] = numbers[known]


def _number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return math.nan
