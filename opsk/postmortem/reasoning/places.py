"""Which rank runs on which node and GPU, as far as the evidence tells; and where do several signs point together?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from opsk.postmortem.values import Evidence, Place, RankProgress, Sign


def nodes_of_ranks(evidence: Evidence) -> dict[int, str]:
    """Return the node of each rank: as lines and logs say, else as Slurm lays ranks out, block by block."""
    votes: dict[int, Counter[str]] = {}
    for sign in evidence.signs:
        if sign.place.rank is not None and sign.place.node:
            votes.setdefault(sign.place.rank, Counter())[sign.place.node] += 1
    for progress in evidence.ranks:
        if progress.rank is not None and progress.node:
            votes.setdefault(progress.rank, Counter())[progress.node] += 2
    found = {rank: count.most_common(1)[0][0] for rank, count in votes.items()}
    job = evidence.job
    if job is None or not job.nodes:
        return found
    world = max([*(rank + 1 for rank in found), *(r.rank + 1 for r in evidence.ranks if r.rank is not None)], default=0)
    world = max(world, job.tasks or 0)
    each, rest = divmod(world, len(job.nodes))
    if each and not rest:
        laid = {rank: job.nodes[rank // each] for rank in range(world)}
        if all(laid[rank] == node for rank, node in found.items()):
            return laid
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Seating:
    """Which rank runs where: node and GPU of each rank, and the rank of each GPU, as far as is known."""

    node: Mapping[int, str]
    pci: Mapping[int, str] = field(default_factory=dict)
    per_node: int | None = None

    def rank_at(self, node: str, pci: str) -> int | None:
        """Return the rank on a GPU."""
        found = [rank for rank, own in self.pci.items() if same_gpu(own, pci) and self.node.get(rank) == node]
        return found[0] if len(found) == 1 else None


def seating_of(evidence: Evidence) -> Seating:
    """Return who runs where."""
    node_of_rank = nodes_of_ranks(evidence)
    pci = {each.rank: each.pci for each in evidence.ranks if each.rank is not None and each.pci}
    return Seating(node=node_of_rank, pci=pci, per_node=ranks_per_node(node_of_rank))


def same_gpu(one: str, other: str) -> bool:
    """Tell whether two PCI addresses are of one device, the function aside."""
    return bool(one and other) and one.partition(".")[0].lower() == other.partition(".")[0].lower()


def completed(place: Place, seating: Seating) -> Place:
    """Return a place with the node of its rank, the rank of its GPU, and the GPU of its rank."""
    rank = place.rank
    if rank is None and place.pci and place.node:
        rank = seating.rank_at(place.node, place.pci)
    node = place.node or (seating.node.get(rank, "") if rank is not None else "")
    if rank is None and place.local_rank is not None and node:
        on_node = sorted(each for each, at in seating.node.items() if at == node)
        rank = (
            on_node[place.local_rank] if len(on_node) == seating.per_node and place.local_rank < len(on_node) else None
        )
    pci = place.pci or (seating.pci.get(rank, "") if rank is not None else "")
    index = place.gpu_index if place.gpu_index is not None else place.local_rank
    if index is None and rank is not None and seating.per_node:
        index = rank % seating.per_node
    return Place(
        node=node, rank=rank, local_rank=place.local_rank, node_rank=place.node_rank,
        gpu_uuid=place.gpu_uuid, gpu_index=index, pci=pci, hca=place.hca, peer=place.peer,
    )  # fmt: skip


def identity(place: Place | RankProgress) -> tuple[object, ...]:
    """Return what tells ranks apart: the number in the job, else that on the node and what is told of the node."""
    if place.rank is not None:
        return (place.rank,)
    return (place.node, place.node_rank, place.local_rank) if place.local_rank is not None else ()


def joined(places: Sequence[Place]) -> Place:
    """Return what places agree on: the first that says something counts, a later one fills in what it does not say."""
    first = places[0]
    filled: dict[str, object] = {}
    for name in ("node", "rank", "local_rank", "node_rank", "gpu_uuid", "gpu_index", "pci", "hca", "peer"):
        said = [value for place in places if (value := getattr(place, name)) not in ("", None) and _fits(place, first)]
        filled[name] = said[0] if said else getattr(first, name)
    return Place(**filled)  # type: ignore[arg-type]


def _fits(place: Place, first: Place) -> bool:
    """Tell whether two places may be one."""
    for name in ("node", "rank", "node_rank", "pci", "hca"):
        one, other = getattr(place, name), getattr(first, name)
        if one not in ("", None) and other not in ("", None) and one != other:
            return False
    return True


def ranks_per_node(node_of_rank: Mapping[int, str]) -> int | None:
    """Return how many ranks a node has, where all have as many; ``None`` where that is not known."""
    counts = set(Counter(node_of_rank.values()).values())
    return counts.pop() if len(counts) == 1 else None


def words(place: Place) -> str:
    """Return a place in the words of people; ``the job`` where nothing is known."""
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


def sources_of(signs: Iterable[Sign]) -> tuple[str, ...]:
    """Return the sources of signs, each once."""
    return tuple(dict.fromkeys(sign.source for sign in signs))
