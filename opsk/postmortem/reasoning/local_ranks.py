"""Which rank of the job is rank 3 of a node? As logs of that node tell; a number that may be of any node stays local.

torchrun numbers a node's ranks from 0 and gives them numbers of the job one after the other, so one rank of a node of
which both numbers are known tells all of it. Where none is, a node's own number does, if all nodes have as many ranks
and nothing that is known contradicts: rendezvous may number nodes otherwise than Slurm does.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from opsk.postmortem.values import Evidence, JobFacts, Place, RankProgress, Sign

_LOG_FOLDER = re.compile(r"(?P<node>.*)/attempt_\d+/\d+/std(?:out|err)\.log$")
_BOTH = "launcher.root_rank"
"""A line in which torchrun itself tells both numbers."""
_TASK = "slurm.task_killed"

Node = tuple[str, str | int]
"""One node, by whatever is told of it: its name, its number, or its own folder of logs."""


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
        found = {self.firsts[node] for node in nodes if node in self.firsts}
        if not found and self.per_node is not None and local_rank < self.per_node:
            found = {int(name) * self.per_node for kind, name in nodes if kind == "number"}
        return found.pop() + local_rank if len(found) == 1 else None


def with_ranks(evidence: Evidence) -> Evidence:
    """Return evidence in which local ranks have their number in the job, where that is certain."""
    if not any(each.local_rank is not None for each in evidence.ranks):
        return evidence
    by_label = any(each.node_rank is not None for each in evidence.ranks)
    numbering = _numbering(evidence)
    ranks = [_progress(each, numbering) for each in evidence.ranks]
    signs = [_sign(each, numbering, tasks_are_nodes=by_label) for each in evidence.signs]
    return replace(evidence, signs=tuple(signs), ranks=_once(ranks))


def _numbering(evidence: Evidence) -> Numbering:
    """Return what is known of all nodes."""
    told: dict[Node, set[int]] = defaultdict(set)
    for each in evidence.ranks:
        if each.rank is not None and each.local_rank is not None:
            for node in _nodes(each, each.source):
                told[node].add(each.rank - each.local_rank)
    for sign in evidence.signs:
        if sign.signature == _BOTH and sign.place.rank is not None and sign.place.local_rank is not None:
            for node in _nodes(sign.place, sign.source):
                told[node].add(sign.place.rank - sign.place.local_rank)
    firsts = {node: next(iter(found)) for node, found in told.items() if len(found) == 1 and min(found) >= 0}
    per_node = _per_node(evidence)
    if per_node is not None and any(
        kind == "number" and told[kind, name] != {int(name) * per_node} for kind, name in told
    ):
        per_node = None
    return Numbering(firsts=firsts, per_node=per_node, is_one_node=_is_one_node(evidence.job))


def _is_one_node(job: JobFacts | None) -> bool:
    """Tell whether Slurm says that all ran on one node."""
    return job is not None and len(job.nodes) == 1


def _per_node(evidence: Evidence) -> int | None:
    """Return how many ranks each node has: by Slurm, else by the labels where a node shows all up to the highest."""
    job = evidence.job
    shown: dict[Node, set[int]] = defaultdict(set)
    for each in evidence.ranks:
        if each.local_rank is not None:
            for node in _nodes(each, each.source):
                shown[node].add(each.local_rank)
    highest = max((max(found) for found in shown.values()), default=0)
    if job is not None and job.tasks and job.nodes and job.tasks % len(job.nodes) == 0:
        count = job.tasks // len(job.nodes)
        if count > highest and count > 1:
            return count
    whole = any(found == set(range(highest + 1)) for found in shown.values())
    return highest + 1 if highest and whole else None


def _nodes(place: Place | RankProgress, source: str) -> tuple[Node, ...]:
    """Return all that is told of the node of a place."""
    found: list[Node] = []
    if place.node:
        found.append(("name", place.node))
    if place.node_rank is not None:
        found.append(("number", place.node_rank))
    if (folder := _LOG_FOLDER.match(source)) is not None:
        found.append(("folder", folder["node"]))
    return tuple(found)


def _progress(progress: RankProgress, numbering: Numbering) -> RankProgress:
    if progress.rank is not None or progress.local_rank is None:
        return progress
    return replace(progress, rank=numbering.rank_of(progress.local_rank, _nodes(progress, progress.source)))


def _sign(sign: Sign, numbering: Numbering, *, tasks_are_nodes: bool) -> Sign:
    """Return a sign with its rank; what Slurm calls a task is a node where each task is torchrun."""
    place = sign.place
    if sign.signature == _TASK and tasks_are_nodes:
        tasks = sign.fields.get("tasks", "")
        number = int(tasks) if tasks.isdecimal() and len(tasks) < 9 else None
        return replace(sign, place=replace(place, rank=None, node_rank=number))
    if place.rank is not None or place.local_rank is None:
        return sign
    return replace(sign, place=replace(place, rank=numbering.rank_of(place.local_rank, _nodes(place, sign.source))))


def _once(ranks: Iterable[RankProgress]) -> tuple[RankProgress, ...]:
    """Return each rank of a log once: some of its lines may have told its number, and others not."""
    found: dict[tuple[object, ...], RankProgress] = {}
    for number, each in enumerate(ranks):
        key = (each.source, each.rank) if each.rank is not None else (number,)
        known = found.get(key)
        found[key] = each if known is None else _both(known, each)
    return tuple(found.values())


def _both(one: RankProgress, other: RankProgress) -> RankProgress:
    """Return what two parts of one rank's lines tell."""
    first, second = (one, other) if one.last_iteration is not None or other.last_iteration is None else (other, one)
    later = max(first, second, key=lambda each: each.last_line_s or 0.0)
    return replace(
        first, node=first.node or second.node, pci=first.pci or second.pci, last_line_s=later.last_line_s,
        last_text=later.last_text, lines=first.lines + second.lines,
        gpu_index=first.gpu_index if first.gpu_index is not None else second.gpu_index,
    )  # fmt: skip
