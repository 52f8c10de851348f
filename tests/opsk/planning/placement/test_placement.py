"""Where ranks go, and what share of the traffic stays on rail and leaf: small cases followed by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk.errors import InputError, PlanInfeasibleError
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.dialects import read_fabric
from opsk.fabric.rails import Rails, find_rails
from opsk.planning.placement.initial_placements import PlacementProblem, Prepared, prepare
from opsk.planning.placement.placement import Placement, anchor_rank_0
from opsk.planning.placement.placement import place as place_problem
from opsk.planning.ranks import RankOrder
from opsk.planning.routing.fabric_routes import build_routes
from opsk.planning.routing.traffic import step_bytes
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

RailsMaker = Callable[..., Rails]


def place(
    model: ModelShape, plan: Plan, rails: Rails, nodes: Sequence[str], gpus_per_node: int,
    hb_domains: Mapping[str, str] | None = None, **more: Any,
) -> Placement:  # fmt: skip
    return place_problem(
        PlacementProblem(
            model=model, plan=plan, rails=rails, nodes=nodes, gpus_per_node=gpus_per_node, hb_domains=hb_domains,
            **more,
        )
    )  # fmt: skip


def names(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


def gpus(placement: Placement, node: str) -> list[int]:
    return [rank.gpu for rank in placement.ranks if rank.node == node]


def test_slurms_order_is_kept_on_a_clean_rail_fabric(model: ModelShape, rails_of: RailsMaker) -> None:
    placed = place(model, Plan(tp=8, dp=2, pp=2, global_batch=4), rails_of([names(4)]), names(4), 8)
    assert placed.is_default
    assert placed.traffic == placed.default_traffic
    assert (placed.traffic.rail_local_fraction, placed.traffic.leaf_local_fraction) == (1.0, 1.0)
    assert placed.traffic.max_link_load == 0
    assert not placed.needs_rank_file


def test_bytes_between_nodes_are_those_of_the_rings(model: ModelShape, rails_of: RailsMaker) -> None:
    """tp 8 inside a node, dp 4 over four: each of the 32 ranks sends its data-parallel bytes to the next node."""
    plan = Plan(tp=8, dp=4, global_batch=4)
    placed = place(model, plan, rails_of([names(4)]), names(4), 8)
    assert placed.traffic.inter_node_bytes == pytest.approx(32 * step_bytes(model, plan).dp[0])


def test_two_replicas_on_a_node_send_between_nodes_once(model: ModelShape, rails_of: RailsMaker) -> None:
    """tp 4, dp 4 on two nodes: the ring enters and leaves each node once: two links for each of four groups."""
    plan = Plan(tp=4, dp=4, global_batch=4)
    placed = place(model, plan, rails_of([names(2)]), names(2), 8)
    assert placed.traffic.inter_node_bytes == pytest.approx(2 * 4 * step_bytes(model, plan).dp[0])
    assert placed.traffic.rail_local_fraction == 1.0


def test_swapped_cables_lower_only_the_groups_on_them(model: ModelShape, rails_of: RailsMaker) -> None:
    """Two of four HCAs of the middle node are swapped: two of four rings have two of three links off their rail.

    1 - 2/4 x 2/3 = 2/3 by default; after the node's GPUs 2 and 3 change places nothing is off its rail.
    """
    rails = rails_of([names(3)], hcas=4, swapped={"n1": (2, 3)})
    placed = place(model, Plan(tp=4, dp=3, global_batch=3), rails, names(3), 4)
    assert placed.default_traffic.rail_local_fraction == pytest.approx(2 / 3)
    assert placed.traffic.rail_local_fraction == 1.0
    assert placed.gpu_order == {"n1": (0, 1, 3, 2)}
    assert not placed.needs_rank_file


def test_a_missing_rail_cannot_be_made_up_for(model: ModelShape, rails_of: RailsMaker) -> None:
    """Node n1 of three lacks one HCA of four: one ring of four loses two of its three links: 1 - 1/4 x 2/3 = 5/6."""
    rails = rails_of([names(3)], hcas=4, missing={"n1": 2})
    placed = place(model, Plan(tp=4, dp=3, global_batch=3), rails, names(3), 4)
    assert placed.traffic.rail_local_fraction == pytest.approx(5 / 6)
    assert placed.is_default


def test_stages_move_into_units_when_names_alternate(model: ModelShape, rails_of: RailsMaker) -> None:
    """Even nodes under one leaf group, odd ones under the other; tp 8, dp 4, pp 2.

    By name every ring link changes unit and pipeline messages do not; placed it is the other way round, and gradients
    are more than activations.
    """
    rails = rails_of([names(8)[::2], names(8)[1::2]])
    plan = Plan(tp=8, dp=4, pp=2, global_batch=4)
    placed = place(model, plan, rails, names(8), 8)
    sent = step_bytes(model, plan)
    rings, messages = 32 * sent.dp.sum(), 2 * 32 * sent.pp_forward
    assert placed.default_traffic.leaf_local_fraction == pytest.approx(messages / (rings + messages))
    assert placed.traffic.leaf_local_fraction == pytest.approx(rings / (rings + messages))
    assert placed.traffic.rail_local_fraction == placed.default_traffic.rail_local_fraction == 1.0
    assert placed.nodes == ("n0", "n2", "n4", "n6", "n1", "n3", "n5", "n7")
    assert placed.needs_rank_file


def test_the_busiest_uplink_carries_what_leaves_the_leaf(model: ModelShape, rails_of: RailsMaker) -> None:
    """tp 8, dp 2 on two units: each leaf sends one ring link's bytes up four cables of 50e9 bytes/s."""
    plan = Plan(tp=8, dp=2, global_batch=2)
    placed = place(model, plan, rails_of([["n0"], ["n1"]]), names(2), 8)
    assert placed.traffic.max_link_load == pytest.approx(step_bytes(model, plan).dp[0] / 4 / 50e9)
    assert placed.traffic.leaf_local_fraction == 0


