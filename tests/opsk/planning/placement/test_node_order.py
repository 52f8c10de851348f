"""Which nodes a job takes, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opsk.fabric.rails import Rails
from opsk.planning.placement.node_order import UNKNOWN_UNIT, node_order, slurm_order, unit_of_nodes

RailsMaker = Callable[..., Rails]


def ordered(rails: Rails, nodes: Sequence[str], needed: int, block: int = 1, **domains: str) -> tuple[str, ...]:
    of = {node: domains.get(node, node) for node in nodes}
    return node_order(rails, nodes, needed=needed, block_nodes=block, domain_of=of)


def test_slurm_counts_in_names() -> None:
    assert slurm_order(["n10", "n2", "n1", "n2"]) == ("n1", "n2", "n10")


def test_a_node_belongs_to_the_unit_of_most_of_its_leaves(rails_of: RailsMaker) -> None:
    rails = rails_of([["a"], ["b"]], hcas=2)
    assert unit_of_nodes(rails, ["a", "b", "elsewhere"]) == {"a": 0, "b": 1, "elsewhere": UNKNOWN_UNIT}


def test_nodes_of_one_unit_follow_each_other(rails_of: RailsMaker) -> None:
    rails = rails_of([["n0", "n2"], ["n1", "n3"]])
    assert ordered(rails, ["n0", "n1", "n2", "n3"], 4) == ("n0", "n2", "n1", "n3")


def test_the_smallest_unit_that_holds_the_job_is_taken(rails_of: RailsMaker) -> None:
    rails = rails_of([["a0", "a1", "a2", "a3"], ["b0", "b1"], ["c0"]])
    assert ordered(rails, ["a0", "a1", "a2", "a3", "b0", "b1", "c0"], 2) == ("b0", "b1")


def test_a_job_too_large_for_any_unit_starts_with_the_largest(rails_of: RailsMaker) -> None:
    """Five nodes: all four of unit 0, and the one that is left fits unit 2 exactly."""
    rails = rails_of([["a0", "a1", "a2", "a3"], ["b0", "b1"], ["c0"]])
    assert ordered(rails, ["a0", "a1", "a2", "a3", "b0", "b1", "c0"], 5) == ("a0", "a1", "a2", "a3", "c0")


def test_whole_stages_lie_within_units_and_straddling_ones_come_last(rails_of: RailsMaker) -> None:
    """Stages of two nodes on units of three: one whole stage each, the third of what is left of both."""
    rails = rails_of([["a0", "a1", "a2"], ["b0", "b1", "b2"]])
    assert ordered(rails, ["a0", "a1", "a2", "b0", "b1", "b2"], 6, block=2) == ("a0", "a1", "b0", "b1", "a2", "b2")


def test_nodes_of_one_hb_domain_stay_together(rails_of: RailsMaker) -> None:
    rails = rails_of([["n0", "n1", "n2", "n3"]])
    nodes = ["n0", "n1", "n2", "n3"]
    assert ordered(rails, nodes, 4, n0="x", n2="x", n1="y", n3="y") == ("n0", "n2", "n1", "n3")


def test_units_near_each_other_follow_each_other(rails_of: RailsMaker) -> None:
    """Units 0 and 2 share a spine, unit 1 is behind the core."""
    rails = rails_of([["a"], ["b"], ["c"]], hcas=1)
    pod = {"u0r0": 0, "u2r0": 0, "u1r0": 1}
    distance = {(one, other): 0 if one == other else 2 if pod[one] == pod[other] else 4 for one in pod for other in pod}
    three_tiers = Rails(
        leaves=rails.leaves, attachments=rails.attachments, leaf_distance=distance, rail_count=rails.rail_count
    )
    assert ordered(three_tiers, ["a", "b", "c"], 3) == ("a", "c", "b")


def test_nodes_off_the_fabric_come_last(rails_of: RailsMaker) -> None:
    rails = rails_of([["n1", "n2"]])
    assert ordered(rails, ["n0", "n1", "n2"], 3) == ("n1", "n2", "n0")
    assert ordered(rails, ["n0", "n1", "n2"], 2) == ("n1", "n2")


def test_nodes_left_over_from_whole_groups_stay_free(rails_of: RailsMaker) -> None:
    """Two racks of five nodes, groups of two: four of each are taken, not five of one and three of the other."""
    racks = [[f"{rack}{number}" for number in range(5)] for rack in "ab"]
    names = [*racks[0], *racks[1]]
    of = {name: name[0] for name in names}
    rails = rails_of(racks)
    taken = node_order(rails, names, needed=8, block_nodes=1, domain_of=of, group_nodes=2)
    assert taken == ("a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3")
    assert len(node_order(rails, names, needed=9, block_nodes=1, domain_of=of, group_nodes=2)) == 9
