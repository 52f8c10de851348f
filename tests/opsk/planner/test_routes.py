"""Loads of cables between switches, followed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.planner.routes import SwitchGraph, busiest_cable, switch_graph
from opsk.topology.design import rail_optimized_fabric
from opsk.topology.fabric import Cable, Fabric, Switch

RATE = 50e9


def fabric(*cables: tuple[str, str], rate: float = RATE) -> Fabric:
    names = sorted({name for pair in cables for name in pair})
    return Fabric(
        switches={name: Switch(guid=name, description=name, ports=64) for name in names},
        hcas={},
        cables=tuple(
            Cable(a_guid=a, a_port=number, b_guid=b, b_port=number, width=4, speed="NDR", bytes_per_s=rate)
            for number, (a, b) in enumerate(cables)
        ),
    )


def load(graph: SwitchGraph, flows: list[list[float]], leaves: tuple[str, ...] = ("a", "b")) -> float:
    return busiest_cable(graph, leaves, np.array(flows), leaves).load_s


def test_traffic_spreads_evenly_over_the_spines() -> None:
    """100e9 bytes over two spines, one cable each: 50e9 bytes a cable, 1 s at 50e9 bytes/s."""
    graph = switch_graph(fabric(("a", "s"), ("b", "s"), ("a", "t"), ("b", "t")))
    assert load(graph, [[0, 100e9], [0, 0]]) == pytest.approx(1.0)


def test_the_thin_side_of_a_spine_is_the_busiest() -> None:
    """Leaf a has two cables to s and one to t, b one to each.

    a splits by cable: 2/3 of 90e9 to s; there one cable down carries 60e9: 1.2 s.
    """
    graph = switch_graph(fabric(("a", "s"), ("a", "s"), ("b", "s"), ("a", "t"), ("b", "t")))
    found = busiest_cable(graph, ("a", "b"), np.array([[0, 90e9], [0, 0]]), ("a", "b"))
    assert found.load_s == pytest.approx(1.2)
    assert found.cable == ("s", "b")


def test_directions_are_counted_apart() -> None:
    graph = switch_graph(fabric(("a", "s"), ("b", "s")))
    assert load(graph, [[0, 50e9], [50e9, 0]]) == pytest.approx(1.0)


def test_what_stays_on_a_leaf_loads_no_cable() -> None:
    graph = switch_graph(fabric(("a", "s"), ("b", "s")))
    assert load(graph, [[9e12, 0], [0, 9e12]]) == 0


def test_three_tiers_meet_at_the_core() -> None:
    """a - s - c - t - b: one path of one cable each; a second core halves the middle, not the ends."""
    one = switch_graph(fabric(("a", "s"), ("s", "c"), ("c", "t"), ("t", "b")))
    assert load(one, [[0, 50e9], [0, 0]]) == pytest.approx(1.0)
    two = switch_graph(
        fabric(("a", "s"), ("a", "s"), ("s", "c"), ("s", "d"), ("c", "t"), ("d", "t"), ("t", "b"), ("t", "b"))
    )
    assert load(two, [[0, 50e9], [0, 0]]) == pytest.approx(0.5)


def test_traffic_does_not_pass_through_a_leaf() -> None:
    """a - s - x - t - b would go down to leaf x and up again, which no routing does: there is no path."""
    graph = switch_graph(fabric(("a", "s"), ("s", "x"), ("x", "t"), ("t", "b")))
    assert math.isinf(busiest_cable(graph, ("a", "b"), np.array([[0, 1.0], [0, 0]]), ("a", "b", "x")).load_s)


def test_leaves_cabled_together_carry_each_others_traffic() -> None:
    """Three leaves in a row, as in a dragonfly group: x between a and b."""
    graph = switch_graph(fabric(("a", "x"), ("x", "b")))
    assert busiest_cable(graph, ("a", "b"), np.array([[0, 50e9], [0, 0]]), ("a", "b", "x")).load_s == pytest.approx(1.0)


def test_leaves_without_a_path_make_the_load_infinite() -> None:
    graph = switch_graph(fabric(("a", "s"), ("b", "t")))
    assert math.isinf(load(graph, [[0, 1.0], [0, 0]]))
    assert math.isinf(load(graph, [[0, 1.0], [0, 0]], leaves=("a", "nowhere")))


def test_parallel_cables_share_and_the_slower_one_decides() -> None:
    graph = switch_graph(fabric(("a", "s"), ("a", "s"), ("b", "s"), ("b", "s")))
    assert load(graph, [[0, 100e9], [0, 0]]) == pytest.approx(1.0)


@given(st.lists(st.lists(st.floats(0, 1e12), min_size=4, max_size=4), min_size=4, max_size=4))
def test_two_even_tiers_load_uplinks_by_what_leaves_and_enters(flows: list[list[float]]) -> None:
    """Every leaf has one cable to each of four spines: a quarter of what leaves or enters the busiest leaf."""
    graph = switch_graph(rail_optimized_fabric(nodes=8, hcas=4, leaves=4, spines=4))
    leaves = tuple(guid for guid in graph.guids[:4])
    between = np.array(flows)
    np.fill_diagonal(between, 0)
    most = max(between.sum(axis=0).max(), between.sum(axis=1).max())
    assert busiest_cable(graph, leaves, between, leaves).load_s == pytest.approx(most / 4 / RATE, rel=1e-4)


def test_batches_of_targets_do_not_change_the_answer() -> None:
    """Forty pods of one leaf each behind one core: every leaf is a batch of its own until small ones are joined."""
    cables = [(f"l{n}", f"s{n}") for n in range(40)] + [(f"s{n}", "core") for n in range(40)]
    graph = switch_graph(fabric(*cables))
    leaves = tuple(f"l{n}" for n in range(40))
    flows = np.full((40, 40), 1e9)
    assert busiest_cable(graph, leaves, flows, leaves).load_s == pytest.approx(39e9 / RATE, rel=1e-5)
