"""Joins candidates that are one failure: of one place and time, of all ranks at once, or at both ends of a link."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from opsk.postmortem.reasoning.candidate import ENDS_JOB, JOB_WIDE, PROCESS_ENDS, Candidate, find_first_s, sort_key
from opsk.postmortem.reasoning.places import is_same_gpu, merge_places, rank_identity
from opsk.postmortem.values import FailureClass, Place

_NUMBERS = re.compile(r"[\d.]+")
_NEAR_S = 300.0
_TOGETHER_S = 5.0
"""Ranks that print the same within this time report on the job, not on themselves [s]."""
_MANY = 0.5
"""Share of the ranks from which on the same text does not identify a place."""
_FEW_OF_STORAGE = 2
"""Ranks that fail on files at one moment share the file system, not a fault of their own."""
_ONE_CAUSE = frozenset((FailureClass.GPU_MEMORY, FailureClass.SOFTWARE, FailureClass.CONFIG, FailureClass.NUMERIC))
"""What several ranks say of these at one moment, in the same words, is one cause."""
_MAX_RANKS = 256
_OF_A_PROCESS = (FailureClass.HOST_MEMORY,)


def join_candidates(
    candidates: Sequence[Candidate], world: int, victim: Place, per_node: int | None = None
) -> list[Candidate]:
    """Return candidates of which no two are the same failure."""
    by_class: dict[FailureClass, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        by_class[candidate.failure].append(candidate)
    return [
        each for failure, similar in by_class.items() for each in _join_class(failure, similar, world, victim, per_node)
    ]


def _join_class(
    failure: FailureClass, similar: list[Candidate], world: int, victim: Place, per_node: int | None
) -> list[Candidate]:
    """Join the candidates of one class."""
    similar = _join_spread(_fold(similar), world, per_node)
    if failure is FailureClass.NVLINK:
        similar = _join_gpus(similar)
    is_end = all(finding.signature in PROCESS_ENDS for each in similar for finding in each.findings)
    if (failure in _OF_A_PROCESS or is_end) and len(similar) == 1 and victim.rank is not None:
        only = similar[0]
        if only.place.rank is None and only.place.node in ("", victim.node):
            return [replace(only, place=merge_places([only.place, victim]))]
    return similar


def _fold(similar: list[Candidate]) -> list[Candidate]:
    """Merge candidates with less detailed places into those with more, nearest in time first."""
    exact = sorted(similar, key=lambda each: (-_detail(each.place), each.first_s or float("inf")))
    folded: list[Candidate] = []
    for candidate in exact:
        fits = [index for index, other in enumerate(folded) if _are_same(candidate, other)]
        if len({_place_key(folded[index].place) for index in fits}) == 1:
            index = min(fits, key=lambda each: _gap_s(folded[each], candidate))
            folded[index] = _merge(folded[index], candidate)
        else:
            folded.append(candidate)
    return folded


def _detail(place: Place) -> int:
    """Return how much is known of a place."""
    return 4 * (bool(rank_identity(place)) or bool(place.pci)) + 2 * bool(place.node) + bool(place.hca)


def _place_key(place: Place) -> tuple[object, ...]:
    """Return the key that distinguishes two places."""
    return place.node, *rank_identity(place)


def _are_same(less: Candidate, more: Candidate) -> bool:
    """Return whether two candidates of a class can be one failure: places agree, and times are near."""
    if less.failure not in ENDS_JOB and _gap_s(less, more) > _NEAR_S and "slurm" not in (less.source, more.source):
        return False
    for name in ("node", "rank"):
        first_value, second_value = getattr(less.place, name), getattr(more.place, name)
        if first_value not in ("", None) and second_value not in ("", None) and first_value != second_value:
            return False
    numbers = {each.place.local_rank for each in (less, more) if each.place.rank is None} - {None}
    if len(numbers) > 1:
        return False
    return not (less.place.pci and more.place.pci) or is_same_gpu(less.place.pci, more.place.pci)


def _gap_s(first: Candidate, second: Candidate) -> float:
    """Return how far two candidates lie apart [s]; 0 where that is not known."""
    if first.first_s is None or second.first_s is None:
        return 0.0
    return abs(first.first_s - second.first_s)


def _merge(left: Candidate, right: Candidate) -> Candidate:
    """Return two candidates as one."""
    findings = tuple(sorted((*left.findings, *right.findings), key=sort_key))
    best = left if left.base >= right.base else right
    starts = [each.first_s for each in (left, right) if each.first_s is not None and each.source != "slurm"]
    first = min(
        starts, default=find_first_s(findings) if find_first_s(findings) is not None else left.first_s or right.first_s
    )
    what = next((each.what for each in (left, right) if each.source == "slurm" and left.failure in ENDS_JOB), best.what)
    source = "slurm" if "slurm" in (left.source, right.source) else left.source
    return Candidate(
        failure=left.failure, place=merge_places([left.place, right.place]), findings=findings,
        base=max(left.base, right.base), first_s=first, what=what, source=source,
    )  # fmt: skip


def _join_spread(candidates: list[Candidate], world: int, per_node: int | None) -> list[Candidate]:
    """Join equal failures of many ranks at one time: they belong to the job, or to the one that printed first."""
    by_kind: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        by_kind[_similarity_key(candidate)].append(candidate)
    joined: list[Candidate] = []
    for similar in by_kind.values():
        if len(similar) < 2 or similar[0].failure in JOB_WIDE:
            joined += similar
            continue
        joined += _join_ranks(similar, world, per_node)
    return joined


def _join_gpus(candidates: list[Candidate]) -> list[Candidate]:
    """Join NVLink faults of several GPUs of one node at one time: one end of a link cannot tell its own fault."""
    by_node: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        by_node[candidate.place.node].append(candidate)
    joined: list[Candidate] = []
    for node, those in by_node.items():
        timed = sorted(each.first_s for each in those if each.first_s is not None)
        gpus = {each.place.pci for each in those} - {""}
        if len(gpus) < 2 or len(gpus) < len(those) or (timed and timed[-1] - timed[0] > _TOGETHER_S):
            joined += those
            continue
        first = min(those, key=lambda each: each.first_s if each.first_s is not None else float("inf"))
        findings = tuple(sorted((finding for each in those for finding in each.findings), key=sort_key))
        base, what = max(each.base for each in those), f"{first.what} (on {len(gpus)} GPUs)"
        joined.append(replace(first, place=Place(node=node), findings=findings, base=base, what=what))
    return joined


def _similarity_key(candidate: Candidate) -> str:
    """Return the key that candidates of several ranks share when they print the same."""
    first = candidate.findings[0] if candidate.findings else None
    if first is None:
        return ""
    return f"{first.signature} {first.fields.get('type', '')} {_NUMBERS.sub('', first.fields.get('message', ''))[:40]}"


def _join_ranks(similar: list[Candidate], world: int, per_node: int | None) -> list[Candidate]:
    """Return one candidate for the same failure on several ranks, where it is the same moment; else all."""
    ranks = {rank_identity(each.place) for each in similar} - {()}
    nodes = {each.place.node for each in similar}
    timed = sorted(each.first_s for each in similar if each.first_s is not None)
    is_simultaneous = not timed or timed[-1] - timed[0] <= _TOGETHER_S
    is_single_node = len(nodes) == 1 and "" not in nodes
    enough = len(ranks) >= max(2, _MANY * (per_node or world if is_single_node else world))
    if similar[0].failure is FailureClass.STORAGE:
        enough = len(ranks) >= _FEW_OF_STORAGE
        is_single_node = is_single_node and len(ranks) >= _MANY * (per_node or world)
    is_of_few = False
    if similar[0].failure in _ONE_CAUSE:
        numbered = max([world, *(each.place.rank + 1 for each in similar if each.place.rank is not None)])
        is_of_few = len(ranks) < _MANY * numbered
        enough = len(ranks) >= 2
    if not (is_simultaneous and enough):
        return similar
    first = min(similar, key=lambda each: each.first_s if each.first_s is not None else float("inf"))
    numbers = sorted({each.place.rank for each in similar if each.place.rank is not None})
    is_part = len(ranks) < world or bool(numbers and numbers[-1] >= len(numbers))
    place = Place(node=nodes.pop()) if is_single_node and is_part else Place()
    if is_of_few:  # the first of them is named, too
        place = replace(first.place, gpu_index=None, pci="") if first.place.rank is not None else place
    return [
        replace(
            first,
            place=replace(place, ranks=tuple(numbers[:_MAX_RANKS])),
            findings=tuple(finding for each in similar for finding in each.findings),
            base=max(each.base for each in similar),
            what=f"{first.what} (on {len(ranks)} ranks)",
        )
    ]
