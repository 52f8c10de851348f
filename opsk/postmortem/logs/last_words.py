"""Reads what a log says last, with signatures that count there alone and that no fragment is searched for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from opsk.postmortem.logs.lines import LogLine, find_line, read_fields
from opsk.postmortem.logs.matching import TRIED_AGAIN
from opsk.postmortem.logs.ordinary import is_of_launcher, is_of_script, is_ordinary
from opsk.postmortem.logs.pieces import Piece
from opsk.postmortem.signatures.signature import Signature, signatures
from opsk.units import KIB

_TAIL_BYTES = 4 * KIB
_MAX_LINES = 24
_HEAD_BYTES, _ABOVE_BYTES, _OFTEN = 14, 16 * KIB, 2
_OF_OTHERS = re.compile(
    r": (?:line )?\d{1,6}: |^(?:\S{0,200}/)?(?:mkdir|rmdir|ls|cp|mv|rm|cat|ln|tar|gzip|gunzip|unzip|find|grep|sed|awk"
    r"|head|tail|wc|chmod|chown|touch|stat|rsync|scp|wget|curl|git|diff|sort|which|module|cd|kill|lscpu|numactl"
    r"|nvidia-smi|ps|df|du): |\.py:\d{1,6} -- |(?i:signal \d|sig(?:term|int|usr)|keyboard ?interrupt)"
)
"""A shell of a line of its script, and tools: they have signatures of their own, and scripts go on after them. So have
signals. Ray's logger tells of its own services."""
_OF_LOGGER = re.compile(r"\b(?:DEBUG|INFO|WARN(?:ING)?)\b")
"""A program that logs below what failed went on."""
_BLANK = (b"\n", b"\r", b" ", b"\t")
_MAX_WORDS = 3
"""So many of the last lines that are no launcher's, no epilogue's and no frame are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWord:
    """One of a log's last lines, and the signature that it has."""

    signature: Signature
    line: LogLine
    fields: dict[str, str]


def find_last_word(piece: Piece) -> LastWord | None:
    """Return the last line of a log that says that something failed; ``None`` where a program works on below it."""
    count = 0
    for line in _iterate_lines(piece):
        is_other = _OF_OTHERS.search(line.text) is not None or TRIED_AGAIN.search(line.text) is not None
        for signature in () if is_other else _list_signatures():
            if any(each in line.text for each in signature.fragments) and (
                (fields := read_fields(signature, line.text)) is not None
            ):
                return None if _is_repeated(piece, line) else LastWord(signature=signature, line=line, fields=fields)
        count += not is_of_script(line.text)
        if count == _MAX_WORDS or is_ordinary(line.text) or _OF_LOGGER.search(line.text) is not None:
            break
    return None


def _is_repeated(piece: Piece, line: LogLine) -> bool:
    """Return whether a program says the same all the time: it does not end by it."""
    head = re.sub(rb"\d+", rb"\\d+", re.escape(piece.data[line.start : line.start + _HEAD_BYTES]))
    above = piece.data[max(0, line.start - _ABOVE_BYTES) : line.start]
    return len(re.findall(head, above)) >= _OFTEN


@cache
def _list_signatures() -> tuple[Signature, ...]:
    """Return the signatures that count in the last lines alone."""
    return tuple(each for each in signatures() if each.follow == "tail")


def _iterate_lines(piece: Piece) -> Iterator[LogLine]:
    """Yield the last lines of a log that a program or its script wrote, the last first."""
    data, stop = piece.data, len(piece.data)
    begin = max(0, stop - _TAIL_BYTES)
    for _ in range(_MAX_LINES):
        while stop > begin and data[stop - 1 : stop] in _BLANK:
            stop -= 1
        if stop <= begin:
            return
        line = find_line(data, stop)
        stop = line.start
        if line.text and not is_of_launcher(line.text):
            yield line
