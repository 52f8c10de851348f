"""HCAs on another fabric than their like: compared by place, whatever devices are called."""

from __future__ import annotations

from opsk.fabric.cabling import find_crossed
from opsk.fabric.hosts.hosts import Host
from opsk.fabric.hosts.ports import HostPort


def host(name: str, *ports: tuple[str, tuple[int, ...], str]) -> Host:
    """Return a node with ports of (device, slot, switch)."""
    entries = tuple(
        HostPort(
            device=device, slot=slot, guid=f"{name}-{device}", switch=switch, width=4, speed="NDR", bytes_per_s=1.0
        )
        for device, slot, switch in ports
    )
    return Host(name=name, role="compute", family="n#", ports=entries, twice=False, generic=False)


def mixed(name: str, first: str = "leaf", second: str = "storage") -> Host:
    """Return a node with two styles of names: ``HCA-1`` and ``mlx5_0`` are both called the first place."""
    return host(name, ("HCA-1", (0,), first), ("mlx5_0", (0,), second), ("mlx5_1", (1,), "leaf"))


def test_devices_that_share_a_slot_are_not_mistaken_for_each_other() -> None:
    assert find_crossed([mixed(f"n{number}") for number in range(5)], {"leaf"}) == {}


def test_an_exchange_is_found_between_devices_that_share_a_slot() -> None:
    """Four nodes have the first on the leaf and the second on storage; one the other way round."""
    nodes = [*(mixed(f"n{number}") for number in range(4)), mixed("odd", "storage", "leaf")]
    found = find_crossed(nodes, {"leaf"})
    assert list(found) == ["odd"]
    assert [port.device for port in found["odd"].missed] == ["HCA-1"]
    assert [port.device for port in found["odd"].strayed] == ["mlx5_0"]
