"""Are the GPUs and ports of a large cluster taken in a few at a time, and does that hide or invent no failure?"""

from __future__ import annotations

import numpy as np
import pytest

from opsk.diagnosis.events.observations import FailedPart
from opsk_tui.data.sources import failure_detection as failing
from opsk_tui.data.sources.failure_detection import FailureDetector
from opsk_tui.data.sources.readings import RATE, Readings
from tests.fakes import large_cluster

NOW_S = 1_000_000.0
GPUS = 8
NODES = large_cluster.slurm_nodes(4)


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failing, "MAX_AT_ONCE", 5)


@pytest.fixture
def readings() -> Readings:
    """Readings of all nodes: eight GPUs and eight ports each, all well."""
    nodes = [node.name for node in NODES]
    found = Readings()
    found.set_layout(nodes, GPUS)
    found.rails = tuple(f"rail {rail}" for rail in range(GPUS))
    for row, node in enumerate(nodes):
        for slot in range(GPUS):
            found.slot_of[node, f"GPU-{node}-{slot}"] = (row, slot)
            found.index_of[node, f"GPU-{node}-{slot}"] = slot
            found.port_of[node, f"mlx5_{slot}", "1"] = (row, slot)
    found.port[RATE] = np.full((len(nodes), GPUS), 5e10)
    return found


def test_gpus_are_taken_in_a_few_at_a_time_and_then_at_once_known(readings: Readings) -> None:
    failures = FailureDetector()
    turns = 1
    while not failures.is_ready(readings):
        turns += 1
    assert turns == -(-len(readings.slot_of) // 5)
    assert failures.is_ready(readings)
    del readings.slot_of[next(iter(readings.slot_of))]
    assert failures.is_ready(readings)
    assert len(failures.observe(readings, (), (), NOW_S, domains={}).gpus) == len(readings.slot_of)


def test_who_has_not_waited_misses_no_gpu(readings: Readings) -> None:
    failures = FailureDetector()
    seen = failures.observe(readings, NODES, (), NOW_S, domains={})
    assert len(seen.gpus) == len(readings.slot_of)
    assert failures.look(seen) == ()


def test_ports_come_look_by_look_and_none_seems_to_fail(readings: Readings) -> None:
    failures = FailureDetector()
    counts = []
    for look in range(1 + len(readings.port_of) // 5):
        assert failures.has_news(readings, (), (), NOW_S + look)
        seen = failures.observe(readings, NODES, (), NOW_S + look, domains={})
        counts.append(len(seen.ports))
        assert failures.look(seen) == ()
    assert counts[:3] == [5, 10, 15]
    assert counts[-1] == len(readings.port_of)


def test_a_slow_port_is_told_though_all_others_are_new(readings: Readings) -> None:
    failures = FailureDetector()
    readings.port[RATE][-1, -1] = 1e10
    events = {
        event.failed
        for look in range(20)
        for event in failures.look(failures.observe(readings, NODES, (), NOW_S + 60.0 * look, domains={}))
    }
    assert events == {f"{FailedPart.NIC}:{NODES[-1].name}/mlx5_7"}
