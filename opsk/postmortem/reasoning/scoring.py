"""How likely was each candidate the first? Odds of its best sign, changed by what speaks for and against it.

Odds, not sums: a factor of 3 for what makes a candidate three times as likely as another with the same sign. They are
divided by the odds of all candidates and of a cause that left no sign. Every factor is a step of the reasoning that the
report shows. The numbers are our judgement, held against planted causes by ``tests/opsk/postmortem``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from opsk.postmortem.reasoning.candidate import ENDS_JOB, Candidate
from opsk.postmortem.reasoning.places import Seating, same_gpu, words
from opsk.postmortem.values import Cause, Divergence, Evidence, FailureClass, Origin, Role, Sign

_WITHIN_S = 120.0
_FOLLOWS = frozenset(("43", "45", "109"))
"""Xids that a fault of a program can leave behind; all else of this class is the GPU's own."""
_OF_GPUS = (FailureClass.GPU_HARDWARE, FailureClass.NVLINK)


class Judged(Protocol):
    """A candidate with odds that can be changed."""

    @property
    def candidate(self) -> Candidate:
        """Return the candidate."""

    def times(self, factor: float, why: str) -> None:
        """Change the odds for a reason."""


def order_faults(scores: Sequence[Judged]) -> None:
    """Lower the odds of what follows from another fault of the same GPU."""
    for one in scores:
        for other in scores:
            if one is other or not _on_one_gpu(one.candidate, other.candidate):
                continue
            if _left_behind(one.candidate, other.candidate):
                other.times(0.08, f"on the same GPU {one.candidate.what} came before, which can leave this behind")
            elif _broke(one.candidate, other.candidate):
                other.times(0.1, f"the kernel tells of this GPU: {one.candidate.what}")


def _on_one_gpu(one: Candidate, other: Candidate) -> bool:
    """Tell whether two candidates are of one GPU at one time."""
    here, there = one.place, other.place
    if one.first_s is not None and other.first_s is not None and abs(one.first_s - other.first_s) > _WITHIN_S:
        return False
    is_same = same_gpu(here.pci, there.pci) or (here.rank is not None and here.rank == there.rank)
    return is_same and (not here.node or not there.node or here.node == there.node)


def _xids(candidate: Candidate) -> list[Sign]:
    """Return the Xids of the kernel that a candidate has."""
    return [sign for sign in candidate.signs if sign.signature == "kernel.xid" and sign.origin is Origin.KERNEL]


def _left_behind(program: Candidate, hardware: Candidate) -> bool:
    """Tell whether a GPU's fault is what a program's fault left behind."""
    if program.failure is not FailureClass.SOFTWARE or hardware.failure is not FailureClass.GPU_HARDWARE:
        return False
    before, after = _xids(program), _xids(hardware)
    if not before or not after or len(after) < len(hardware.signs):
        return False
    first = min((sign.time_s or 0.0 for sign in before), default=0.0)
    return all(sign.fields.get("code") in _FOLLOWS and (sign.time_s or 0.0) >= first for sign in after)


def _broke(hardware: Candidate, program: Candidate) -> bool:
    """Tell whether a program's error is that of hardware which the kernel tells of."""
    if hardware.failure not in _OF_GPUS or program.failure is not FailureClass.SOFTWARE or _xids(program):
        return False
    told = [sign for sign in hardware.signs if sign.origin is Origin.KERNEL]
    return any(sign.fields.get("code") not in _FOLLOWS for sign in told)


