"""Defines which topology formats each release of Slurm reads.

======== ======== =========================================================================================
form     since    what changed later
======== ======== =========================================================================================
tree     before   the same from 22.05 to 26.05
         22.05
block    24.05    23.11 has a plugin of that name that reads ``BlockLevels`` and blocks of one size only, and no
                  ``--segment``; 24.05 and 24.11 exit on a block with fewer nodes than the first BlockSizes
                  ("children count lower than bblock_node_cnt"); 25.05 accepts short and empty blocks
yaml     25.05    earlier releases ignore ``topology.yaml``
======== ======== =========================================================================================

Source: src/plugins/topology/{tree/switch_record.c,block/block_record.c} and src/interfaces/topology.c at the heads of
the branches slurm-22.05 to slurm-26.05 (in slurm-23.11: block/topology_block.c).
"""

from __future__ import annotations

import re

from opsk.errors import InputError

Release = tuple[int, int]

NEWEST: Release = (26, 5)
FORMS = ("tree", "block", "yaml")
BLOCK_SINCE: Release = (24, 5)
YAML_SINCE: Release = (25, 5)
SHORT_BLOCKS_SINCE: Release = (25, 5)

_RELEASE = re.compile(r"(?:slurm[a-z-]*\s+)?(\d{2})[.-](\d{1,2})(?:[.-].*)?", re.DOTALL)


def parse_release(text: str) -> Release:
    """Return a release of Slurm as two numbers: ``24.05``, ``24.05.3``, ``slurm 24.05.3``.

    Raises
    ------
    InputError
        When the text is none.
    """
    match = _RELEASE.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{text.strip()[:40]!r} is no release of Slurm", hint="write it as 24.05")
    return int(match[1]), int(match[2])


def format_release(release: Release) -> str:
    """Return a release as Slurm writes it: ``24.05``."""
    return f"{release[0]}.{release[1]:02d}"


def check_form(form: str, release: Release) -> None:
    """Refuse a form that this release does not read.

    Raises
    ------
    InputError
        Says since when it is read, and what to write instead.
    """
    shown = format_release(release)
    if form == "block" and release < BLOCK_SINCE:
        old = "; the block plugin of 23.11 reads BlockLevels and blocks of one size" if release == (23, 11) else ""
        raise InputError(
            f"Slurm {shown} cannot read a block topology: topology/block with BlockSizes and --segment came with "
            f"{format_release(BLOCK_SINCE)}{old}",
            hint="write a tree, or name the release to write for with --slurm-release",
        )
    if form == "yaml" and release < YAML_SINCE:
        raise InputError(
            f"Slurm {shown} does not look at topology.yaml: it came with {format_release(YAML_SINCE)}",
            hint="write a tree or blocks, or name the release to write for with --slurm-release",
        )
