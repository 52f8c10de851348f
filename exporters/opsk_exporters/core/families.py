"""Builds the metric families of a collector, so that no value and no hostile name can break the scrape.

A value that is ``None`` adds no series: what is not known is absent, never zero. A value that is no float raises here,
in the collector's own run, and not when the metrics of all are written.
"""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.samples import Sample

from opsk.errors import InputError

_LONGEST_LABEL = 256


class Families:
    """The metric families of one collection, in the order in which they were first named."""

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