def test_routes_on_the_graph_agree_with_the_leaves_on_two_even_tiers(model: ModelShape) -> None:
    fabric = rail_optimized_fabric(nodes=8, hcas=4, leaves=8, spines=4)
    rails, plan = find_rails(fabric), Plan(tp=4, dp=4, pp=2, global_batch=8)
    by_leaves = place(model, plan, rails, names(8), 4)
    by_graph = place(model, plan, rails, names(8), 4, routes=build_routes(fabric, rails))
    assert by_leaves.traffic.max_link_load == pytest.approx(by_graph.traffic.max_link_load, rel=1e-5)
    assert by_graph.traffic.busiest_cable is not None


def test_units_without_uplinks_have_no_end_of_load(model: ModelShape, rails_of: RailsMaker) -> None:
    placed = place(model, Plan(tp=8, dp=2, global_batch=2), rails_of([["n0"], ["n1"]], uplinks=0), names(2), 8)
    assert math.isinf(placed.traffic.max_link_load)


def test_tensor_groups_that_do_not_divide_a_node_straddle_less(model: ModelShape, rails_of: RailsMaker) -> None:
    """tp 6 on three nodes of 8: by default two of four groups straddle two nodes, placed one straddles three."""
    plan = Plan(tp=6, dp=4, global_batch=4)
    placed = place(model, plan, rails_of([names(3)]), names(3), 8)
    spans = [len({rank.node for rank in placed.ranks if rank.dp_rank == dp}) for dp in range(4)]
    assert spans == [1, 1, 1, 3]
    assert placed.traffic.inter_node_bytes < placed.default_traffic.inter_node_bytes
    assert placed.needs_rank_file


def test_one_more_node_keeps_every_tensor_group_whole(model: ModelShape, rails_of: RailsMaker) -> None:
    placed = place(model, Plan(tp=6, dp=4, global_batch=4), rails_of([names(4)]), names(4), 8)
    assert [len({rank.node for rank in placed.ranks if rank.dp_rank == dp}) for dp in range(4)] == [1, 1, 1, 1]
    assert placed.traffic.rail_local_fraction == 1.0


def test_cyclic_distribution_is_told_for_what_it_costs(model: ModelShape, rails_of: RailsMaker) -> None:
    """tp 2 on two nodes, ranks dealt out in turn: tensor-parallel rings run between the nodes."""
    plan = Plan(tp=2, dp=2, global_batch=2)
    placed = place(model, plan, rails_of([names(2)], hcas=2), names(2), 2, distribution="cyclic")
    sent = step_bytes(model, plan)
    assert placed.default_traffic.inter_node_bytes == pytest.approx(4 * sent.tp[0])
    assert placed.traffic.inter_node_bytes == pytest.approx(4 * sent.dp[0])


