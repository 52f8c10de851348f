"""Determines on which rank, node and GPU a failure was.

torchrun numbers a node's ranks from 0 and gives them consecutive numbers of the job, so one rank of a node with both
numbers known gives all of that node. Where there is none, the node's own number gives them, if all nodes have as many
ranks and nothing that is known contradicts: rendezvous may number nodes otherwise than Slurm does.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from opsk.postmortem.logs.lines import parse_tasks
from opsk.postmortem.values import Evidence, Finding, JobFacts, Place, RankProgress

_LOG_FOLDER = re.compile(r"(?P<node>.*)/attempt_\d+/\d+/std(?:out|err)\.log$")
_BOTH = "launcher.root_rank"
"""A line in which torchrun itself states both numbers."""
TASK_ENDED = "slurm.task_killed"
"""srun names a task that ended."""
_BY_TORCHRUN = ("launcher.root_rank", "launcher.first_failure")
_MAX_RUNS = 8
Node = tuple[str, str | int]
"""One node, by any of its identifiers: its name, its number, or its own folder of logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbering:
    """First rank of each node that is known; of the others it follows from their number and ``per_node``."""

    firsts: Mapping[Node, int] = field(default_factory=dict)
    per_node: int | None = None
    is_one_node: bool = False

    def find_rank(self, local_rank: int, nodes: Iterable[Node]) -> int | None:
        """Return the number in the job of a rank of a node; ``None`` where it may be several."""
        if self.is_one_node:
            return local_rank
        nodes = tuple(nodes)
        first_ranks = {self.firsts[node] for node in nodes if node in self.firsts}
        if not first_ranks and self.per_node is not None and local_rank < self.per_node:
            first_ranks = {int(name) * self.per_node for kind, name in nodes if kind == "number"}
        return first_ranks.pop() + local_rank if len(first_ranks) == 1 else None


def with_ranks(evidence: Evidence) -> Evidence:
    """Return evidence in which local ranks have their number in the job, where that is certain."""
    by_label = _are_tasks_nodes(evidence)
    if not by_label and not any(each.local_rank is not None for each in evidence.ranks):
        return evidence
    numbering = _build_numbering(evidence)
    ranks = [_resolve_progress(each, numbering) for each in evidence.ranks]
    findings = [_resolve_finding(each, numbering, tasks_are_nodes=by_label) for each in evidence.findings]
    return replace(evidence, findings=tuple(findings), ranks=_deduplicate(ranks))


def _are_tasks_nodes(evidence: Evidence) -> bool:
    """Return whether Slurm's tasks are launchers, one a node: by labels, or by what torchrun reports itself."""
    if any(each.node_rank is not None for each in evidence.ranks):
        return True
    tasks = evidence.job.tasks if evidence.job is not None else None
    ranks = {finding.place.rank for finding in evidence.findings if finding.signature in _BY_TORCHRUN} - {None}
    if tasks is not None and any(rank is not None and rank >= tasks for rank in ranks):
        return True
    return tasks is None and any(finding.signature in _BY_TORCHRUN for finding in evidence.findings)


def _build_numbering(evidence: Evidence) -> Numbering:
    """Return the numbering of all nodes."""
    first_ranks: dict[Node, set[int]] = defaultdict(set)
    for each in evidence.ranks:
        if each.rank is not None and each.local_rank is not None:
            for node in _list_nodes(each, each.source):
                first_ranks[node].add(each.rank - each.local_rank)
    for finding in evidence.findings:
        if finding.signature == _BOTH and finding.place.rank is not None and finding.place.local_rank is not None:
            for node in _list_nodes(finding.place, finding.source):
                first_ranks[node].add(finding.place.rank - finding.place.local_rank)
    firsts = {
        node: next(iter(numbers)) for node, numbers in first_ranks.items() if len(numbers) == 1 and min(numbers) >= 0
    }
    per_node = _count_ranks_per_node(evidence)
    if per_node is not None and any(
        kind == "number" and first_ranks[kind, name] != {int(name) * per_node} for kind, name in first_ranks
    ):
        per_node = None
    return Numbering(firsts=firsts, per_node=per_node, is_one_node=_is_one_node(evidence.job))


