"""Parses rank and node from the name of a log."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

_RANK = re.compile(r"(?:^|[^a-z])(?:global[_-]?)?(?:rank|task|proc)[_\-.]?(?P<rank>\d{1,7})(?!\d)", re.IGNORECASE)
_LOCAL = re.compile(r"(?:^|[^a-z])local[_-]?rank[_\-.]?(?P<local>\d{1,4})(?!\d)", re.IGNORECASE)
_TASK = re.compile(r"[_\-.](?P<rank>\d{1,6})\.(?:out|err|log|txt|stdout|stderr)(?:\.(?:gz|xz|bz2))?$")
"""``%x_%j_%t.out``: the last number, where another one precedes it."""
_NUMBERS = re.compile(r"\d+")
_BARE_NUMBERS = re.compile(r"(?<![0-9A-Za-z])\d+(?![0-9A-Za-z])")
"""Numbers that are separate words: neither of ``llama3-8b``."""
_NODE = re.compile(
    r"(?:^|[_\-.])(?P<node>(?=[a-zA-Z-]{1,24}\d)[a-zA-Z][a-zA-Z-]{0,23}\d{1,6}[a-zA-Z0-9-]{0,24}?)(?=[_.]|$)"
)
_NO_NODES = re.compile(
    r"^(?:rank|task|proc|job|slurm|step|run|log|node_?rank|local|attempt|iter|epoch|seed|part)-?\d", re.IGNORECASE
)
_TORCHRUN = re.compile(r"attempt_\d+/(?P<local>\d+)/std(?:out|err)\.log$")
_MIN_NUMBERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedRank:
    """Rank and node in the name of a log; ``None`` and empty are unknown."""

    rank: int | None = None
    local_rank: int | None = None
    node: str = ""


def parse_log_name(path: str) -> NamedRank:
    """Parse rank and node from the name of a log."""
    pure = PurePath(path)
    torchrun = _TORCHRUN.search(path)
    if torchrun is not None:
        return NamedRank(local_rank=int(torchrun["local"]), node=_parse_node(PurePath(*pure.parts[:-3]).name))
    local, name = _LOCAL.search(pure.name), pure.name
    bare = _LOCAL.sub("", name)
    match = _RANK.search(bare)
    rank = int(match["rank"]) if match else None
    task = _TASK.search(bare) if len(_BARE_NUMBERS.findall(bare)) >= _MIN_NUMBERS else None
    if rank is None and task is not None:
        rank = int(task["rank"])
        name = name[: name.rindex(task[0])]
    return NamedRank(rank=rank, local_rank=int(local["local"]) if local else None, node=_parse_node(name))


def parse_nodes(paths: Sequence[str]) -> dict[str, str]:
    """Return the node in each name, where several names differ only in it; a single name is ambiguous."""
    nodes = {path: parse_log_name(path).node for path in paths}
    stems: dict[str, set[str]] = {}
    for node in nodes.values():
        stems.setdefault(_NUMBERS.sub("#", node), set()).add(node)
    return {path: node for path, node in nodes.items() if node and len(stems[_NUMBERS.sub("#", node)]) > 1}


def _parse_node(name: str) -> str:
    """Return a host name within a file name."""
    for match in _NODE.finditer(name):
        if not _NO_NODES.match(match["node"]):
            return match["node"]
    return ""
