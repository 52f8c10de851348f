"""Finds the line around a match: who printed it, and what a signature reads from it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from opsk.postmortem.signatures.signature import Signature
from opsk.telemetry.progress.lines import LabeledLine, parse_label, strip_escapes

REACH_BYTES = 2048
"""This much of a long line is read before and after a match."""
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
    r"|^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d TP(?P<rank3>\d{1,5})(?: EP\d{1,5})?\]"
)
"""PyTorch's forms, and SGLang's where there is no other parallelism: then the tensor-parallel rank is the rank."""
_WORKER = re.compile(r"ray(?:Worker_TP|VllmWorker (?:rank=|TP))(?P<rank>\d{1,5})(?:_EP\d{1,5})? pid=")
"""vLLM's labels of its workers: ``rank=`` until 0.9, then the tensor-parallel rank, alone where it is the rank."""
_TRAILING = re.compile(r"\d$")
_RANGE = re.compile(r"(?P<first>\d{1,7})(?:-(?P<last>\d{1,7}))?")
_MAX_TASKS = 4096


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
    labelled_line = strip_stamp(labelled_line)
    rank = labelled_line.rank
    if rank is None:
        rank = find_rank(text) if (worker := _WORKER.search(labelled_line.label)) is None else int(worker["rank"])
    node = host["node"] if host else _find_label_host(labelled_line.label) or _find_host(text)
    return LogLine(
        text=text, label=labelled_line.label, rank=rank, node=node, gpu_index=int(host["gpu"]) if host else None,
        start=begin, end=stop, local_rank=labelled_line.local_rank, node_rank=labelled_line.node_rank,
    )  # fmt: skip


def strip_stamp(line: LabeledLine) -> LabeledLine:
    """Return a line with the labels after the time that a collector of logs (Kubernetes, YARN) put before it."""
    match = _STAMP.match(line.text)
    if match is None:
        return line
    inner = parse_label(line.text[match.end() :])
    return replace(inner, label=line.label + inner.label, rank=inner.rank if inner.rank is not None else line.rank)


def has_stamp(text: str) -> bool:
    """Return whether a collector of logs put a time with a zone before a line."""
    return _STAMP.match(text) is not None


def find_rank(text: str) -> int | None:
    """Return the rank that the beginning of a line names."""
    match = _RANK.search(text[:200])
    return int(match["rank"] or match["rank2"] or match["rank3"]) if match is not None else None


def _find_host(text: str) -> str:
    """Return the host that a line names at its beginning."""
    return next((match["node"] for pattern in _HOSTS if (match := pattern.match(text)) is not None), "")


def _find_label_host(label: str) -> str:
    """Return the host that a label names."""
    for part in label.split():
        if part.startswith("host"):
            return part.removeprefix("host")
        if part.startswith("ip="):  # Ray names nodes by their address
            return part.removeprefix("ip=")
    return ""


def find_label_ranks(label: str) -> tuple[int, ...]:
    """Return the ranks that a label lists (``14-15: ``), which printed the same; empty where it lists none."""
    listed = next((part.removeprefix("tasks") for part in label.split() if part.startswith("tasks")), "")
    return parse_tasks(listed)


def parse_tasks(text: str) -> tuple[int, ...]:
    """Return the numbers in a list of Slurm (``0-3,7``), a few thousand at most; empty where it is none."""
    numbers: set[int] = set()
    for part in text.strip("[]").split(",") if text else ():
        match = _RANGE.fullmatch(part)
        if match is None:
            return ()
        first, last = int(match["first"]), int(match["last"] or match["first"])
        if not first <= last < first + _MAX_TASKS:
            return ()
        numbers |= set(range(first, last + 1))
    return tuple(sorted(numbers))[:_MAX_TASKS]


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
