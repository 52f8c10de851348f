"""Reads a log of any size in pieces that end with a line, and finds the line around a match and who printed it."""

from __future__ import annotations

import io
import lzma
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from opsk.errors import InputError
from opsk.postmortem.signatures.signature import Signature
from opsk.telemetry.decompression import HEAD_BYTES, open_decompressed
from opsk.telemetry.progress.lines import Line, parse_label, strip_escapes
from opsk.units import GIB, KIB, MIB

PIECE_BYTES = MIB
MAX_REST_BYTES = 128 * KIB
"""This much of a line without an end is carried over; the rest is scanned where it is."""
EXCEPTION_REACH_BYTES = 24 * KIB
"""The exception is at most this far after the head of a traceback, and the two are not separated."""
_LONGEST_KERNEL_LINE_BYTES = 1 << 17
_LONGEST_BEFORE_BYTES = 1024
_TRACEBACK = b"Traceback (most recent call last):"
OVERLAP_BYTES = 512
"""Longer than any fragment: a fragment cut in two is found in the next piece."""
BROKEN = (OSError, EOFError, lzma.LZMAError, zlib.error)
"""Exceptions of a damaged compressed file, wherever it ends."""
REACH_BYTES = 2048
"""This much of a long line is read before and after a match."""
_RAISED = re.compile(r"(?P<type>[A-Za-z_][\w.]{0,120}?)(?::|: (?P<message>.*))?$")
_RAY_TASK = re.compile(r"(?:ray\.exceptions\.)?RayTaskError\((?P<type>\w{1,80})\):")
"""Ray names the exception of a task before it prints the task's own frames and, last, the exception."""
_HEAD_OF_TRACEBACK = _TRACEBACK.decode()
_BOX = ("│", "╭", "╰", "|", "+")
"""Rich draws tracebacks in a box; the exception stands below it."""
_FLAT = 'File "'
"""A traceback whose indentation a collector of logs took away."""
_KIND = re.compile(r"[\w.]*(?:Error|Exception|Interrupt|Exit|Warning|Timeout)(?::|$)")
_FRAME = re.compile(r'\s*File "(?:[^"]{0,400}/)?(?P<file>[^"/]{1,100})", line (?P<line>\d{1,7})')
_AFTER_BYTES = 240
_HANDLED = re.compile(
    r"\b(?:retrying|retry loop|trying again|will (?:be )?(?:retr|ignor|skip)\w+|falling back)", re.IGNORECASE
)
_IGNORED = "Exception ignored "
"""Python prints this for exceptions that nothing could catch: at its end, in destructors."""
_LINES_BEFORE = 8
"""Other ranks may have written between two lines of one."""
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
_LONGEST_PREFIX_CHARS = 120
_RANK = re.compile(
    r"\[(?:PG [^\]]{0,60}?|rank ?|Rank )(?:Rank )?(?P<rank>\d{1,7})\]|(?<!ocal )\b[Rr]ank[:= ]\[?(?P<rank2>\d{1,7})\b"
)
_TRAILING = re.compile(r"\d$")
_LEVELS = frozenset(("DEBUG", "INFO", "NOTE", "NOTICE", "WARN", "WARNING", "ERROR", "CRITICAL", "FATAL"))
_LOWER_CASE = frozenset(("error", "timeout", "herror", "gaierror"))
"""Exceptions of Python's own modules that are not capitalised: socket, struct, zlib."""
_RANGE = re.compile(r"(?P<first>\d{1,7})(?:-(?P<last>\d{1,7}))?")
_MAX_TASKS = 4096
_ORIGINAL = "Original Traceback (most recent call last):"
"""PyTorch's data loader raises the exception of its worker anew, with the worker's own traceback below it."""
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|<frozen |/torch/_|/conda/")
"""Files of these frames are libraries': the frame above them is of the program."""
_CHAINS = {"During handling of the above exception": "during", "The above exception was the direct cause": "cause"}
"""How Python joins two tracebacks: an exception was raised while another one was handled, or in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some whole lines of a log: bytes, the number of the first line (from 1), and whether it is the last piece."""

    data: bytes
    line: int
    offset: int
    is_last: bool = False
    is_numbered: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """How much of one log is read: all of it up to ``whole_bytes``, of a larger one its beginning and its end.

    What is compressed cannot be read from its end: of more than ``whole_bytes`` only that much is read.
    """

    whole_bytes: int = 4 * GIB
    head_bytes: int = 256 * MIB
    tail_bytes: int = GIB


def open_log(path: Path) -> IO[bytes]:
    """Open a log, decompressed by its content, not by its name.

    Raises
    ------
    InputError
        It cannot be read, or is no file.
    """
    try:
        if not path.is_file():
            what = "a folder" if path.is_dir() else "no regular file" if path.exists() else "not there"
            raise InputError(f"{path}: {what}", hint="name the log files themselves")
        raw = path.open("rb")
        return open_decompressed(raw, raw.peek(HEAD_BYTES)[:HEAD_BYTES])
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", hint="check its rights") from error


