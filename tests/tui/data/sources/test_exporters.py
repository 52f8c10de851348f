"""Are exporters read as they are, in turn, and does one that is silent cost only itself?"""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from opsk.errors import UnavailableError
from opsk.metrics.exposition import read_samples
from opsk_tui.data.sources.exporters import MIN_NODES, ExportersSource
from opsk_tui.data.sources.pages import HOST_OVER_S, METRIC_NAMES, PageHistory
from opsk_tui.data.sources.progress import DerivedProgress
from opsk_tui.data.sources.prometheus.http import Access
from opsk_tui.data.sources.readings import BYTES, HOST_SHARES, RATE, Readings, compute_metric
from opsk_tui.data.view import Metric
from tests.fakes.lab_node import GPUS, NODES, PORT_BYTES_PER_S, STEP_S, TRAINING
from tests.tui.data.sources.conftest import page_of, training_job

if TYPE_CHECKING:
    from tests.tui.data.sources.conftest import Pages


@dataclass
class Clock:
    now_s: float = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now_s


def laid_out() -> Readings:
    readings = Readings()
    readings.set_layout(NODES, GPUS)
    return readings


def metric(readings: Readings, name: Metric) -> np.ndarray:
    found = compute_metric(readings, name)
    assert found is not None
    return found


def test_a_page_is_read_as_prometheus_reads_it(pages: tuple[Pages, dict[str, str]]) -> None:
    page = page_of(pages[0].scraped["node1"])
    expected = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
        if sample.name in METRIC_NAMES
    }
    found = {(name, frozenset(labels.items())): value for name, labels, value in read_samples(page, METRIC_NAMES)}
    assert found.keys() == expected.keys()
    assert all(found[key] == value or math.isnan(value) for key, value in expected.items())


@given(labels=st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), st.text(max_size=10), max_size=3))
def test_labels_are_what_was_written_whatever_it_was(labels: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')

    said = ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items())
    page = f"# TYPE opsk_gpu_up gauge\nopsk_gpu_up{{{said}}} 1\n".encode("utf-8", errors="replace")
    if any(sign in said for sign in "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029") or not said.isprintable():
        assert len(list(read_samples(page, ["opsk_gpu_up"]))) <= 1
        return
    (found,) = read_samples(page, ["opsk_gpu_up"])
    assert found.labels == labels


def test_series_that_say_nothing_are_passed_over_unread() -> None:
    page = b"""# TYPE a gauge
a{clock="sm"} 1
a{clock="memory"} 2
# TYPE b gauge
b{gpu="x"} 0.0
b{gpu="y"} 10
"""
    found = list(read_samples(page, ["a", "b"], only={"a": 'clock="sm"'}, without_zeros={"b"}))
    assert [(sample.name, sample.value) for sample in found] == [("a", 1.0), ("b", 10.0)]


def test_a_lost_gpu_is_not_shown_as_it_was(pages: tuple[Pages, dict[str, str]]) -> None:
    server, targets = pages
    readings, clock = laid_out(), Clock()
    source = ExportersSource(readings, targets, clock=clock)
    source.refresh()
    assert np.isfinite(metric(readings, Metric.POWER)[3, 3])
    server.moment.step = 45  # GPU 3 of node4 falls off the bus at step 40
    clock.now_s += 5
    source.refresh()
    assert np.isnan(metric(readings, Metric.POWER)[3, 3])
    assert np.isfinite(metric(readings, Metric.POWER)[3, 2])
    source.close()


@given(st.binary(max_size=300))
def test_rubbish_is_passed_over(page: bytes) -> None:
    assert list(read_samples(page, METRIC_NAMES)) == []