def test_an_hb_domain_of_several_nodes_keeps_tensor_groups(model: ModelShape, rails_of: RailsMaker) -> None:
    """Four nodes of 4, two to a domain (n0 n2, n1 n3), tp 8: by name every group leaves its domain."""
    domains = {"n0": "x", "n2": "x", "n1": "y", "n3": "y"}
    placed = place(model, Plan(tp=8, dp=2, global_batch=2), rails_of([names(4)], hcas=4), names(4), 4, domains)
    for dp in range(2):
        assert len({domains[rank.node] for rank in placed.ranks if rank.dp_rank == dp}) == 1
    assert placed.traffic.tp_inter_node_bytes == 0 < placed.default_traffic.tp_inter_node_bytes


def test_ring_links_between_hb_domains_are_not_split_by_node(model: ModelShape, rails_of: RailsMaker) -> None:
    """tp 4, dp 4 on two domains of two nodes of 4: like two nodes of 8, two links for each of four groups."""
    domains = {"n0": "x", "n1": "x", "n2": "y", "n3": "y"}
    plan = Plan(tp=4, dp=4, global_batch=4)
    placed = place(model, plan, rails_of([names(4)], hcas=4), names(4), 4, domains)
    assert placed.traffic.inter_node_bytes == pytest.approx(2 * 4 * step_bytes(model, plan).dp[0])


def test_experts_cross_rails_where_their_group_spans_gpus_and_nodes(model: ModelShape, rails_of: RailsMaker) -> None:
    """ep 4 over two nodes of 2 GPUs: of the 8 ordered pairs between nodes half are on one rail.

    All data-parallel traffic of experts is local then (one replica); dense gradients run on both rails.
    """
    moe = ModelShape(
        layers=1, hidden=64, ffn=64, heads=4, kv_heads=4, head_dim=16, vocab=128, seq=4096, experts=4, top_k=4,
        expert_ffn=64, tied_embeddings=False, gated_mlp=True,
    )  # fmt: skip
    plan = Plan(dp=4, ep=4, global_batch=64)
    placed = place(moe, plan, rails_of([names(2)], hcas=2), names(2), 2)
    sent = step_bytes(moe, plan)
    pairs, rings = 8 * sent.ep[0] / 3, 2 * sent.dp[0]
    assert placed.traffic.inter_node_bytes == pytest.approx(pairs + rings)
    assert placed.traffic.rail_local_fraction == pytest.approx((pairs / 2 + rings) / (pairs + rings))


def test_the_other_rank_order_puts_replicas_in_units(model: ModelShape, rails_of: RailsMaker) -> None:
    """tp 8, pp 2, dp 2, replicas outermost, more activations than gradients: a replica's stages share a leaf group."""
    rails = rails_of([["n0", "n2"], ["n1", "n3"]])
    plan = Plan(tp=8, pp=2, dp=2, global_batch=128)
    placed = place(replace(model, seq=8192), plan, rails, names(4), 8, order=RankOrder.TP_CP_EP_PP_DP)
    replicas = [{rank.node for rank in placed.ranks if rank.dp_rank == dp} for dp in range(2)]
    assert {frozenset(nodes) for nodes in replicas} == {frozenset({"n0", "n2"}), frozenset({"n1", "n3"})}


def test_the_job_takes_the_nodes_it_needs_from_one_unit(model: ModelShape, rails_of: RailsMaker) -> None:
    rails = rails_of([["n0", "n3"], ["n1", "n2"]])
    placed = place(model, Plan(tp=8, dp=2, global_batch=2), rails, names(4), 8)
    assert (placed.nodes, placed.spare_nodes) == (("n0", "n3"), ("n1", "n2"))
    assert placed.default_traffic.leaf_local_fraction == 0


def test_a_single_node_sends_nothing(model: ModelShape, rails_of: RailsMaker) -> None:
    placed = place(model, Plan(tp=8, global_batch=1), rails_of([names(1)]), names(1), 8)
    assert placed.traffic.inter_node_bytes == 0
    assert placed.traffic.rail_local_fraction == 1.0


def test_a_node_off_the_fabric_counts_as_not_local(model: ModelShape, rails_of: RailsMaker) -> None:
    """Of three nodes one is unknown: two of three ring links are not known to be local."""
    placed = place(model, Plan(tp=8, dp=3, global_batch=3), rails_of([names(2)]), names(3), 8)
    assert placed.unknown_nodes == ("n2",)
    assert placed.traffic.rail_local_fraction == pytest.approx(1 / 3)
    assert placed.ranks[-1].device is None


