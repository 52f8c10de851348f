"""How does a collector write down its metrics, so that no value and no hostile name can spoil the scrape?

A value that is ``None`` adds no series: what is not known is absent, never zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

from opsk.errors import InputError

_LONGEST_LABEL = 256


class Families:
    """The metric families of one collection, in the order in which they were first named."""

    def __init__(self) -> None:
        self._families: dict[str, Metric] = {}

    def gauge(self, name: str, help_text: str, value: float | None, **labels: str) -> None:
        """Add one sample of a quantity that goes up and down."""
        if value is not None:
            family = self._family(GaugeMetricFamily, name, help_text)
            family.add_sample(name, _clean(labels), value)

    def counter(self, name: str, help_text: str, value: float | None, **labels: str) -> None:
        """Add one sample of a quantity that only grows; ``name`` ends in ``_total``."""
        if not name.endswith("_total"):
            raise InputError(f"counter {name}: the name of a counter ends in _total")
        if value is not None:
            family = self._family(CounterMetricFamily, name.removesuffix("_total"), help_text)
            family.add_sample(name, _clean(labels), value)

    def info(self, name: str, help_text: str, **labels: str | None) -> None:
        """Add facts in words as the labels of a series of value 1; ``name`` ends in ``_info``."""
        if not name.endswith("_info"):
            raise InputError(f"info {name}: the name of an info metric ends in _info")
        family = self._family(InfoMetricFamily, name.removesuffix("_info"), help_text)
        family.add_sample(name, _clean({key: value or "" for key, value in labels.items()}), 1.0)

    def all(self) -> tuple[Metric, ...]:
        """Return the families that have at least one sample."""
        return tuple(self._families.values())

    def _family(self, kind: Callable[[str, str], Metric], name: str, help_text: str) -> Metric:
        """Return the family of that name, made on first use."""
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = kind(name, help_text)
        return family


def _clean(labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels whose values can be written as UTF-8: names of devices may hold any byte."""
    return {name: value[:_LONGEST_LABEL].encode("utf-8", "replace").decode("utf-8") for name, value in labels.items()}
