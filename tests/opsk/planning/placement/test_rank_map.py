"""The one line that carries a map to tasks: read back as it was written, and nothing else taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.planning.placement.rank_map import NodeRanks, RankMap

INTERLEAVED = RankMap(
    job=7, nodes=(NodeRanks(node="n3", ranks=(0, 2, 3)), NodeRanks(node="n1", ranks=(1, 4, 5), gpus=(1, 0, 2)))
)


@st.composite
def maps(draw: st.DrawFn) -> RankMap:
    """Any number of ranks dealt to nodes at random, each node with one at least, in the order of their lowest."""
    count = draw(st.integers(1, 12))
    owners = [*range(count), *draw(st.lists(st.integers(0, count - 1), max_size=60))]
    owners = draw(st.permutations(owners))
    first_seen = list(dict.fromkeys(owners))
    nodes = []
    for owner in first_seen:
        ranks = tuple(rank for rank, at in enumerate(owners) if at == owner)
        gpus = tuple(draw(st.permutations(range(len(ranks))))) if draw(st.booleans()) else ()
        nodes.append(NodeRanks(node=f"gpu-{owner}.rack", ranks=ranks, gpus=gpus))
    return RankMap(job=draw(st.integers(1, 2**31)), nodes=tuple(nodes))


@given(maps())
def test_a_line_is_read_back_as_the_map_it_was(written: RankMap) -> None:
    assert RankMap.parse(written.render()) == written


@given(maps())
def test_every_rank_has_its_node(written: RankMap) -> None:
    owner = {rank: node.node for node in written.nodes for rank in node.ranks}
    assert written.hosts == tuple(owner[rank] for rank in range(written.world_size))


def test_the_line_is_short_where_ranks_run_on() -> None:
    assert INTERLEAVED.render() == "opsk1 7 6 n3:0,2-3 n1:1,4-5:1,0,2"


def test_only_ranks_node_by_node_are_torchruns() -> None:
    assert not INTERLEAVED.is_node_by_node
    whole = RankMap(job=7, nodes=(NodeRanks(node="n3", ranks=(0, 1)), NodeRanks(node="n1", ranks=(2, 3))))
    assert whole.is_node_by_node
    assert (whole.matches_block_order(["n3", "n1"]), whole.matches_block_order(["n1", "n3"])) == (True, False)


def test_nodes_with_unlike_numbers_of_ranks_are_not_torchruns() -> None:
    assert not RankMap(
        job=7, nodes=(NodeRanks(node="a", ranks=(0, 1)), NodeRanks(node="b", ranks=(2,)))
    ).is_node_by_node


@pytest.mark.parametrize(
    "text",
    [
        "",
        "opsk1",
        "opsk1 7 2",
        "opsk2 7 2 a:0-1",
        "opsk1 x 2 a:0-1",
        "opsk1 7 3 a:0-1",
        "opsk1 7 2 a:0-1 b:1-1",
        "opsk1 7 2 a:0 a:1",
        "opsk1 7 2 a:1-0",
        "opsk1 7 2 a:0-",
        "opsk1 7 2 a;b:0-1",
        "opsk1 7 2 -a:0-1",
        "opsk1 7 2  a:0-1",
        "opsk1 7 2 a:0-99999999",
        "opsk1 7 2 a:0-1\n",
    ],
)
def test_what_is_no_map_is_none(text: str) -> None:
    assert RankMap.parse(text) is None


@given(st.text(max_size=60))
def test_no_text_is_too_odd(text: str) -> None:
    assert RankMap.parse(f"opsk1 {text}") is None or " " in text
