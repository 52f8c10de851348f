"""A repaired fabric is the same without that one finding: what a fault costs is measured against it."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opsk.fabric.cabling import read_cabling
from opsk.fabric.checks.repair import repair_fault
from opsk.fabric.dumps.assembly import parse_adapter
from opsk.fabric.dumps.ibnetdiscover import read_ibnetdiscover
from opsk.fabric.fabric import Cable, Fabric, Fault, Switch
from opsk.fabric.link_speed import link_bytes_per_s
from opsk.fabric.rails import find_rails
from tests.fakes.faulty_fabrics import Site, Workshop
from tests.opsk.fabric.test_cabling_faults import PLANTS, SMALL, THREE_TIERS, several, workshop

UNREPAIRABLE = {"unnamed_hca", "duplicate_host_name", "generic_host_name", "names_follow_no_rail", "thin_leaf"}
FOLLOWS = {"oversubscribed_tier", "oversubscribed_leaf"}
"""A repair changes the bandwidths that these are about."""


def told(fault: Fault) -> tuple[object, ...]:
    return fault.kind, fault.nodes, fault.switches, fault.devices


def repaired_well(fabric: Fabric, fault: Fault) -> Fabric | None:
    """Return the repaired fabric after checking that the finding is gone and no other has come."""
    before = Counter(map(told, find_rails(fabric).faults))
    sound = repair_fault(fabric, fault, cabling=read_cabling(fabric))
    if sound is None:
        assert fault.kind in UNREPAIRABLE
        return None
    after = Counter(map(told, find_rails(sound).faults))
    assert told(fault) not in after
    assert {kind for kind, *_ in after - before} <= FOLLOWS
    return sound


@pytest.mark.parametrize("site", [SMALL, THREE_TIERS], ids=["two tiers", "three tiers"])
@pytest.mark.parametrize("name", [name for name in PLANTS if name != "a unit cut off"])
def test_a_repair_takes_the_finding_away_and_brings_no_other(name: str, site: Site) -> None:
    broken = workshop(site, messy=True)
    list(PLANTS[name](broken))
    fabric = broken.fabric()
    assert find_rails(fabric).faults
    seen: Counter[str] = Counter()
    for fault in find_rails(fabric).faults:
        seen[fault.kind] += 1
        if seen[fault.kind] <= 2:
            repaired_well(fabric, fault)


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=10)
@given(st.booleans(), st.integers(0, 2**32))
def test_repairs_one_after_the_other_leave_nothing_to_repair(messy: bool, seed: int) -> None:
    broken = workshop(SMALL, messy=messy)
    several(broken, random.Random(seed))
    fabric = broken.fabric()
    for _ in range(40):
        fault = next((fault for fault in find_rails(fabric).faults if fault.kind not in UNREPAIRABLE), None)
        if fault is None:
            break
        fabric = repair_fault(fabric, fault) or pytest.fail(f"not repaired: {fault}")
    assert {fault.kind for fault in find_rails(fabric).faults} <= UNREPAIRABLE


def test_a_unit_that_was_cut_off_joins_the_rest_again() -> None:
    broken = Workshop(SMALL)
    broken.isolate(1)
    fabric = broken.fabric()
    fault = next(fault for fault in find_rails(fabric).faults if fault.kind == "isolated_part")
    assert "isolated_part" not in {fault.kind for fault in find_rails(repair_fault(fabric, fault) or fabric).faults}


def test_swapped_hcas_change_places_and_nothing_else_moves() -> None:
    broken = Workshop(SMALL)
    sound = set(broken.cables)
    broken.swap(broken.node(5), 1, 4, 6)
    fabric = broken.fabric()
    assert set((repair_fault(fabric, find_rails(fabric).faults[0]) or fabric).cables) == sound


@st.composite
def any_fabrics(draw: st.DrawFn) -> Fabric:
    """Return switches, adapters and cables without any order: whatever a damaged dump may come to."""
    texts = ["n1 mlx5_0", "n1 mlx5_1", "n2 HCA-1", "n2 mlx5_1", "oss1 x", "login1 mlx5_0", "localhost mlx5_0", "n3", "",
             "MT4129 ConnectX7   Mellanox Technologies", "Mellanox Technologies Aggregation Node"]  # fmt: skip
    switches = {
        f"a{index}": Switch(
            guid=f"a{index}", description=draw(st.sampled_from(["", "leaf", "MF0;leaf2:X/U1"])), ports=40
        )
        for index in range(draw(st.integers(0, 6)))
    }
    hcas = {
        f"b{index}": parse_adapter(f"b{index}", draw(st.sampled_from(texts)), 0)
        for index in range(draw(st.integers(0, 12)))
    }
    ends = [(guid, port) for guid in (*switches, *hcas) for port in range(1, 9 if guid in switches else 3)]
    order = draw(st.permutations(ends))[: draw(st.integers(0, 60))]
    rates = st.sampled_from([(4, "NDR"), (4, "HDR"), (1, "NDR"), (0, "")])
    cables = []
    for one, other in zip(order[::2], order[1::2], strict=False):
        (a_guid, a_port), (b_guid, b_port) = sorted((one, other))
        width, speed = draw(rates)
        cables.append(
            Cable(a_guid=a_guid, a_port=a_port, b_guid=b_guid, b_port=b_port, width=width, speed=speed,
                  bytes_per_s=link_bytes_per_s(width, speed))
        )  # fmt: skip
    return Fabric(switches=switches, hcas=hcas, cables=tuple(cables))


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], max_examples=100)
@given(any_fabrics())
def test_no_fabric_whatever_stops_the_search_or_a_repair(fabric: Fabric) -> None:
    for fault in find_rails(fabric).faults:
        assert fault.where
        find_rails(repair_fault(fabric, fault) or fabric)


@pytest.mark.shared
def test_the_faults_of_a_real_fabric_can_be_put_right(shared: Path) -> None:
    text = (shared / "data/real/ib_fabric/ndr_dgx_rail_40sw.ibnetdiscover").read_text()
    fabric = read_ibnetdiscover(text, source="dump")
    faults = find_rails(fabric).faults
    first = {fault.kind: fault for fault in reversed(faults)}
    healed = [kind for kind, fault in first.items() if repaired_well(fabric, fault) is not None]
    assert {"swapped_hcas", "missing_leaf", "missing_rail", "leaf_short_of_uplinks"} <= set(healed)
