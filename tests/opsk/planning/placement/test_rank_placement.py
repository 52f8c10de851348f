"""Which slot and GPU a rank gets."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from opsk.planning.placement.rank_placement import compute_default_slots, compute_packed_slots, inner_group, local_ranks
from opsk.workload.plan import Plan


def test_block_and_cyclic_are_slurms_distributions() -> None:
    """Six ranks on two nodes of four: 0-3, 4-5; or in turn."""
    node, gpu = compute_default_slots(6, 2, 4, "block")
    assert (node.tolist(), gpu.tolist()) == ([0, 0, 0, 0, 1, 1], [0, 1, 2, 3, 0, 1])
    node, gpu = compute_default_slots(6, 2, 4, "cyclic")
    assert (node.tolist(), gpu.tolist()) == ([0, 1, 0, 1, 0, 1], [0, 0, 1, 1, 2, 2])


def test_groups_that_divide_a_node_fill_it_in_order() -> None:
    node, slot = compute_packed_slots(16, 4, [1, 1], 8)
    assert (node.tolist(), slot.tolist()) == (sorted([0, 1] * 8), [*range(8), *range(8)])


def test_a_group_straddles_only_where_it_must() -> None:
    """Groups of 6 on three nodes of 8: three whole ones, and the fourth takes two GPUs of each."""
    node, slot = compute_packed_slots(24, 6, [1, 1, 1], 8)
    assert node.reshape(4, 6).tolist() == [[0] * 6, [1] * 6, [2] * 6, [0, 0, 1, 1, 2, 2]]
    assert slot.reshape(4, 6)[3].tolist() == [6, 7, 6, 7, 6, 7]


def test_no_group_straddles_where_there_are_nodes_enough() -> None:
    node, _ = compute_packed_slots(24, 6, [1, 1, 1, 1], 8)
    assert node.reshape(4, 6).tolist() == [[0] * 6, [1] * 6, [2] * 6, [3] * 6]


def test_inner_groups_take_experts_along_where_there_is_room() -> None:
    plan = Plan(tp=2, dp=8, ep=4, global_batch=8)
    assert (inner_group(plan, 8), inner_group(plan, 4), inner_group(plan, 1)) == (8, 2, 2)


def test_local_ranks_count_the_ranks_of_a_node_in_order() -> None:
    assert local_ranks(np.array([1, 0, 1, 0, 0])).tolist() == [0, 0, 1, 1, 2]


@given(
    inner=st.integers(1, 12),
    domains=st.lists(st.integers(1, 4), min_size=1, max_size=12),
    gpus_per_node=st.integers(1, 8),
    share=st.floats(0, 1),
)
def test_every_rank_gets_a_slot_of_its_own(inner: int, domains: list[int], gpus_per_node: int, share: float) -> None:
    gpus = int(sum(domains) * gpus_per_node * share) // inner * inner
    node, slot = compute_packed_slots(gpus, inner, domains, gpus_per_node)
    assert len(set(zip(node.tolist(), slot.tolist(), strict=True))) == gpus
    assert gpus == 0 or (node.max() < sum(domains) and slot.max() < gpus_per_node)
