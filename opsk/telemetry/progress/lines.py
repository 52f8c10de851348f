"""Splits the bytes of a log into lines, removes the labels of ranks, and parses values into SI units.

Progress bars end with a carriage return, colours are removed, and a line without an end is held back until it has one.
What ``srun -l``, ``pdsh``, ``mpirun`` and torchrun write before a line is removed and becomes its label.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache

from opsk.units import KIB

NUMBER = r"[-+]?(?:\d+(?:,\d{3})*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|NaN|NAN|inf|Inf|INF|Infinity)"
_NUMBER = re.compile(rf"\s*['\"]?({NUMBER})\s*([KkMBGT]?)(?![\w])", re.ASCII)
_SCALE = {"": 1.0, "K": 1e3, "k": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_SIZE = re.compile(rf"\s*({NUMBER})\s*([KMGT]?)(i?)B", re.ASCII | re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_STAMP = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[ T](\d{2}):(\d{2}):(\d{2})(?:[.,](\d{1,9}))?\s?(Z|[+-]\d{2}:?\d{2})?", re.ASCII
)
_LOOKED_AT = 160
"""A line's time stands near its beginning."""
LONGEST_LINE_BYTES = 16 * KIB
"""What is longer is cut: no progress line is, dumps of configurations are."""
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_ENDS = re.compile(rb"[\r\n]+")
_LABEL = re.compile(
    r"\s*(?:"
    r"(?P<srun>\d{1,7}): "
    r"|\[?[Rr]ank[ _]?(?P<rank>\d{1,7})\]?:\s?"
    r"|\[(?:default|trainer)(?P<local>\d{1,7})\]:\s?"
    r"|\[(?P<torchrun>\d{1,7})\]:\s?"
    r"|\[[\w.-]{1,64}\|(?P<elastic>\d{1,7})\]:\s?"
    r"|\[\d{1,7},(?P<mpi>\d{1,7})\](?:<std(?:out|err)>)?:\s?"
    r"|\[(?:(?P<task_host>(?=[\w.-]*\d)[A-Za-z][\w.-]{0,63})|[A-Za-z][\w.-]{0,63}):(?P<task>\d{1,7})\]: "
    r"|(?P<tasks>\d{1,7}(?:[-,]\d{1,7}){1,16}): "
    r"|(?P<host>(?!slurmstepd-|mlx[45]: |[\w.]*(?:Error|Exception|Warning|Interrupt|Exit): )(?=[\w.-]*\d)"
    r"[A-Za-z][\w.-]{0,63}): (?!line \d{1,6}: )"
    r"|\((?P<ray>(?:[\w.:]{1,64}(?: (?:rank=|TP)\d{1,5})? pid=\d{1,10}|raylet)(?:, ip=[\w.:]{1,64})?)\)\s"
    r")",
    re.ASCII,
)
_MAX_LABELS = 3
_RANKS = ("srun", "rank", "torchrun", "elastic", "mpi", "task")


def parse_number(text: str) -> float | None:
    """Return the number that a text begins with: ``1,234.5``, ``1.23K``, ``nan``; ``None`` when there is none."""
    match = _NUMBER.match(text)
    if match is None:
        return None
    try:
        return float(match[1].replace(",", "")) * _SCALE[match[2]]
    except ValueError:
        return None


def parse_positive(text: str) -> float | None:
    """Return the number that a text begins with if it can be a time or a rate."""
    value = parse_number(text)
    return value if value is not None and math.isfinite(value) and value > 0 else None


def parse_whole(text: str) -> int | None:
    """Return a whole number: ``1,000`` and ``794.0`` too."""
    value = parse_number(text)
    return int(value) if value is not None and math.isfinite(value) and 0 <= value < 1e15 else None


def parse_size_bytes(text: str, *, binary: bool = True) -> float | None:
    """Return a size in bytes; what is called GB is 2**30 bytes where a framework means that."""
    match = _SIZE.match(text)
    value = parse_number(match[1]) if match else None
    if match is None or value is None or not math.isfinite(value) or value < 0:
        return None
    base = 1024.0 if binary or match[3] else 1000.0
    return float(value * base ** _POWERS[match[2].upper()])


def parse_timestamp_unix_s(text: str) -> float | None:
    """Return the time that stands near the beginning of a line [s since 1970]; without a zone it is read as UTC."""
    match = _STAMP.search(text, 0, _LOOKED_AT)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(match[group]) for group in range(1, 7))
    try:
        whole_s = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC).timestamp()
    except ValueError:
        return None
    return whole_s + (float(f"0.{match[7]}") if match[7] else 0.0) - _parse_zone_s(match[8])


def _parse_zone_s(text: str | None) -> float:
    """Return how far a zone is ahead of UTC [s]."""
    if not text or text == "Z":
        return 0.0
    ahead = int(text[1:3]) * 3600.0 + int(text[-2:]) * 60.0
    return -ahead if text[0] == "-" else ahead


