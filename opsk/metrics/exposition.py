"""Parses the Prometheus text format of exporters, reading only the metric families that are requested.

A page has some 1,500 series, of which a map of GPUs needs a tenth. Series of a family follow the line with its type
(the text format, version 0.0.4), so that the others are skipped without being parsed. `read_line_samples` reads pages
without such lines, or that arrive line by line, and `read_stamped_samples` reads all series in a page of one program.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import NamedTuple

_TYPE = re.compile(rb"^# TYPE (\S+) [a-z]+$", re.MULTILINE)
_LINE = re.compile(
    r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{([^"}]*(?:"[^"\\]*(?:\\.[^"\\]*)*"[^"}]*)*)\})?[ \t]+(\S+)'
    r"(?:[ \t]+(-?\d{1,15}))?[ \t]*$"
)
_NAME = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n"}
_ZERO = (" 0", " 0.0")
NOTHING: Mapping[str, str] = {}


class Sample(NamedTuple):
    """One value of one series."""

    name: str
    labels: Mapping[str, str]
    value: float


def read_samples(
    page: bytes, names: Iterable[str], *, only: Mapping[str, str] = NOTHING, without_zeros: Container[str] = ()
) -> Iterator[Sample]:
    """Yield the series of the named metrics, as they are named in the page; lines that are none are passed over.

    Parameters
    ----------
    only
        By metric, a label as the page has it (``clock="sm"``): series without it are passed over unread.
    without_zeros
        Metrics of which zeros are skipped.
    """
    begins = {match[1]: match.end() for match in _TYPE.finditer(page)}
    for name in names:
        begin = begins.get(name.encode("ascii"), -1)
        if begin < 0:
            continue
        end = page.find(b"\n#", begin)
        block = page[begin : end if end >= 0 else len(page)]
        needle, skips_zeros = only.get(name, ""), name in without_zeros
        for line in block.decode("utf-8", errors="replace").split("\n"):
            if (needle and needle not in line) or (skips_zeros and line.endswith(_ZERO)):
                continue
            sample = _parse_sample(line, name)
            if sample is not None:
                yield sample


def read_line_samples(lines: Iterable[bytes], names: Collection[str]) -> Iterator[Sample]:
    """Yield the named series of the lines of a page; lines that are none are passed over."""
    requested = frozenset(name.encode("ascii") for name in names)
    for line in lines:
        match = _NAME.match(line)
        if match is None or match[0] not in requested:
            continue
        sample = _parse_sample(line.decode("utf-8", errors="replace"), match[0].decode("ascii"))
        if sample is not None:
            yield sample


def read_stamped_samples(lines: Iterable[bytes], prefix: str) -> Iterator[tuple[Sample, float | None]]:
    """Yield all series with this prefix, and their time stamps [s since 1970]."""
    begin = prefix.encode("ascii")
    for line in lines:
        if not line.startswith(begin):
            continue
        match = _LINE.match(line.decode("utf-8", errors="replace"))
        sample = _build_sample(match) if match is not None else None
        if match is not None and sample is not None:
            yield sample, int(match[4]) / 1000.0 if match[4] else None


def _parse_sample(line: str, name: str) -> Sample | None:
    if not line.startswith(name):
        return None
    match = _LINE.match(line)
    return _build_sample(match) if match is not None and match[1] == name else None


def _build_sample(match: re.Match[str]) -> Sample | None:
    try:
        value = float(match[3])
    except ValueError:
        return None
    return Sample(match[1], {key: _unescape(text) for key, text in _LABEL.findall(match[2] or "")}, value)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda sign: _ESCAPES.get(sign[1], sign[1]), text) if "\\" in text else text
