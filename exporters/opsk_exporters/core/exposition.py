"""Writes metrics in Prometheus' text format 0.0.4, or as OpenMetrics on request.

Both are the same as prometheus_client's, byte for byte (a test compares them), in a quarter of its time: the labels of
a series are the same at every scrape, so that they are formatted only once.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.utils import floatToGoString

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_SUFFIX = {"counter": ("_total", "counter"), "info": ("_info", "gauge")}
_MAX_KNOWN = 20_000
"""Label sets that are remembered; jobs come and go, so that there is a bound."""
_GZIP_LEVEL = 1


class Writer:
    """Writes metrics, and remembers how label sets are written."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, str], ...], str] = {}

    def text(self, metrics: Iterable[Metric]) -> bytes:
        """Return metrics in Prometheus' text format."""
        lines: list[str] = []
        for metric in metrics:
            suffix, kind = _SUFFIX.get(metric.type, ("", metric.type))
            name, about = metric.name + suffix, _escape_help(metric.documentation)
            lines.append(f"# HELP {name} {about}\n# TYPE {name} {'untyped' if kind == 'unknown' else kind}\n")
            self._add_samples(lines, metric)
        return "".join(lines).encode("utf-8")

    def openmetrics(self, metrics: Iterable[Metric]) -> bytes:
        """Return metrics as OpenMetrics 1.0, which Prometheus prefers."""
        lines: list[str] = []
        for metric in metrics:
            about = _escape_help(metric.documentation).replace('"', r"\"")
            lines.append(f"# HELP {metric.name} {about}\n# TYPE {metric.name} {metric.type}\n")
            self._add_samples(lines, metric)
        lines.append("# EOF\n")
        return "".join(lines).encode("utf-8")

    def _add_samples(self, lines: list[str], metric: Metric) -> None:
        """Add the lines of a metric's samples."""
        for sample in metric.samples:
            value = sample.value
            labels = self._labels(sample.labels) if sample.labels else ""
            # Most values are not large: then Python writes them as Go does.
            plain = type(value) is float and -1e6 < value < 1e6
            shown = repr(value) if plain else floatToGoString(value)  # type: ignore[no-untyped-call]
            lines.append(f"{sample.name}{labels} {shown}\n")

    def _labels(self, labels: dict[str, str]) -> str:
        """Return a label set as it is written."""
        key = tuple(labels.items())
        formatted = self._known.get(key)
        if formatted is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            pairs = (f'{name}="{_escape(value)}"' for name, value in sorted(labels.items()))
            formatted = self._known[key] = f"{{{','.join(pairs)}}}"
        return formatted


def _escape(value: str) -> str:
    """Return the value of a label with what would end it escaped."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _escape_help(text: str) -> str:
    """Return a help text on one line."""
    return text.replace("\\", r"\\").replace("\n", r"\n")


def format_response(
    writer: Writer, metrics: Iterable[Metric], accept: str, encoding: str
) -> tuple[list[tuple[str, str]], bytes]:
    """Return headers and body for a scraper that accepts these formats and encodings."""
    if _accepts(accept, "application/openmetrics-text"):
        kind, body = OPENMETRICS, writer.openmetrics(metrics)
    else:
        kind, body = TEXT, writer.text(metrics)
    headers = [("Content-Type", kind), ("Vary", "Accept, Accept-Encoding")]
    if _accepts(encoding, "gzip"):
        headers.append(("Content-Encoding", "gzip"))
        body = gzip.compress(body, compresslevel=_GZIP_LEVEL, mtime=0)
    return headers, body


def _accepts(header: str, word: str) -> bool:
    """Tell whether a header of the Accept kind names a word, with a weight that is not 0."""
    for part in header.lower().split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        if name == word:
            weights = [piece[2:] for piece in parameters if piece.startswith("q=")]
            return not weights or not math.isclose(_parse_weight(weights[0]), 0.0)
    return False


def _parse_weight(text: str) -> float:
    """Return a weight; one that is no number counts as 1."""
    try:
        return float(text)
    except ValueError:
        return 1.0
