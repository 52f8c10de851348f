"""Determines which rank runs on which node and GPU, and the place that several signs agree on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from opsk.postmortem.values import Evidence, Finding, Place, RankProgress


def find_rank_nodes(evidence: Evidence) -> dict[int, str]:
    """Return the node of each rank: from lines and logs, else by Slurm's block distribution of ranks."""
    votes: dict[int, Counter[str]] = {}
    for finding in evidence.findings:
        if finding.place.rank is not None and finding.place.node:
            votes.setdefault(finding.place.rank, Counter())[finding.place.node] += 1
    for progress in evidence.ranks:
        if progress.rank is not None and progress.node:
            votes.setdefault(progress.rank, Counter())[progress.node] += 2
    nodes = {rank: count.most_common(1)[0][0] for rank, count in votes.items()}
    job = evidence.job
    if job is None or not job.nodes:
        return nodes
    world = max([*(rank + 1 for rank in nodes), *(r.rank + 1 for r in evidence.ranks if r.rank is not None)], default=0)
    world = max(world, job.tasks or 0)
    per_node, rest = divmod(world, len(job.nodes))
    if per_node and not rest:
        by_block = {rank: job.nodes[rank // per_node] for rank in range(world)}
        if all(by_block[rank] == node for rank, node in nodes.items()):
            return by_block
    return nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlacement:
    """Which rank runs where: node and GPU of each rank, and the rank of each GPU, as far as is known."""

    node: Mapping[int, str]
    pci: Mapping[int, str] = field(default_factory=dict)
    per_node: int | None = None

    def find_rank(self, node: str, pci: str) -> int | None:
        """Return the rank on a GPU."""
        ranks = [
            rank for rank, gpu_pci in self.pci.items() if is_same_gpu(gpu_pci, pci) and self.node.get(rank) == node
        ]
        return ranks[0] if len(ranks) == 1 else None


def build_placement(evidence: Evidence) -> RankPlacement:
    """Return who runs where."""
    node_of_rank = find_rank_nodes(evidence)
    pci = {each.rank: each.pci for each in evidence.ranks if each.rank is not None and each.pci}
    return RankPlacement(node=node_of_rank, pci=pci, per_node=count_ranks_per_node(node_of_rank))


def is_same_gpu(first: str, second: str) -> bool:
    """Return whether two PCI addresses belong to one device, ignoring the function."""
    return bool(first and second) and first.partition(".")[0].lower() == second.partition(".")[0].lower()


def complete_place(place: Place, placement: RankPlacement) -> Place:
    """Return a place with the node of its rank, the rank of its GPU, and the GPU of its rank."""
    rank = place.rank
    if rank is None and place.pci and place.node:
        rank = placement.find_rank(place.node, place.pci)
    node = place.node or (placement.node.get(rank, "") if rank is not None else "")
    if rank is None and place.local_rank is not None and node:
        on_node = sorted(each for each, at in placement.node.items() if at == node)
        rank = (
            on_node[place.local_rank]
            if len(on_node) == placement.per_node and place.local_rank < len(on_node)
            else None
        )
    pci = place.pci or (placement.pci.get(rank, "") if rank is not None else "")
    index = place.gpu_index if place.gpu_index is not None else place.local_rank
    if index is None and rank is not None and placement.per_node:
        index = rank % placement.per_node
    return Place(
        node=node, rank=rank, local_rank=place.local_rank, node_rank=place.node_rank,
        gpu_uuid=place.gpu_uuid, gpu_index=index, pci=pci, hca=place.hca, peer=place.peer,
    )  # fmt: skip


def rank_identity(place: Place | RankProgress) -> tuple[object, ...]:
    """Return the identity of a rank: the number in the job, else the number on the node and the node's identifiers."""
    if place.rank is not None:
        return (place.rank,)
    return (place.node, place.node_rank, place.local_rank) if place.local_rank is not None else ()


def merge_places(places: Sequence[Place]) -> Place:
    """Return what places agree on: the first value counts, later ones fill in missing values."""
    first = places[0]
    filled: dict[str, object] = {}
    for name in ("node", "rank", "local_rank", "node_rank", "gpu_uuid", "gpu_index", "pci", "hca", "peer"):
        values = [
            value
            for place in places
            if (value := getattr(place, name)) not in ("", None) and _are_compatible(place, first)
        ]
        filled[name] = values[0] if values else getattr(first, name)
    return Place(**filled)  # type: ignore[arg-type]


def _are_compatible(place: Place, first: Place) -> bool:
    """Return whether two places may be the same."""
    for name in ("node", "rank", "node_rank", "pci", "hca"):
        left, right = getattr(place, name), getattr(first, name)
        if left not in ("", None) and right not in ("", None) and left != right:
            return False
    return True


def count_ranks_per_node(node_of_rank: Mapping[int, str]) -> int | None:
    """Return how many ranks a node has, where all have as many; ``None`` where that is not known."""
    counts = set(Counter(node_of_rank.values()).values())
    return counts.pop() if len(counts) == 1 else None


def describe_place(place: Place) -> str:
    """Return a place as text; ``the job`` where nothing is known."""
    parts = []
    if place.rank is not None:
        parts.append(f"rank {place.rank}")
    elif place.local_rank is not None:
        parts.append(f"local rank {place.local_rank}")
        if place.node_rank is not None and not place.node:
            parts.append(f"of node number {place.node_rank}")
    if place.node:
        parts.append(f"on {place.node}" if parts else f"node {place.node}")
    if place.pci or place.gpu_index is not None or place.gpu_uuid:
        parts.append(f"GPU {place.pci or (place.gpu_index if place.gpu_index is not None else place.gpu_uuid)}")
    if place.hca:
        parts.append(f"HCA {place.hca}")
    if place.peer:
        parts.append(f"towards {place.peer}")
    return " ".join(parts) or "the job"


def list_sources(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Return the sources of findings, each once."""
    return tuple(dict.fromkeys(finding.source for finding in findings))
