"""Planted faults of the cabling are found where they are, and nothing else is: on any shape, under any names.

The fabrics and the faults are made by ``tests.fakes.faulty_fabrics``, so what must be found is known from there.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opsk.fabric.fabric import Fault
from opsk.fabric.rails import find_rails
from tests.fakes.faulty_fabrics import DGX_DEVICES, Planted, Site, Workshop, relabelled, signature

SMALL = Site(nodes=44, unit_nodes=12, spines=4, cables_per_pair=3)
"""Four units, the last of 8 nodes; full bisection."""
THREE_TIERS = Site(nodes=40, unit_nodes=10, spines=5, cables_per_pair=2, pods=2, cores_per_spine=32)
"""Two pods of two units: each spine has 16 leaves x 2 cables below it, and as many cores."""
NEIGHBOURING = {"oversubscribed_tier", "missing_rail"}
"""What follows from a fault: less bandwidth of a tier, a node that has lost the HCA whose name is not known."""

Plant = Callable[[Workshop], Iterable[Planted]]

PLANTS: dict[str, Plant] = {
    "two HCAs swapped": lambda w: [w.swap(w.node(5), 1, 4)],
    "two HCAs of the last unit swapped": lambda w: [w.swap(w.node(w.site.nodes - 1), 0, 7)],
    "three HCAs in a ring": lambda w: [w.swap(w.node(5), 1, 4, 6)],
    "all HCAs rotated": lambda w: [w.swap(w.node(5), *range(8))],
    "two pairs swapped": lambda w: [w.swap(w.node(5), 1, 4), w.swap(w.node(5), 2, 3)],
    "an HCA in another unit": lambda w: [w.to_other_unit(w.node(5), 2, 1)],
    "an HCA on another rail": lambda w: [w.to_other_rail(w.node(5), 2, 0, 3)],
    "an HCA less": lambda w: [w.lose_hca(w.node(5), 2)],
    "an uplink less": lambda w: [w.lose_uplinks(w.leaf(0, 2), w.spine(1))],
    "uplinks to several spines less": lambda w: [
        w.lose_uplinks(w.leaf(0, 2), w.spine(spine), spine + 1) for spine in range(3)
    ],
    "no uplink to one spine": lambda w: [w.lose_uplinks(w.leaf(0, 2), w.spine(1), 99)],
    "a leaf cut off": lambda w: [w.cut_off(w.leaf(0, 2))],
    "a unit cut off": lambda w: [w.isolate(1)],
    "a spine without cables": lambda w: [w.empty_spine(w.spine(1))],
    "a spine with two cables": lambda w: [w.empty_spine(w.spine(1), keep=2)],
    "a slow link": lambda w: [w.relink(w.cable_of(w.hca(w.node(5), 2)), speed="HDR")],
    "a narrow link": lambda w: [w.relink(w.cable_of(w.hca(w.node(5), 2)), width=2)],
    "slow links on four nodes": lambda w: [
        w.relink(w.cable_of(w.hca(w.node(node), node % 8)), speed="HDR") for node in range(5, 9)
    ],
    "a slow uplink": lambda w: [w.relink(w.between(w.leaf(0, 2), w.spine(1))[0], speed="HDR")],
    "a narrow uplink": lambda w: [w.relink(w.between(w.leaf(0, 2), w.spine(1))[0], width=1)],
    "a host on a spine": lambda w: [w.host_on(w.spine(1))],
    "an HCA without a name": lambda w: [w.unname(w.node(5), 2)],
    "a name twice": lambda w: [w.duplicate(w.node(5), w.node(6))],
    "two leaves cabled to each other": lambda w: [w.join_leaves(w.leaf(0, 1), w.leaf(1, 2))],
    "uplinks crossed": lambda w: w.cross_uplinks(w.leaf(0, 1), w.leaf(1, 2), w.spine(0), w.spine(1)),
    "a crowded leaf": lambda w: [w.crowd(w.leaf(0, 1), 5)],
    "a leaf less": lambda w: [w.lose_leaf(0, 2)],
}


def workshop(site: Site, *, messy: bool) -> Workshop:
    found = Workshop(site)
    if messy:
        found.mess()
    return found


def findings(found: Workshop) -> tuple[Fault, ...]:
    return find_rails(found.fabric()).faults


@cache
def findings_before(site: Site, *, messy: bool) -> tuple[Fault, ...]:
    """Return what is found before anything is broken."""
    return findings(workshop(site, messy=messy))


def told(faults: Iterable[Fault]) -> Counter[tuple[str, ...]]:
    """Return what findings are about; those of switches without their nodes, which other faults may change."""
    return Counter(
        (fault.kind, *(fault.nodes if not fault.switches else ()), *fault.switches, *fault.devices) for fault in faults
    )


@pytest.mark.parametrize("messy", [False, True], ids=["clean", "messy"])
@pytest.mark.parametrize("site", [SMALL, THREE_TIERS], ids=["two tiers", "three tiers"])
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_found_where_it_is_and_nothing_else(name: str, site: Site, messy: bool) -> None:
    before = findings_before(site, messy=messy)
    broken = workshop(site, messy=messy)
    planted = list(PLANTS[name](broken))
    after = findings(broken)
    missed = [fault for fault in planted if not fault.found_in(after)]
    assert missed == []
    extra = {kind for (kind, *_), count in (told(after) - told(before)).items() if count}
    assert extra - {fault.kind for fault in planted} <= NEIGHBOURING


@pytest.mark.parametrize("site", [SMALL, THREE_TIERS], ids=["two tiers", "three tiers"])
def test_what_is_no_fault_is_not_reported(site: Site) -> None:
    found = Workshop(site)
    found.exchange(found.node(5), found.node(6), 2)
    found.permute_rails(1, [1, 2, 0, 3, 4, 5, 7, 6])
    found.rename_devices(
        [found.node(index) for index in range(20)], [f"HCA-{int(name[5:]) + 1}" for name in DGX_DEVICES]
    )
    assert findings(found) == ()


@st.composite
def sites(draw: st.DrawFn) -> Site:
    """Return a fabric with full bisection: 2 or 3 tiers, 1 to 8 rails, a last unit that need not be full."""
    unit_nodes = draw(st.integers(3, 14))
    units = draw(st.integers(1, 4))
    last = draw(st.integers(1, unit_nodes))
    rails = draw(st.sampled_from([1, 2, 4, 8]))
    spines = draw(st.integers(2, 4))
    per_pair = -(-unit_nodes // spines)
    pods = draw(st.sampled_from([1, 2])) if units % 2 == 0 else 1
    return Site(
        nodes=(units - 1) * unit_nodes + last,
        unit_nodes=unit_nodes,
        rails=rails,
        spines=spines,
        cables_per_pair=per_pair,
        pods=pods,
        cores_per_spine=units * rails // pods * per_pair if pods > 1 else 0,
        devices=draw(st.sampled_from([DGX_DEVICES, tuple(f"HCA-{index}" for index in range(1, 9))])),
    )


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60)
@given(sites())
def test_a_sound_fabric_of_any_shape_gives_no_finding(site: Site) -> None:
    rails = find_rails(Workshop(site).fabric())
    assert rails.faults == ()
    if site.rails > 1:
        assert rails.rail_count == site.rails
        assert len(rails.units) == site.units


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=40)
@given(st.sampled_from(sorted(PLANTS)), st.sampled_from([SMALL, THREE_TIERS]), st.booleans(), st.integers(0, 2**32))
def test_other_names_ports_and_order_give_the_same_findings(name: str, site: Site, messy: bool, seed: int) -> None:
    broken = workshop(site, messy=messy)
    list(PLANTS[name](broken))
    other, words = relabelled(broken.fabric(), seed)
    assert signature(find_rails(other).faults) == signature(findings(broken), words)


def break_node(found: Workshop, index: int, rng: random.Random) -> Planted:
    """Break one HCA of a node, or a few of them, in one way or another."""
    site, node, unit = found.site, found.node(index), index // found.site.unit_nodes
    one, other, third = rng.sample(range(site.rails), 3)
    ways: list[Callable[[], Planted]] = [
        lambda: found.swap(node, one, other),
        lambda: found.swap(node, one, other, third),
        lambda: found.to_other_unit(node, one, (unit + 1) % site.units),
        lambda: found.to_other_rail(node, one, unit, other),
        lambda: found.lose_hca(node, one),
        lambda: found.relink(found.cable_of(found.hca(node, one)), speed="HDR"),
        lambda: found.relink(found.cable_of(found.hca(node, one)), width=1),
    ]
    return rng.choice(ways)()


def several(found: Workshop, rng: random.Random) -> list[Planted]:
    """Break a tenth of the nodes, some uplinks and a link between switches, and put a host on a spine."""
    site = found.site
    nodes = rng.sample(range(4, site.nodes), max(3, site.nodes // 10))
    planted = [break_node(found, index, rng) for index in nodes]
    rails = rng.sample(range(site.rails), 3)
    planted.append(found.lose_uplinks(found.leaf(0, rails[0]), found.spine(0), rng.randint(1, 3)))
    planted.append(found.lose_uplinks(found.leaf(1, rails[1]), found.spine(1), 99))
    last = found.leaf(site.units - 1, rails[2])
    planted.append(found.relink(found.between(last, found.spine(site.pods * site.spines - 1))[0], speed="HDR"))
    planted.append(found.host_on(found.spine(2)))
    return planted


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60)
@given(
    st.sampled_from([SMALL, THREE_TIERS, Site(nodes=140, unit_nodes=20, spines=10, cables_per_pair=2)]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_several_faults_are_each_found_and_no_others(site: Site, messy: bool, seed: int) -> None:
    before = findings_before(site, messy=messy)
    broken = workshop(site, messy=messy)
    planted = several(broken, random.Random(seed))
    after = findings(broken)
    assert [fault for fault in planted if not fault.found_in(after)] == []
    new = told(after) - told(before)
    assert Counter(kind for kind, *_ in new.elements()) - Counter(fault.kind for fault in planted) == Counter()


def test_an_hca_of_the_compute_fabric_exchanged_with_one_for_storage_is_found() -> None:
    found = with_storage(Site(nodes=24, unit_nodes=8, rails=4, spines=4, cables_per_pair=2))
    assert findings(found) == ()
    node = found.node(5)
    compute, storage = (
        found.hca(node, 1),
        next(guid for guid, hca in found.hcas.items() if (hca.node, hca.device) == (node, "mlx5_1")),
    )
    leaf, server = found.leaf(0, 1), found.storage_leaf()
    found.move(compute, server)
    found.move(storage, leaf)
    faults = findings(found)
    assert [(fault.kind, fault.where) for fault in faults] == [("swapped_hcas", f"{node}: mlx5_3 and mlx5_1")]
    found.move(compute, leaf)
    found.move(storage, server)
    assert findings(found) == ()


def with_storage(site: Site) -> Workshop:
    """Give each node a further HCA on a storage leaf that all units share with a few servers."""
    found = Workshop(site)
    found.add_storage_leaf(servers=3)
    return found


@pytest.mark.parametrize("servers", [0, 2, 20])
def test_a_storage_leaf_that_all_units_share_joins_none_of_them(servers: int) -> None:
    found = Workshop(Site(nodes=30, unit_nodes=8, rails=4, spines=4, cables_per_pair=2))
    found.add_storage_leaf(servers=servers)
    rails = find_rails(found.fabric())
    assert (rails.rail_count, [len(unit) for unit in rails.units]) == (4, [8, 8, 8, 6])
    assert rails.leaves[found.storage_leaf()].role == "storage"
    assert [fault.kind for fault in rails.faults] == []


def test_a_host_on_a_core_shifts_no_tier() -> None:
    found = Workshop(THREE_TIERS)
    before = find_rails(found.fabric())
    planted = found.host_on(found.core(3))
    after = find_rails(found.fabric())
    assert [fault.kind for fault in planted.found_in(after.faults)] == ["host_off_tier"]
    assert after.tier == before.tier


def test_a_racked_leaf_without_nodes_is_no_core() -> None:
    found = Workshop(SMALL)
    for index in range(36, SMALL.nodes):
        found.remove(found.hca(found.node(index), 0))
    rails = find_rails(found.fabric())
    assert rails.tier[found.leaf(3, 0)] == 0
    assert {fault.kind for fault in rails.faults} == {"missing_leaf", "missing_rail"}


def test_a_spine_of_one_pod_that_is_gone_is_one_finding() -> None:
    found = Workshop(THREE_TIERS)
    found.remove(found.spine(1))
    faults = [fault for fault in findings(found) if fault.kind != "oversubscribed_tier"]
    assert [fault.kind for fault in faults] == ["missing_spine"]
    assert set(faults[0].switches) == {found.leaf(unit, rail) for unit in (0, 1) for rail in range(8)}


def test_rail_only_fabrics_are_not_cut_into_islands() -> None:
    """One unit of rails without any spine, and planes of which each has its own spine."""
    rails = find_rails(Workshop(Site(nodes=12, unit_nodes=12, spines=0, cables_per_pair=0)).fabric())
    assert (rails.faults, rails.rail_count) == ((), 8)
    planes = Workshop(Site(nodes=24, unit_nodes=8, spines=8, cables_per_pair=8))
    for unit in range(3):
        for rail in range(8):
            for spine in set(range(8)) - {rail}:
                planes.drop(planes.between(planes.leaf(unit, rail), planes.spine(spine)))
    assert findings(planes) == ()
    assert {fault.kind for fault in findings_after(planes, lambda w: w.cut_off(w.leaf(1, 2)))} == {"isolated_part"}


def findings_after(found: Workshop, plant: Callable[[Workshop], Planted]) -> tuple[Fault, ...]:
    plant(found)
    return findings(found)


def test_a_node_with_fewer_hcas_than_its_like_is_found_where_it_lacks_no_rail() -> None:
    found = Workshop(Site(nodes=12, unit_nodes=12, spines=4, cables_per_pair=3))
    for node in range(12):
        for position in range(4, 8):
            found.move(found.hca(found.node(node), position), found.leaf(0, position - 4))
    found.remove(found.hca(found.node(5), 6))
    assert [(fault.kind, fault.where) for fault in findings(found) if fault.kind == "fewer_hcas"] == [
        ("fewer_hcas", found.node(5))
    ]


@pytest.mark.parametrize("lost", range(8))
def test_devices_that_moved_up_behind_a_missing_one_are_not_misplaced(lost: int) -> None:
    """The driver numbers the HCAs that it finds: without ``mlx5_2``, the old ``mlx5_3`` is the new ``mlx5_2``."""
    found = Workshop(
        Site(nodes=12, unit_nodes=12, spines=4, cables_per_pair=3, devices=[f"mlx5_{i}" for i in range(8)])
    )
    node = found.node(5)
    planted = found.lose_hca(node, lost)
    names = [name for index, name in enumerate(found.site.devices) if index != lost]
    found.name_devices(node, dict(zip(names, found.site.devices, strict=False)))
    faults = findings(found)
    assert [(fault.kind, fault.where) for fault in faults] == [(planted.kind, node)]
    assert f"none on rail {lost}" in faults[0].evidence
    assert faults[0].switches == (found.leaf(0, lost),)


def test_a_site_named_like_storage_still_has_compute_nodes() -> None:
    rails = find_rails(Workshop(Site(nodes=24, unit_nodes=12, host=lambda index: f"exa-{index}")).fabric())
    assert set(rails.host_roles.values()) == {"compute"}


def test_links_that_are_slow_for_one_cause_are_one_finding() -> None:
    """A node with older adapters, and a leaf with all its uplinks slow: not one finding for each of their links."""
    found = Workshop(SMALL)
    node, leaf = found.node(5), found.leaf(1, 2)
    for position in range(8):
        found.relink(found.cable_of(found.hca(node, position)), speed="HDR")
    for spine in range(SMALL.spines):
        for cable in found.between(leaf, found.spine(spine)):
            found.relink(cable, speed="HDR")
    faults = [fault for fault in findings(found) if fault.kind == "slow_link"]
    assert {fault.where: len(fault.cables) for fault in faults} == {
        f"{node}: {', '.join(DGX_DEVICES)}": 8,
        f"{found.name(leaf)} ({leaf}): all uplinks": 12,
    }


@pytest.mark.parametrize("name", ["two HCAs swapped", "an HCA less", "a leaf less", "an HCA in another unit"])
def test_hosts_that_share_no_pattern_of_names_are_compared_all_the_same(name: str) -> None:
    """Every host its own word, so that each is a family of its own."""
    words = [f"{one}{other}x" for one in "bcdfghjk" for other in "aeiou"]
    found = Workshop(Site(nodes=36, unit_nodes=12, spines=4, cables_per_pair=3, host=lambda index: words[index]))
    planted = list(PLANTS[name](found))
    faults = findings(found)
    assert [fault for fault in planted if not fault.found_in(faults)] == []
    assert {fault.kind for fault in faults} - {fault.kind for fault in planted} <= NEIGHBOURING


@pytest.mark.parametrize("lost", [0, 3, 7])
@pytest.mark.parametrize("whole", [0, 2, 9])
def test_a_leaf_less_keeps_the_rails_of_the_others_under_another_naming_style(lost: int, whole: int) -> None:
    """The last unit names its HCAs HCA-n on all nodes, another one on a few or none; the rest by PCI numbers."""
    pci = [f"ibp{bus}s0" for bus in (24, 64, 79, 94, 154, 192, 206, 220)]
    found = Workshop(Site(nodes=48, unit_nodes=12, spines=4, cables_per_pair=3, devices=pci))
    planted = found.lose_leaf(3, lost)
    left = {device: f"HCA-{index + 1}" for index, device in enumerate(pci)}
    for index in range(36 - whole, 48):
        found.name_devices(found.node(index), left)
    rails = find_rails(found.fabric())
    assert planted.found_in(rails.faults)
    assert {fault.kind for fault in rails.faults} == {"missing_leaf", "missing_rail"}
    assert {rail: rails.leaves[found.leaf(3, rail)].rail for rail in range(8) if rail != lost} == {
        rail: rail for rail in range(8) if rail != lost
    }
