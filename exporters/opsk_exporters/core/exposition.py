"""Builds metric families, and writes them in Prometheus' text format 0.0.4, or as OpenMetrics on request.

Both are the same as prometheus_client's, byte for byte (a test compares them), in a quarter of its time: the labels of
a series are the same at every scrape, so that they are formatted only once.
"""

from __future__ import annotations

import contextlib
import gzip
import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from zlib import crc32

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from opsk.errors import InputError, UnavailableError

_LONGEST_LABEL = 256
TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_SUFFIX = {"counter": ("_total", "counter"), "info": ("_info", "gauge")}
_MAX_KNOWN = 20_000
"""Label sets that are remembered; jobs come and go, so that there is a bound."""
_GZIP_LEVEL = 1


def write_textfile(path: Path, content: bytes) -> None:
    """Write one scrape.

    It is for node_exporter's textfile collector (``--collector.textfile.directory``). The file is written completely
    under a temporary name and then renamed: a reader sees the old scrape or the new one. The temporary name does not
    end in ``.prom``, so that nobody reads it.

    Raises
    ------
    UnavailableError
        The file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), 0o644)  # node_exporter has a user of its own, whatever our umask is
            file.write(content)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise UnavailableError(f"{path}: {error.strerror}", hint="the folder must be there and writable") from error


class Families:
    """The metric families of one collection, in the order in which they were first named.

    No value and no hostile name can break the scrape. A value that is ``None`` adds no series: what is not known is
    absent, never zero. A value that is no float raises here, in the collector's own run, and not when the metrics of
    all are written.
    """

    def __init__(self) -> None:
        self._families: dict[str, Metric] = {}

    def gauge(self, name: str, help_text: str, value: float | None, /, **labels: str) -> None:
        """Add one sample of a quantity that goes up and down."""
        if value is not None:
            family = self._families.get(name) or self._begin(GaugeMetricFamily, name, name, help_text)
            family.samples.append(Sample(name, _clean_labels(labels), float(value)))

    def counter(self, name: str, help_text: str, value: float | None, /, **labels: str) -> None:
        """Add one sample of a quantity that only grows; ``name`` ends in ``_total``."""
        if value is not None:
            family = self._families.get(name)
            if family is None:
                family = self._begin(CounterMetricFamily, name, _remove_suffix(name, "counter", "_total"), help_text)
            family.samples.append(Sample(name, _clean_labels(labels), float(value)))
        elif name not in self._families:
            _remove_suffix(name, "counter", "_total")

    def info(self, name: str, help_text: str, /, **labels: str | None) -> None:
        """Add facts in words as the labels of a series of value 1; ``name`` ends in ``_info``."""
        family = self._families.get(name)
        if family is None:
            family = self._begin(InfoMetricFamily, name, _remove_suffix(name, "info", "_info"), help_text)
        family.samples.append(Sample(name, _clean_labels({key: value or "" for key, value in labels.items()}), 1.0))

    def all(self) -> tuple[Metric, ...]:
        """Return the families that have at least one sample."""
        return tuple(self._families.values())

    def _begin(self, kind: Callable[[str, str], Metric], name: str, stem: str, help_text: str) -> Metric:
        """Create a family, stored by the name of its samples."""
        family = self._families[name] = kind(stem, help_text)
        return family


def _remove_suffix(name: str, kind: str, suffix: str) -> str:
    """Return the name of a family whose samples have a suffix."""
    if not name.endswith(suffix):
        raise InputError(f"{kind} {name}: the name of such a metric ends in {suffix}")
    return name.removesuffix(suffix)


def _clean_labels(labels: dict[str, str]) -> dict[str, str]:
    """Return labels whose values can be written as UTF-8: names of devices may hold any byte.

    Nearly all are plain already, and there is one call a sample: those are detected first.
    """
    for value in labels.values():
        if len(value) > _LONGEST_LABEL or not value.isascii():
            return {name: _sanitise_label(value) for name, value in labels.items()}
    return labels


def _sanitise_label(value: str) -> str:
    """Return the value of a label, truncated and without invalid characters; a checksum replaces what is lost.

    Two names that differ stay two: a series that comes twice is an error of the whole scrape.
    """
    shown = value[:_LONGEST_LABEL].encode("utf-8", "replace").decode("utf-8")
    if shown == value:
        return value
    return f"{shown[: _LONGEST_LABEL - 9]}~{crc32(value.encode('utf-8', 'surrogatepass')):08x}"


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
