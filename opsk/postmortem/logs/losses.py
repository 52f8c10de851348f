"""Tells a loss that was no number for once from one that stays none."""

from __future__ import annotations

import re

from opsk.postmortem.logs.lines import LogLine
from opsk.telemetry.progress.lines import parse_label, strip_escapes
from opsk.units import KIB

RECOVERED = "a number again"
"""What a finding says of its ``event`` where the next reports of the same loss are numbers."""
_REACH_BYTES = 32 * KIB
_MAX_LINES = 256
_VALUES, _MIN_VALUES = 6, 2
"""So many values of the loss decide: weights that are no numbers give none."""
_NO_NUMBER = re.compile(r"(?P<name>[A-Za-z][\w./]{0,40})['\"]?(?: is|:|=)?\s{0,4}(?:nan|inf)\b", re.IGNORECASE)
_VALUE = r"(?<![\w./])%s['\"]?\s{0,3}[:=]?\s{0,4}(?P<value>[+-]?(?:\d|\.\d|nan\b|inf\b))"
_OF_THE_PAST = re.compile(r"(?:best|min|lowest|previous|prev|last)\W{0,3}(?:\w{1,12} ){0,2}$", re.IGNORECASE)
"""The best loss so far stays a number whatever happens now."""


def ends_as_number(tail: bytes, text: str) -> bool:
    """Return whether the last reports of a loss that a line calls no number are numbers: it was another run's."""
    match = next((each for each in _NO_NUMBER.finditer(text) if "loss" in each["name"].lower()), None)
    if match is None:
        return False
    values = _read_values(match["name"], tail.decode("utf-8", "replace"))
    return len(values) >= _MIN_VALUES and not any(value[-1].isalpha() for value in values[-_VALUES:])


def _read_values(name: str, text: str) -> list[str]:
    """Return the values of a loss that a text reports, but for those of the past."""
    pattern = re.compile(_VALUE % re.escape(name), re.IGNORECASE)
    return [
        reported["value"]
        for reported in pattern.finditer(text)
        if _OF_THE_PAST.search(text[max(0, reported.start() - 40) : reported.start()]) is None
    ]


def is_number_again(data: bytes, line: LogLine) -> bool:
    """Return whether the next reports of a loss that a line calls no number are numbers, all of them."""
    match = next((each for each in _NO_NUMBER.finditer(line.text) if "loss" in each["name"].lower()), None)
    if match is None:
        return False
    values: list[str] = []
    for raw in data[line.end : line.end + _REACH_BYTES].splitlines()[:_MAX_LINES]:
        labelled = parse_label(strip_escapes(raw[:KIB]))
        if labelled.label != line.label:
            continue
        values += _read_values(match["name"], labelled.text)
        if len(values) >= _VALUES:
            break
    return len(values) >= _MIN_VALUES and not any(value[-1].isalpha() for value in values[:_VALUES])