def _is_one_node(job: JobFacts | None) -> bool:
    """Return whether all ran on one node, by Slurm's record."""
    return job is not None and len(job.nodes) == 1


def _count_ranks_per_node(evidence: Evidence) -> int | None:
    """Return how many ranks each node has: by Slurm, else by the labels where a node shows all up to the highest."""
    job = evidence.job
    shown: dict[Node, set[int]] = defaultdict(set)
    for each in evidence.ranks:
        if each.local_rank is not None:
            for node in _list_nodes(each, each.source):
                shown[node].add(each.local_rank)
    highest = max((max(local_ranks) for local_ranks in shown.values()), default=0)
    if job is not None and job.tasks and job.nodes and job.tasks % len(job.nodes) == 0:
        count = job.tasks // len(job.nodes)
        if count > highest and count > 1:
            return count
    whole = any(local_ranks == set(range(highest + 1)) for local_ranks in shown.values())
    return highest + 1 if highest and whole else None


def _list_nodes(place: Place | RankProgress, source: str) -> tuple[Node, ...]:
    """Return all identifiers of the node of a place."""
    nodes: list[Node] = []
    if place.node:
        nodes.append(("name", place.node))
    if place.node_rank is not None:
        nodes.append(("number", place.node_rank))
    if (folder := _LOG_FOLDER.match(source)) is not None:
        nodes.append(("folder", folder["node"]))
    return tuple(nodes)


def _resolve_progress(progress: RankProgress, numbering: Numbering) -> RankProgress:
    if progress.rank is not None or progress.local_rank is None:
        return progress
    return replace(progress, rank=numbering.find_rank(progress.local_rank, _list_nodes(progress, progress.source)))


def _resolve_finding(finding: Finding, numbering: Numbering, *, tasks_are_nodes: bool) -> Finding:
    """Return a finding with its rank; a Slurm task is a node where each task is torchrun."""
    place = finding.place
    if finding.signature == TASK_ENDED and tasks_are_nodes:
        tasks = finding.fields.get("tasks", "")
        number = int(tasks) if tasks.isdecimal() and len(tasks) < 9 else None
        return replace(finding, place=replace(place, rank=None, node_rank=number))
    if place.rank is not None or place.local_rank is None:
        return finding
    return replace(
        finding, place=replace(place, rank=numbering.find_rank(place.local_rank, _list_nodes(place, finding.source)))
    )


def _deduplicate(ranks: Iterable[RankProgress]) -> tuple[RankProgress, ...]:
    """Return each rank of a log once: some of its lines may have stated its number, and others not."""
    merged: dict[tuple[object, ...], RankProgress] = {}
    for number, progress in enumerate(ranks):
        key = (progress.source, progress.rank) if progress.rank is not None else (number,)
        known = merged.get(key)
        merged[key] = progress if known is None else _merge(known, progress)
    return tuple(merged.values())


def _merge(left: RankProgress, right: RankProgress) -> RankProgress:
    """Merge two parts of one rank's lines."""
    first, second = (left, right) if left.last_iteration is not None or right.last_iteration is None else (right, left)
    later = max(first, second, key=lambda each: each.last_line_s or 0.0)
    return replace(
        first, node=first.node or second.node, pci=first.pci or second.pci, last_line_s=later.last_line_s,
        last_text=later.last_text, lines=first.lines + second.lines,
        gpu_index=first.gpu_index if first.gpu_index is not None else second.gpu_index,
    )  # fmt: skip


def find_rank_nodes(evidence: Evidence) -> dict[int, str]:
    """Return the node of each rank: from lines and logs, else by Slurm's block distribution of ranks."""
    votes: dict[int, Counter[str]] = {}
    for rank, node in _list_reported_nodes(evidence):
        votes.setdefault(rank, Counter())[node] += 2
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


