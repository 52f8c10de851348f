"""What failed first? All steps together: sift, align clocks, find candidates, judge them, say what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from opsk.postmortem.reasoning.acting import actions_of
from opsk.postmortem.reasoning.candidates import candidates_of
from opsk.postmortem.reasoning.collectives import divergence_of, hang_starts, logged_of, ranks_of
from opsk.postmortem.reasoning.local_ranks import with_ranks
from opsk.postmortem.reasoning.memory import memory_facts
from opsk.postmortem.reasoning.missing import missing_of
from opsk.postmortem.reasoning.places import Seating, seating_of
from opsk.postmortem.reasoning.scoring import Scene, judged
from opsk.postmortem.reasoning.sifting import sifted
from opsk.postmortem.reasoning.skew import UNKNOWN_ERROR_S, aligned, skews_of
from opsk.postmortem.reasoning.timeline import timeline_of
from opsk.postmortem.reasoning.victims import victim_of
from opsk.postmortem.values import Cause, Evidence, FailureClass, Recurrence, Report, Role, Sign, Skew

LEAST_CONFIDENCE = 0.25
"""Below this no cause is named: the alternatives are shown, and what is missing."""
_MOST_ALTERNATIVES = 4
_LEAST_ALTERNATIVE = 0.02
_TELL_OF_AN_END = frozenset(
    ("launcher.root_rank", "launcher.first_failure", "launcher.child_signal", "launcher.rank_ended", "mpi.abort",
     "mpi.pmix_error", "slurm.task_killed", "slurm.unkillable", "process.killed", "nccl.unhandled_system_error",
     "nccl.internal_error")
)  # fmt: skip
"""They confirm causes, and say that something failed where no cause is known."""
_WELL = ("COMPLETED", "COMPLETING", "RUNNING", "PENDING")


def explain(evidence: Evidence, *, recurrence: Sequence[Recurrence] = ()) -> Report:
    """Return the post-mortem of what was gathered.

    Parameters
    ----------
    recurrence
        What is known of the parts and of the user from earlier failures.
    """
    evidence = with_ranks(evidence)
    seating = seating_of(evidence)
    own = sifted(evidence, has_progress=any(each.last_iteration is not None for each in evidence.ranks))
    skews = skews_of(own, seating.node)
    signs = aligned(own, skews, seating.node)
    state = _state(evidence, signs)
    divergence = divergence_of(signs, ranks_of(evidence), logged_of(evidence))
    causes = [] if _ended_well(evidence, signs) else _causes(evidence, signs, seating, skews)
    named = causes[:1] if causes and causes[0].confidence >= LEAST_CONFIDENCE else []
    root = named[0] if named else None
    others = tuple(cause for cause in causes if cause is not root and cause.confidence >= _LEAST_ALTERNATIVE)
    facts = _facts(evidence, signs, root)
    return Report(
        state=state, job=evidence.job, root=root, alternatives=others[:_MOST_ALTERNATIVES],
        timeline=timeline_of(evidence, signs, root), divergence=divergence, evidence=replace(evidence, signs=signs),
        skews=skews, missing=missing_of(evidence, causes, divergence) if causes or state == "failed" else (),
        actions=actions_of(root, evidence.job, tuple(recurrence)), recurrence=tuple(recurrence), facts=facts,
    )  # fmt: skip


def _causes(evidence: Evidence, signs: Sequence[Sign], seating: Seating, skews: Sequence[Skew]) -> list[Cause]:
    """Return candidates with their probabilities."""
    divergence = divergence_of(signs, ranks_of(evidence), logged_of(evidence))
    scene = Scene(
        evidence=evidence, signs=signs, divergence=divergence, seating=seating,
        progress_s=_extreme(max, (r.last_progress_s for r in evidence.ranks)),
        first_progress_s=_extreme(min, (r.first_progress_s for r in evidence.ranks)),
        hang_s=hang_starts(signs),
        error_s=max((skew.error_s for skew in skews), default=UNKNOWN_ERROR_S),
    )  # fmt: skip
    return judged(candidates_of(signs, evidence, divergence, seating, victim_of(signs, seating)), scene)


def _ended_well(evidence: Evidence, signs: Sequence[Sign]) -> bool:
    """Tell whether nothing failed: Slurm says so, else the output of the ranks that print does."""
    job = evidence.job
    if job is not None and job.state:
        return job.state.split()[0] in _WELL
    told = [each for each in evidence.ranks if each.last_iteration is not None or each.ended_well]
    if not any(each.ended_well for each in told):
        return False
    ends = {sign.source: sign.order for sign in signs if sign.role is Role.END}
    by_slurm = {FailureClass.TIME_LIMIT, FailureClass.PREEMPTED, FailureClass.CANCELLED, FailureClass.NODE}
    return not any(
        sign.role is Role.ROOT
        and (sign.source not in ends or sign.order > ends[sign.source] or sign.failure in by_slurm)
        for sign in signs
        if sign.source in ends or sign.failure in by_slurm
    )  # fmt: skip


def _state(evidence: Evidence, signs: Sequence[Sign]) -> str:
    """Return Slurm's state, else what the output tells."""
    if evidence.job is not None and evidence.job.state:
        return evidence.job.state
    if _ended_well(evidence, signs):
        return "ended well"
    lasts = {each.source: each.last_progress_order for each in evidence.ranks if each.last_progress_order is not None}
    tell = (
        sign
        for sign in signs
        if sign.role in (Role.ROOT, Role.CASCADE) or sign.signature in _TELL_OF_AN_END
        if max(sign.order, sign.last_order) > lasts.get(sign.source, -1)
    )
    return "failed" if next(tell, None) is not None else "unknown"


def _facts(evidence: Evidence, signs: Sequence[Sign], root: Cause | None) -> dict[str, float]:
    """Return numbers that a reader wants at hand."""
    facts: dict[str, float] = {}
    firsts = [each.first_iteration for each in evidence.ranks if each.first_iteration is not None]
    lasts = [each.last_iteration for each in evidence.ranks if each.last_iteration is not None]
    if firsts and lasts:
        facts |= {"first_iteration": min(firsts), "last_iteration": max(lasts)}
    facts["ranks_with_logs"] = len(evidence.ranks)
    if root is not None and root.failure is FailureClass.GPU_MEMORY:
        facts |= memory_facts(signs, evidence.job)
    return facts


def _extreme(which: Callable[[list[float]], float], times: Iterable[float | None]) -> float | None:
    """Return the first or the last of the times that are known."""
    known = [at for at in times if at is not None]
    return which(known) if known else None
