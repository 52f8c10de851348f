"""Computes how likely each candidate was the first: odds of its best sign, changed by what supports or contradicts it.

Odds, not sums: a factor of 3 stands for what makes a candidate three times as likely as another with the same sign.
They are divided by the odds of all candidates and of a cause that left no sign. The report shows every factor as a step
of the reasoning. The numbers are estimates, checked against planted causes by ``tests/opsk/postmortem``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from opsk.postmortem.logs.levels import find_level
from opsk.postmortem.reasoning.candidate import ENDS_JOB, Candidate
from opsk.postmortem.reasoning.filtering import is_of_settings
from opsk.postmortem.reasoning.gpu_faults import is_quoted, order_faults
from opsk.postmortem.reasoning.places import RankPlacement
from opsk.postmortem.reasoning.steps import LastSteps
from opsk.postmortem.values import Cause, Divergence, Evidence, FailureClass, Finding, Origin, Role

ODDS_OF_NO_FINDING = 0.12
"""Odds of a cause without any finding."""
NEAR_S = 120.0
"""Findings of one failure on one node come within this time [s]."""
_SURVIVED = 0.001
"""A finding that training survived did not end it: with nothing else, no cause is named."""
_GOES_ON_S = 90.0
"""Training that still progresses this long after a finding was not ended by it [s]."""
_EARLIER_S = 2.5
"""Less than this between two nodes is no order: clocks differ [s]."""
_SURE = 0.985
"""The upper limit of confidence: evidence that was not gathered may always exist."""
_BARE_EXCEPTION = 0.65
"""The upper limit of confidence where a Python exception is all that speaks: two of three are the program's own."""
_EXCEPTION_BY_WORDS = 0.58
"""The same where only its words hint at the configuration: of 13 such in outputs of other clusters, 8 were that."""
_UNLOGGED = 0.0165
"""A hang whose culprits left no log: mostly the symptom of what they said there."""
_LOST_LOG = 0.01
"""The same where other ranks left logs of their own: of planted failures without their log one of six was a hang."""
_NO_KERNEL_LOG = 0.025
"""Ranks that did not come and say nothing, and no kernel log: one of seven of those was no more than a hang."""
_NO_CULPRIT = 0.025
"""A hang in which all ranks there are waited: of those whose cause left no word one of four was no more than a hang."""
_ONLY_QUOTED = 0.3
"""A line of the kernel that a program prints: by an epilog, as a rule, yet anybody can print it."""
_ONLY_WARNED = 0.1
"""What was logged at level WARNING and at no other: seldom the end, and less likely than any exception."""
_INLINE, _OF_A_LOOK = "<string>", 0.05
"""Where Python says that the program of ``-c`` is; alone it is still named, and less likely than all else."""
_AT_START = frozenset((FailureClass.CONFIG, FailureClass.RENDEZVOUS))
_REACTION_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The facts besides the candidates.

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
    findings: Sequence[Finding]
    divergence: Divergence | None
    placement: RankPlacement
    progress_s: float | None
    hang_s: float | None
    first_progress_s: float | None
    error_s: float


@dataclass(slots=True)
class _Score:
    """Odds of one candidate, and the steps that led to them."""

    candidate: Candidate
    odds: float
    why: list[str]

    def times(self, factor: float, why: str) -> None:
        """Change the odds for a reason."""
        self.odds *= factor
        self.why.append(f"{why} (× {factor:g})")


def score_candidates(candidates: Sequence[Candidate], scene: Scene) -> list[Cause]:
    """Return candidates as causes with their probabilities, the likeliest first."""
    scores = [_score(candidate, scene) for candidate in candidates]
    order_faults(scores)
    _weigh_order(scores, scene)
    _weigh_reactions(scores, scene)
    total = sum(score.odds for score in scores) + ODDS_OF_NO_FINDING
    causes = [
        Cause(
            failure=score.candidate.failure,
            what=score.candidate.what,
            where=score.candidate.place,
            confidence=min(_SURE, _limit_confidence(score.candidate), score.odds / total),
            why=(*score.why, _explain_confidence(score, total)),
            findings=score.candidate.findings,
        )
        for score in scores
    ]
    return sorted(causes, key=lambda cause: -cause.confidence)


