"""What happened in which order, across ranks and nodes? The moments that matter, in one clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from opsk.postmortem.reasoning.meanings import meaning
from opsk.postmortem.values import Cause, Evidence, Moment, Place, Role, Sign

MOST = 60
"""Moments of a timeline; of cascades the first of each kind are enough."""
_PER_KIND = 4
_SHOWN = ("process.killed",)
"""It proves nothing, and is what an end without a word looks like."""


def timeline_of(evidence: Evidence, signs: Sequence[Sign], root: Cause | None) -> tuple[Moment, ...]:
    """Return the timeline, oldest first; what carries no time stands where its log has it, at the end."""
    moments = [*_of_job(evidence), *_of_progress(evidence), *_of_signs(signs, root)]
    known = sorted((each for each in moments if each.time_s is not None), key=lambda each: each.time_s or 0.0)
    unknown = [each for each in moments if each.time_s is None]
    return tuple((*known, *unknown)[:MOST])


def _of_job(evidence: Evidence) -> list[Moment]:
    """Return the job's beginning and end."""
    job = evidence.job
    if job is None:
        return []
    found = [Moment(time_s=job.start_s, what="the job started", role=Role.PROGRESS)] if job.start_s is not None else []
    if job.end_s is not None:
        found.append(Moment(time_s=job.end_s, what=f"the job ended: {job.state or 'state unknown'}", role=Role.END))
    return found


def _of_progress(evidence: Evidence) -> list[Moment]:
    """Return the last step that anybody told of."""
    told = [each for each in evidence.ranks if each.last_iteration is not None]
    if not told:
        return []
    last = max(told, key=lambda each: (each.last_progress_s or 0.0, each.last_iteration or 0))
    return [
        Moment(
            time_s=last.last_progress_s,
            what=f"iteration {last.last_iteration} was the last that was told",
            place=Place(rank=last.rank, local_rank=last.local_rank, node_rank=last.node_rank, node=last.node),
            role=Role.PROGRESS,
        )
    ]


def _of_signs(signs: Sequence[Sign], root: Cause | None) -> list[Moment]:
    """Return the signs that tell the story: those of the root, and the first of each other kind."""
    of_root = {id(sign) for sign in root.signs} if root is not None else set()
    counts: dict[str, int] = {}
    totals = Counter(sign.signature for sign in signs if sign.role not in (Role.ADVICE, Role.PROGRESS))
    found = []
    for sign in sorted(signs, key=lambda each: each.time_s if each.time_s is not None else float("inf")):
        if sign.role in (Role.ADVICE, Role.PROGRESS) and sign.signature not in _SHOWN:
            continue
        counts[sign.signature] = counts.get(sign.signature, 0) + 1
        if counts[sign.signature] <= _PER_KIND or (id(sign) in of_root and counts[sign.signature] <= 2 * _PER_KIND):
            is_first_of_many = counts[sign.signature] == 1 and totals[sign.signature] > _PER_KIND
            more = f" (the first of {totals[sign.signature]})" if is_first_of_many else ""
            found.append(
                Moment(time_s=sign.time_s, what=meaning(sign) + more, place=sign.place, role=sign.role, sign=sign)
            )
    return found
