"""Which nodes to ask for: four units of four nodes, one cable a leaf (see conftest for the job)."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.rails import find_rails
from opsk.planning.interference.contention import predict_shared_step_s
from opsk.planning.interference.links import FabricLinks, build_links
from opsk.planning.interference.load import JobShape, default_load
from opsk.planning.interference.node_choice import choose_nodes
from opsk.planning.interference.running_loads import RunningLoads
from opsk.planning.routing.fabric_routes import build_routes


@pytest.fixture(scope="module")
def sixteen() -> FabricLinks:
    fabric = rail_optimized_fabric(nodes=16, hcas=2, leaves=8, spines=1, speed="NDR")
    rails = find_rails(fabric)
    return build_links(fabric, rails, build_routes(fabric, rails))


def running_on(fabric_links: FabricLinks, shape: JobShape, *pairs: tuple[str, str]) -> RunningLoads:
    return RunningLoads.of(
        fabric_links.links,
        [default_load(str(number), fabric_links, shape, nodes) for number, nodes in enumerate(pairs)],
    )


def test_a_unit_with_room_beats_every_other_set(sixteen: FabricLinks, pair: JobShape) -> None:
    """Only unit 1 has two free nodes: n4 and n5."""
    running = running_on(sixteen, pair, ("n0", "n8"), ("n1", "n12"))
    choice = choose_nodes(sixteen, pair, ("n3", "n4", "n5", "n9", "n13"), running)
    assert (choice.best[0].nodes, choice.best[0].units, choice.best[0].step_s) == (("n4", "n5"), (1,), 1.0)
    assert choice.worst[0].step_s > 1.0
    assert len(choice.worst[0].units) == 2


def test_where_no_unit_has_room_the_quietest_are_found(sixteen: FabricLinks, pair: JobShape) -> None:
    """One free node in each unit; jobs cross from unit 0 to 1. Units 2 and 3 are quiet: the best of all six pairs."""
    running = running_on(sixteen, pair, ("n0", "n4"), ("n1", "n5"))
    free = ("n3", "n7", "n11", "n15")
    choice = choose_nodes(sixteen, pair, free, running)
    steps = {row: predict_shared_step_s(default_load("", sixteen, pair, row), running) for row in combinations(free, 2)}
    assert choice.best[0].nodes == min(steps, key=lambda row: steps[row]) == ("n11", "n15")
    assert choice.worst[0].step_s == max(steps.values()) == pytest.approx(3.0)


def test_every_set_has_as_many_nodes_as_needed_and_all_are_free(sixteen: FabricLinks, pair: JobShape) -> None:
    shape = replace(pair, plan=replace(pair.plan, dp=6, global_batch=6))
    free = tuple(f"n{number}" for number in range(16) if number % 4)
    choice = choose_nodes(sixteen, shape, free, running_on(sixteen, pair, ("n0", "n4")))
    assert choice.considered >= len(choice.best) + len(choice.worst) > 1
    for one in (*choice.best, *choice.worst):
        assert len(set(one.nodes)) == 6
        assert set(one.nodes) <= set(free)
    assert [one.step_s for one in choice.best] == sorted(one.step_s for one in choice.best)


def test_too_few_free_nodes_are_no_choice(sixteen: FabricLinks, pair: JobShape) -> None:
    choice = choose_nodes(sixteen, pair, ("n0", "stranger"), running_on(sixteen, pair))
    assert (choice.best, choice.worst, choice.considered) == ((), (), 0)
