"""Resolves ranks of a node to ranks of the job from the logs of that node; an ambiguous number stays local.

torchrun numbers a node's ranks from 0 and gives them consecutive numbers of the job, so one rank of a node with both
numbers known gives all of that node. Where there is none, the node's own number gives them, if all nodes have as many
ranks and nothing that is known contradicts: rendezvous may number nodes otherwise than Slurm does.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from opsk.postmortem.values import Evidence, Finding, JobFacts, Place, RankProgress

_LOG_FOLDER = re.compile(r"(?P<node>.*)/attempt_\d+/\d+/std(?:out|err)\.log$")
_BOTH = "launcher.root_rank"
"""A line in which torchrun itself states both numbers."""
_TASK = "slurm.task_killed"

Node = tuple[str, str | int]
"""One node, by any of its identifiers: its name, its number, or its own folder of logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbering:
    """First rank of each node that is known; of the others it follows from their number and ``per_node``."""

    firsts: Mapping[Node, int] = field(default_factory=dict)
    per_node: int | None = None
    is_one_node: bool = False

    def rank_of(self, local_rank: int, nodes: Iterable[Node]) -> int | None:
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
    if not any(each.local_rank is not None for each in evidence.ranks):
        return evidence
    by_label = any(each.node_rank is not None for each in evidence.ranks)
    numbering = _build_numbering(evidence)
    ranks = [_resolve_progress(each, numbering) for each in evidence.ranks]
    findings = [_resolve_finding(each, numbering, tasks_are_nodes=by_label) for each in evidence.findings]
    return replace(evidence, findings=tuple(findings), ranks=_deduplicate(ranks))


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
    return replace(progress, rank=numbering.rank_of(progress.local_rank, _list_nodes(progress, progress.source)))


def _resolve_finding(finding: Finding, numbering: Numbering, *, tasks_are_nodes: bool) -> Finding:
    """Return a finding with its rank; a Slurm task is a node where each task is torchrun."""
    place = finding.place
    if finding.signature == _TASK and tasks_are_nodes:
        tasks = finding.fields.get("tasks", "")
        number = int(tasks) if tasks.isdecimal() and len(tasks) < 9 else None
        return replace(finding, place=replace(place, rank=None, node_rank=number))
    if place.rank is not None or place.local_rank is None:
        return finding
    return replace(
        finding, place=replace(place, rank=numbering.rank_of(place.local_rank, _list_nodes(place, finding.source)))
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