def _find_open_traceback(data: bytes, cut: int) -> int:
    """Return where a line begins after which an exception may not have come yet; -1 where there is none."""
    position = data.find(_TRACEBACK, max(0, cut - EXCEPTION_REACH_BYTES), cut)
    if position < 0:
        return -1
    begin = max(data.rfind(b"\n", 0, position), data.rfind(b"\r", 0, position)) + 1
    # a line before shows whether it is ignored; after carriage returns or a long line it is not worth waiting for
    low = max(0, begin - _LONGEST_BEFORE_BYTES)
    for _ in range(_LINES_BEFORE):
        before = data.rfind(b"\n", low, max(0, begin - 1)) + 1
        if not begin or (not before and low):
            break
        begin = before
    return begin


def read_bytes(stream: IO[bytes] | _Limited, max_bytes: int) -> tuple[bytes, Exception | None]:
    """Return the next bytes, fewer only at the end, and why it ended there where it is damaged.

    What precedes the damage is valid: a node that dies leaves compressed logs without an end.
    """
    read = getattr(stream, "read1", stream.read)
    parts, size = [], 0
    try:
        while size < max_bytes and (data := read(max_bytes - size)):
            parts.append(data)
            size += len(data)
    except BROKEN as error:
        return b"".join(parts), error
    return b"".join(parts), None


def read_pieces(stream: IO[bytes] | _Limited, *, max_bytes: int = PIECE_BYTES) -> Iterator[Piece]:
    """Yield a stream in pieces of whole lines; lines end with LF, CR or both.

    Raises
    ------
    OSError, EOFError, lzma.LZMAError, zlib.error
        It is damaged, after everything before the damage was yielded.
    """
    rest, line, offset = b"", 1, 0
    broken: Exception | None = None
    while broken is None:
        data, broken = read_bytes(stream, max_bytes)
        if not data:
            break
        whole = rest + data
        cut = max(whole.rfind(b"\n"), whole.rfind(b"\r")) + 1
        overlap = 0
        if (traceback := _find_open_traceback(whole, cut)) >= 0:
            cut = traceback
        elif not cut and len(whole) >= MAX_REST_BYTES:
            cut, overlap = len(whole), OVERLAP_BYTES
        if cut:
            yield Piece(data=whole[:cut], line=line, offset=offset)
            line += whole.count(b"\n", 0, cut)
            offset += cut - overlap
            rest = whole[cut - overlap :]
        else:
            rest = whole
    yield Piece(data=rest, line=line, offset=offset, is_last=True)
    if broken is not None:
        raise broken


class _Limited:
    """The next bytes of a stream, and no more."""

    def __init__(self, stream: IO[bytes], max_bytes: int) -> None:
        self._read = getattr(stream, "read1", stream.read)
        self.remaining_bytes = max_bytes

    def read(self, max_bytes: int) -> bytes:
        """Return some of them."""
        data: bytes = self._read(min(max_bytes, self.remaining_bytes)) if self.remaining_bytes else b""
        self.remaining_bytes -= len(data)
        return data


def read_limited_pieces(stream: IO[bytes], limits: ReadLimits) -> Iterator[Piece]:
    """Yield a log in pieces as `read_pieces` does, of one that is too large only the beginning and the end.

    Raises
    ------
    OSError, EOFError, lzma.LZMAError, zlib.error
        It is damaged.
    """
    size = find_size_bytes(stream)
    if size is not None and size <= limits.whole_bytes:
        yield from read_pieces(stream)
        return
    head = _Limited(stream, limits.whole_bytes if size is None else limits.head_bytes)
    last_line = 1
    for piece in read_pieces(head):
        yield piece
        last_line = piece.line + piece.data.count(b"\n")
    if size is None:
        return
    start = size - limits.tail_bytes
    stream.seek(start)
    for piece in read_pieces(stream):
        yield replace(piece, offset=start + piece.offset, line=last_line + piece.line, is_numbered=False)


def describe_limits(stream: IO[bytes], limits: ReadLimits, read_bytes_in_all: int) -> str:
    """Return which part of a log was read, as text; empty where it was read whole."""
    size = find_size_bytes(stream)
    if size is None:
        is_cut = read_bytes_in_all >= limits.whole_bytes
        return f"only the first {_format_size(limits.whole_bytes)} of its content were read" if is_cut else ""
    if size <= limits.whole_bytes:
        return ""
    head, tail = _format_size(limits.head_bytes), _format_size(limits.tail_bytes)
    return f"only the first {head} and the last {tail} of {_format_size(size)} were read"


def find_size_bytes(stream: IO[bytes]) -> int | None:
    """Return the size of a file as it is; ``None`` of one that is decompressed."""
    raw = getattr(stream, "raw", None)
    return os.fstat(stream.fileno()).st_size if isinstance(raw, io.FileIO) else None


def _format_size(size_bytes: int) -> str:
    for unit, power in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size_bytes >= power:
            return f"{size_bytes / power:.4g} {unit}"
    return f"{size_bytes} bytes"