def _list_reported_nodes(evidence: Evidence) -> Iterable[tuple[int, str]]:
    """Yield ranks with their node, as torchrun and srun report them when processes end."""
    for finding in evidence.findings:
        for pair in finding.fields.get("hosts", "").split():
            rank, _, node = pair.partition("@")
            yield int(rank), node
        node = finding.fields.get("node", "")
        if finding.signature == TASK_ENDED and finding.place.node_rank is None and node and not names_several(node):
            yield from ((rank, node) for rank in parse_tasks(finding.fields.get("tasks", "")))


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
    ranks = {each.rank for each in evidence.ranks if each.rank is not None}
    is_whole = set(node_of_rank) >= ranks and set(node_of_rank) == set(range(len(node_of_rank)))
    per_node = count_ranks_per_node(node_of_rank) if is_whole else None
    return RankPlacement(node=node_of_rank, pci=pci, per_node=per_node)


def is_same_gpu(first: str, second: str) -> bool:
    """Return whether two PCI addresses belong to one device, ignoring the function."""
    return bool(first and second) and first.partition(".")[0].lower() == second.partition(".")[0].lower()


def complete_place(place: Place, placement: RankPlacement) -> Place:
    """Return a place with the node of its rank, the rank of its GPU, and the GPU of its rank."""
    rank = place.rank
    if rank is None and place.pci and place.node:
        rank = placement.find_rank(place.node, place.pci)
    node = place.node or (placement.node.get(rank, "") if rank is not None else "")
    if not node and place.ranks:
        nodes = {placement.node.get(each, "") for each in place.ranks}
        node = nodes.pop() if len(nodes) == 1 else ""
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
        gpu_uuid=place.gpu_uuid, gpu_index=index, pci=pci, hca=place.hca, peer=place.peer, ranks=place.ranks,
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
    for name in ("node", "rank", "local_rank", "node_rank", "gpu_uuid", "gpu_index", "pci", "hca", "peer", "ranks"):
        values = [
            value
            for place in places
            if (value := getattr(place, name)) not in ("", None, ()) and _are_compatible(place, first)
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
        several = len(place.ranks) > 1
        parts.append(f"ranks {format_ranks(place.ranks)}" if several else f"rank {place.rank}")
    elif place.local_rank is not None:
        parts.append(f"local rank {place.local_rank}")
        if place.node_rank is not None and not place.node:
            parts.append(f"of node number {place.node_rank}")
    elif place.ranks:
        parts.append(f"rank{'s' if len(place.ranks) > 1 else ''} {format_ranks(place.ranks)}")
    if place.node:
        parts.append(f"on {place.node}" if parts else f"node {place.node}")
    if place.pci or place.gpu_index is not None or place.gpu_uuid:
        parts.append(f"GPU {place.pci or (place.gpu_index if place.gpu_index is not None else place.gpu_uuid)}")
    if place.hca:
        parts.append(f"HCA {place.hca}")
    if place.peer:
        parts.append(f"towards {place.peer}")
    first = f", rank {place.rank} first" if place.rank is not None and len(place.ranks) > 1 else ""
    return " ".join(parts) + first or "the job"


def format_ranks(ranks: Sequence[int]) -> str:
    """Return some ranks as people write them, ``0-4, 6``, and how many more."""
    ordered, runs = sorted(set(ranks)), list[list[int]]()
    for rank in ordered:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    shown = [_format_run(run) for run in runs[:_MAX_RUNS]]
    rest = sum(len(run) for run in runs[_MAX_RUNS:])
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def _format_run(run: Sequence[int]) -> str:
    if len(run) <= 2:
        return ", ".join(map(str, run))
    return f"{run[0]}-{run[-1]}"


def names_several(node: str) -> bool:
    """Return whether a name denotes several nodes, as Slurm abbreviates them."""
    return "[" in node or "," in node
