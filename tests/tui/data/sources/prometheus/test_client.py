"""Does a real Prometheus, with our rules, give the same picture as the exporters themselves?"""

from __future__ import annotations

import json
import math
from itertools import cycle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.diagnosis.events.observations import FailedPart
from opsk.errors import UnavailableError
from opsk_tui.data.sources.assembly import GpuTables, JobViews, PortTables
from opsk_tui.data.sources.failure_detection import FailureDetector
from opsk_tui.data.sources.job_losses import JobLosses, build_host_activities
from opsk_tui.data.sources.progress import PastProgress
from opsk_tui.data.sources.prometheus.answers import parse_pairs, parse_vector
from opsk_tui.data.sources.prometheus.client import PrometheusSource
from opsk_tui.data.sources.readings import MEMORY_SIZE, Readings
from opsk_tui.data.view import Health, Metric
from tests.fakes.lab_node import GPUS, NODES, TRAINING
from tests.fakes.prometheus_server import LabPrometheus
from tests.tui.data.sources.conftest import slurm_nodes, training_job

TEXT = st.text(max_size=8)


def vector(series: list[tuple[dict[str, str], str]], *times: float, **more: object) -> bytes:
    """Return an answer; ``times`` are of its series in turn, which in truth are all the same."""
    at = cycle(times or (1.5,))
    result = [{"metric": labels, "value": [next(at), value]} for labels, value in series]
    return json.dumps(
        {"status": "success", "data": {"resultType": "vector", "result": result}, **more}, separators=(",", ":")
    ).encode()


SERIES = st.lists(st.tuples(st.dictionaries(TEXT, TEXT, max_size=3), st.floats().map(str)), max_size=5)


@given(series=SERIES, times=st.lists(st.sampled_from([1.5, 1435781451.781, 3]), max_size=3), warned=st.booleans())
def test_quick_reading_finds_what_slow_reading_finds(
    series: list[tuple[dict[str, str], str]], times: list[float], warned: bool
) -> None:
    more = {"warnings": ['"]}]} \\",{"metric":{},"value":[1.5,"7"]}']} if warned else {}
    keys, values = parse_pairs(vector(series, *times, **more))
    assert [json.loads(key) for key in keys] == [labels for labels, _ in series]
    assert values.tolist() == pytest.approx([float(value) for _, value in series], nan_ok=True)


def test_series_that_have_no_single_value_are_passed_over() -> None:
    histogram = b'{"metric":{"a":"b"},"histogram":[1.5,{"count":"3"}]}'
    body = vector([({"a": "c"}, "7")]).replace(b'"result":[', b'"result":[' + histogram + b",")
    keys, values = parse_pairs(body)
    assert (list(keys), values.tolist()) == ([b'{"a":"c"}'], [7.0])


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b"<html>", b'{"status":"error","error":"no"}', b"{" * 10_000])
def test_what_is_no_answer_is_said_so(body: bytes) -> None:
    with pytest.raises(UnavailableError):
        parse_pairs(body)
    with pytest.raises(UnavailableError):
        list(parse_vector(body))


@pytest.fixture(scope="module")
def readings(half_hour: LabPrometheus) -> Readings:
    found = Readings()
    found.set_layout(NODES, GPUS)
    source = PrometheusSource(half_hour.url, found, labels={"cluster": "lab"})
    source.refresh(everything=True)  # on a busy machine one refresh may leave what may wait
    PastProgress(source, found).turn(half_hour.end_unix_s)
    return found


def test_every_metric_of_the_map_is_there(readings: Readings, half_hour: LabPrometheus) -> None:
    table = GpuTables().table(readings, slurm_nodes(), (training_job(),), half_hour.end_unix_s)
    assert table.values.keys() == set(Metric)
    # as the fake nodes are: all GPUs of the training job busy, GPU 1 of node2 hot and slow
    assert (table.values[Metric.UTILISATION][:2] > 0.1).all()
    assert table.values[Metric.CLOCK][1, 1] == pytest.approx(1.41 / 1.98, rel=0.01)
    assert table.values[Metric.THROTTLE][1, 1] == pytest.approx(1.0, abs=0.1)
    assert table.values[Metric.TEMPERATURE][1, 1] > table.values[Metric.TEMPERATURE][1, 0]
    assert (table.job[:2] == int(TRAINING)).all()
    assert (table.job[2:] == -1).all()
    assert table.present.all()
    assert table.health[3, 3] == Health.UNHEALTHY, "XID 79"
    assert table.health[1, 1] == Health.WATCH, "held down"
    assert table.health[0, 0] == Health.OK


def test_ports_are_on_their_rails(readings: Readings) -> None:
    table = PortTables().table(readings)
    assert table is not None
    assert table.rails == tuple(f"rail {at}" for at in range(GPUS))
    assert np.nanmax(table.rate_ratio) == 1.0
    assert table.leaves["node1", 2] == "leaf2"
    assert (table.bytes_per_s[0] > 0).all()


