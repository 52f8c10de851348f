"""Splits the bytes of a log into lines and parses the label of the process that printed each.

Progress bars end with a carriage return, colours are removed, and a line without an end is held back until it has one.
What ``srun -l``, ``pdsh``, ``mpirun`` and torchrun write before a line is removed and becomes its label.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from opsk.units import KIB

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
    r"|(?P<host>(?!slurmstepd-)(?=[\w.-]*\d)[A-Za-z][\w.-]{0,63}): "
    r"|\((?P<ray>[\w.:]{1,64} pid=\d{1,10}(?:, ip=[\w.:]{1,64})?)\)\s"
    r")",
    re.ASCII,
)
_MAX_LABELS = 3
_RANKS = ("srun", "rank", "torchrun", "elastic", "mpi")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
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


def parse_label(text: str, number: int = 0) -> Line:
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
        start, before = match.end(), kind
    return Line(text=text[start:], label=label, rank=rank, number=number, local_rank=local, node_rank=node)


def trim_partial_word(text: str) -> str:
    """Return the complete part of an unfinished line: no last word, unless it ends in ``|``, ``}`` or ``]``."""
    stripped = text.rstrip()
    if stripped != text or stripped.endswith(("|", "}", "]")):
        return stripped
    return re.sub(r"[^\s|,]*$", "", stripped)
