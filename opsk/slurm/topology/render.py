"""Renders a topology as ``topology.conf``, or as one entry of ``topology.yaml``.

The text depends only on the topology: not on time or host, and it follows the order of the cabling's own names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from opsk.hostlist import fold
from opsk.slurm.topology.conf import SwitchLine, TopologyConf

_SAFE_NAME = re.compile(r"[A-Za-z0-9._\-]{1,255}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A switch or a block to write: it has ``nodes`` or ``children``, and maybe a ``comment``."""

    name: str
    nodes: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    comment: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmTopology:
    """A topology to write: ``kind`` is ``tree`` or ``block``; ``notes`` are comments on the whole.

    ``segment`` is the ``--segment`` to recommend: the nodes of a block that jobs should count on; 0 for trees.
    """

    kind: str
    entries: tuple[Entry, ...]
    block_sizes: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    segment: int = 0
    left_out: tuple[str, ...] = ()

    @property
    def conf(self) -> TopologyConf:
        """The same as a reader would find it."""
        if self.kind == "block":
            blocks = {entry.name: entry.nodes for entry in self.entries}
            return TopologyConf(blocks=blocks, block_sizes=",".join(map(str, self.block_sizes)))
        switches = {
            entry.name: SwitchLine(name=entry.name, nodes=entry.nodes, switches=entry.children)
            for entry in self.entries
        }
        return TopologyConf(switches=switches)


def render_conf(written: SlurmTopology, *, heading: Iterable[str] = ()) -> str:
    """Return a ``topology.conf``."""
    lines = [f"# {sanitise_comment(note)}" for note in (*heading, *written.notes)]
    word = "BlockName" if written.kind == "block" else "SwitchName"
    for entry in written.entries:
        if entry.comment:
            lines.append(f"# {entry.name}: {sanitise_comment(entry.comment)}")
        below = f" Switches={fold(entry.children)}" if entry.children else ""
        below += f" Nodes={fold(entry.nodes)}" if entry.nodes else ""
        lines.append(f"{word}={entry.name}{below}")
    if written.block_sizes:
        lines.append(f"BlockSizes={','.join(map(str, written.block_sizes))}")
    return "\n".join(lines) + "\n"


def render_yaml(topologies: Sequence[tuple[str, SlurmTopology]], *, heading: Iterable[str] = ()) -> str:
    """Return a ``topology.yaml`` with named topologies, the first as the cluster's default."""
    lines = [*(f"# {sanitise_comment(line)}" for line in heading), "---"]
    for number, (name, written) in enumerate(topologies):
        lines += [f"# {name}: {sanitise_comment(note)}" for note in written.notes]
        lines += [f"- topology: {_quote(name)}", f"  cluster_default: {'false' if number else 'true'}"]
        lines.append(f"  {written.kind}:")
        if written.kind == "block":
            lines += ["    block_sizes:", *(f"      - {size}" for size in written.block_sizes), "    blocks:"]
        else:
            lines.append("    switches:")
        word = "block" if written.kind == "block" else "switch"
        for entry in written.entries:
            if entry.comment:
                lines.append(f"      # {entry.name}: {sanitise_comment(entry.comment)}")
            lines.append(f"      - {word}: {_quote(entry.name)}")
            if entry.children:
                lines.append(f"        children: {_quote(fold(entry.children))}")
            if entry.nodes:
                lines.append(f"        nodes: {_quote(fold(entry.nodes))}")
    return "\n".join(lines) + "\n"


def match_slurm_names(nodes: Iterable[str], node_names: Collection[str] | None) -> tuple[str, ...]:
    """Return the names that Slurm has for hosts of the fabric, in their order, each once.

    Hosts are matched by full name, then by the name before the first dot; those that Slurm does not know, and names
    with signs that no node name has, are left out. Without ``node_names`` all hosts are taken as they are called.
    """
    if node_names is None:
        return tuple(dict.fromkeys(node for node in nodes if _SAFE_NAME.fullmatch(node)))
    known = set(node_names)
    short = {name.split(".")[0]: name for name in sorted(known)}
    names = (node if node in known else short.get(node.split(".")[0], "") for node in nodes)
    return tuple(dict.fromkeys(name for name in names if _SAFE_NAME.fullmatch(name)))


def sanitise_comment(text: str) -> str:
    """Return text from a dump so that it cannot leave its comment line."""
    return re.sub(r"[^\x20-\x7e]", "?", text)


def _quote(text: str) -> str:
    """Return a YAML string that no reader takes for a number, a list or a truth value."""
    return json.dumps(text)