def _explain_confidence(score: _Score, total: float) -> str:
    """Return the last step: how odds became a probability."""
    share = score.odds / total
    limit = _limit_confidence(score.candidate)
    if share > limit:
        return f"an exception alone does not tell whose fault it is: at most {limit:.0%}"
    others = max(total - score.odds - ODDS_OF_NO_FINDING, 0.0)
    against = f"{others:.2g} of other causes and " if others >= 0.005 else ""
    text = f"{score.odds:.2g} against {against}{ODDS_OF_NO_FINDING:g} of a cause that left no sign: {share:.1%}"
    return text + (f", capped at {_SURE:.1%}" if share > _SURE else "")


def _limit_confidence(candidate: Candidate) -> float:
    """Return the upper limit of confidence of a cause: an exception's text alone does not tell who is to blame."""
    roots = [finding for finding in candidate.findings if finding.role is Role.ROOT]
    unclear = candidate.failure in (FailureClass.SOFTWARE, FailureClass.CONFIG)
    if not unclear or {finding.signature for finding in roots} != {"python.exception"}:
        return 1.0
    by_words = candidate.failure is FailureClass.CONFIG and not any(is_of_settings(finding) for finding in roots)
    return _EXCEPTION_BY_WORDS if by_words else _BARE_EXCEPTION


def _score(candidate: Candidate, scene: Scene) -> _Score:
    """Return the odds of one candidate for itself."""
    base = min(candidate.base, 0.99)
    odds = base / (1 - base)
    first = f"{base:.0%} by itself, which is {odds:.2g} to 1"
    score = _Score(candidate, odds, [first])
    _weigh_progress(score, scene)
    _weigh_start(score, scene)
    _weigh_waiting(score, scene)
    if candidate.source != "hang":  # all of its findings are one event
        _weigh_confirmations(score, scene)
    _weigh_origin(score)
    _weigh_level(score)
    _weigh_inline(score)
    return score


def _weigh_progress(score: _Score, scene: Scene) -> None:
    """Lower the odds where training progressed after a finding."""
    candidate = score.candidate
    if candidate.source != "findings" or candidate.failure in ENDS_JOB or not candidate.findings:
        return
    steps = LastSteps.of(scene.evidence)
    follow = [steps.follow_in_log(finding) for finding in candidate.findings]
    if any(each is False for each in follow):
        return  # it is after the last step of its own log, whatever clocks and zones show
    ends = [_find_end(finding) for finding in candidate.findings]
    known = [at for at in ends if at is not None]
    if known and len(known) == len(ends) and scene.progress_s is not None:
        if scene.progress_s > max(known) + _GOES_ON_S:
            score.times(_SURVIVED, "training went on after it")
            return
        if scene.first_progress_s is not None and max(known) < scene.first_progress_s < scene.progress_s:
            score.times(_SURVIVED, "training had not begun then, and did begin")
            return
    if all(follow):
        score.times(_SURVIVED, "training went on after it, further down in the log")


def _weigh_start(score: _Score, scene: Scene) -> None:
    """Lower the odds of failures at the start, where training had begun."""
    candidate = score.candidate
    if candidate.source != "findings" or candidate.failure not in _AT_START or scene.progress_s is None:
        return
    after = any(
        finding.time_s is not None and finding.time_s > scene.progress_s - _EARLIER_S for finding in candidate.findings
    )
    score.times(0.5 if after else 0.08, "training had begun, and such things show at the start")


def _find_end(finding: Finding) -> float | None:
    """Return when a finding had certainly been seen for the last time."""
    last = finding.last_time_s if finding.last_time_s is not None else finding.time_s
    return last if last is not None else finding.latest_s


def _weigh_waiting(score: _Score, scene: Scene) -> None:
    """A rank that waited for the others until its time was up had not died before."""
    candidate, parted = score.candidate, scene.divergence
    if parted is None or candidate.source in ("hang", "end") or candidate.place.rank is None:
        return
    local = candidate.failure in (FailureClass.GPU_MEMORY, FailureClass.SOFTWARE, FailureClass.HOST_MEMORY)
    if candidate.place.rank in parted.waiting and local:
        score.times(0.3, "this rank itself waited for a collective until its time was up")
    if candidate.place.rank in (*parted.behind, *parted.never_arrived):
        score.times(3.0, "this is the rank that the others waited for")


def _find_witnesses(findings: Sequence[Finding]) -> set[str]:
    """Return the signatures that stand in lines of their own: two that one line matches are one witness."""
    by_line: dict[tuple[str, int], str] = {}
    for finding in findings:
        where = (finding.source, finding.line or finding.order)
        by_line.setdefault(where, finding.signature)
    return set(by_line.values())