def test_too_few_nodes_are_refused_with_the_numbers(model: ModelShape, rails_of: RailsMaker) -> None:
    with pytest.raises(PlanInfeasibleError, match="needs 32 GPUs, 2 nodes of 8 have 16"):
        place(model, Plan(tp=8, dp=4, global_batch=4), rails_of([names(2)]), names(2), 8)


@pytest.mark.parametrize(("gpus_per_node", "node_gpus"), [(0, None), (9, 8)])
def test_impossible_gpu_counts_are_refused(
    model: ModelShape, rails_of: RailsMaker, gpus_per_node: int, node_gpus: int | None
) -> None:
    with pytest.raises(InputError, match="gpus_per_node is"):
        place(model, Plan(global_batch=1), rails_of([names(2)]), names(2), gpus_per_node, node_gpus=node_gpus)


def test_nodes_of_another_fabric_are_refused(model: ModelShape, rails_of: RailsMaker) -> None:
    with pytest.raises(InputError, match="none of the 2 nodes"):
        place(model, Plan(tp=8, dp=2, global_batch=2), rails_of([["a"]]), names(2), 8)


SIZES = st.sampled_from([1, 2, 3, 4])


@settings(max_examples=80, deadline=None)
@given(data=st.data(), tp=st.sampled_from([1, 2, 3, 4, 6, 8, 16]), cp=st.sampled_from([1, 2]), dp=SIZES, pp=SIZES)
def test_every_rank_gets_a_gpu_of_its_own_and_nothing_gets_worse(
    model: ModelShape, rails_of: RailsMaker, data: st.DataObject, tp: int, cp: int, dp: int, pp: int
) -> None:
    plan = Plan(tp=tp, cp=cp, dp=dp, pp=pp, global_batch=dp * pp)
    hcas = data.draw(st.sampled_from([1, 2, 4, 8]))
    count = -(-plan.gpus // 8) + data.draw(st.integers(0, 3))
    nodes = data.draw(st.permutations(names(count)))
    cut = data.draw(st.integers(1, count))
    swapped = dict.fromkeys(nodes[: data.draw(st.integers(0, 2))], (0, hcas - 1))
    rails = rails_of([unit for unit in (nodes[:cut], nodes[cut:]) if unit], hcas=hcas, swapped=swapped)
    distribution = data.draw(st.sampled_from(["block", "cyclic"]))
    placed = place(model, plan, rails, nodes, 8, distribution=distribution)
    assert [rank.rank for rank in placed.ranks] == list(range(plan.gpus))
    assert len({(rank.node, rank.gpu) for rank in placed.ranks}) == plan.gpus
    assert len({(rank.node, rank.local_rank) for rank in placed.ranks}) == plan.gpus
    assert {rank.node for rank in placed.ranks} <= set(nodes)
    for traffic in (placed.traffic, placed.default_traffic):
        assert 0 <= traffic.leaf_local_fraction <= traffic.rail_local_fraction + 1e-9 <= 1 + 2e-9
        assert traffic.max_link_load >= 0
    assert placed.traffic.tp_inter_node_bytes <= placed.default_traffic.tp_inter_node_bytes * (1 + 1e-5) + 1
    ours = (1 - placed.traffic.rail_local_fraction) * placed.traffic.inter_node_bytes
    default = (1 - placed.default_traffic.rail_local_fraction) * placed.default_traffic.inter_node_bytes
    fewer = placed.traffic.tp_inter_node_bytes < placed.default_traffic.tp_inter_node_bytes
    fewer |= placed.traffic.inter_node_bytes < 0.9 * placed.default_traffic.inter_node_bytes
    assert fewer or ours <= default * (1 + 1e-5) + 1


@settings(max_examples=40, deadline=None)
@given(data=st.data(), tp=st.sampled_from([1, 2, 4, 8]), dp=SIZES, pp=SIZES)
def test_tensor_groups_that_divide_a_node_never_leave_it(
    model: ModelShape, rails_of: RailsMaker, data: st.DataObject, tp: int, dp: int, pp: int
) -> None:
    plan = Plan(tp=tp, dp=dp, pp=pp, global_batch=dp * pp)
    nodes = data.draw(st.permutations(names(-(-plan.gpus // 8))))
    rails = rails_of([nodes[::2], nodes[1::2]] if len(nodes) > 1 else [nodes])
    placed = place(model, plan, rails, nodes, 8)
    groups: dict[tuple[int, int], set[str]] = {}
    for rank in placed.ranks:
        groups.setdefault((rank.pp_rank, rank.dp_rank), set()).add(rank.node)
    assert all(len(where) == 1 for where in groups.values())


@pytest.mark.shared
def test_the_real_rail_fabric_is_healed_of_its_swapped_node(shared: Path) -> None:
    """Sixteen nodes of the 40-switch NDR fabric, one of which has HCA-5 and HCA-6 swapped; tp 8, dp 16, 4 HCAs.

    By default 4 of 8 rings have 2 of 16 links off their rail: 1 - 4/8 x 2/16 = 93.75 %; placed none.
    """
    dump = shared / "data/real/ib_fabric/ndr_dgx_rail_40sw.ibnetdiscover"
    fabric = read_fabric(dump.read_text(), source=dump.name)
    rails = find_rails(fabric)
    nodes = [*rails.units[7], *rails.units[6]][:16]
    assert "b08-p1-dgx-08-c01" in nodes
    big = ModelShape(
        layers=80, hidden=8192, ffn=28672, heads=64, kv_heads=8, head_dim=128, vocab=128256, seq=8192, gated_mlp=True
    )
    placed = place(big, Plan(tp=8, dp=16, global_batch=256), rails, nodes, 8, routes=build_routes(fabric, rails))
    assert placed.default_traffic.rail_local_fraction == pytest.approx(0.9375)
    assert placed.traffic.rail_local_fraction == 1.0
    assert gpus(placed, "b08-p1-dgx-08-c01") == [0, 1, 2, 3, 6, 7, 4, 5]


def test_an_nvl72_keeps_two_of_its_eighteen_nodes_spare(model: ModelShape, rails_of: RailsMaker) -> None:
    """Two racks of 18 nodes of 4 GPUs, tp 64: by name the second group straddles the racks, placed none does."""
    nodes = names(36)
    domains = {name: f"rack{number // 18}" for number, name in enumerate(nodes)}
    wide = replace(model, heads=64, kv_heads=64, head_dim=16)
    placed = place(wide, Plan(tp=64, dp=2, global_batch=2), rails_of([nodes], hcas=4), nodes, 4, domains)
    assert placed.default_traffic.tp_inter_node_bytes > 0 == placed.traffic.tp_inter_node_bytes
    assert placed.spare_nodes == ("n16", "n17", "n34", "n35")


NODES = ("n0", "n1", "n2", "n3", "n4", "n5")
PLAN = Plan(tp=2, pp=2, dp=3, global_batch=6)


@pytest.fixture
def mixed() -> Rails:
    """Two units whose nodes take turns in Slurm's order, n0, n2, n4 and n1, n3, n5, with one cable up a leaf."""
    names = [*NODES[::2], *NODES[1::2]]
    fabric = rail_optimized_fabric(nodes=6, hcas=2, leaves=4, spines=1, cables_per_pair=1, names=names)
    return find_rails(fabric)


def placed(model: ModelShape, rails: Rails, slurm_nodes: Sequence[str]) -> Placement:
    return place(model, PLAN, rails, slurm_nodes, 2, slurm_nodes=slurm_nodes)


@pytest.mark.parametrize("first", NODES)
def test_an_order_begins_where_slurms_does(model: ModelShape, mixed: Rails, first: str) -> None:
    """Whichever node leads, its unit follows: two units of three stay whole, which Slurm's order tears apart."""
    slurm_nodes = (first, *(node for node in NODES if node != first))
    placement = placed(model, mixed, slurm_nodes)

    def prepared(nodes: Sequence[str]) -> Prepared:
        return prepare(
            PlacementProblem(model=model, plan=PLAN, rails=mixed, nodes=nodes, gpus_per_node=2, slurm_nodes=nodes)
        )

    found = anchor_rank_0(placement, first, mixed, prepared)
    assert found is not None
    assert found.ranks[0].node == first
    assert found.traffic.step_s < placement.default_traffic.step_s
    assert {int(node[1:]) % 2 for node in found.nodes[:3]} == {int(first[1:]) % 2}


def test_a_job_without_its_first_node_has_none(model: ModelShape, mixed: Rails) -> None:
    placement = placed(model, mixed, NODES)

    def prepared(nodes: Sequence[str]) -> Prepared:
        raise AssertionError("nothing is to be judged")

    assert anchor_rank_0(placement, "n9", mixed, prepared) is None
