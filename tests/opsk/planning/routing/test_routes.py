"""Loads of cables between switches, followed by hand."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.fabric import Cable, Fabric, Switch
from opsk.planning.routing.fabric_routes import BulkRouter, EvenRoutes
from opsk.planning.routing.routes import SwitchGraph, switch_graph

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


Laid = dict[tuple[str, str], float]


def laid_by_pair(
    graph: SwitchGraph,
    flows: Sequence[Sequence[float]],
    leaves: Sequence[str],
    of: Sequence[str],
    *,
    adaptive: bool = False,
) -> Laid:
    """Return the seconds of each link, one leaf pair after the other; infinite without a path."""
    routes = EvenRoutes(graph, of, adaptive=adaptive)
    seconds: Counter[tuple[str, str]] = Counter()
    for one, row in zip(leaves, flows, strict=True):
        for other, size in zip(leaves, row, strict=True):
            if one == other or not size:
                continue
            path = routes.between(one, other)
            if path is None:
                return {("", ""): math.inf}
            for link, share in zip(path.links.tolist(), path.shares.tolist(), strict=True):
                seconds[routes.ends(link)] += size * share / routes.rates[link]
    return dict(seconds)


def laid_in_bulk(
    graph: SwitchGraph,
    flows: Sequence[Sequence[float]],
    leaves: Sequence[str],
    of: Sequence[str],
    *,
    adaptive: bool = False,
) -> Laid:
    """Return the same as products of matrices."""
    between = np.array([flows], dtype=np.float64).reshape(1, len(leaves), len(leaves))
    np.fill_diagonal(between[0], 0)
    if any(guid not in graph.index for guid in leaves):
        return {("", ""): math.inf}
    router = BulkRouter(
        graph, [graph.index[guid] for guid in leaves], [graph.index[guid] for guid in of], adaptive=adaptive
    )
    found = router.seconds(between)
    if found is None:
        return {("", ""): math.inf}
    return {graph.ends(link): float(found[0, link]) for link in np.flatnonzero(found[0]).tolist()}


@pytest.fixture(params=[laid_by_pair, laid_in_bulk])
def laid(request: pytest.FixtureRequest) -> Callable[..., Laid]:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def load(laid: Callable[..., Laid]) -> Callable[..., float]:
    def busiest(
        graph: SwitchGraph, flows: list[list[float]], leaves: tuple[str, ...] = ("a", "b"), of: tuple[str, ...] = ()
    ) -> float:
        return max(
            laid(graph, flows, leaves, of or tuple(leaf for leaf in leaves if leaf in graph.index)).values(),
            default=0.0,
        )

    return busiest


Load = Callable[..., float]


def test_traffic_spreads_evenly_over_the_spines(load: Load) -> None:
    """100e9 bytes over two spines, one cable each: 50e9 bytes a cable, 1 s at 50e9 bytes/s."""
    graph = switch_graph(fabric(("a", "s"), ("b", "s"), ("a", "t"), ("b", "t")))
    assert load(graph, [[0, 100e9], [0, 0]]) == pytest.approx(1.0)


def test_the_thin_side_of_a_spine_is_the_busiest(laid: Callable[..., Laid]) -> None:
    """Leaf a has two cables to s and one to t, b one to each.

    a splits by cable: 2/3 of 90e9 to s; there one cable down carries 60e9: 1.2 s.
    """
    graph = switch_graph(fabric(("a", "s"), ("a", "s"), ("b", "s"), ("a", "t"), ("b", "t")))
    found = laid(graph, [[0, 90e9], [0, 0]], ("a", "b"), ("a", "b"))
    assert max(found, key=lambda link: found[link]) == ("s", "b")
    assert found["s", "b"] == pytest.approx(1.2)


def test_directions_are_counted_apart(load: Load) -> None:
    graph = switch_graph(fabric(("a", "s"), ("b", "s")))
    assert load(graph, [[0, 50e9], [50e9, 0]]) == pytest.approx(1.0)


def test_what_stays_on_a_leaf_loads_no_cable(load: Load) -> None:
    graph = switch_graph(fabric(("a", "s"), ("b", "s")))
    assert load(graph, [[9e12, 0], [0, 9e12]]) == 0


def test_three_tiers_meet_at_the_core(load: Load) -> None:
    """a - s - c - t - b: one path of one cable each; a second core halves the middle, not the ends."""
    one = switch_graph(fabric(("a", "s"), ("s", "c"), ("c", "t"), ("t", "b")))
    assert load(one, [[0, 50e9], [0, 0]]) == pytest.approx(1.0)
    two = switch_graph(
        fabric(("a", "s"), ("a", "s"), ("s", "c"), ("s", "d"), ("c", "t"), ("d", "t"), ("t", "b"), ("t", "b"))
    )
    assert load(two, [[0, 50e9], [0, 0]]) == pytest.approx(0.5)


def test_traffic_does_not_pass_through_a_leaf(load: Load) -> None:
    """a - s - x - t - b would go down to leaf x and up again, which no routing does: there is no path."""
    graph = switch_graph(fabric(("a", "s"), ("s", "x"), ("x", "t"), ("t", "b")))
    assert math.isinf(load(graph, [[0, 1.0], [0, 0]], of=("a", "b", "x")))


def test_leaves_cabled_together_carry_each_others_traffic(load: Load) -> None:
    """Three leaves in a row, as in a dragonfly group: x between a and b."""
    graph = switch_graph(fabric(("a", "x"), ("x", "b")))
    assert load(graph, [[0, 50e9], [0, 0]], of=("a", "b", "x")) == pytest.approx(1.0)


def test_leaves_without_a_path_make_the_load_infinite(load: Load) -> None:
    graph = switch_graph(fabric(("a", "s"), ("b", "t")))
    assert math.isinf(load(graph, [[0, 1.0], [0, 0]]))
    assert math.isinf(load(graph, [[0, 1.0], [0, 0]], leaves=("a", "nowhere")))


def test_parallel_cables_share_and_the_slower_one_decides(load: Load) -> None:
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
    by_pair = laid_by_pair(graph, between.tolist(), leaves, leaves)
    assert max(by_pair.values(), default=0.0) == pytest.approx(most / 4 / RATE, rel=1e-4)
    in_bulk = laid_in_bulk(graph, between.tolist(), leaves, leaves)
    assert max(in_bulk.values(), default=0.0) == pytest.approx(most / 4 / RATE, rel=1e-4)


def test_batches_of_targets_do_not_change_the_answer(load: Load) -> None:
    """Forty pods of one leaf each behind one core: every leaf is a batch of its own until small ones are joined."""
    cables = [(f"l{n}", f"s{n}") for n in range(40)] + [(f"s{n}", "core") for n in range(40)]
    graph = switch_graph(fabric(*cables))
    leaves = tuple(f"l{n}" for n in range(40))
    assert load(graph, [[1e9] * 40] * 40, leaves) == pytest.approx(39e9 / RATE, rel=1e-5)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_both_ways_to_lay_traffic_agree_on_any_graph(data: st.DataObject) -> None:
    """One follows each pair, the other multiplies matrices: the same seconds on every link."""
    switches = [f"s{n}" for n in range(data.draw(st.integers(1, 6)))]
    leaves = [f"l{n}" for n in range(data.draw(st.integers(2, 5)))]
    pairs = [(leaf, switch) for leaf in leaves for switch in switches]
    pairs += [(one, other) for one, other in combinations(switches, 2)]
    cables = data.draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=30))
    graph = switch_graph(fabric(*cables))
    known = [leaf for leaf in leaves if leaf in graph.index]
    flows = [[data.draw(st.sampled_from([0.0, 1e9, 3e9])) for _ in known] for _ in known]
    adaptive = data.draw(st.booleans())
    by_pair = laid_by_pair(graph, flows, known, known, adaptive=adaptive)
    in_bulk = laid_in_bulk(graph, flows, known, known, adaptive=adaptive)
    if math.inf in by_pair.values() or math.inf in in_bulk.values():
        assert (by_pair, in_bulk) == ({("", ""): math.inf}, {("", ""): math.inf})
        return
    for link in by_pair.keys() | in_bulk.keys():
        assert by_pair.get(link, 0.0) == pytest.approx(in_bulk.get(link, 0.0), rel=1e-4, abs=1e-9)


@given(sizes=st.lists(st.integers(1, 3), min_size=4, max_size=4), size=st.floats(1, 1e12))
def test_what_a_leaf_sends_arrives_whole(sizes: list[int], size: float) -> None:
    """Load is conserved: what leaves a over its cables is what reaches b, whatever the spines in between."""
    cables = [("a", f"s{n}") for n, count in enumerate(sizes) for _ in range(count)]
    cables += [(f"s{n}", "b") for n, count in enumerate(reversed(sizes)) for _ in range(count)]
    routes = EvenRoutes(switch_graph(fabric(*cables)), ("a", "b"))
    path = routes.between("a", "b")
    assert path is not None
    count = {("a", f"s{n}"): many for n, many in enumerate(sizes)}
    count |= {(f"s{n}", "b"): many for n, many in enumerate(reversed(sizes))}
    out = sum(
        share * count[routes.ends(link)]
        for link, share in zip(path.links.tolist(), path.shares.tolist(), strict=True)
        if routes.ends(link)[0] == "a"
    )
    into = sum(
        share * count[routes.ends(link)]
        for link, share in zip(path.links.tolist(), path.shares.tolist(), strict=True)
        if routes.ends(link)[1] == "b"
    )
    assert out == pytest.approx(1.0)
    assert into == pytest.approx(1.0)


def test_adaptive_routing_gives_way_to_a_spine_with_fewer_cables() -> None:
    """Leaf a has two cables to each of three spines, b two to s and t and one to u; 100e9 bytes.

    Evenly a third goes by u, on one cable down: 33.3e9 bytes, twice what the others carry. Adaptively 2 : 2 : 1, so
    that every cable into b carries a fifth.
    """
    pairs = [(leaf, spine) for leaf in "ab" for spine in "stu" for _ in range(2)]
    pairs.remove(("b", "u"))
    graph = switch_graph(fabric(*pairs))
    flows = [[0, 100e9], [0, 0]]
    even = laid_by_pair(graph, flows, "ab", "ab")
    adaptive = laid_by_pair(graph, flows, "ab", "ab", adaptive=True)
    assert max(even.values()) == pytest.approx(100e9 / 3 / RATE)
    assert max(adaptive.values()) == pytest.approx(20e9 / RATE)
