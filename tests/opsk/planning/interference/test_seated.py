"""Cached results equal recomputed ones, on random fabrics and jobs."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.rails import find_rails
from opsk.hardware.catalog import cluster
from opsk.planning.interference.contention import interference
from opsk.planning.interference.links import FabricLinks, build_links
from opsk.planning.interference.load import (
    JobShape,
    default_load,
    job_shape,
    place_by_default,
    place_on_default_nodes,
    placed_load,
)
from opsk.planning.interference.node_choice import NodeChoice, choose_nodes
from opsk.planning.interference.running_loads import RunningLoads
from opsk.planning.placement.initial_placements import PlacementProblem
from opsk.planning.placement.placement import place
from opsk.planning.placement.step_model import DENSE, as_cabled, stack_models, step_model
from opsk.planning.routing.fabric_routes import build_routes
from opsk.planning.routing.hca_ports import build_ports
from opsk.workload.plan import Plan

SIZES = (1, 2, 3, 6)


def random_wires(dice: random.Random) -> FabricLinks:
    """Two to four units of eight nodes, some cables gone."""
    fabric = rail_optimized_fabric(nodes=32, hcas=4, leaves=4 * dice.choice([2, 4]), spines=4)
    kept = tuple(cable for cable in fabric.cables if dice.random() > 0.03)
    fabric = replace(fabric, cables=kept)
    rails = find_rails(fabric)
    return build_links(fabric, rails, build_routes(fabric, rails, adaptive=dice.random() < 0.5))


def shape_of(fabric_links: FabricLinks, nodes: int) -> JobShape:
    plan = Plan(tp=2, pp=nodes if nodes > 2 else 1, dp=4 if nodes > 2 else 4 * nodes, global_batch=24)
    step = step_model(DENSE, plan, as_cabled(cluster("superpod-h100"), fabric_links.rails))
    return job_shape(DENSE, plan, 8, step=step)


@pytest.fixture(scope="module", params=range(6))
def scene(request: pytest.FixtureRequest) -> tuple[FabricLinks, RunningLoads, tuple[str, ...]]:
    """Jobs on half of the nodes; the rest is free."""
    dice = random.Random(request.param)
    fabric_links = random_wires(dice)
    names = dice.sample(sorted(fabric_links.rails.attachments), len(fabric_links.rails.attachments))
    loads = [
        default_load(str(at), fabric_links, shape_of(fabric_links, 3), names[at : at + 3]) for at in range(0, 15, 3)
    ]
    return fabric_links, RunningLoads.of(fabric_links.links, loads), tuple(names[15:])


Scene = tuple[FabricLinks, RunningLoads, tuple[str, ...]]


@pytest.mark.parametrize("nodes", SIZES)
def test_a_job_that_was_seated_is_placed_as_place_does(scene: Scene, nodes: int) -> None:
    fabric_links, _, free = scene
    shape, row = shape_of(fabric_links, nodes), tuple(sorted(free[:nodes]))
    seated = place_by_default("", fabric_links, shape, row)
    expected = place(
        PlacementProblem(
            model=DENSE,
            plan=shape.plan,
            rails=fabric_links.rails,
            nodes=row,
            gpus_per_node=8,
            routes=fabric_links.routes,
            step=shape.step,
        ),
        searching=False,
    )
    assert place_on_default_nodes(DENSE, fabric_links, shape, seated) == expected


@pytest.mark.parametrize("nodes", SIZES)
def test_a_placement_in_slurms_order_asks_what_the_seated_job_asks(scene: Scene, nodes: int) -> None:
    fabric_links, running, free = scene
    shape = shape_of(fabric_links, nodes)
    one = place_by_default("", fabric_links, shape, free[:nodes])
    placement = place_on_default_nodes(DENSE, fabric_links, shape, one)
    if placement.is_default and placement.nodes == free[:nodes]:
        other = placed_load("", fabric_links, shape, placement)
        assert np.array_equal(one.load.links, other.links)
        assert np.array_equal(one.load.burst, other.burst)
        assert interference(one.load, running) == interference(other, running)


@pytest.mark.parametrize("nodes", SIZES)
def test_asking_again_chooses_what_a_fabric_that_keeps_nothing_chooses(scene: Scene, nodes: int) -> None:
    fabric_links, running, free = scene

    def anew() -> NodeChoice:
        return choose_nodes(replace(fabric_links), shape_of(fabric_links, nodes), free, replace(running))

    for _ in range(2):
        assert choose_nodes(fabric_links, shape_of(fabric_links, nodes), free, running) == anew()


def test_ports_of_a_row_are_those_of_its_order(scene: Scene) -> None:
    fabric_links, _, free = scene
    for row in (free[:3], free[2::-1], free[:3]):
        assert fabric_links.ports(row, 8).hcas == build_ports(fabric_links.rails, row, 8).hcas


def test_stacked_models_say_what_each_says(scene: Scene) -> None:
    running = scene[1]
    axis_s = np.array([load.axis_s for load in running.loads])
    each = [float(load.step.step_s(load.axis_s)) for load in running.loads]
    assert stack_models([load.step for load in running.loads]).step_s(axis_s).tolist() == each