def test_all_nodes_of_a_small_cluster_are_read_at_once(pages: tuple[Pages, dict[str, str]]) -> None:
    server, targets = pages
    readings, clock = laid_out(), Clock()
    source = ExportersSource(readings, targets, clock=clock)
    turn = source.refresh()
    assert (turn.asked, turn.silent) == (4, 0)
    node = server.scraped["node2"].node
    for gpu in range(GPUS):
        sample = node.sample(gpu)
        assert sample.memory is not None
        assert metric(readings, Metric.UTILISATION)[1, gpu] == pytest.approx(sample.utilisation["gpu"])
        assert metric(readings, Metric.MEMORY)[1, gpu] == pytest.approx(
            sample.memory.used_bytes / sample.memory.total_bytes
        )
        assert metric(readings, Metric.TEMPERATURE)[1, gpu] == sample.temperatures_c["gpu"]
    assert readings.progress[TRAINING].step_s == pytest.approx(11.2, abs=0.3)
    assert len(readings.rails) == GPUS
    assert readings.leaves["node1", 0] == "leaf0"
    source.close()


def test_rates_are_the_difference_between_two_pages(pages: tuple[Pages, dict[str, str]]) -> None:
    server, targets = pages
    readings, clock = laid_out(), Clock()
    source = ExportersSource(readings, targets, clock=clock)
    source.refresh()
    assert BYTES not in readings.port
    for _ in range(2):
        server.moment.step += 1
        clock.now_s += STEP_S
        source.refresh()
    assert 0 < readings.port[BYTES][0, 0] < 4 * PORT_BYTES_PER_S
    held = metric(readings, Metric.THROTTLE)
    # GPU 1 of node2 is held down by heat all the time
    assert held[1, 1] == pytest.approx(1.0, abs=0.05)
    assert held[3, 0] == pytest.approx(0.0, abs=0.05)
    assert np.isfinite(readings.port[RATE]).all()
    source.close()


def test_hosts_tell_over_a_minute_what_they_are_short_of(pages: tuple[Pages, dict[str, str]]) -> None:
    server, targets = pages
    readings, clock = laid_out(), Clock()
    source = ExportersSource(readings, targets, clock=clock)
    source.refresh()
    assert readings.hosts is not None
    assert np.isnan(readings.hosts).all(), "one page tells nothing of counters"
    for _ in range(8):
        server.moment.step += 1
        clock.now_s += STEP_S
        source.refresh()
    of = dict(zip(HOST_SHARES, readings.hosts[0], strict=True))
    # as tests.fakes.lab_node has it: half of 64 processors and one more are busy, a tenth of one waits for storage
    assert of["cpu_busy"] == pytest.approx(33 / 65.1, abs=0.01)
    assert of["iowait"] == pytest.approx(0.1 / 65.1, abs=0.001)
    before = source._nodes["node1"].before
    assert HOST_OVER_S <= clock.now_s - before.host[0][0] < HOST_OVER_S + 2 * STEP_S
    source.close()


@given(
    stalled_s=st.lists(st.floats(0, 5), min_size=2, max_size=20), gone_back=st.booleans(), every_s=st.floats(1.0, 200.0)
)
def test_shares_of_time_are_shares_whatever_counters_do(
    stalled_s: list[float], gone_back: bool, every_s: float
) -> None:
    before, total_s = PageHistory(), 0.0
    for number, more_s in enumerate(stalled_s):
        total_s = 0.0 if gone_back and number == len(stalled_s) - 1 else total_s + more_s
        before.keep(number * every_s, {}, {"io_stalled": total_s, "idle": number * 3.0, "user": number * 1.0}, 0.0)
        shares = before.host_shares()
        assert all(0.0 <= share <= 1.0 for share in shares.values())
    assert shares["cpu_busy"] == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("step_s", "is_found"), [(120.0, True), (90.0, True), (7.4, False), (16.0, False), (28.0, False)]
)
def test_steps_that_no_log_tells_are_derived_from_pages_too(step_s: float, is_found: bool) -> None:
    readings, clock = laid_out(), Clock()
    source = ExportersSource(readings, dict.fromkeys(NODES, "http://127.0.0.1:1"), clock=clock)
    for node in NODES[:2]:
        for at_s in np.arange(clock.now_s - 3600.0, clock.now_s, 5.0):
            # the integral of 700 W that swing by half with every step
            phase = 2 * math.pi * at_s / step_s
            energy_j = 700.0 * (at_s - clock.now_s + 4000.0) - 350.0 * step_s / (2 * math.pi) * math.cos(phase)
            source._nodes[node].before.keep(at_s, {("sent", 0, 0): energy_j * 1e6}, {}, energy_j)
    job = training_job(start_time=datetime.fromtimestamp(clock.now_s - 7200, tz=UTC))
    DerivedProgress(source, readings).turn((job,), clock.now_s)
    found = readings.progress.get(TRAINING)
    assert (found is not None) is is_found
    if found is not None:
        assert found.step_s == pytest.approx(step_s, rel=0.03)
        assert found.source == "counters"
        readings.put_progress(TRAINING, "step_seconds", 8.0)
        assert readings.progress[TRAINING].source == "log"
    source.close()


