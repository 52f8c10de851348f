"""Positions of HCAs compare between naming styles: a gap that all nodes of a unit have is still a gap."""

from __future__ import annotations

import pytest

from opsk.fabric.hosts.hosts import Host
from opsk.fabric.hosts.ports import HostPort, device_slot
from opsk.fabric.numbering import compute_positions

WHOLE = {
    "ibp": ["ibp24s0", "ibp64s0", "ibp79s0", "ibp94s0", "ibp154s0", "ibp192s0", "ibp206s0", "ibp220s0"],
    "HCA": [f"HCA-{number}" for number in range(1, 9)],
    "mlx": [f"mlx5_{number}" for number in range(8)],
    "gaps": [f"mlx5_{number}" for number in (0, 3, 4, 5, 6, 9, 10, 11)],
    "azure": [f"mlx5_ib{number}" for number in range(8)],
    "slot": [f"ibs{number}" for number in range(1, 9)],
}
"""Eight HCAs of a node as drivers, ibacm and udev name them."""
COUNTED = ["HCA", "mlx", "azure"]


def host(name: str, devices: list[str]) -> Host:
    ports = sorted((device_slot(device), device) for device in devices)
    return Host(
        name=name,
        role="compute",
        family="n#",
        ports=tuple(
            HostPort(
                device=device, slot=slot, guid=f"{name}/{device}", switch="", width=4, speed="NDR", bytes_per_s=5e10
            )
            for slot, device in ports
        ),
        twice=False,
        generic=False,
    )


def hosts(count: int, devices: list[str], lost: int | None = None) -> list[Host]:
    left = [device for index, device in enumerate(devices) if index != lost]
    return [host(f"{'-'.join(left)}-n{index}", left) for index in range(count)]


def without(lost: int) -> tuple[int, ...]:
    return tuple(position for position in range(8) if position != lost)


@pytest.mark.parametrize("lost", range(8))
@pytest.mark.parametrize("style", WHOLE)
@pytest.mark.parametrize("whole", [1, 3])
def test_a_gap_of_a_whole_unit_is_seen_against_few_whole_nodes_of_its_style(style: str, whole: int, lost: int) -> None:
    other = "HCA" if style != "HCA" else "ibp"
    unit = hosts(32, WHOLE[style], lost)
    place = compute_positions([*hosts(90, WHOLE[other]), *hosts(whole, WHOLE[style]), *unit])
    assert {place[node.name] for node in unit} == {without(lost)}


@pytest.mark.parametrize("lost", range(8))
@pytest.mark.parametrize("style", COUNTED)
def test_a_gap_in_counting_is_seen_where_no_node_of_the_style_is_whole(style: str, lost: int) -> None:
    unit = hosts(32, WHOLE[style], lost)
    place = compute_positions([*hosts(90, WHOLE["ibp"]), *unit])
    assert {place[node.name] for node in unit} == {without(lost)}


def test_nodes_that_lack_more_than_the_rest_of_their_unit_keep_its_places() -> None:
    unit = hosts(32, WHOLE["HCA"], 3)
    further = host("further", [device for index, device in enumerate(WHOLE["HCA"]) if index not in (3, 5)])
    assert compute_positions([*hosts(90, WHOLE["ibp"]), *unit, further])["further"] == (0, 1, 2, 4, 6, 7)


def test_a_kind_of_node_with_half_the_hcas_has_places_of_its_own() -> None:
    small = [host(f"small{index}", ["mlx5_0", "mlx5_1", "mlx5_4", "mlx5_5"]) for index in range(8)]
    place = compute_positions([*hosts(90, WHOLE["ibp"]), *hosts(1, WHOLE["mlx"]), *small])
    assert {place[node.name] for node in small} == {(0, 1, 2, 3)}
