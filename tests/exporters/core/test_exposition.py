"""Is what the exporter writes quickly what prometheus_client writes?"""

from __future__ import annotations

import gzip
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_latest
from prometheus_client.registry import Collector

from opsk_exporters.core.exposition import OPENMETRICS, TEXT, Families, Writer, format_response


class Fixed(Collector):
    def __init__(self, metrics: tuple[Metric, ...]) -> None:
        self._metrics = metrics

    def collect(self) -> tuple[Metric, ...]:
        return self._metrics


def registry(metrics: tuple[Metric, ...]) -> CollectorRegistry:
    found = CollectorRegistry()
    found.register(Fixed(metrics))
    return found


VALUES = (
    st.floats()
    | st.integers(min_value=-(2**70), max_value=2**70)
    | st.sampled_from([0, 0.0, -0.0, 1e6, 999999.5, 1e21, 4294967295, True, math.inf, -math.inf, math.nan])
)
LABELS = st.dictionaries(st.sampled_from(["gpu", "a", "device", "z"]), st.text(max_size=12), max_size=3)


@given(st.lists(st.tuples(VALUES, LABELS), min_size=1, max_size=8), st.text(max_size=20))
def test_the_same_bytes_as_prometheus_client(samples: list[tuple[float, dict[str, str]]], about: str) -> None:
    families = Families()
    for value, labels in samples:
        families.gauge("opsk_a_bytes", f"A {about}", value, **labels)
        families.counter("opsk_b_total", 'B "said" \\ so.', value, **labels)
        families.info("opsk_c_info", "C.", **labels)
    writer, metrics = Writer(), families.all()
    for _ in range(2):  # the second time, labels are remembered
        assert writer.text(metrics) == generate_latest(registry(metrics))
        assert writer.openmetrics(metrics) == openmetrics_latest(registry(metrics))


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", TEXT),
        # What Prometheus 2.42 sends.
        ("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75", OPENMETRICS),
        ("Application/OpenMetrics-Text; q=rubbish", OPENMETRICS),
        ("application/openmetrics-text;q=0, text/plain", TEXT),
    ],
)
def test_the_scraper_gets_the_format_that_it_asks_for(accept: str, kind: str) -> None:
    headers, _ = format_response(Writer(), (), accept, "")
    assert dict(headers)["Content-Type"] == kind


@pytest.mark.parametrize(("encoding", "packed"), [("gzip", True), ("deflate, GZIP;q=0.5", True), ("gzip;q=0", False)])
def test_it_is_packed_for_those_who_can_unpack(encoding: str, packed: bool) -> None:
    families = Families()
    families.gauge("opsk_a", "A.", 1.0)
    headers, body = format_response(Writer(), families.all(), "", encoding)
    assert ("Content-Encoding" in dict(headers)) is packed
    assert b"opsk_a 1.0\n" in (gzip.decompress(body) if packed else body)


def test_remembered_labels_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opsk_exporters.core.exposition._MAX_KNOWN", 10)
    writer = Writer()
    for job in range(100):
        families = Families()
        families.gauge("opsk_a", "A.", 1.0, job=str(job))
        assert f'job="{job}"'.encode() in writer.text(families.all())
    assert len(writer._known) <= 10
