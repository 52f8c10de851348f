"""Which rows a sweep asks for, and what is said of values that cannot be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk.network_design.point import Point, Wiring
from opsk.network_design.sweep import KEYS, list_swept_rows, parse_network, parse_sweep
from opsk.network_design.techniques import Technique

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
