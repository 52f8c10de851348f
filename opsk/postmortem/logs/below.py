"""Reads what stands below a line: what C++ threw, the process that torchrun says failed first, the tasks JAX misses."""

from __future__ import annotations

import re
from collections.abc import Sequence

from opsk.postmortem.logs.lines import LogLine
from opsk.telemetry.progress.lines import parse_label, strip_escapes

_REACH_BYTES = 2048
_MAX_LINES = 9
_THROWN = re.compile(r"\s*what\(\):\s*(?P<message>.+)")
_ENTRY = re.compile(r"\s*(?P<name>host|rank|exitcode|Exit code|time)\s*:\s*(?P<value>.+)")
_RANK = re.compile(r"(?P<rank>\d{1,7}) \(local_rank: (?P<local_rank>\d{1,4})\)")
_HOST_AND_RANK = re.compile(
    rb"^[^\n]{0,80}?host +: (?P<node>[A-Za-z0-9][\w.-]{0,63})\s*\n[^\n]{0,80}?rank +: (?P<rank>\d{1,7}) \(local_rank",
    re.MULTILINE,
)
"""torchrun's report states host and rank of all that failed."""
_MAX_HOSTS = 64
_NUMBER = re.compile(r"-?\d{1,4}\b")
_HOST = re.compile(r"[A-Za-z0-9][\w.-]{0,63}$")
_FAR_BYTES = 16384
_TASK = re.compile(rb"/job:[\w-]{1,40}/replica:\d{1,6}/task:(\d{1,7})")
_WAITED_FOR = b"imed out task names:"
_END_OF_TASKS = re.compile(rb"\n(?![^\n]{0,160}/job:)")
_MAX_RANGES = 16


def read_cpp_exception(data: bytes, line: LogLine) -> str:
    """Return the message of a C++ exception; empty where there is none."""
    for text in _next_lines(data, line)[:2]:
        if (match := _THROWN.match(text)) is not None:
            return match["message"]
    return ""


def read_torchrun_report(data: bytes, line: LogLine) -> dict[str, str]:
    """Return torchrun's report on the process that failed first: ``rank``, ``local_rank``, ``node``, ``exit``."""
    fields: dict[str, str] = {}
    for text in _next_lines(data, line):
        match = _ENTRY.match(text)
        if match is None:
            continue
        name, value = match["name"], match["value"].strip()
        if name == "rank" and (rank := _RANK.match(value)) is not None:
            fields |= rank.groupdict()
        elif name == "host" and _HOST.match(value):
            fields["node"] = value
        elif name in ("exitcode", "Exit code") and (number := _NUMBER.match(value)) is not None:
            fields["exit"] = number[0]
            break
    return fields


def read_hosts(data: bytes, line: LogLine) -> str:
    """Return the hosts of the ranks in torchrun's report, as ``9@gpu021 11@gpu021``."""
    part = data[max(0, line.start - _FAR_BYTES) : line.end + _REACH_BYTES]
    pairs = {int(each["rank"]): each["node"].decode("ascii", "replace") for each in _HOST_AND_RANK.finditer(part)}
    return " ".join(f"{rank}@{node}" for rank, node in sorted(pairs.items())[:_MAX_HOSTS])


def _next_lines(data: bytes, line: LogLine) -> list[str]:
    """Return the next lines with the same label."""
    lines = [parse_label(strip_escapes(raw)) for raw in data[line.end : line.end + _REACH_BYTES].splitlines()[1:]]
    return [each.text for each in lines if each.label == line.label and each.text.strip()][:_MAX_LINES]


def read_jax_tasks(data: bytes, line: LogLine) -> dict[str, str]:
    """Return the processes that JAX's coordinator waited for in vain (``absent``): ``processes 1-3, 7``."""
    part = data[line.start : line.end + _FAR_BYTES]
    begin = part.find(_WAITED_FOR)
    if begin < 0:
        return {}
    listed = part[begin + len(_WAITED_FOR) :]
    end = _END_OF_TASKS.search(listed)
    numbers = sorted({int(each) for each in _TASK.findall(listed[: end.start()] if end is not None else listed)})
    if not numbers:
        return {}
    return {"absent": f"process{'es' if len(numbers) > 1 else ''} {_fold(numbers)}"}


def _fold(numbers: Sequence[int]) -> str:
    """Return sorted numbers with their ranges folded, no more than a line of them."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    texts = [f"{first}-{last}" if last > first else str(first) for first, last in ranges]
    return ", ".join(texts[:_MAX_RANGES]) + (" and others" if len(texts) > _MAX_RANGES else "")
