"""Builds the ``topology/block`` of a fabric: the nodes of each block, their order, and the size of the base block.

A block is an HB domain of several nodes (an NVL72 rack), else a scalable unit. Slurm makes larger blocks of blocks that
follow each other, so blocks of one unit are adjacent, and so are units that are connected.

Slurm's rules for BlockSizes (block_record.c, the same from 24.05 to 26.05): the first is the base block; each of the
others is the base times a power of two, at most 2 to the 15th. `opsk.slurm.topology.release` lists what else differs
by release.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from opsk.errors import InputError
from opsk.fabric.hb_domains import HbDomain
from opsk.fabric.hosts.ports import natural_key
from opsk.fabric.rails import Rails
from opsk.slurm.topology.conf import Entry, SlurmTopology, match_slurm_names
from opsk.slurm.topology.release import NEWEST, SHORT_BLOCKS_SINCE, Release, check_form, format_release
from opsk.slurm.topology.tree import collect_units, find_unit_tops, note_absent_nodes

_PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_\-]{0,31}")
"""A domain's own name is kept where it is short and no UUID; Slurm folds names of blocks as it folds hosts."""
_MAX_LEVEL = 15
_OF_NO_UNIT = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """A block before it is written; ``unit`` is that of most of its nodes."""

    name: str
    nodes: tuple[str, ...]
    unit: int
    comment: str = ""


def build_blocks(
    rails: Rails,
    domains: Sequence[HbDomain] = (),
    *,
    node_names: Collection[str] | None = None,
    release: Release = NEWEST,
    spares_per_block: int = 0,
) -> SlurmTopology:
    """Return the blocks of a fabric, the same for the same cabling and domains.

    The base block is the size that most blocks have. Before 25.05 no block may be smaller than it: there the base is
    the smallest block of at least half that size, and blocks below that are left out, with a note.

    Parameters
    ----------
    domains
        HB domains; those of one node are no blocks.
    node_names
        Names that Slurm knows; without it those of the fabric and of the domains.
    spares_per_block
        Nodes of each full block that jobs should not count on: the ``--segment`` to recommend is that much smaller.

    Raises
    ------
    InputError
        When no node is left to write, nothing is left of a block without its spares, or the release knows no blocks.
    """
    check_form("block", release)
    units = collect_units(rails, node_names)
    blocks = _order_blocks(_collect_blocks(rails, units, domains, node_names), find_unit_tops(rails, units))
    sizes = Counter(len(block.nodes) for block in blocks)
    full = max(sizes, key=lambda size: (sizes[size], size))
    if not 0 <= spares_per_block < full:
        raise InputError(
            f"{spares_per_block} spare nodes in each block of {full} leave none for jobs",
            hint=f"give --spares-per-block a number from 0 to {full - 1}",
        )
    selected, left_out = _select_blocks(blocks, full, release)
    base = full if release >= SHORT_BLOCKS_SINCE else min(len(block.nodes) for block in selected)
    entries, levels, level_note = _build_levels(selected, release)
    segment = min(full - spares_per_block, base)
    notes = [
        *_size_notes(selected, full, base, segment, spares_per_block),
        *_left_out_notes(left_out, base, release),
        *level_note,
        *note_absent_nodes(rails, node_names, [name for block in blocks for name in block.nodes]),
    ]
    return SlurmTopology(
        kind="block",
        entries=entries,
        block_sizes=(base, *(base * level for level in levels)),
        notes=tuple(notes),
        segment=segment,
        left_out=tuple(node for block in left_out for node in block.nodes),
    )


def _collect_blocks(
    rails: Rails, units: dict[int, tuple[str, ...]], domains: Iterable[HbDomain], node_names: Collection[str] | None
) -> list[_Block]:
    """Return the blocks: domains of several nodes, and what is left of the units."""
    unit_of = {node: unit for unit, nodes in units.items() for node in nodes}
    taken: set[str] = set()
    blocks: list[_Block] = []
    for domain in sorted(domains, key=lambda domain: natural_key(domain.name)):
        nodes = tuple(name for name in match_slurm_names(domain.nodes, node_names) if name not in taken)
        if len(domain.nodes) > 1 and nodes:
            taken.update(nodes)
            votes = Counter(unit_of[node] for node in nodes if node in unit_of)
            unit = min(votes, key=lambda unit: (-votes[unit], unit)) if votes else _OF_NO_UNIT
            name = domain.name if _PLAIN_NAME.fullmatch(domain.name) else ""
            blocks.append(_Block(name=name, nodes=nodes, unit=unit, comment="" if name else f"HB domain {domain.name}"))
    what = "scalable unit" if not blocks else "nodes of the unit in no HB domain of several nodes"
    for unit, nodes in units.items():
        rest = tuple(node for node in nodes if node not in taken)
        if rest:
            blocks.append(_Block(name=f"unit{unit}", nodes=rest, unit=unit, comment=what))
    return blocks


