"""Two units of four nodes; every leaf has one cable to the spine, as fast as an HCA: see conftest.

A job of two nodes sends for one second each step on each of its links; nothing else takes time, so that it is on the
wire all the time, unless a test says otherwise.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk.planning.interference.contention import Interference, interference, predict_shared_step_s
from opsk.planning.interference.links import FabricLinks
from opsk.planning.interference.load import JobShape, Load, LoadKind, default_load, traffic_load
from opsk.planning.interference.running_loads import RunningLoads
from opsk.planning.placement.step_model import COMMUNICATION_ONLY, StepModel
from opsk.planning.routing.traffic import AXES

LINKS = 12


def computing(shape: JobShape, other_s: float, window_s: float = 0.0) -> JobShape:
    """The same job with so much computation in a step, so much of it beside communication."""
    step = replace(shape.step, other_s=other_s, window_s=np.full(len(AXES), window_s), is_whole=True)
    return replace(shape, step=step)


def met(fabric_links: FabricLinks, candidate: Load, *others: Load) -> Interference:
    return interference(candidate, RunningLoads.of(fabric_links.links, others))


def test_two_jobs_on_one_uplink_get_half_of_it_each(fabric_links: FabricLinks, pair: JobShape) -> None:
    found = met(
        fabric_links,
        default_load("a", fabric_links, pair, ("n0", "n4")),
        default_load("b", fabric_links, pair, ("n1", "n5")),
    )
    assert (found.alone_s, found.step_s, found.slowdown) == (1.0, 2.0, 1.0)
    assert found.axes["dp"].share == 0.5
    (other,) = found.neighbours
    assert (other.slowdown_of_candidate, other.slowdown_of_job) == (1.0, 1.0)
    assert (other.step_s, other.step_with_candidate_s) == (1.0, 2.0)


def test_they_share_the_cables_of_both_rails_and_both_ways_but_no_hca(
    fabric_links: FabricLinks, pair: JobShape
) -> None:
    """Two rails x up and down x two units."""
    found = met(
        fabric_links,
        default_load("a", fabric_links, pair, ("n0", "n4")),
        default_load("b", fabric_links, pair, ("n1", "n5")),
    )
    assert found.shared_links == len(found.shared) == found.neighbours[0].links == 8
    assert not any(fabric_links.is_hca(link.link) for link in found.shared)
    for link in found.shared:
        assert (link.candidate, link.burst, link.total) == pytest.approx((1.0, 1.0, 2.0))


def test_jobs_in_units_of_their_own_share_nothing(fabric_links: FabricLinks, pair: JobShape) -> None:
    found = met(
        fabric_links,
        default_load("a", fabric_links, pair, ("n0", "n1")),
        default_load("b", fabric_links, pair, ("n2", "n3")),
    )
    assert (found.slowdown, found.neighbours, found.shared_links, found.shared) == (0.0, (), 0, ())


def test_jobs_on_one_node_share_its_hcas(fabric_links: FabricLinks, pair: JobShape) -> None:
    found = met(
        fabric_links,
        default_load("a", fabric_links, pair, ("n0", "n1")),
        default_load("b", fabric_links, pair, ("n1", "n2")),
    )
    assert all(fabric_links.is_hca(link.link) for link in found.shared)
    assert found.slowdown == 1.0


def test_who_is_there_half_of_the_time_costs_half_of_the_communication(
    fabric_links: FabricLinks, pair: JobShape
) -> None:
    """The other computes 1 s and sends 1 s. Followed by hand: while it sends beside us each gets half, so its cycle is
    1 s + 2 s, in which we get 1 s + 1 s of the link: 3/2 as long. It meets us all the time: 1 s of sending becomes 2 s.
    """
    other = default_load("b", fabric_links, computing(pair, 1.0), ("n1", "n5"))
    found = met(fabric_links, default_load("a", fabric_links, pair, ("n0", "n4")), other)
    assert other.utilisation.max() == 0.5
    assert (found.step_s, found.neighbours[0].step_with_candidate_s) == (1.5, 3.0)
    assert found.neighbours[0].slowdown_of_job == 0.5


def test_what_computation_hides_costs_nothing(fabric_links: FabricLinks, pair: JobShape) -> None:
    """Twice as long is 2 s, and 2 s of computation run beside it; a little less hides not all."""
    other = default_load("b", fabric_links, pair, ("n1", "n5"))
    hidden = default_load("a", fabric_links, computing(pair, 2.0, window_s=2.0), ("n0", "n4"))
    assert met(fabric_links, hidden, other).slowdown == 0.0
    shown = default_load("a", fabric_links, computing(pair, 2.0, window_s=1.9), ("n0", "n4"))
    assert met(fabric_links, shown, other).step_s == pytest.approx(2.1)


def test_links_with_room_for_both_cost_nothing(fabric_links: FabricLinks, pair: JobShape) -> None:
    """Half of a link in bursts and half of it on average fit beside each other."""
    candidate = default_load("a", fabric_links, pair, ("n0", "n4"))
    half = replace(candidate, burst=candidate.burst * 0.5, utilisation=candidate.utilisation * 0.5)
    found = met(fabric_links, half, replace(half, name="b"))
    assert found.shared_links == half.links.size
    assert (found.slowdown, found.neighbours[0].slowdown_of_job) == (0.0, 0.0)


def test_several_jobs_add_up_and_are_told_apart(fabric_links: FabricLinks, pair: JobShape) -> None:
    """Alone with either 2 s; with both a third of the rate is left: 3 s."""
    found = met(
        fabric_links,
        default_load("a", fabric_links, pair, ("n0", "n4")),
        default_load("b", fabric_links, pair, ("n1", "n5")),
        default_load("c", fabric_links, pair, ("n2", "n6")),
    )
    assert found.step_s == pytest.approx(3.0)
    assert {one.load.name: one.slowdown_of_candidate for one in found.neighbours} == {"b": 1.0, "c": 1.0}
    assert [one.step_with_candidate_s / one.step_s for one in found.neighbours] == pytest.approx([1.5, 1.5])


def test_who_is_held_back_elsewhere_leaves_more(fabric_links: FabricLinks) -> None:
    """Three want all of link 0; one of them wants link 1 too, where the candidate then has two thirds, not half."""
    loads = [synthetic("b", {0: 1.0}), synthetic("c", {0: 1.0}), synthetic("d", {0: 1.0, 1: 1.0})]
    found = interference(synthetic("a", {1: 1.0}), RunningLoads.of(LINKS, loads))
    assert found.axes["dp"].share == pytest.approx(2 / 3)


def test_traffic_without_steps_loses_rate(fabric_links: FabricLinks, pair: JobShape) -> None:
    """Traffic of half the rate on all our links: we ask for 1, it for 0.5: both get 2/3 of it."""
    candidate = default_load("a", fabric_links, pair, ("n0", "n4"))
    other = traffic_load("storage", LoadKind.STORAGE, candidate.links, np.full(candidate.links.size, 0.5))
    found = met(fabric_links, candidate, other)
    assert found.step_s == pytest.approx(1.5)
    assert found.neighbours[0].slowdown_of_job == pytest.approx(0.5)


def test_a_job_does_not_meet_itself(fabric_links: FabricLinks, pair: JobShape) -> None:
    load = default_load("a", fabric_links, pair, ("n0", "n4"))
    assert met(fabric_links, load, load).neighbours == ()


def test_a_job_without_traffic_meets_nobody(fabric_links: FabricLinks, pair: JobShape) -> None:
    one_node = replace(pair, plan=replace(pair.plan, dp=1, global_batch=1))
    found = met(
        fabric_links,
        default_load("a", fabric_links, one_node, ("n0",)),
        default_load("b", fabric_links, pair, ("n1", "n5")),
    )
    assert (found.alone_s, found.step_s, found.slowdown, found.axes) == (0.0, 0.0, 0.0, {})


def synthetic(name: str, burst: dict[int, float], step: StepModel = COMMUNICATION_ONLY) -> Load:
    """A job whose one axis takes one second and these parts of links."""
    links = np.array(sorted(burst), dtype=np.int64)
    rows = np.zeros((len(AXES), links.size))
    rows[AXES.index("dp")] = [burst[link] for link in links.tolist()]
    axis_s = np.where(rows.any(axis=1), 1.0, 0.0)
    step_s = float(step.step_s(axis_s))
    return Load(
        name=name, kind=LoadKind.PLAN, links=links, burst=rows, axis_s=axis_s,
        utilisation=rows.sum(axis=0) / (step_s or 1.0), step=step, step_s=step_s,
    )  # fmt: skip


bursts = st.dictionaries(st.integers(0, LINKS - 1), st.sampled_from([0.25, 0.5, 1.0]), max_size=5)
others_s = st.sampled_from([0.0, 1.0, 9.0])
jobs = st.builds(
    lambda burst, other_s: (burst, replace(COMMUNICATION_ONLY, other_s=other_s, is_whole=True)), bursts, others_s
)


def run(loads: list[Load]) -> RunningLoads:
    return RunningLoads.of(LINKS, loads)


@settings(max_examples=200)
@given(jobs, st.lists(jobs, max_size=5))
def test_nobody_is_faster_for_company(mine: object, theirs: list[object]) -> None:
    candidate, *loads = named([mine, *theirs])
    found = interference(candidate, run(loads))
    assert found.step_s >= found.alone_s * (1 - 1e-6)
    assert all(one.slowdown_of_job >= -1e-6 and one.slowdown_of_candidate >= -1e-6 for one in found.neighbours)
    assert predict_shared_step_s(candidate, run(loads)) == found.step_s


@settings(max_examples=200)
@given(jobs, st.lists(jobs, min_size=1, max_size=5))
def test_removing_a_job_slows_nobody_where_links_are_not_overfilled(mine: object, theirs: list[object]) -> None:
    """Where running jobs alone ask for more than a link has, a job that goes can make another one faster, and a third
    one, which meets that one elsewhere, slower: max-min shares are like that.
    """
    candidate, *loads = named([mine, *theirs])
    running = run(loads)
    if running.present.max() > 1.0:
        return
    less = running.without(loads[-1].name)
    assert predict_shared_step_s(candidate, less) <= predict_shared_step_s(candidate, running) * (1 + 1e-6)
    assert (less.stretch_factor <= running.stretch_factor[:-1] * (1 + 1e-6)).all()


@settings(max_examples=200)
@given(jobs, st.lists(jobs, max_size=5), st.randoms(use_true_random=False))
def test_names_and_order_do_not_matter(mine: object, theirs: list[object], dice: object) -> None:
    candidate, *loads = named([mine, *theirs])
    order = list(range(len(loads)))
    links = list(range(LINKS))
    dice.shuffle(order)  # type: ignore[attr-defined]
    dice.shuffle(links)  # type: ignore[attr-defined]
    one = interference(candidate, run(loads))
    other = interference(moved(candidate, links), run([moved(loads[place], links) for place in order]))
    assert other.step_s == pytest.approx(one.step_s, rel=1e-5)
    assert other.shared_links == one.shared_links
    assert lost(other) == pytest.approx(lost(one), abs=1e-5)


@settings(max_examples=100)
@given(jobs, jobs)
def test_two_jobs_see_each_other_alike(mine: object, its: object) -> None:
    """What one costs the other is the same, whichever of them is the candidate."""
    one, other = named([mine, its])
    here, there = interference(one, run([other])), interference(other, run([one]))
    assert len(here.neighbours) == len(there.neighbours)
    for ours, theirs in zip(here.neighbours, there.neighbours, strict=True):
        assert ours.slowdown_of_job == pytest.approx(theirs.slowdown_of_candidate, abs=1e-5)
        assert ours.slowdown_of_candidate == pytest.approx(theirs.slowdown_of_job, abs=1e-5)


@settings(max_examples=100)
@given(st.lists(jobs, max_size=5), jobs)
def test_adding_and_removing_leaves_what_was(theirs: list[object], mine: object) -> None:
    added, *loads = named([mine, *theirs])
    before = run(loads)
    after = before.with_load(added).without(added.name)
    assert after.loads == before.loads
    assert after.total.tolist() == before.total.tolist()
    assert after.stretch_factor.tolist() == before.stretch_factor.tolist()
    at_once = run([*loads, added])
    assert before.with_load(added).stretch_factor.tolist() == at_once.stretch_factor.tolist()


def named(made: list[object]) -> list[Load]:
    return [synthetic(f"j{number}", *one) for number, one in enumerate(made)]  # type: ignore[misc]


def moved(load: Load, links: list[int]) -> Load:
    return replace(load, links=np.array([links[link] for link in load.links.tolist()], dtype=np.int64))


def lost(found: Interference) -> dict[str, float]:
    return {one.load.name: one.slowdown_of_job for one in found.neighbours}
