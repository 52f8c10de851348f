"""Blocks that opsk writes for Slurm, held against Slurm's own rules for BlockSizes and blocks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.hb_domains import HbDomain
from opsk.fabric.rails import Rails, find_rails
from opsk.slurm.topology.block import build_blocks
from opsk.slurm.topology.conf import SlurmTopology, read_topology_conf, render_conf
from opsk.slurm.topology.release import NEWEST, Release

OLD: Release = (24, 11)


def rails_of(nodes: int, units: int) -> Rails:
    """Return a fabric of units of equal size, two rails each; node names count through."""
    return find_rails(rail_optimized_fabric(nodes=nodes, hcas=2, leaves=2 * units, spines=2))


def racks(*sizes: int) -> list[HbDomain]:
    """Return NVLink domains of these sizes, filled with n0, n1, ... in order."""
    domains, first = [], 0
    for index, size in enumerate(sizes):
        domains.append(HbDomain(name=f"rack{index}", nodes=tuple(f"n{first + k}" for k in range(size))))
        first += size
    return domains


def accepted_by_slurm(written: SlurmTopology, release: Release) -> None:
    """Hold a file against block_record.c: what Slurm would end at is an error here.

    Branches slurm-24.05 to slurm-26.05: the first of BlockSizes is the base; each is the base times a power of two, at
    most 2 to the 15th; block names are unique; before 25.05 every block has nodes, at least as many as the base.
    """
    conf = read_topology_conf(render_conf(written))
    assert conf.problems == ()
    assert conf.nodes_listed_twice == ()
    assert conf.block_sizes is not None
    sizes = [int(size) for size in conf.block_sizes.split(",")]
    for size in sizes:
        times, rest = divmod(size, sizes[0])
        assert rest == 0
        assert times.bit_count() == 1
        assert times <= 1 << 15
    assert sizes == sorted(set(sizes))
    if release < (25, 5):
        assert all(len(nodes) >= sizes[0] for nodes in conf.blocks.values())
    assert conf.blocks == written.conf.blocks


def test_nvl72_racks_are_blocks_and_units_of_them_larger_blocks() -> None:
    """Two units of two racks of 18 trays: base 18, and 36 for a unit."""
    written = build_blocks(rails_of(72, 2), racks(18, 18, 18, 18), release=NEWEST)
    assert [(entry.name, len(entry.nodes)) for entry in written.entries] == [(f"rack{k}", 18) for k in range(4)]
    assert (written.block_sizes, written.segment) == ((18, 36), 18)
    accepted_by_slurm(written, NEWEST)


def test_spares_make_the_recommended_segment_smaller_and_nothing_else() -> None:
    """../shared/facts/slurm.md 7: 16 of 18 leaves room for 2 dead nodes a rack."""
    plain = build_blocks(rails_of(36, 1), racks(18, 18))
    spared = build_blocks(rails_of(36, 1), racks(18, 18), spares_per_block=2)
    assert (plain.segment, spared.segment) == (18, 16)
    assert (plain.entries, plain.block_sizes) == (spared.entries, spared.block_sizes)
    assert any("spares: 2 of the 18" in note for note in spared.notes)
    with pytest.raises(InputError, match="leave none"):
        build_blocks(rails_of(36, 1), racks(18, 18), spares_per_block=18)


def test_without_nvlink_between_nodes_the_units_are_blocks() -> None:
    written = build_blocks(rails_of(64, 2), [HbDomain(name=f"n{k}", nodes=(f"n{k}",)) for k in range(64)])
    assert [(entry.name, len(entry.nodes)) for entry in written.entries] == [("unit0", 32), ("unit1", 32)]
    assert written.block_sizes == (32,)


def test_a_short_rack_stays_a_block_from_25_05_on_and_makes_the_base_smaller_before() -> None:
    written = build_blocks(rails_of(53, 1), racks(18, 18, 17))
    assert (written.block_sizes, len(written.entries)) == ((18,), 3)
    assert any("rack2 (17)" in note for note in written.notes)
    before = build_blocks(rails_of(53, 1), racks(18, 18, 17), release=OLD)
    assert (before.block_sizes, before.segment, len(before.entries)) == ((17,), 17, 3)
    accepted_by_slurm(before, OLD)


def test_before_25_05_a_block_of_less_than_half_the_size_is_left_out_and_named() -> None:
    written = build_blocks(rails_of(40, 1), racks(18, 18, 4), release=OLD)
    assert (written.block_sizes, [entry.name for entry in written.entries]) == ((18,), ["rack0", "rack1"])
    assert written.left_out == ("n36", "n37", "n38", "n39")
    assert any("left out: rack2 (4 nodes)" in note for note in written.notes)
    accepted_by_slurm(written, OLD)


def test_empty_blocks_keep_the_places_of_racks_that_are_not_there() -> None:
    """A unit of 3 racks and one of 4: the second starts at block 4, since Slurm counts off from the first."""
    fabric = rails_of(72, 2)
    written = build_blocks(fabric, racks(12, 12, 12, 9, 9, 9, 9))
    assert [entry.name for entry in written.entries][3:5] == ["rack2-empty0", "rack3"]
    assert written.entries[3].nodes == ()
    assert written.block_sizes == (9, 36)
    accepted_by_slurm(written, NEWEST)
    before = build_blocks(fabric, racks(12, 12, 12, 9, 9, 9, 9), release=OLD)
    assert before.block_sizes == (9,)
    assert any("different numbers of blocks" in note for note in before.notes)


def test_nodes_in_no_rack_are_a_block_of_their_unit() -> None:
    written = build_blocks(rails_of(20, 1), racks(8, 8))
    assert [(entry.name, len(entry.nodes)) for entry in written.entries] == [("rack0", 8), ("rack1", 8), ("unit0", 4)]


def test_a_domain_called_by_its_uuid_gets_a_short_name_and_keeps_the_long_one_as_comment() -> None:
    uuid = "29d9a0b8-948d-4a61-8b9e-fbbbf06c521b.32766"
    written = build_blocks(
        rails_of(4, 1), [HbDomain(name=uuid, nodes=("n0", "n1")), HbDomain(name="b", nodes=("n2", "n3"))]
    )
    assert [entry.name for entry in written.entries] == ["hb0", "b"]
    assert uuid in render_conf(written)


def test_a_node_of_two_domains_is_in_one_block() -> None:
    two = [HbDomain(name="a", nodes=("n0", "n1")), HbDomain(name="b", nodes=("n1", "n2", "n3"))]
    written = build_blocks(rails_of(4, 1), two)
    assert written.conf.nodes_listed_twice == ()
    assert set(written.conf.nodes) == {"n0", "n1", "n2", "n3"}


def test_a_hostile_domain_name_cannot_add_a_line() -> None:
    written = build_blocks(rails_of(2, 1), [HbDomain(name="x\nBlockName=evil Nodes=n9", nodes=("n0", "n1"))])
    assert list(read_topology_conf(render_conf(written)).blocks) == ["hb0"]


@pytest.mark.parametrize(("release", "why"), [((22, 5), "came with 24.05"), ((23, 11), "BlockLevels")])
def test_releases_without_blocks_are_refused(release: Release, why: str) -> None:
    with pytest.raises(InputError, match=why):
        build_blocks(rails_of(4, 1), release=release)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(2, 20), min_size=1, max_size=8),
    units=st.sampled_from([1, 2, 3]),
    release=st.sampled_from([(24, 5), (24, 11), (25, 5), (26, 5)]),
    data=st.data(),
)
def test_whatever_the_racks_slurm_accepts_the_file(
    sizes: list[int], units: int, release: Release, data: st.DataObject
) -> None:
    nodes = max(sum(sizes), units)
    domains = racks(*sizes)
    written = build_blocks(rails_of(nodes, units), domains, release=release)
    accepted_by_slurm(written, release)
    assert set(written.conf.nodes) | set(written.left_out) == {f"n{k}" for k in range(nodes)}
    assert 1 <= written.segment <= written.block_sizes[0]
    mixed = data.draw(st.permutations(domains))
    assert build_blocks(rails_of(nodes, units), mixed, release=release) == written
