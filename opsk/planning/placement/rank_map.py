"""Encodes the rank-to-node map of one job as one line of text that the tasks on every node parse.

The line is passed in the environment of a step (``OPSK_MAP``), so that no node needs a request or a shared file::

    opsk1 4711 16 n5:0-7 n3:8-15:0,1,3,2,4,5,6,7

The mark is followed by the job, the number of ranks, and one word per node in the order of node ranks: its name, its
ranks by local rank, and the GPU of each local rank where that differs from the local rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_MARK = "opsk1"
HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,254}")
"""Host names that launchers and shells accept as one word."""

_WORD = re.compile(r"([A-Za-z0-9][A-Za-z0-9._\-]{0,254}):([0-9,\-]+)(?::([0-9,]+))?")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_MAX_RANKS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRanks:
    """The ranks of one node by local rank; ``gpus`` are theirs, empty where each takes the GPU of its own number."""

    node: str
    ranks: tuple[int, ...]
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMap:
    """Where the ranks of a job run: its nodes in the order of their lowest ranks."""

    job: int
    nodes: tuple[NodeRanks, ...]

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return sum(len(node.ranks) for node in self.nodes)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the nodes, the first is that of rank 0."""
        return tuple(node.node for node in self.nodes)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The node of every rank."""
        host = [""] * self.world_size
        for node in self.nodes:
            for rank in node.ranks:
                host[rank] = node.node
        return tuple(host)

    @property
    def is_node_by_node(self) -> bool:
        """Whether ranks fill nodes one after the other, each with as many, as ``torchrun`` numbers them."""
        ranks_per_node = len(self.nodes[0].ranks)
        return all(
            node.ranks == tuple(range(number * ranks_per_node, (number + 1) * ranks_per_node))
            for number, node in enumerate(self.nodes)
        )

    def matches_block_order(self, nodes: Sequence[str]) -> bool:
        """Return whether Slurm produces this map by itself, with tasks in blocks on these nodes."""
        return self.is_node_by_node and self.names == tuple(nodes)

    def render(self) -> str:
        """Return this map as one line."""
        return " ".join([_MARK, str(self.job), str(self.world_size), *(_format_node(node) for node in self.nodes)])

    @classmethod
    def parse(cls, text: str) -> RankMap | None:
        """Parse the line; ``None`` if it is malformed, or if some rank is missing or repeated."""
        mark, *words = text.split(" ") if len(text) < 1 << 20 else [""]
        if mark != _MARK or len(words) < 3 or not all(re.fullmatch("[0-9]{1,10}", word) for word in words[:2]):
            return None
        nodes = [_parse_node(word) for word in words[2:]]
        known = [node for node in nodes if node is not None]
        ranks = sorted(rank for node in known for rank in node.ranks)
        sound = len(known) == len(nodes) == len({node.node for node in known})
        if not sound or ranks != list(range(int(words[1]))):
            return None
        return cls(job=int(words[0]), nodes=tuple(known))


def _format_node(node: NodeRanks) -> str:
    """Return the word of one node."""
    gpus = ":" + ",".join(map(str, node.gpus)) if node.gpus else ""
    return f"{node.node}:{','.join(_format_ranges(node.ranks))}{gpus}"


def _format_ranges(ranks: Sequence[int]) -> Iterator[str]:
    """Yield runs of ranks, as ``0-3`` or ``7``, in their order."""
    first = 0
    for end in range(1, len(ranks) + 1):
        if end == len(ranks) or ranks[end] != ranks[end - 1] + 1:
            yield str(ranks[first]) if end - first == 1 else f"{ranks[first]}-{ranks[end - 1]}"
            first = end


def _parse_node(word: str) -> NodeRanks | None:
    """Parse the word of one node."""
    match = _WORD.fullmatch(word)
    if match is None:
        return None
    ranks: list[int] = []
    for part in match[2].split(","):
        run = _RANGE.fullmatch(part)
        first, last = (int(run[1]), int(run[2] or run[1])) if run else (1, 0)
        if not first <= last < _MAX_RANKS:
            return None
        ranks.extend(range(first, last + 1))
    gpus = [int(gpu) for gpu in match[3].split(",") if gpu] if match[3] else []
    return NodeRanks(node=match[1], ranks=tuple(ranks), gpus=tuple(gpus))