def _order_blocks(blocks: list[_Block], tops: dict[int, int]) -> list[_Block]:
    """Return blocks of connected units together, those of a unit together, each with a name of its own."""
    ordered = sorted(
        blocks,
        key=lambda block: (tops.get(block.unit, block.unit), block.unit, natural_key(block.nodes[0]), block.name),
    )
    used = {block.name for block in blocks}
    named = []
    for index, block in enumerate(ordered):
        name = block.name or f"hb{index}"
        while not block.name and name in used:
            name += "x"
        used.add(name)
        named.append(replace(block, name=name))
    return named


def _select_blocks(blocks: list[_Block], full: int, release: Release) -> tuple[list[_Block], list[_Block]]:
    """Return the blocks that this release accepts besides full ones, and the others."""
    if release >= SHORT_BLOCKS_SINCE:
        return blocks, []
    return [b for b in blocks if 2 * len(b.nodes) >= full], [b for b in blocks if 2 * len(b.nodes) < full]


def _build_levels(blocks: list[_Block], release: Release) -> tuple[tuple[Entry, ...], tuple[int, ...], tuple[str, ...]]:
    """Return the blocks to write, the sizes above the base in blocks, and a note where units cannot be one.

    A unit of several blocks becomes one larger block. Slurm counts larger blocks off from the first block, so where a
    unit has fewer blocks than the next power of two, empty ones keep its place (from 25.05 on).
    """
    counts = Counter(block.unit for block in blocks)
    plain = tuple(_entry(block) for block in blocks)
    per_unit = 1 << (max(counts.values()) - 1).bit_length()
    if len(counts) < 2 or per_unit == 1 or per_unit > 1 << _MAX_LEVEL:
        return plain, (), ()
    last = blocks[-1].unit
    gaps = {unit: per_unit - count for unit, count in counts.items() if unit != last}
    if any(gaps.values()) and (release < SHORT_BLOCKS_SINCE or sum(gaps.values()) > len(blocks)):
        return plain, (), ("units hold different numbers of blocks: no block size above the base joins one",)
    entries: list[Entry] = []
    for index, block in enumerate(blocks):
        entries.append(_entry(block))
        if block.unit in gaps and (index + 1 == len(blocks) or blocks[index + 1].unit != block.unit):
            entries += [
                Entry(name=f"{block.name}-empty{number}", comment="keeps the place of a block that is not there")
                for number in range(gaps[block.unit])
            ]
    return tuple(entries), (per_unit,), ()


def _entry(block: _Block) -> Entry:
    return Entry(name=block.name, nodes=block.nodes, comment=block.comment)


def _size_notes(blocks: list[_Block], full: int, base: int, segment: int, spares: int) -> list[str]:
    """Return what the sizes mean for jobs."""
    notes = [f"base block: {base} nodes; jobs that must lie in one block ask for --segment={segment} or a divisor"]
    if spares and segment == full - spares:
        notes.append(
            f"spares: {spares} of the {full} nodes of a full block are not counted on, so a block with as many nodes "
            f"out of service still takes a segment of {segment}"
        )
    elif spares:
        notes.append(f"spares: the base block of {base} nodes leaves {full - base} of a full block's {full} already")
    small = [f"{block.name} ({len(block.nodes)})" for block in blocks if len(block.nodes) < segment]
    if small:
        notes.append(f"too small for a segment of {segment}: {', '.join(small[:8])}{', ...' if len(small) > 8 else ''}")
    if base < full:
        notes.append(f"most blocks have {full} nodes; the base is that of the smallest, since this release takes none "
                     "below it")  # fmt: skip
    return notes


def _left_out_notes(left_out: list[_Block], base: int, release: Release) -> list[str]:
    """Return which blocks are left out, and what could be done."""
    if not left_out:
        return []
    names = ", ".join(f"{block.name} ({len(block.nodes)} nodes)" for block in left_out[:8])
    return [
        f"left out: {names}{', ...' if len(left_out) > 8 else ''}: Slurm {format_release(release)} ends at a block of "
        f"fewer than {base} nodes; define the absent nodes in slurm.conf with State=FUTURE and name them in the block, "
        f"or run {format_release(SHORT_BLOCKS_SINCE)}",
    ]