class KernelLines:
    """The lines of a kernel log, as text: of a long one the beginning, to the end or to where it is damaged."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.problem = ""

    def __iter__(self) -> Iterator[str]:
        """Yield lines."""
        try:
            while raw := self._stream.readline(_LONGEST_KERNEL_LINE_BYTES):
                yield raw.decode("utf-8", "replace")
                while len(raw) == _LONGEST_KERNEL_LINE_BYTES and not raw.endswith(b"\n"):
                    raw = self._stream.readline(_LONGEST_KERNEL_LINE_BYTES)
        except BROKEN as error:
            self.problem = f"damaged: {error}"


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


def read_exception(data: bytes, line: LogLine) -> tuple[dict[str, str], str, int] | None:
    """Return the end of a traceback: type and message, the line, and where it begins; ``None`` where it is cut off.

    Lines of other ranks in between are passed over by their labels.
    """
    position, stop = line.end, min(len(data), line.end + EXCEPTION_REACH_BYTES)
    frames, is_flat = _Frames(), False
    prefix = _compile_prefix(line.text)
    is_stamped = _STAMP.match(line.text) is not None
    while position < stop:
        begin = position + 1
        end = data.find(b"\n", begin, stop)
        if end < 0:
            end = stop
        labelled_line = parse_label(strip_escapes(data[begin:end][:REACH_BYTES]))
        labelled_line = _strip_stamp(labelled_line) if is_stamped else labelled_line
        text, position = labelled_line.text.rstrip("\r\n "), end
        if prefix is not None and (start := prefix.match(text)) is not None:
            text = text[start.end() :]
        if labelled_line.label != line.label or not text.strip() or _RAY_TASK.match(text) or text == _ORIGINAL:
            continue
        if text[:1] in " \t":
            frames.take(text)
            continue
        if text.startswith(_FLAT):
            is_flat = True
        if text.startswith((_FLAT, *_BOX)) or (is_flat and not _KIND.match(text)):
            frames.take(text)
            continue
        match = _RAISED.match(text)
        if match is None or not _is_class(match["type"]):
            is_flat = True  # cut off, or another rank without a label writes in between: only what is surely one counts
            continue
        after = data[position : position + _AFTER_BYTES].decode("utf-8", "replace")
        if (match["message"] or "").startswith("Caught ") and _ORIGINAL in after:
            frames = _Frames()
            continue
        fields = {"type": match["type"].rpartition(".")[2]}
        if match["message"]:
            fields["message"] = match["message"][:300]
        fields |= frames.fields()
        if _IGNORED in _find_line_before(data, line) or _HANDLED.search(after):
            fields["handled"] = "yes"
        chained = next((how for words, how in _CHAINS.items() if words in after), "")
        return fields | ({"chained": chained} if chained else {}), text[:400], begin
    return None


def _is_class(name: str) -> bool:
    """Return whether a name can be of an exception: ranks write ``INFO: ...`` or ``memory: 41 GiB`` in between."""
    last = name.rpartition(".")[2].lstrip("_")
    return (last[:1].isupper() and last not in _LEVELS) or last in _LOWER_CASE


def _find_line_before(data: bytes, line: LogLine) -> str:
    """Return the line before this one that has the same label; empty where none of the last few has it."""
    raw_lines = data[max(0, line.start - REACH_BYTES) : line.start].splitlines()[-_LINES_BEFORE:]
    for raw in reversed(raw_lines):
        labelled = parse_label(strip_escapes(raw))
        if labelled.label == line.label and labelled.text.strip():
            return labelled.text
    return ""


class _Frames:
    """The frames of one traceback, as they are read: the last one, and the last that is no library's."""

    def __init__(self) -> None:
        self._last = self._own = ""
        self._is_raised = False

    def take(self, text: str) -> None:
        """Read a line of a traceback."""
        match = _FRAME.match(text)
        if match is None:
            stripped = text.strip()
            if stripped.strip("^~ "):
                self._is_raised = stripped.startswith("raise ")
            return
        self._last, self._is_raised = f"{match['file']}:{match['line']}", False
        if _LIBRARY.search(text) is None:
            self._own = self._last

    def fields(self) -> dict[str, str]:
        """Return where the exception was raised: in the program's own code if that is there (``at``), and last."""
        at = self._own or self._last
        fields = {"at": at, "file": self._last.partition(":")[0]} if at else {}
        return fields | ({"raised": "yes"} if self._is_raised else {})


def _compile_prefix(text: str) -> re.Pattern[str] | None:
    """Return what a logger (vLLM's and others) writes before every line of a traceback: the same, but for numbers."""
    head = text[: max(text.find(_HEAD_OF_TRACEBACK), 0)]
    if not 3 <= len(head) <= _LONGEST_PREFIX_CHARS:
        return None
    return re.compile(re.sub(r"\d+", r"\\d+", re.escape(head)), re.ASCII)


def is_plain_end(kind: str) -> bool:
    """Return whether an exception only reports that the program was asked to end."""
    return kind in _PLAIN_ENDS