def _weigh_confirmations(score: _Score, scene: Scene) -> None:
    """Raise the odds by other findings at the same place and time."""
    candidate = score.candidate
    node, first = candidate.place.node, candidate.first_s
    others = [
        finding
        for finding in scene.findings
        if finding.role in (Role.CONFIRMATION, Role.ROOT)
        and finding not in candidate.findings
        and (finding.failure is candidate.failure or finding.origin in (Origin.KERNEL, Origin.GPU, Origin.CGROUP))
        and (not node or _find_node(finding, scene) in ("", node))
        and (first is None or finding.time_s is None or abs(finding.time_s - first) <= NEAR_S)
    ]
    same = {
        finding.signature
        for finding in others
        if finding.failure is candidate.failure and _find_node(finding, scene) == node
    }
    same -= {finding.signature for finding in candidate.findings}
    if same:
        score.times(
            min(4.0, 1.5 ** len(same)),
            f"{', '.join(sorted(same))} say{'s' if len(same) == 1 else ''} the same of this place",
        )
    kinds = _find_witnesses(candidate.findings)
    if len(kinds) > 1:
        score.times(
            min(4.0, 1.6 ** (len(kinds) - 1)), f"{len(kinds)} different signs agree: {', '.join(sorted(kinds))}"
        )
    if scene.divergence is not None and node:
        culprits = (*scene.divergence.behind, *scene.divergence.never_arrived)
        nodes = {scene.placement.node.get(rank, "") for rank in culprits} - {""}
        if node in nodes and len(nodes) == 1 and candidate.place.rank is None:
            score.times(2.5, "the rank that the others waited for is on this node")


def _find_node(finding: Finding, scene: Scene) -> str:
    """Return the node of a finding."""
    rank = finding.place.rank
    return finding.place.node or (scene.placement.node.get(rank, "") if rank is not None else "")


def _weigh_origin(score: _Score) -> None:
    """Raise the odds of findings from the kernel and Slurm over those that a program prints."""
    origins = {finding.origin for finding in score.candidate.findings}
    if origins & {Origin.KERNEL, Origin.SLURM, Origin.GPU, Origin.CGROUP}:
        score.times(1.5, "the kernel, the GPU or Slurm itself says so")
    roots = [finding for finding in score.candidate.findings if finding.role is Role.ROOT]
    if roots and all(is_quoted(finding) for finding in roots):
        score.times(_ONLY_QUOTED, "the job's log quotes the kernel: the kernel log of the node would settle it")


def _weigh_level(score: _Score) -> None:
    """Lower the odds of what programs wrote as warnings alone: they went on after those."""
    roots = [finding for finding in score.candidate.findings if finding.role is Role.ROOT]
    if roots and all(find_level(finding) == "WARNING" for finding in roots):
        score.times(_ONLY_WARNED, "the program wrote it as a warning, and goes on after those")


def _weigh_inline(score: _Score) -> None:
    """Lower the odds of what ``python -c`` raised: scripts look at their environment so, and go on."""
    roots = [finding for finding in score.candidate.findings if finding.role is Role.ROOT]
    if roots and all(finding.fields.get("at", "").startswith(_INLINE) for finding in roots):
        score.times(
            _OF_A_LOOK, "python -c raised it, by which scripts look at their environment before the program runs"
        )


def _weigh_order(scores: Sequence[_Score], scene: Scene) -> None:
    """Lower the odds of what came later: what came first can have led to it; hangs and ends follow from all."""
    timed = [score for score in scores if score.candidate.first_s is not None and score.candidate.source == "findings"]
    alive = [score for score in timed if score.odds > 0.2]
    for score in scores:
        first_s = score.candidate.first_s
        if first_s is None or score.candidate.source != "findings":
            continue
        margin = _EARLIER_S + scene.error_s * _clock_factor(score, alive)
        before = [each for each in alive if each is not score and (each.candidate.first_s or 0.0) < first_s - margin]
        if before:
            first = min(before, key=lambda each: each.candidate.first_s or 0.0)
            gap = first_s - (first.candidate.first_s or first_s)
            score.times(max(0.12, 0.5 * math.exp(-gap / 30.0)), f"{first.candidate.what} came {gap:.0f} s before")
    _weigh_hangs(scores, scene)


def _clock_factor(score: _Score, others: Sequence[_Score]) -> float:
    """Return 1 where others are on other nodes, whose clocks count; 0 where all are on one."""
    nodes = {each.candidate.place.node for each in (*others, score)}
    return 1.0 if len(nodes) > 1 else 0.0


