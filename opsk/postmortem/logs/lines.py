"""Which line stands around a hit, who printed it, and what does a signature read from it?"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from opsk.postmortem.logs.pieces import EXCEPTION_REACH_BYTES
from opsk.postmortem.signatures.signature import Signature
from opsk.telemetry.progress.lines import Line, clean, labelled

REACH_BYTES = 2048
"""Of a long line so much is looked at before and after a hit."""
_RAISED = re.compile(r"(?P<type>[A-Za-z_][\w.]{0,120}?)(?::|: (?P<message>.*))?$")
_AFTER_BYTES = 240
_HANDLED = re.compile(
    r"\b(?:retrying|retry loop|trying again|will (?:be )?(?:retr|ignor|skip)\w+|falling back)", re.IGNORECASE
)
_IGNORED = b"Exception ignored "
"""Python says so of what is raised where nobody could catch it: at its end, in destructors."""
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
    """One line around a hit: text without label and colours, the label, and who printed it as far as it tells."""

    text: str
    label: str
    rank: int | None
    node: str
    gpu_index: int | None
    start: int
    end: int
    local_rank: int | None = None
    node_rank: int | None = None


def line_at(data: bytes, end: int) -> LogLine:
    """Return the line that a hit which ends at ``end`` stands in."""
    low = max(0, end - REACH_BYTES)
    start = max(data.rfind(b"\n", low, end), data.rfind(b"\r", low, end), low - 1) + 1
    stop = min((at for at in (data.find(b"\n", end, end + REACH_BYTES), data.find(b"\r", end, end + REACH_BYTES))
                if at >= 0), default=min(len(data), end + REACH_BYTES))  # fmt: skip
    begin = start
    for cut in _GLUED.finditer(data[start:stop]):
        if start + cut.start() >= end:
            stop = start + cut.start()
            break
        begin = start + cut.start()
    taken = labelled(clean(data[begin:stop]))
    text = taken.text.rstrip()
    host = _HOST.search(text[:_HEAD_CHARS])
    taken = _behind_stamp(taken)
    rank = taken.rank
    if rank is None:
        rank = said_rank(text)
    node = host["node"] if host else _host_of(taken.label) or _host_in(text)
    return LogLine(
        text=text, label=taken.label, rank=rank, node=node, gpu_index=int(host["gpu"]) if host else None,
        start=begin, end=stop, local_rank=taken.local_rank, node_rank=taken.node_rank,
    )  # fmt: skip


def _behind_stamp(line: Line) -> Line:
    """Return a line with the labels behind a time that a collector of logs (Kubernetes, YARN) wrote before it."""
    found = _STAMP.match(line.text)
    if found is None:
        return line
    inner = labelled(line.text[found.end() :])
    return replace(inner, label=line.label + inner.label, rank=inner.rank if inner.rank is not None else line.rank)


def said_rank(text: str) -> int | None:
    """Return the rank that the beginning of a line names."""
    said = _RANK.search(text[:200])
    return int(said["rank"] or said["rank2"]) if said is not None else None


def _host_in(text: str) -> str:
    """Return the host that a line names at its beginning."""
    return next((found["node"] for each in _HOSTS if (found := each.match(text)) is not None), "")


def _host_of(label: str) -> str:
    """Return the host that a label names."""
    for part in label.split():
        if part.startswith("host"):
            return part.removeprefix("host")
    return ""


def fields_of(signature: Signature, text: str) -> dict[str, str] | None:
    """Return what a signature reads from a line; ``None`` when the line is none of its."""
    if any(part in text for part in signature.unless):
        return None
    if signature.pattern is None:
        return {}
    found = signature.pattern.search(text)
    if found is not None and not found[0]:  # all of it may be absent: it is read where it stands
        found = next((each for each in signature.pattern.finditer(text) if each[0]), found)
    if found is None:
        return None
    return {_TRAILING.sub("", name): value for name, value in found.groupdict().items() if value is not None}


def raised(data: bytes, line: LogLine) -> tuple[dict[str, str], str, int] | None:
    """Return what a traceback ends in: type and message, the line, and where it begins; ``None`` where it is cut off.

    Lines of other ranks in between are passed over by their labels.
    """
    at, stop = line.end, min(len(data), line.end + EXCEPTION_REACH_BYTES)
    is_stamped = _STAMP.match(line.text) is not None
    while at < stop:
        begin = at + 1
        end = data.find(b"\n", begin, stop)
        if end < 0:
            end = stop
        taken = labelled(clean(data[begin:end][:REACH_BYTES]))
        taken = _behind_stamp(taken) if is_stamped else taken
        text, at = taken.text.rstrip("\r\n "), end
        if taken.label != line.label or not text.strip() or text[:1] in " \t":
            continue
        found = _RAISED.match(text)
        if found is None:
            return None
        fields = {"type": found["type"].rpartition(".")[2]}
        if found["message"]:
            fields["message"] = found["message"][:300]
        before = data[max(0, line.start - _AFTER_BYTES) : line.start].rstrip().rpartition(b"\n")[2]
        if _IGNORED in before or _HANDLED.search(data[at : at + _AFTER_BYTES].decode("utf-8", "replace")):
            fields["handled"] = "yes"
        return fields, text[:400], begin
    return None


def is_plain_end(kind: str) -> bool:
    """Tell whether an exception only says that the program was told to end."""
    return kind in _PLAIN_ENDS