def test_a_job_has_its_progress_history_memory_and_losses(readings: Readings, half_hour: LabPrometheus) -> None:
    now_s = half_hour.end_unix_s
    gpus = GpuTables().table(readings, slurm_nodes(), (jobs := (training_job(),)), now_s)
    views = JobViews()
    (job,) = views.views(jobs, readings, gpus.job, now_s)
    assert job.measured is not None
    assert job.measured.source == "log"
    assert job.measured.step_s == pytest.approx(11.2, abs=0.3)
    assert job.measured.memory_peak_bytes == 70 * 2**30
    assert job.measured.mfu == pytest.approx(0.42 * 9.3 / job.measured.step_s)
    assert len(job.measured.history) >= 20
    assert all(10 < step_s < 13 for _, step_s in job.measured.history)
    assert views.views(jobs, readings, gpus.job, now_s)[0] is job
    (lost,) = JobLosses().turn((job,), readings, gpus, PortTables().table(readings), now_s)
    assert lost.losses is not None
    assert lost.losses.measured_step_s == pytest.approx(11.2, abs=0.3)
    assert lost.losses.gap is not None
    # at least what is measured beyond the prediction
    assert lost.losses.gap > (11.2 - 9.3) / 11.2 - 0.03
    assert any("node2" in finding.where for finding in lost.losses.findings), lost.losses.findings


def test_hosts_tell_what_they_are_short_of(readings: Readings) -> None:
    (job,) = JobViews().views((training_job(),), readings, None, 0.0)
    hosts = build_host_activities(job, readings)
    assert [host.node for host in hosts] == list(NODES[:2])
    # as tests.fakes.lab_node has it: half of 64 processors and one more are busy, a tenth of one waits for storage
    total = 64 + 1 + 0.1
    assert hosts[0].cpu_busy == pytest.approx(33 / total, abs=0.01)
    assert hosts[0].iowait == pytest.approx(0.1 / total, abs=0.001)


def test_what_is_common_to_a_node_is_asked_by_node_and_the_rest_in_full() -> None:
    found = Readings()
    found.set_layout(["n0", "n1", "n2", "n3"], 2)
    uuids = {f"{node}-{slot}": (node, slot) for node in found.nodes for slot in range(2)}
    found.learn_gpus({"node": node, "gpu": uuid, "index": str(slot)} for uuid, (node, slot) in uuids.items())
    source = PrometheusSource("http://127.0.0.1:1", found)
    asked: list[str] = []

    def answer(path: str, expr: str) -> bytes:
        asked.append(expr)
        if expr.startswith("count_values"):
            # n1 has two kinds, n2 one GPU that tells nothing, n3 tells nothing at all
            return vector([({"is": "80", "node": "n0"}, "2"), ({"is": "80", "node": "n1"}, "1"),
                           ({"is": "40", "node": "n1"}, "1"), ({"is": "80", "node": "n2"}, "1")])  # fmt: skip
        return vector([({"node": "n1", "gpu": "n1-0"}, "80"), ({"node": "n1", "gpu": "n1-1"}, "40"),
                       ({"node": "n2", "gpu": "n2-1"}, "80")])  # fmt: skip

    source._ask = answer  # type: ignore[method-assign,assignment]
    question = next(each for each in source._questions if each.name == MEMORY_SIZE)
    source._ask_and_store(question)
    nan = math.nan
    assert np.array_equal(found.gpu[MEMORY_SIZE], [[80, 80], [80, 40], [nan, 80], [nan, nan]], equal_nan=True)
    assert 'node=~"n1|n2"' in asked[1]


def test_a_dead_gpu_is_an_event(readings: Readings, half_hour: LabPrometheus) -> None:
    found = FailureDetector()
    for look in range(3):
        at_s = half_hour.end_unix_s + 60.0 * look
        events = found.look(found.observe(readings, slurm_nodes(), (training_job(),), at_s, domains={}))
    assert any(event.part is FailedPart.GPU and event.nodes == ("node4",) for event in events), events
    assert not any("node1" in event.nodes for event in events)


def test_a_question_that_is_refused_costs_itself_alone(half_hour: LabPrometheus) -> None:
    found = Readings()
    found.set_layout(NODES, GPUS)
    source = PrometheusSource(half_hour.url, found)
    source._questions[3].expr = "no expression("
    source.refresh()
    assert Metric.POWER in found.gpu


def test_no_prometheus_is_said_with_its_address_and_without_waiting() -> None:
    source = PrometheusSource("http://127.0.0.1:1", Readings())
    with pytest.raises(UnavailableError, match=r"http://127\.0\.0\.1:1: "):
        source.refresh()