def parse_duration_s(text: str) -> float | None:
    """Return ``H:MM:SS``, ``MM:SS`` or ``1 day, H:MM:SS`` in seconds."""
    days, _, clock = text.rpartition("day")
    parts = clock.lstrip("s, ").split(":")
    if not 2 <= len(parts) <= 3 or not all(part.strip().isdecimal() and len(part) < 8 for part in parts):
        return None
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return seconds + 86400.0 * (parse_whole(days) or 0)


def split_piped_fields(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and value of ``name: value | name: value |``, names in lower case."""
    for part in text.split("|"):
        name, sign, value = part.rpartition(":")
        if sign:
            yield name.strip().lower(), value.strip()


def drop_missing(**values: float | None) -> Mapping[str, float]:
    """Return the values that are there."""
    return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabeledLine:
    """One line without its label: who printed it, its rank if the label has it, and its number in the file.

    torchrun numbers the ranks of one node (``[default3]:``): that is ``local_rank``, and what ``srun -l`` puts before
    it the number of the task that torchrun is, ``node_rank``.
    """

    text: str
    label: str = ""
    rank: int | None = None
    number: int = 0
    local_rank: int | None = None
    node_rank: int | None = None


class LineSplitter:
    """Cuts bytes into lines as they come, in constant memory.

    Parameters
    ----------
    words
        Only lines that have one of these are yielded; nearly all lines of a log have none, and are not decoded.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self._words = find_minimal_words(frozenset(words))
        self._rest = b""
        self._skips = False
        self.count = 1

    def feed(self, data: bytes) -> Iterator[tuple[int, str]]:
        """Yield number and text of every line that is complete now."""
        data = self._rest + data
        words = [word for word in self._words if word in data]
        start = 0
        if not words and not self._skips:
            # A chunk of lines without any word, as most are in a log of a verbose library: only counted.
            start = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
            self.count += data.count(b"\n", 0, start)
        for end in _ENDS.finditer(data, start):
            piece, self._skips, skipped = data[start : end.start()], False, self._skips
            if piece and not skipped and _contains_any(piece, words):
                yield self.count, strip_escapes(piece[:LONGEST_LINE_BYTES])
            self.count += end[0].count(b"\n")
            start = end.end()
        self._rest = data[start:]
        if len(self._rest) > LONGEST_LINE_BYTES:
            if not self._skips and _contains_any(self._rest, words):
                yield self.count, strip_escapes(self._rest[:LONGEST_LINE_BYTES])
            self._rest, self._skips = b"", True

    def rest(self) -> str | None:
        """Return the text after the last end of a line, and drop it."""
        rest, self._rest, skips, self._skips = self._rest, b"", self._skips, False
        return strip_escapes(rest) if rest and not skips and _contains_any(rest, self._words) else None


def _contains_any(piece: bytes, words: Iterable[bytes]) -> bool:
    """Return whether a line has one of the words; a plain loop, for it runs for every line."""
    for word in words:  # noqa: SIM110
        if word in piece:
            return True
    return False


@cache
def find_minimal_words(words: frozenset[str]) -> tuple[bytes, ...]:
    """Return the words that contain no other of them: a search for these finds all."""
    known = sorted((word.encode() for word in words), key=len)
    return tuple(word for word in known if not any(other in word for other in known if other != word))


def strip_escapes(data: bytes) -> str:
    """Return text without colours and cursor movements."""
    text = data.decode("utf-8", "replace")
    return _ANSI.sub("", text) if "\x1b" in text else text


def parse_label(text: str, number: int = 0) -> LabeledLine:
    """Take the labels off a line."""
    label, start, before = "", 0, ""
    rank: int | None = None
    local: int | None = None
    node: int | None = None
    for _ in range(_MAX_LABELS):
        match = _LABEL.match(text, start)
        if match is None:
            break
        kind = match.lastgroup or ""
        if kind == "local":
            local, node, rank = int(match[kind]), rank, None
        elif kind in _RANKS:
            # torchrun --role rank writes [rank3]: for its third before PyTorch's own [rank11]:
            local = rank if kind == before == "rank" and local is None else local
            rank = int(match[kind])
        label += f"{kind}{match[kind]} "
        if match["task_host"]:
            label += f"host{match['task_host']} "
        start, before = match.end(), kind
    return LabeledLine(text=text[start:], label=label, rank=rank, number=number, local_rank=local, node_rank=node)


def trim_partial_word(text: str) -> str:
    """Return the complete part of an unfinished line: no last word, unless it ends in ``|``, ``}`` or ``]``."""
    stripped = text.rstrip()
    if stripped != text or stripped.endswith(("|", "}", "]")):
        return stripped
    return re.sub(r"[^\s|,]*$", "", stripped)
