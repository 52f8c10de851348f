"""Which HCA serves which GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from opsk.fabric.rails import Rails
from opsk.planning.routing.hca_ports import NOWHERE, Ports, build_ports

RailsMaker = Callable[..., Rails]


def devices(ports: Ports, node: int = 0) -> list[str | None]:
    used = [ports.find_attachment(node, gpu) for gpu in range(ports.port.shape[1])]
    return [hca.device if hca else None for hca in used]


def test_two_gpus_share_an_hca_where_there_are_half_as_many(rails_of: RailsMaker) -> None:
    ports = build_ports(rails_of([["a"]], hcas=2), ["a"], 4)
    assert devices(ports) == ["mlx5_0", "mlx5_0", "mlx5_1", "mlx5_1"]


def test_some_hcas_stay_idle_where_there_are_more(rails_of: RailsMaker) -> None:
    ports = build_ports(rails_of([["a"]], hcas=4), ["a"], 2)
    assert devices(ports) == ["mlx5_0", "mlx5_2"]


def test_a_missing_hca_does_not_shift_the_others(rails_of: RailsMaker) -> None:
    """Node b has no mlx5_1: its GPU 1 uses the nearest lower one, GPUs 2 and 3 keep theirs."""
    ports = build_ports(rails_of([["a", "b", "c"]], hcas=4, missing={"b": 1}), ["a", "b", "c"], 4)
    assert devices(ports, 1) == ["mlx5_0", "mlx5_0", "mlx5_2", "mlx5_3"]


def test_names_of_the_same_places_are_the_same(rails_of: RailsMaker) -> None:
    """``HCA-2`` of a node description is the kernel's ``mlx5_1``: a node named so keeps its places."""
    rails = rails_of([["a", "b", "c"]], hcas=4)
    renamed = tuple(
        replace(hca, device=f"HCA-{number}") for number, hca in enumerate(rails.attachments["b"], start=1) if number > 1
    )
    rails = replace(rails, attachments={**rails.attachments, "b": renamed})
    assert devices(build_ports(rails, ["a", "b", "c"], 4), 1) == ["HCA-2", "HCA-2", "HCA-3", "HCA-4"]


def test_a_known_affinity_beats_the_order(rails_of: RailsMaker) -> None:
    ports = build_ports(rails_of([["a"]], hcas=2), ["a"], 2, {"a": {0: "a-1", 1: "a-0"}})
    assert devices(ports) == ["mlx5_1", "mlx5_0"]


def test_a_node_off_the_fabric_is_nowhere(rails_of: RailsMaker) -> None:
    ports = build_ports(rails_of([["a"]], hcas=2), ["a", "ghost"], 2)
    assert devices(ports, 1) == [None, None]
    assert ports.leaf[ports.port[1, 0]] == NOWHERE
