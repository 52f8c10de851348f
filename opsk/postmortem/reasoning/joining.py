"""Which candidates are one failure told of in several ways, and which are the same everywhere?"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from opsk.postmortem.reasoning.candidate import ENDS_JOB, ENDS_OF_PROCESSES, JOB_WIDE, Candidate, first_of, order_of
from opsk.postmortem.reasoning.places import identity, joined, same_gpu
from opsk.postmortem.values import FailureClass, Place

_NUMBERS = re.compile(r"[\d.]+")
_NEAR_S = 300.0
_TOGETHER_S = 5.0
"""Ranks that say the same within so long say it of the job, not of themselves."""
_MANY = 0.5
"""Share of the ranks from which on the same text says nothing of a place."""
_FEW_OF_STORAGE = 2
"""Ranks that fail on files at one moment share the file system, not a fault of their own."""
_OF_A_PROCESS = (FailureClass.HOST_MEMORY,)


def joined_candidates(
    found: Sequence[Candidate], world: int, victim: Place, per_node: int | None = None
) -> list[Candidate]:
    """Return candidates of which no two are the same failure."""
    by_class: dict[FailureClass, list[Candidate]] = defaultdict(list)
    for candidate in found:
        by_class[candidate.failure].append(candidate)
    return [each for failure, alike in by_class.items() for each in _of_class(failure, alike, world, victim, per_node)]


def _of_class(
    failure: FailureClass, alike: list[Candidate], world: int, victim: Place, per_node: int | None
) -> list[Candidate]:
    """Join the candidates of one class."""
    alike = _spread(_folded(alike), world, per_node)
    is_end = all(sign.signature in ENDS_OF_PROCESSES for each in alike for sign in each.signs)
    if (failure in _OF_A_PROCESS or is_end) and len(alike) == 1 and victim.rank is not None:
        only = alike[0]
        if only.place.rank is None and only.place.node in ("", victim.node):
            return [replace(only, place=joined([only.place, victim]))]
    return alike


def _folded(alike: list[Candidate]) -> list[Candidate]:
    """Fold what says less of a place into what says more of the same, nearest in time first."""
    exact = sorted(alike, key=lambda each: (-_detail(each.place), each.first_s or float("inf")))
    kept: list[Candidate] = []
    for candidate in exact:
        fits = [index for index, other in enumerate(kept) if _are_one(candidate, other)]
        if len({_where(kept[index].place) for index in fits}) == 1:
            index = min(fits, key=lambda each: _gap(kept[each], candidate))
            kept[index] = _both(kept[index], candidate)
        else:
            kept.append(candidate)
    return kept


def _detail(place: Place) -> int:
    """Return how much is known of a place."""
    return 4 * (bool(identity(place)) or bool(place.pci)) + 2 * bool(place.node) + bool(place.hca)


def _where(place: Place) -> tuple[object, ...]:
    """Return what tells two places apart."""
    return place.node, *identity(place)


def _are_one(less: Candidate, more: Candidate) -> bool:
    """Tell whether two candidates of a class can be one failure: places agree, and times are near."""
    if less.failure not in ENDS_JOB and _gap(less, more) > _NEAR_S and "slurm" not in (less.source, more.source):
        return False
    for name in ("node", "rank"):
        one, other = getattr(less.place, name), getattr(more.place, name)
        if one not in ("", None) and other not in ("", None) and one != other:
            return False
    numbers = {each.place.local_rank for each in (less, more) if each.place.rank is None} - {None}
    if len(numbers) > 1:
        return False
    return not (less.place.pci and more.place.pci) or same_gpu(less.place.pci, more.place.pci)


def _gap(one: Candidate, other: Candidate) -> float:
    """Return how far two candidates lie apart [s]; 0 where that is not known."""
    if one.first_s is None or other.first_s is None:
        return 0.0
    return abs(one.first_s - other.first_s)


def _both(one: Candidate, other: Candidate) -> Candidate:
    """Return two candidates as one."""
    signs = tuple(sorted((*one.signs, *other.signs), key=order_of))
    best = one if one.base >= other.base else other
    starts = [each.first_s for each in (one, other) if each.first_s is not None and each.source != "slurm"]
    first = min(starts, default=first_of(signs) if first_of(signs) is not None else one.first_s or other.first_s)
    what = next((each.what for each in (one, other) if each.source == "slurm" and one.failure in ENDS_JOB), best.what)
    source = "slurm" if "slurm" in (one.source, other.source) else one.source
    return Candidate(
        failure=one.failure, place=joined([one.place, other.place]), signs=signs, base=max(one.base, other.base),
        first_s=first, what=what, source=source,
    )  # fmt: skip


def _spread(found: list[Candidate], world: int, per_node: int | None) -> list[Candidate]:
    """Join what many ranks say alike at one time: it is of the job, or of the one that said it clearly first."""
    by_kind: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in found:
        by_kind[_kind(candidate)].append(candidate)
    kept: list[Candidate] = []
    for alike in by_kind.values():
        if len(alike) < 2 or alike[0].failure in JOB_WIDE:
            kept += alike
            continue
        kept += _as_one(alike, world, per_node)
    return kept


def _kind(candidate: Candidate) -> str:
    """Return what candidates of several ranks must share to say the same."""
    first = candidate.signs[0] if candidate.signs else None
    if first is None:
        return ""
    return f"{first.signature} {first.fields.get('type', '')} {_NUMBERS.sub('', first.fields.get('message', ''))[:40]}"


def _as_one(alike: list[Candidate], world: int, per_node: int | None) -> list[Candidate]:
    """Return one candidate for what several ranks say, where it is the same moment; else all."""
    ranks = {identity(each.place) for each in alike} - {()}
    nodes = {each.place.node for each in alike}
    timed = sorted(each.first_s for each in alike if each.first_s is not None)
    one_moment = not timed or timed[-1] - timed[0] <= _TOGETHER_S
    on_one_node = len(nodes) == 1 and "" not in nodes
    enough = len(ranks) >= max(2, _MANY * (per_node or world if on_one_node else world))
    if alike[0].failure is FailureClass.STORAGE:
        enough = len(ranks) >= _FEW_OF_STORAGE
        on_one_node = on_one_node and len(ranks) >= _MANY * (per_node or world)
    if not (one_moment and enough):
        return alike
    first = min(alike, key=lambda each: each.first_s if each.first_s is not None else float("inf"))
    return [
        replace(
            first,
            place=Place(node=nodes.pop()) if on_one_node and len(ranks) < world else Place(),
            signs=tuple(sign for each in alike for sign in each.signs),
            base=max(each.base for each in alike),
            what=f"{first.what} (on {len(ranks)} ranks)",
        )
    ]