ODDS_OF_NO_SIGN = 0.12
"""Of a cause that nothing tells of."""
NEAR_S = 120.0
"""Signs of one failure on one node come within so long [s]."""
_SURVIVED = 0.001
"""What training went on after did not end it: with nothing else told, nothing is named."""
_GOES_ON_S = 90.0
"""Training that still goes on so long after a sign was not ended by it [s]."""
_EARLIER_S = 2.5
"""Less than this between two nodes is no order: clocks differ [s]."""
_SURE = 0.985
"""No confidence is larger: what is not looked at may always be."""
_AT_START = frozenset((FailureClass.CONFIG, FailureClass.RENDEZVOUS))
_REACTION_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What is known besides the candidates.

    Parameters
    ----------
    progress_s
        When training last went on, by any rank [s since 1970].
    first_progress_s
        When training began to go on.
    hang_s
        When ranks began to wait for a collective that never ended.
    error_s
        How far clocks may be off.
    """

    evidence: Evidence
    signs: Sequence[Sign]
    divergence: Divergence | None
    seating: Seating
    progress_s: float | None
    hang_s: float | None
    first_progress_s: float | None
    error_s: float


@dataclass(slots=True)
class _Score:
    """Odds of one candidate, and the steps that they came from."""

    candidate: Candidate
    odds: float
    why: list[str]

    def times(self, factor: float, why: str) -> None:
        """Change the odds for a reason."""
        self.odds *= factor
        self.why.append(f"{why} (× {factor:g})")


def judged(candidates: Sequence[Candidate], scene: Scene) -> list[Cause]:
    """Return candidates as causes with their probabilities, the likeliest first."""
    scores = [_scored(candidate, scene) for candidate in candidates]
    order_faults(scores)
    _compare(scores, scene)
    _react(scores, scene)
    total = sum(score.odds for score in scores) + ODDS_OF_NO_SIGN
    causes = [
        Cause(
            failure=score.candidate.failure,
            what=score.candidate.what,
            where=score.candidate.place,
            confidence=min(_SURE, score.odds / total),
            why=tuple(score.why),
            signs=score.candidate.signs,
        )
        for score in scores
    ]
    return sorted(causes, key=lambda cause: -cause.confidence)


def _scored(candidate: Candidate, scene: Scene) -> _Score:
    """Return the odds of one candidate for itself."""
    base = min(candidate.base, 0.99)
    score = _Score(candidate, base / (1 - base), [f"{candidate.what}, {words(candidate.place)}: {base:.0%} by itself"])
    _against_progress(score, scene)
    _against_start(score, scene)
    _against_waiting(score, scene)
    if candidate.source != "hang":  # its signs are all one thing
        _with_confirmations(score, scene)
    _by_origin(score)
    return score


def _against_progress(score: _Score, scene: Scene) -> None:
    """Training that went on after a sign was not ended by it."""
    candidate = score.candidate
    if candidate.source != "signs" or candidate.failure in ENDS_JOB or not candidate.signs:
        return
    orders = {each.source: each.last_progress_order for each in scene.evidence.ranks if each.last_progress_order}
    steps = [(orders.get(sign.source), max(sign.order, sign.last_order)) for sign in candidate.signs]
    if any(step is not None and step < order for step, order in steps):
        return  # it stands behind the last step of its own log, whatever clocks and zones say
    ends = [_end_of(sign) for sign in candidate.signs]
    known = [at for at in ends if at is not None]
    if known and len(known) == len(ends) and scene.progress_s is not None:
        if scene.progress_s > max(known) + _GOES_ON_S:
            score.times(_SURVIVED, "training went on after it")
            return
        if scene.first_progress_s is not None and max(known) < scene.first_progress_s < scene.progress_s:
            score.times(_SURVIVED, "training had not begun then, and did begin")
            return
    if all(step is not None and step > order for step, order in steps):
        score.times(_SURVIVED, "training went on after it, further down in the log")


def _against_start(score: _Score, scene: Scene) -> None:
    """What keeps a job from starting did not, where training had begun."""
    candidate = score.candidate
    if candidate.source != "signs" or candidate.failure not in _AT_START or scene.progress_s is None:
        return
    after = any(sign.time_s is not None and sign.time_s > scene.progress_s - _EARLIER_S for sign in candidate.signs)
    score.times(0.5 if after else 0.08, "training had begun, and such things show at the start")


def _end_of(sign: Sign) -> float | None:
    """Return when a sign had surely been seen for the last time."""
    last = sign.last_time_s if sign.last_time_s is not None else sign.time_s
    return last if last is not None else sign.latest_s


def _against_waiting(score: _Score, scene: Scene) -> None:
    """A rank that waited for the others until its time was up had not died before."""
    candidate, parted = score.candidate, scene.divergence
    if parted is None or candidate.source in ("hang", "end") or candidate.place.rank is None:
        return
    local = candidate.failure in (FailureClass.GPU_MEMORY, FailureClass.SOFTWARE, FailureClass.HOST_MEMORY)
    if candidate.place.rank in parted.waiting and local:
        score.times(0.3, "this rank itself waited for a collective until its time was up")
    if candidate.place.rank in (*parted.behind, *parted.never_arrived):
        score.times(3.0, "this is the rank that the others waited for")


def _with_confirmations(score: _Score, scene: Scene) -> None:
    """What else was seen at the same place and time."""
    candidate = score.candidate
    node, first = candidate.place.node, candidate.first_s
    others = [
        sign
        for sign in scene.signs
        if sign.role in (Role.CONFIRMATION, Role.ROOT)
        and sign not in candidate.signs
        and (sign.failure is candidate.failure or sign.origin in (Origin.KERNEL, Origin.GPU, Origin.CGROUP))
        and (not node or _node(sign, scene) in ("", node))
        and (first is None or sign.time_s is None or abs(sign.time_s - first) <= NEAR_S)
    ]
    same = {sign.signature for sign in others if sign.failure is candidate.failure and _node(sign, scene) == node}
    same -= {sign.signature for sign in candidate.signs}
    if same:
        score.times(min(4.0, 1.5 ** len(same)), f"{', '.join(sorted(same))} say the same of this place")
    kinds = {sign.signature for sign in candidate.signs}
    if len(kinds) > 1:
        score.times(
            min(4.0, 1.6 ** (len(kinds) - 1)), f"{len(kinds)} different signs agree: {', '.join(sorted(kinds))}"
        )
    if scene.divergence is not None and node:
        culprits = (*scene.divergence.behind, *scene.divergence.never_arrived)
        nodes = {scene.seating.node.get(rank, "") for rank in culprits} - {""}
        if node in nodes and len(nodes) == 1 and candidate.place.rank is None:
            score.times(2.5, "the rank that the others waited for is on this node")


def _node(sign: Sign, scene: Scene) -> str:
    """Return the node of a sign."""
    rank = sign.place.rank
    return sign.place.node or (scene.seating.node.get(rank, "") if rank is not None else "")


def _by_origin(score: _Score) -> None:
    """What the kernel and Slurm say weighs more than what a program prints."""
    origins = {sign.origin for sign in score.candidate.signs}
    if origins & {Origin.KERNEL, Origin.SLURM, Origin.GPU, Origin.CGROUP}:
        score.times(1.5, "the kernel, the GPU or Slurm itself says so")


def _compare(scores: Sequence[_Score], scene: Scene) -> None:
    """What came first can have led to what came later; hangs and ends follow from all."""
    timed = [score for score in scores if score.candidate.first_s is not None and score.candidate.source == "signs"]
    alive = [score for score in timed if score.odds > 0.2]
    for score in scores:
        at = score.candidate.first_s
        if at is None or score.candidate.source != "signs":
            continue
        margin = _EARLIER_S + scene.error_s * _differs(score, alive)
        before = [each for each in alive if each is not score and (each.candidate.first_s or 0.0) < at - margin]
        if before:
            first = min(before, key=lambda each: each.candidate.first_s or 0.0)
            gap = at - (first.candidate.first_s or at)
            score.times(max(0.12, 0.5 * math.exp(-gap / 30.0)), f"{first.candidate.what} came {gap:.0f} s before")
    _hangs_follow(scores, scene)


def _differs(score: _Score, others: Sequence[_Score]) -> float:
    """Return 1 where others are on other nodes, whose clocks count; 0 where all are on one."""
    nodes = {each.candidate.place.node for each in (*others, score)}
    return 1.0 if len(nodes) > 1 else 0.0


def _hangs_follow(scores: Sequence[_Score], scene: Scene) -> None:
    """A hang is what any failure looks like to the others: it counts where nothing else tells of its beginning."""
    hangs = [score for score in scores if score.candidate.source == "hang"]
    others = [
        score
        for score in scores
        if score.candidate.source != "hang"
        and score.candidate.failure not in ENDS_JOB
        and score.odds > 0.3
        and _before_end_of(score, hangs)
    ]
    for hang in hangs:
        if others:
            best = max(others, key=lambda each: each.odds)
            hang.times(0.08, f"that ranks wait follows from: {best.candidate.what}")
        else:
            _alone(hang, scene)


def _alone(hang: _Score, scene: Scene) -> None:
    """Judge a hang that nothing explains: is all there that could?"""
    parted, logged = scene.divergence, {each.rank for each in scene.evidence.ranks}
    culprits = (parted.behind or parted.never_arrived) if parted is not None else ()
    if culprits and not set(culprits) & logged:
        hang.times(0.02, "of the ranks that did not come there is no log: what they said may be the cause")
    elif not culprits:
        hang.times(0.02, "which rank did not come is not known, and what it said may be the cause")
    else:
        hang.why.append("the ranks that did not come are known, and say nothing of a failure")
        if not (parted and parted.behind) and "kernel_log" not in scene.evidence.gathered:
            hang.times(0.25, "no kernel log is at hand: a GPU, link or node that failed would look the same")


def _before_end_of(score: _Score, hangs: Sequence[_Score]) -> bool:
    """Tell whether something began before ranks gave up waiting."""
    at = score.candidate.first_s
    ends = [hang.candidate.first_s for hang in hangs if hang.candidate.first_s is not None]
    return at is None or not ends or at <= min(ends) + _EARLIER_S


def _react(scores: Sequence[_Score], scene: Scene) -> None:
    """Who cancels a job that hangs, or waits until its time is up, reacts; what made it hang came first."""
    ends = [score for score in scores if score.candidate.failure in ENDS_JOB]
    for end in ends:
        at = end.candidate.first_s
        earlier = [
            score
            for score in scores
            if score.candidate.failure not in ENDS_JOB
            and (score.odds > 0.8 or score.candidate.source == "hang")
            and at is not None
            and (score.candidate.first_s is None or score.candidate.first_s < at - _EARLIER_S)
        ]
        if not earlier or end.candidate.failure is FailureClass.PREEMPTED:
            for score in scores:
                if score.candidate.failure not in ENDS_JOB and _is_after(score, at):
                    score.times(0.1, "it came after the job was ended")
            continue
        best = max(earlier, key=lambda score: score.odds)
        went_on = scene.progress_s is not None and at is not None and scene.progress_s > at - _REACTION_S
        if went_on:
            for score in earlier:
                score.times(0.1, "training went on until the job was ended")
        else:
            end.times(0.01 if best.candidate.source == "hang" else 0.05, f"before it: {best.candidate.what}")


def _is_after(score: _Score, at: float | None) -> bool:
    """Tell whether a candidate came at the end of the job or after."""
    first = score.candidate.first_s
    return at is not None and (first is None or first >= at - _EARLIER_S)
