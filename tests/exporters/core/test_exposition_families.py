"""Can no value and no hostile name spoil a scrape?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from opsk.errors import InputError
from opsk_exporters.core.exposition import Families


class Fixed(Collector):
    def __init__(self, families: Families) -> None:
        self._families = families

    def collect(self) -> tuple[Metric, ...]:
        return self._families.all()


def exposition(families: Families) -> str:
    registry = CollectorRegistry()
    registry.register(Fixed(families))
    return generate_latest(registry).decode("utf-8")


def test_no_value_is_no_series_and_no_family() -> None:
    families = Families()
    families.gauge("opsk_a", "A.", None)
    families.counter("opsk_b_total", "B.", None, device="x")
    assert exposition(families) == ""


def test_zero_is_a_value() -> None:
    families = Families()
    families.gauge("opsk_a", "A.", 0)
    assert "opsk_a 0.0\n" in exposition(families)


def test_kinds_are_written_as_prometheus_wants_them() -> None:
    families = Families()
    families.counter("opsk_b_bytes_total", "B.", 3, device="x")
    families.info("opsk_c_info", "C.", device="x", model=None)
    assert exposition(families) == (
        "# HELP opsk_b_bytes_total B.\n# TYPE opsk_b_bytes_total counter\n"
        'opsk_b_bytes_total{device="x"} 3.0\n'
        "# HELP opsk_c_info C.\n# TYPE opsk_c_info gauge\n"
        'opsk_c_info{device="x",model=""} 1.0\n'
    )


def test_names_that_are_alike_where_they_are_cut_or_made_harmless_stay_two() -> None:
    families = Families()
    for device in ("x" * 300 + "1", "x" * 300 + "2", "a\udcff", "a\udcfe", "a?"):
        families.gauge("opsk_a", "A.", 1, device=device)
    (family,) = families.all()
    shown = [sample.labels["device"] for sample in family.samples]
    assert len(set(shown)) == 5
    assert max(map(len, shown)) <= 256
    assert all(name.encode("utf-8") for name in shown)


def test_a_counter_without_total_and_an_info_without_info_are_refused() -> None:
    with pytest.raises(InputError, match="_total"):
        Families().counter("opsk_b", "B.", 1)
    with pytest.raises(InputError, match="_info"):
        Families().info("opsk_c", "C.", device="x")


@given(st.text(max_size=40) | st.sampled_from(['x"} 1\nevil 2', "\\", "a\nb", "\udcff\udc80", '"']))
def test_a_hostile_name_stays_inside_its_label(name: str) -> None:
    families = Families()
    families.gauge("opsk_a", "A.", 1, device=name)
    (family,) = text_string_to_metric_families(exposition(families))
    (sample,) = family.samples
    assert sample.name == "opsk_a"
    plain = name.encode("utf-8", "replace").decode("utf-8")
    shown = sample.labels["device"]
    assert shown == name if plain == name else shown.startswith(f"{plain}~")


def test_an_endless_name_is_cut() -> None:
    families = Families()
    families.gauge("opsk_a", "A.", 1, device="x" * 10_000)
    assert len(exposition(families)) < 400


@pytest.mark.parametrize("absurd", [10**400, -(10**400), "much"], ids=["large", "small", "text"])
def test_a_value_that_is_no_float_is_an_error_of_who_gives_it(absurd: float) -> None:
    families = Families()
    for add, name in ((families.gauge, "opsk_a"), (families.counter, "opsk_b_total")):
        with pytest.raises((OverflowError, ValueError)):
            add(name, "X.", absurd)


@given(st.integers(-(2**70), 2**70))
def test_whole_numbers_are_written_as_prometheus_client_writes_them(value: int) -> None:
    families = Families()
    families.gauge("opsk_a", "A.", value)
    given_as_int = Families()
    given_as_int.gauge("opsk_a", "A.", 0)
    (metric,) = given_as_int.all()
    metric.samples = [metric.samples[0]._replace(value=value)]
    assert exposition(families) == exposition(given_as_int)
