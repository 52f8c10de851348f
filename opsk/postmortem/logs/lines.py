"""Finds the line around a match and who printed it, and reads a signature's fields from it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from opsk.postmortem.logs.chunks import EXCEPTION_REACH_BYTES
from opsk.postmortem.signatures.signature import Signature
from opsk.telemetry.progress.lines import Line, parse_label, strip_escapes

REACH_BYTES = 2048
"""This much of a long line is read before and after a match."""
_RAISED = re.compile(r"(?P<type>[A-Za-z_][\w.]{0,120}?)(?::|: (?P<message>.*))?$")
_AFTER_BYTES = 240
_HANDLED = re.compile(
    r"\b(?:retrying|retry loop|trying again|will (?:be )?(?:retr|ignor|skip)\w+|falling back)", re.IGNORECASE
)
_IGNORED = b"Exception ignored "
"""Python prints this for exceptions that nothing could catch: at its end, in destructors."""
_PLAIN_ENDS = ("KeyboardInterrupt", "SystemExit", "SignalException", "InterruptedError")
_NAME = r"(?=[\w.-]*\d)[A-Za-z][\w.-]{0,63}"
_HOST = re.compile(
    r"(?:\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,\d]{0,10}\]? )?"
    rf"(?P<node>{_NAME}):\d{{1,8}}:\d{{1,8}} \[(?P<gpu>\d{{1,3}})\]"
)
"""NCCL writes host, process, thread and GPU before everything but a time."""
_HOSTS = (
    re.compile(rf"slurmstepd-(?P<node>{_NAME}): "),
    re.compile(rf"(?:\[\d{{9,10}}\.\d{{1,9}}\] )?\[(?P<node>{_NAME}):\d{{1,8}} {{0,2}}:\d{{1,8}}(?::\d{{1,8}})?\]"),
)
"""Slurm's slurmstepd where it names its node, and UCX."""
_GLUED = re.compile(
    rb"(?<=[^\s:>)])(?=\[rank\d{1,7}\]:\s?\[[EWIF])|(?<=[^\s:>)\]])(?=\[[EWIF](?:\d{3,4} [\d:.]{8,18})? ProcessGroup)"
)
"""Ranks that write at one moment end up in one line."""
_STAMP = re.compile(r"\d{4}-\d\d-\d\d[T ][\d:]{8}[.,\d]{0,10}(?:Z| ?[+-]\d\d:?\d\d):? (?:std(?:out|err) [FP] )?")
"""With a zone, as collectors of logs write it before every line."""
_HEAD_CHARS = 200
_RANK = re.compile(
    r"\[(?:PG [^\]]{0,60}?|rank ?|Rank )(?:Rank )?(?P<rank>\d{1,7})\]|(?<!ocal )\b[Rr]ank[:= ]\[?(?P<rank2>\d{1,7})\b"
)
_TRAILING = re.compile(r"\d$")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line around a match: text without label and colours, the label, and who printed it where that is known."""

    text: str
    label: str
    rank: int | None
    node: str
    gpu_index: int | None
    start: int
    end: int
    local_rank: int | None = None
    node_rank: int | None = None


def find_line(data: bytes, end: int) -> LogLine:
    """Return the line around a match that ends at ``end``."""
    low = max(0, end - REACH_BYTES)
    start = max(data.rfind(b"\n", low, end), data.rfind(b"\r", low, end), low - 1) + 1
    stops = (data.find(b"\n", end, end + REACH_BYTES), data.find(b"\r", end, end + REACH_BYTES))
    stop = min((position for position in stops if position >= 0), default=min(len(data), end + REACH_BYTES))
    begin = start
    for cut in _GLUED.finditer(data[start:stop]):
        if start + cut.start() >= end:
            stop = start + cut.start()
            break
        begin = start + cut.start()
    labelled_line = parse_label(strip_escapes(data[begin:stop]))
    text = labelled_line.text.rstrip()
    host = _HOST.search(text[:_HEAD_CHARS])
    labelled_line = _strip_stamp(labelled_line)
    rank = labelled_line.rank
    if rank is None:
        rank = find_rank(text)
    node = host["node"] if host else _find_label_host(labelled_line.label) or _find_host(text)
    return LogLine(
        text=text, label=labelled_line.label, rank=rank, node=node, gpu_index=int(host["gpu"]) if host else None,
        start=begin, end=stop, local_rank=labelled_line.local_rank, node_rank=labelled_line.node_rank,
    )  # fmt: skip


def _strip_stamp(line: Line) -> Line:
    """Return a line with the labels after the time that a collector of logs (Kubernetes, YARN) put before it."""
    match = _STAMP.match(line.text)
    if match is None:
        return line
    inner = parse_label(line.text[match.end() :])
    return replace(inner, label=line.label + inner.label, rank=inner.rank if inner.rank is not None else line.rank)


def find_rank(text: str) -> int | None:
    """Return the rank that the beginning of a line names."""
    match = _RANK.search(text[:200])
    return int(match["rank"] or match["rank2"]) if match is not None else None


def _find_host(text: str) -> str:
    """Return the host that a line names at its beginning."""
    return next((found["node"] for each in _HOSTS if (found := each.match(text)) is not None), "")


def _find_label_host(label: str) -> str:
    """Return the host that a label names."""
    for part in label.split():
        if part.startswith("host"):
            return part.removeprefix("host")
    return ""


def read_fields(signature: Signature, text: str) -> dict[str, str] | None:
    """Return the fields that a signature reads from a line; ``None`` when the line does not match."""
    if any(part in text for part in signature.unless):
        return None
    if signature.pattern is None:
        return {}
    match = signature.pattern.search(text)
    if match is not None and not match[0]:  # all of it is optional: take the match that is not empty
        match = next((each for each in signature.pattern.finditer(text) if each[0]), match)
    if match is None:
        return None
    return {_TRAILING.sub("", name): value for name, value in match.groupdict().items() if value is not None}


def read_exception(data: bytes, line: LogLine) -> tuple[dict[str, str], str, int] | None:
    """Return the end of a traceback: type and message, the line, and where it begins; ``None`` where it is cut off.

    Lines of other ranks in between are passed over by their labels.
    """
    position, stop = line.end, min(len(data), line.end + EXCEPTION_REACH_BYTES)
    is_stamped = _STAMP.match(line.text) is not None
    while position < stop:
        begin = position + 1
        end = data.find(b"\n", begin, stop)
        if end < 0:
            end = stop
        labelled_line = parse_label(strip_escapes(data[begin:end][:REACH_BYTES]))
        labelled_line = _strip_stamp(labelled_line) if is_stamped else labelled_line
        text, position = labelled_line.text.rstrip("\r\n "), end
        if labelled_line.label != line.label or not text.strip() or text[:1] in " \t":
            continue
        match = _RAISED.match(text)
        if match is None:
            return None
        fields = {"type": match["type"].rpartition(".")[2]}
        if match["message"]:
            fields["message"] = match["message"][:300]
        before = data[max(0, line.start - _AFTER_BYTES) : line.start].rstrip().rpartition(b"\n")[2]
        if _IGNORED in before or _HANDLED.search(data[position : position + _AFTER_BYTES].decode("utf-8", "replace")):
            fields["handled"] = "yes"
        return fields, text[:400], begin
    return None


def is_plain_end(kind: str) -> bool:
    """Return whether an exception only reports that the program was asked to end."""
    return kind in _PLAIN_ENDS
