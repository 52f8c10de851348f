"""How many ranks does a launcher start, where its own flags say so?"""

from __future__ import annotations

from opsk_jobcheck.readers.arguments import Arguments
from opsk_jobcheck.readers.findings import Findings

OPTION = "launcher.ranks"
"""Name of the option of a workload that says so."""
NODES_OPTION = "launcher.nodes"
"""The same of the nodes, where the launcher is told of fewer than the job has."""
_ALL = ("--num-processes",)
"""Flags that count the ranks of all nodes (``accelerate launch``)."""
_PER_NODE = ("--nproc-per-node", "--num-gpus")
_NODES = ("--nnodes", "--num-nodes", "--num-machines")
MAX_RANKS = 1 << 24


def read_ranks(arguments: Arguments, findings: Findings) -> None:
    """State the number of ranks in ``findings.options``; nothing where a flag is missing or cannot be told.

    A launcher that is not told how many nodes there are takes one: only then does the number a node say it all.
    """
    total = _number(arguments, _ALL)
    per_node, nodes = _number(arguments, _PER_NODE), _number(arguments, _NODES)
    if total is None and per_node is not None:
        is_single = findings.get("plan.nodes") == 1 and not any(name in arguments.flags for name in _NODES)
        agents = nodes or (1 if is_single else None)
        total = per_node * agents if agents else None
    if total and total <= MAX_RANKS:
        findings.options[OPTION] = str(total)
        if nodes and per_node and nodes < (findings.get("plan.nodes") or 0):
            findings.options[NODES_OPTION] = str(nodes)


def _number(arguments: Arguments, names: tuple[str, ...]) -> int | None:
    """Return the whole number that a flag is given, ``None`` where there is none or it cannot be told."""
    for name in names:
        argument = arguments.flags.get(name)
        known = argument.value.known if argument else None
        if known and known.isascii() and known.isdigit() and len(known) < 9 and int(known):
            return int(known)
    return None