def test_a_silent_node_costs_itself_alone_and_is_left_alone_for_a_while(pages: tuple[Pages, dict[str, str]]) -> None:
    server, targets = pages
    readings, clock = laid_out(), Clock()
    source = ExportersSource(readings, targets, clock=clock)
    source.refresh()
    before = metric(readings, Metric.POWER)[2].copy()
    server.silent.add("node3")
    clock.now_s += 5
    assert source.refresh().silent == 1
    assert np.array_equal(metric(readings, Metric.POWER)[2], before), "the last good values stay"
    server.asked.clear()
    clock.now_s += 5
    source.refresh()
    assert "node3" not in server.asked
    server.silent |= set(NODES)
    clock.now_s += 100
    with pytest.raises(UnavailableError, match="none of 4 exporters answers"):
        source.refresh()
    source.close()


def test_an_exporter_that_has_moved_is_asked_where_it_is_now(pages: tuple[Pages, dict[str, str]]) -> None:
    """A file of targets is read again and again: a node in it may have another address or port."""
    readings, clock = laid_out(), Clock()
    source = ExportersSource(readings, dict.fromkeys(NODES, "http://127.0.0.1:1"), clock=clock)
    with pytest.raises(UnavailableError):
        source.refresh()
    source.aim(pages[1])
    clock.now_s += 1
    assert source.refresh().silent == 0
    assert compute_metric(readings, Metric.POWER) is not None
    source.close()


def test_many_nodes_are_asked_in_turn_and_those_that_are_looked_at_first(pages: tuple[Pages, dict[str, str]]) -> None:
    server, targets = pages
    names = [f"x{at}" for at in range(60)]
    server.scraped |= dict.fromkeys(names, server.scraped["node1"])
    base = targets["node1"].removesuffix("node1")
    readings, clock = Readings(), Clock()
    readings.set_layout(names, GPUS)
    spent = iter(range(10_000))
    # each reading of pages takes a second of CPU: nothing is left of a share of one core but the least
    source = ExportersSource(readings, {name: base + name for name in names}, clock=clock, cpu=lambda: next(spent))
    asked = []
    for _ in range(9):
        server.asked.clear()
        turn = source.refresh(first=("x59",))
        asked.append(set(server.asked))
        clock.now_s += 5
    assert all("x59" in each for each in asked)
    assert all(len(each) == MIN_NODES for each in asked[1:])
    assert set().union(*asked) == set(names)
    # on a busy machine some pages are not there in time: their nodes pause
    assert turn.turn_s == pytest.approx(math.ceil((60 - turn.silent) / MIN_NODES) * 5)
    source.close()


def test_passwords_are_sent_and_never_shown(pages: tuple[Pages, dict[str, str]]) -> None:
    server, targets = pages
    server.password = "Basic " + base64.b64encode(b"ada:geheim").decode()
    source = ExportersSource(laid_out(), targets, clock=Clock())
    with pytest.raises(UnavailableError) as refused:
        source.refresh()
    assert "401" in refused.value.message
    assert "password_file" in refused.value.hint
    source = ExportersSource(laid_out(), targets, clock=Clock(), access=Access(authorization=server.password))
    assert source.refresh().silent == 0
    source.close()
