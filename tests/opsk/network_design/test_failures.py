"""The rail-only paper's cases of section IV.C, on small clusters: which options there are on which network."""

from __future__ import annotations

import pytest

from opsk.hardware.catalog import node
from opsk.network_design.failures import Outcome, outcomes
from opsk.network_design.point import Wiring
from opsk.planning.remap.values import OptionKind


@pytest.fixture(scope="module")
def found() -> dict[tuple[str, str, bool], Outcome]:
    return {(one.case, one.wiring, one.optical): one for one in outcomes(node("dgx-h100"))}


def kinds(outcome: Outcome) -> list[OptionKind]:
    return [choice.kind for choice in outcome.choices]


IDLE, FULL = "GPU, one idle in its HB domain", "GPU, HB domain full, small domain"
RACK = "GPU, HB domain full, domain of several nodes"


def test_an_idle_gpu_takes_over_on_a_rail_optimised_network(found: dict[tuple[str, str, bool], Outcome]):
    best = found[IDLE, Wiring.RAIL_OPTIMIZED, False].best
    assert best is not None
    assert best.kind is OptionKind.IDLE_GPU
    assert best.loss == pytest.approx(0.0, abs=0.01)


def test_rail_only_has_no_path_to_the_idle_gpu(found: dict[tuple[str, str, bool], Outcome]):
    outcome = found[IDLE, Wiring.RAIL_ONLY, False]
    assert OptionKind.IDLE_GPU not in kinds(outcome)
    assert "no path" in outcome.refused["idle_gpu"]


def test_optical_switches_bring_it_onto_the_rail(found: dict[tuple[str, str, bool], Outcome]):
    with_light, without = found[IDLE, Wiring.RAIL_ONLY, True].best, found[IDLE, Wiring.RAIL_ONLY, False].best
    assert with_light is not None
    assert without is not None
    assert with_light.kind is OptionKind.OPTICAL
    assert with_light.lost_s < without.lost_s / 5


@pytest.mark.parametrize("case", ["rail switch", "server that is an HB domain", FULL])
def test_links_switches_and_servers_are_equal_on_both(found: dict[tuple[str, str, bool], Outcome], case: str):
    rail_optimized, rail_only = found[case, Wiring.RAIL_OPTIMIZED, False], found[case, Wiring.RAIL_ONLY, False]
    # another plan may pay on one of them only
    moves = [
        [kind for kind in kinds(outcome) if kind is not OptionKind.REPLAN] for outcome in (rail_optimized, rail_only)
    ]
    assert moves[0] == moves[1]
    assert rail_optimized.affected == rail_only.affected


def test_a_whole_domain_takes_over_where_it_is_full(found: dict[tuple[str, str, bool], Outcome]):
    for wiring in (Wiring.RAIL_OPTIMIZED, Wiring.RAIL_ONLY):
        best = found[RACK, wiring, False].best
        assert best is not None
        assert best.kind is OptionKind.HB_DOMAIN


def test_only_a_network_with_spines_reaches_a_spare_tray_of_another_place(
    found: dict[tuple[str, str, bool], Outcome],
):
    # and even there the HB domain is then slower: the paper's reason against it
    spare = next(c for c in found[RACK, Wiring.RAIL_OPTIMIZED, False].choices if c.kind is OptionKind.SPARE_NODE)
    assert spare.loss > 0.02
    assert OptionKind.SPARE_NODE not in kinds(found[RACK, Wiring.RAIL_ONLY, False])
