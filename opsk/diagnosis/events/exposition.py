"""What does the page of an exporter say, of the few families that are wanted? The one parser of such pages.

A page has some 1,500 series, of which a map of GPUs needs a tenth. Series of a family stand together behind the line
that tells its type (the text format, version 0.0.4), so that the others are passed over without being read. Pages
without such lines, or that come line by line, are read by `samples_of_lines`, and all that is in a page of one
program by `stamped_samples`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping

from opsk.diagnosis.events.from_samples import Sample

_TYPE = re.compile(rb"^# TYPE (\S+) [a-z]+$", re.MULTILINE)
_LINE = re.compile(
    r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{([^"}]*(?:"[^"\\]*(?:\\.[^"\\]*)*"[^"}]*)*)\})?[ \t]+(\S+)'
    r"(?:[ \t]+(-?\d{1,15}))?[ \t]*$"
)
_NAME = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_SIGNS = {"n": "\n"}
_ZERO = (" 0", " 0.0")
NOTHING: Mapping[str, str] = {}


def samples(
    page: bytes, names: Iterable[str], *, only: Mapping[str, str] = NOTHING, without_zeros: Container[str] = ()
) -> Iterator[Sample]:
    """Yield the series of the named metrics, as they are named in the page; lines that are none are passed over.

    Parameters
    ----------
    only
        By metric, a label as the page has it (``clock="sm"``): series without it are passed over unread.
    without_zeros
        Metrics of which a zero says nothing.
    """
    begins = {found[1]: found.end() for found in _TYPE.finditer(page)}
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
            sample = _sample(line, name)
            if sample is not None:
                yield sample


def samples_of_lines(lines: Iterable[bytes], names: Collection[str]) -> Iterator[Sample]:
    """Yield the named series of the lines of a page; lines that are none are passed over."""
    wanted = frozenset(name.encode("ascii") for name in names)
    for line in lines:
        found = _NAME.match(line)
        if found is None or found[0] not in wanted:
            continue
        sample = _sample(line.decode("utf-8", errors="replace"), found[0].decode("ascii"))
        if sample is not None:
            yield sample


def stamped_samples(lines: Iterable[bytes], prefix: str) -> Iterator[tuple[Sample, float | None]]:
    """Yield all series whose names begin so, with the time that they carry [s since 1970]."""
    begin = prefix.encode("ascii")
    for line in lines:
        if not line.startswith(begin):
            continue
        found = _LINE.match(line.decode("utf-8", errors="replace"))
        sample = _sample_of(found) if found is not None else None
        if found is not None and sample is not None:
            yield sample, int(found[4]) / 1000.0 if found[4] else None


def _sample(line: str, name: str) -> Sample | None:
    if not line.startswith(name):
        return None
    found = _LINE.match(line)
    return _sample_of(found) if found is not None and found[1] == name else None


def _sample_of(found: re.Match[str]) -> Sample | None:
    try:
        value = float(found[3])
    except ValueError:
        return None
    return Sample(found[1], {key: _plain(text) for key, text in _LABEL.findall(found[2] or "")}, value)


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda sign: _SIGNS.get(sign[1], sign[1]), text) if "\\" in text else text
