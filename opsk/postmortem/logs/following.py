"""What do the lines behind a hit add to it? C++ tells in the next line what it threw, launchers tell it in a report."""

from __future__ import annotations

import re

from opsk.postmortem.logs.lines import LogLine
from opsk.telemetry.progress.lines import clean, labelled

_REACH_BYTES = 2048
_MOST_LINES = 9
_THROWN = re.compile(r"\s*what\(\):\s*(?P<message>.+)")
_ENTRY = re.compile(r"\s*(?P<name>host|rank|exitcode|time)\s*:\s*(?P<value>.+)")
_RANK = re.compile(r"(?P<rank>\d{1,7}) \(local_rank: (?P<local_rank>\d{1,4})\)")
_NUMBER = re.compile(r"-?\d{1,4}\b")
_HOST = re.compile(r"[A-Za-z0-9][\w.-]{0,63}$")


def thrown(data: bytes, line: LogLine) -> str:
    """Return what C++ says that it threw; empty where it does not."""
    for text in _behind(data, line)[:2]:
        if (found := _THROWN.match(text)) is not None:
            return found["message"]
    return ""


def reported(data: bytes, line: LogLine) -> dict[str, str]:
    """Return what torchrun tells of the process that failed first: ``rank``, ``local_rank``, ``node``, ``exit``."""
    fields: dict[str, str] = {}
    for text in _behind(data, line):
        found = _ENTRY.match(text)
        if found is None:
            continue
        name, value = found["name"], found["value"].strip()
        if name == "rank" and (rank := _RANK.match(value)) is not None:
            fields |= rank.groupdict()
        elif name == "host" and _HOST.match(value):
            fields["node"] = value
        elif name == "exitcode" and (number := _NUMBER.match(value)) is not None:
            fields["exit"] = number[0]
            break
    return fields


def _behind(data: bytes, line: LogLine) -> list[str]:
    """Return the next lines that whoever printed this one printed."""
    lines = [labelled(clean(raw)) for raw in data[line.end : line.end + _REACH_BYTES].splitlines()[1:]]
    return [each.text for each in lines if each.label == line.label and each.text.strip()][:_MOST_LINES]
