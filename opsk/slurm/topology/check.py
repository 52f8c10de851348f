"""Checks a Slurm topology: reports what slurmctld would exit on, and what would mislead it.

Sources: switch_record.c and block_record.c of Slurm (see `opsk.slurm.topology.release`), topology.conf(5).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from opsk.fabric.fabric import Fault
from opsk.fabric.hosts.ports import natural_key
from opsk.slurm.topology.conf import TopologyConf

_MAJORITY_SHARE = 0.9
"""A node name is odd when so many of the others have the prefix that it seems to lack."""
_PREFIX = re.compile(r"(.*?)\d*")
_MAX_SHOWN = 20


def check_topology(conf: TopologyConf, *, source: str = "topology.conf") -> tuple[Fault, ...]:
    """Return what is wrong with one topology, worst first."""
    return (
        *_check_fatal(conf, source),
        *_check_duplicates(conf),
        *_check_names(conf),
        *_check_separate_trees(conf),
        *_check_block_sizes(conf),
    )


def _check_fatal(conf: TopologyConf, source: str) -> Iterator[Fault]:
    """Find what slurmctld of any release exits on."""
    for name in conf.undefined[:_MAX_SHOWN]:
        above = sorted(switch.name for switch in conf.switches.values() if name in switch.switches)
        yield Fault(
            kind="undefined_switch",
            where=name,
            evidence=f"a child of {', '.join(above[:4])}, but no line defines it",
            cost="slurmctld ends at it: the switch configuration has an invalid child",
        )
    wrong = _describe_wrong_sizes(conf.block_sizes)
    if wrong:
        yield Fault(
            kind="invalid_block_sizes",
            where=f"{source}: BlockSizes={conf.block_sizes}",
            evidence=f"{wrong}; each must be the first times a power of two, at most 2 to the 15th",
            cost="slurmctld ends at it: invalid BlockSizes value",
        )


def _describe_wrong_sizes(sizes: str | None) -> str:
    """Describe what is wrong with block sizes; empty when nothing is."""
    if sizes is None:
        return ""
    parts = [part.strip() for part in sizes.split(",")]
    if not all(part.isdecimal() and len(part) < 7 and int(part) > 0 for part in parts):
        return "not all of them are numbers above 0"
    numbers = [int(part) for part in parts]
    for number in numbers:
        times, rest = divmod(number, numbers[0])
        if rest or times.bit_count() != 1 or times > 1 << 15:
            return f"{number} is not {numbers[0]} times a power of two"
    return ""


def _check_duplicates(conf: TopologyConf) -> Iterator[Fault]:
    """Find nodes in two groups."""
    twice = conf.nodes_listed_twice
    for node in twice[:_MAX_SHOWN]:
        groups = [name for name, nodes in conf.groups.items() if node in nodes]
        yield Fault(
            kind="node_listed_twice",
            where=node,
            evidence=f"in {' and in '.join(groups[:4])}",
            cost="Slurm takes it to be near the nodes of both, and only warns",
            nodes=(node,),
        )
    if len(twice) > _MAX_SHOWN:
        yield Fault(
            kind="node_listed_twice",
            where=f"{len(twice) - _MAX_SHOWN} more nodes",
            evidence=f"the first {_MAX_SHOWN} are named above",
            nodes=twice[_MAX_SHOWN:],
        )


def _check_names(conf: TopologyConf) -> Iterator[Fault]:
    """Find names that lack the prefix of nearly all others: ``c-n[1-16],n[19-20]`` for ``c-n[1-16,19-20]``."""
    prefixes = {node: _prefix(node) for node in conf.nodes}
    usual, count = Counter(prefixes.values()).most_common(1)[0] if prefixes else ("", 0)
    if count < _MAJORITY_SHARE * len(prefixes):
        return
    odd = tuple(node for node, prefix in prefixes.items() if prefix != usual and prefix and usual.endswith(prefix))
    if odd:
        yield Fault(
            kind="odd_node_name",
            where=", ".join(odd[:8]),
            evidence=f"{count} of {len(prefixes)} nodes begin with {usual}, these with the end of it",
            cost="Slurm leaves out names that it does not know, and only warns",
            nodes=odd,
        )


def _prefix(node: str) -> str:
    """Return the part before the last number of a name."""
    match = _PREFIX.fullmatch(node)
    return match[1] if match else node


def _check_separate_trees(conf: TopologyConf) -> Iterator[Fault]:
    """Find trees that nothing joins."""
    if len(conf.roots) > 1 and conf.switches:
        apart = [root for root in conf.roots if conf.nodes_below(root)]
        if len({conf.nodes_below(root) for root in apart}) > 1:
            yield Fault(
                kind="separate_trees",
                where=", ".join(sorted(apart, key=natural_key)[:8]),
                evidence=f"{len(apart)} switches have no switch above",
                cost="Slurm places no job on nodes of two of them, unless TopologyParam=TopoOptional",
            )


def _check_block_sizes(conf: TopologyConf) -> Iterator[Fault]:
    """Find blocks with fewer nodes than the base block."""
    if _describe_wrong_sizes(conf.block_sizes) or not conf.blocks or conf.block_sizes is None:
        return
    base = int(conf.block_sizes.split(",")[0])
    short = [f"{name} ({len(nodes)})" for name, nodes in conf.blocks.items() if len(nodes) < base]
    if short:
        yield Fault(
            kind="short_blocks",
            where=", ".join(short[:8]),
            evidence=f"fewer nodes than the base block of {base}",
            cost="slurmctld before 25.05 ends at it; later releases take it",
        )