def _weigh_hangs(scores: Sequence[_Score], scene: Scene) -> None:
    """Lower the odds of a hang, which any failure looks like to other ranks, where another candidate began it."""
    hangs = [score for score in scores if score.candidate.source == "hang"]
    others = [
        score
        for score in scores
        if score.candidate.source != "hang"
        and score.candidate.failure not in ENDS_JOB
        and score.odds > 0.3
        and _began_before_end(score, hangs)
    ]
    for hang in hangs:
        if others:
            best = max(others, key=lambda each: each.odds)
            hang.times(0.08, f"that ranks wait follows from: {best.candidate.what}")
        else:
            _weigh_unexplained_hang(hang, scene)


def _weigh_unexplained_hang(hang: _Score, scene: Scene) -> None:
    """Judge a hang that nothing explains, by the evidence that is missing."""
    parted, logged = scene.divergence, {each.rank for each in scene.evidence.ranks}
    culprits = (parted.behind or parted.never_arrived or parted.unseen) if parted is not None else ()
    if not culprits and hang.candidate.place.rank is not None:
        culprits = (hang.candidate.place.rank,)  # another rank names it
    unseen = set(parted.unseen) - logged if parted is not None else set()
    if culprits and (unseen or not set(culprits) & logged):
        is_lost = len({each.source for each in scene.evidence.ranks}) > 1
        factor = _LOST_LOG if is_lost else _UNLOGGED
        hang.times(factor, "of ranks that did not come there is no log: what they said may be the cause")
    elif not culprits:
        hang.times(_NO_CULPRIT, "which rank did not come is not known, and what it said may be the cause")
    else:
        hang.why.append("the ranks that did not come are known, and say nothing of a failure")
        if not (parted and parted.behind) and "kernel_log" not in scene.evidence.gathered:
            hang.times(_NO_KERNEL_LOG, "no kernel log is at hand: a GPU, link or node that failed would look the same")


def _began_before_end(score: _Score, hangs: Sequence[_Score]) -> bool:
    """Return whether a candidate began before ranks gave up waiting."""
    first_s = score.candidate.first_s
    ends = [hang.candidate.first_s for hang in hangs if hang.candidate.first_s is not None]
    return first_s is None or not ends or first_s <= min(ends) + _EARLIER_S


def _weigh_reactions(scores: Sequence[_Score], scene: Scene) -> None:
    """Lower the odds of cancellations and time limits that react to a hang; what made it hang came first."""
    ends = [score for score in scores if score.candidate.failure in ENDS_JOB]
    for end in ends:
        end_s = end.candidate.first_s
        earlier = [
            score
            for score in scores
            if score.candidate.failure not in ENDS_JOB
            and (score.odds > 0.8 or score.candidate.source == "hang" or _is_waiting(score))
            and end_s is not None
            and (score.candidate.first_s is None or score.candidate.first_s < end_s - _EARLIER_S)
        ]
        if not earlier or end.candidate.failure is FailureClass.PREEMPTED:
            for score in scores:
                if score.candidate.failure not in ENDS_JOB and _is_after(score, end_s):
                    score.times(0.1, "it came after the job was ended")
            continue
        best = max(earlier, key=lambda score: score.odds)
        went_on = scene.progress_s is not None and end_s is not None and scene.progress_s > end_s - _REACTION_S
        if went_on:
            for score in earlier:
                score.times(0.1, "training went on until the job was ended")
        else:
            hung = best.candidate.source == "hang" or _is_waiting(best)
            end.times(0.002 if hung else 0.05, f"before it: {best.candidate.what}")
            if _has_task_exited(scene.findings, end.candidate):
                end.times(0.1, "a task had already ended by itself, with a status of its own")


def _has_task_exited(findings: Sequence[Finding], end: Candidate) -> bool:
    """Return whether srun reports a task that exited with another status than 0 before the job was ended."""
    orders = {each.source: each.order for each in end.findings}
    return any(
        each.signature == "slurm.task_killed" and each.fields.get("exit") and each.order < orders.get(each.source, -1)
        for each in findings
    )


def _is_waiting(score: _Score) -> bool:
    """Return whether a candidate is that ranks waited at the start for others that never came."""
    return any(each.signature == "rendezvous.barrier_waiting" for each in score.candidate.findings)


def _is_after(score: _Score, end_s: float | None) -> bool:
    """Return whether a candidate came at the end of the job or after."""
    first = score.candidate.first_s
    return end_s is not None and (first is None or first >= end_s - _EARLIER_S)
