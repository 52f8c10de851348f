"""Sizes that fit together, the cluster that the cost model sees, and the nearest size where they do not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk.hardware.spec import NodeSpec
from opsk.network_design.point import Point, Wiring, build_cluster, build_parts, check


def test_rails_are_the_nics_of_an_hb_domain(point: Point):
    assert point.rails == 8
    assert replace(point, hb_domain=64).rails == 64
    assert replace(point, nics=2).rails == 2


def test_an_hb_domain_of_several_nodes_is_one_for_the_cost_model(point: Point, dgx: NodeSpec):
    cluster = build_cluster(replace(point, hb_domain=64, nics=4), dgx)
    assert (cluster.node.hb_domain_gpus, cluster.node.gpus, cluster.node.nics) == (64, 8, 4)
    assert cluster.node.gpu.hb_bytes_per_s == 450e9
    assert cluster.node.nic_bytes_per_s_per_gpu == 25e9


def test_uplinks_are_shared_only_where_there_are_some(point: Point, dgx: NodeSpec):
    tree = replace(point, wiring=Wiring.FAT_TREE, oversubscription=4.0)
    assert build_cluster(tree, dgx).oversubscription == 4.0
    # 64 NICs, 64 ports: one switch
    assert build_cluster(replace(tree, gpus=64), dgx).oversubscription == 1.0


@pytest.mark.parametrize(
    ("change", "nearest"),
    [
        ({"gpus": 1001}, "--gpus 1000 or 1008"),
        ({"hb_domain": 12}, "--hb-domain 16"),
        ({"hb_domain": 3}, "--hb-domain 2"),
        ({"hb_domain": 1024}, "--hb-domain 512"),
        ({"hb_domain": 24}, "--gpus 504 or 528, or --hb-domain 16"),
        ({"radix": 63}, "--radix"),
        ({"oversubscription": 2.0}, "fat-tree:2"),
        ({"wiring": Wiring.RAIL_ONLY, "hb_domain": 1, "nics": 1}, "--hb-domain 8"),
        ({"nic_bytes_per_s": 0.0}, "Gbit/s"),
        ({"nics": 0}, "sizes are from 1"),
    ],
)
def test_what_cannot_be_built_names_the_nearest_that_can(point: Point, change: dict[str, object], nearest: str):
    with pytest.raises(InputError) as error:
        check(replace(point, **change))
    assert nearest in error.value.hint


def test_all_that_is_wrong_is_told_at_once(point: Point):
    with pytest.raises(InputError) as error:
        check(replace(point, radix=7, gpus=13))
    assert "7 ports" in error.value.message
    assert "13 GPUs" in error.value.message


@given(nodes=st.integers(1, 2000), domain=st.sampled_from([1, 2, 4, 8]), wiring=st.sampled_from(Wiring))
def test_whole_nodes_can_always_be_built(nodes: int, domain: int, wiring: Wiring):
    built = Point(
        wiring=wiring, gpus=8 * nodes, hb_domain=domain, gpus_per_node=8, nics=8, radix=64,
        nic_bytes_per_s=50e9, hb_bytes_per_s=450e9,
    )  # fmt: skip
    check(built)
    assert build_parts(built).switches >= 1
