"""Which flags of ``sbatch`` let Slurm give the job the nodes that its traffic wants?"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from opsk.hostlist import fold
from opsk.planner.order import unit_of_nodes
from opsk.planner.placement import Placement
from opsk.planner.setting import Setting
from opsk.slurm.topology.release import BLOCK_SINCE, Release, show_release
from opsk.topology.hb_domains import HbDomain
from opsk.topology.rails import Rails

_SWITCHES_WAIT = "5:00"
"""Slurm's default for SchedulerParameters=max_switch_wait is 300 s, and a longer wait than that limit is cut to it."""
_LESS = 0.95
"""A node with less than this share of the others' bandwidth is one that the others wait for."""
_SAFE_NAME = re.compile(r"[A-Za-z0-9._\-]{1,255}")


def slurm_flags(
    placement: Placement, rails: Rails, *, domains: Sequence[HbDomain] = (), release: Release | None = None
) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    """Return flags for ``sbatch`` with their reasons, and notes on what no flag can do.

    Parameters
    ----------
    domains
        HB domains; those of several nodes are the blocks of ``topology/block``.
    release
        Release of Slurm in use, when it is known; flags that it does not have are left out.
    """
    if len(placement.nodes) < 2:
        return (), ()
    segment, notes = _segment(placement, domains, release)
    exclude, more = _exclude(placement, rails)
    return (*_switches(placement, rails), *segment, *exclude), (*notes, *more)


def replica_nodes(placement: Placement) -> int:
    """Return on how many nodes one replica of the model lies: the most that ranks of one ``dp_rank`` use."""
    nodes: defaultdict[int, set[str]] = defaultdict(set)
    for rank in placement.ranks:
        nodes[rank.dp_rank].add(rank.node)
    return max((len(each) for each in nodes.values()), default=0)


def _switches(placement: Placement, rails: Rails) -> tuple[Setting, ...]:
    """Return ``--switches`` where the job fits under the leaves of one unit and the fabric has several."""
    sizes = Counter(unit_of_nodes(rails, tuple(rails.attachments)).values())
    if len(sizes) < 2 or max(sizes.values()) < len(placement.nodes):
        return ()
    group = max(sizes.values())
    return (
        Setting(
            name="--switches",
            value=f"1@{_SWITCHES_WAIT}",
            why=f"{len(placement.nodes)} nodes fit under one leaf group of {group}; waits 5 minutes at most",
            source="sbatch(1) --switches; needs topology/tree with one switch a leaf group (opsk fabric --write tree)",
        ),
    )


def _segment(
    placement: Placement, domains: Sequence[HbDomain], release: Release | None
) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    """Return ``--segment``: how many nodes must lie in one HB domain, so that a replica is not torn apart."""
    sizes = Counter(len(domain.nodes) for domain in domains if len(domain.nodes) > 1)
    group, count = replica_nodes(placement), len(placement.nodes)
    if not sizes or group < 2 or (release is not None and release < BLOCK_SINCE):
        return (), ()
    block = max(sizes, key=lambda size: (sizes[size], size))
    whole = [size for size in range(group, min(block, count) + 1) if count % size == 0 and size % group == 0]
    common = math.gcd(group, count)
    parts = [size for size in range(2, min(block, common) + 1) if common % size == 0]
    if whole:
        size, why = whole[0], f"a replica of the model lies on {group} nodes and stays in one block of {block}"
    elif parts:
        size = parts[-1]
        why = (
            f"a replica of the model lies on {group} nodes, more than a block of {block} holds beside others: in parts"
        )
    else:
        return (), (
            f"--segment is left out: no number of nodes divides both the {count} of the job and the {group} of a "
            f"replica of the model and fits a block of {block}",
        )
    setting = Setting(
        name="--segment",
        value=str(size),
        why=f"{why}; Slurm may spread the segments, and starts sooner than for one block in all",
        source=f"sbatch(1) --segment; needs topology/block, Slurm {show_release(BLOCK_SINCE)} or later "
        "(opsk fabric --write block)",
    )
    note = (
        "--exclusive=topo would keep other jobs out of the blocks as well (Slurm 24.05 or later): nothing else runs on "
        "their NVLink and leaves then, and their unused nodes stay idle"
    )
    return (setting,), (note,)


def _exclude(placement: Placement, rails: Rails) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    """Return ``--exclude`` for nodes that would slow all others down, where enough others are there."""
    candidates = [*placement.nodes, *placement.spare_nodes]
    rate = {
        node: sum(hca.bytes_per_s for hca in rails.attachments[node])
        for node in candidates
        if node in rails.attachments
    }
    usual = Counter(rate.values()).most_common(1)[0][0] if rate else 0.0
    slow = [node for node, each in rate.items() if each < _LESS * usual and _SAFE_NAME.fullmatch(node)]
    if not slow:
        return (), ()
    least = min(rate[node] for node in slow) / usual
    listed = f"{', '.join(slow[:4])}{', ...' if len(slow) > 4 else ''}"
    what = f"{listed}: links for {least:.0%} of the bandwidth that the other nodes have at the least, and all wait"
    if len(rate) - len(slow) < len(placement.nodes):
        used = [node for node in slow if node in placement.nodes]
        return (), ((f"{what}; no candidates are left to take their place",) if used else ())
    return (
        Setting(
            name="--exclude",
            value=fold(slow),
            why=f"{what}; {len(rate) - len(slow)} other candidates are enough",
            source="sbatch(1) --exclude; safe with block topologies, where --nodelist is not",
        ),
    ), ()
