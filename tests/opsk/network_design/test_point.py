"""Sizes that fit together, the cluster that the cost model sees, and the nearest size where they do not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk.hardware.spec import NodeSpec
from opsk.network_design.point import (
    KEYS,
    Point,
    Wiring,
    build_cluster,
    build_parts,
    check,
    list_swept_rows,
    parse_network,
    parse_sweep,
)
from opsk.network_design.techniques import Technique


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


BOTH = [(Wiring.RAIL_OPTIMIZED, 1.0), (Wiring.RAIL_ONLY, 1.0)]


def test_every_network_comes_at_every_combination(point: Point):
    found = list_swept_rows(point, BOTH, [Technique.SHARP], {"nics": (1, 2, 4, 8), "global-batch": (512, 1024)})
    assert len(found) == 4 * 2 * 2 * 2
    assert {asking.point.nics for asking in found} == {1, 2, 4, 8}
    assert found[0].sweep == {"nics": 1, "global-batch": 512}


def test_rates_are_given_in_gbit_per_s(point: Point):
    found = list_swept_rows(point, BOTH[:1], [], {"nic-gbps": (100.0, 400.0)})
    assert [asking.point.nic_bytes_per_s for asking in found] == [12.5e9, 50e9]


def test_oversubscription_makes_fat_trees_and_leaves_the_others_alone(point: Point):
    found = list_swept_rows(point, [*BOTH, (Wiring.FAT_TREE, 2.0)], [], {"oversubscription": (1, 2, 4)})
    assert [asking.point.name for asking in found] == [
        "rail-optimized", "rail-only", "fat-tree", "fat-tree:2", "fat-tree:4",
    ]  # fmt: skip


def test_all_joins_every_gpu(point: Point):
    key, values = parse_sweep("hb-domain=8,all")
    found = list_swept_rows(point, BOTH[:1], [], {key: values})
    assert [asking.point.hb_domain for asking in found] == [8, 512]


@pytest.mark.parametrize("text", ["nics", "nics=", "nics=0", "nics=1.5", "nics=x", "what=1", "nic-gbps=inf", "=", ""])
def test_what_is_no_sweep_is_refused_with_an_example(text: str):
    with pytest.raises(InputError) as error:
        parse_sweep(text)
    assert error.value.hint


@given(st.text(max_size=30))
def test_any_text_is_a_sweep_or_refused(text: str):
    try:
        key, values = parse_sweep(text)
    except InputError:
        return
    assert key in KEYS
    assert all(value > 0 for value in values)


def test_networks_by_name():
    assert parse_network("fat-tree:2") == (Wiring.FAT_TREE, 2.0)
    assert parse_network("rail-optimised") == (Wiring.RAIL_OPTIMIZED, 1.0)
    for text in ("star", "rail-only:2", "fat-tree:x"):
        with pytest.raises(InputError):
            parse_network(text)


def test_too_many_rows_are_refused(point: Point):
    with pytest.raises(InputError, match="rows are asked for"):
        list_swept_rows(point, BOTH, [], {"nic-gbps": tuple(range(1, 10_000))})
