"""Explains a failure: filters signs, aligns clocks, finds candidates, scores them, and lists what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from opsk.postmortem.reasoning.actions import list_actions
from opsk.postmortem.reasoning.candidates import build_candidates
from opsk.postmortem.reasoning.collectives import find_divergence, find_hang_start, list_logged_ranks, list_ranks
from opsk.postmortem.reasoning.filtering import filter_findings
from opsk.postmortem.reasoning.local_ranks import with_ranks
from opsk.postmortem.reasoning.memory import extract_memory_facts
from opsk.postmortem.reasoning.missing import list_missing
from opsk.postmortem.reasoning.places import RankPlacement, build_placement
from opsk.postmortem.reasoning.scoring import Scene, score_candidates
from opsk.postmortem.reasoning.skew import UNKNOWN_ERROR_S, align_clocks, estimate_skews
from opsk.postmortem.reasoning.timeline import build_timeline
from opsk.postmortem.reasoning.victims import find_victim
from opsk.postmortem.values import Cause, Evidence, FailureClass, Finding, Recurrence, Report, Role, Skew

MIN_CONFIDENCE = 0.25
"""Below this no cause is named: alternatives and missing evidence are shown."""
_MAX_ALTERNATIVES = 4
_MIN_ALTERNATIVE = 0.02
_END_SIGNATURES = frozenset(
    ("launcher.root_rank", "launcher.first_failure", "launcher.child_signal", "launcher.rank_ended", "mpi.abort",
     "mpi.pmix_error", "slurm.task_killed", "slurm.unkillable", "process.killed", "nccl.unhandled_system_error",
     "nccl.internal_error")
)  # fmt: skip
"""They confirm causes, and show that something failed where no cause is known."""
_NOT_FAILED_STATES = ("COMPLETED", "COMPLETING", "RUNNING", "PENDING")


def explain(evidence: Evidence, *, recurrence: Sequence[Recurrence] = ()) -> Report:
    """Return the post-mortem of the gathered evidence.

    Parameters
    ----------
    recurrence
        Earlier failures of the parts and of the user.
    """
    evidence = with_ranks(evidence)
    placement = build_placement(evidence)
    filtered = filter_findings(evidence, has_progress=any(each.last_iteration is not None for each in evidence.ranks))
    skews = estimate_skews(filtered, placement.node)
    findings = align_clocks(filtered, skews, placement.node)
    state = _find_state(evidence, findings)
    divergence = find_divergence(findings, list_ranks(evidence), list_logged_ranks(evidence))
    causes = [] if _has_succeeded(evidence, findings) else _build_causes(evidence, findings, placement, skews)
    named = causes[:1] if causes and causes[0].confidence >= MIN_CONFIDENCE else []
    root = named[0] if named else None
    others = tuple(cause for cause in causes if cause is not root and cause.confidence >= _MIN_ALTERNATIVE)
    facts = _build_facts(evidence, findings, root)
    return Report(
        state=state, job=evidence.job, root=root, alternatives=others[:_MAX_ALTERNATIVES],
        timeline=build_timeline(evidence, findings, root), divergence=divergence,
        evidence=replace(evidence, findings=findings), skews=skews,
        missing=list_missing(evidence, causes, divergence) if causes or state == "failed" else (),
        actions=list_actions(root, evidence.job, tuple(recurrence)), recurrence=tuple(recurrence), facts=facts,
    )  # fmt: skip


def _build_causes(
    evidence: Evidence, findings: Sequence[Finding], placement: RankPlacement, skews: Sequence[Skew]
) -> list[Cause]:
    """Return candidates with their probabilities."""
    divergence = find_divergence(findings, list_ranks(evidence), list_logged_ranks(evidence))
    scene = Scene(
        evidence=evidence, findings=findings, divergence=divergence, placement=placement,
        progress_s=_extreme(max, (r.last_progress_s for r in evidence.ranks)),
        first_progress_s=_extreme(min, (r.first_progress_s for r in evidence.ranks)),
        hang_s=find_hang_start(findings),
        error_s=max((skew.error_s for skew in skews), default=UNKNOWN_ERROR_S),
    )  # fmt: skip
    return score_candidates(
        build_candidates(findings, evidence, divergence, placement, find_victim(findings, placement)), scene
    )


def _has_succeeded(evidence: Evidence, findings: Sequence[Finding]) -> bool:
    """Return whether nothing failed, by Slurm's state, else by the output of the ranks that print."""
    job = evidence.job
    if job is not None and job.state:
        return job.state.split()[0] in _NOT_FAILED_STATES
    reporting = [each for each in evidence.ranks if each.last_iteration is not None or each.ended_well]
    if not any(each.ended_well for each in reporting):
        return False
    ends = {finding.source: finding.order for finding in findings if finding.role is Role.END}
    by_slurm = {FailureClass.TIME_LIMIT, FailureClass.PREEMPTED, FailureClass.CANCELLED, FailureClass.NODE}
    return not any(
        finding.role is Role.ROOT
        and (finding.source not in ends or finding.order > ends[finding.source] or finding.failure in by_slurm)
        for finding in findings
        if finding.source in ends or finding.failure in by_slurm
    )  # fmt: skip


def _find_state(evidence: Evidence, findings: Sequence[Finding]) -> str:
    """Return Slurm's state, else the state by the output."""
    if evidence.job is not None and evidence.job.state:
        return evidence.job.state
    if _has_succeeded(evidence, findings):
        return "ended well"
    lasts = {each.source: each.last_progress_order for each in evidence.ranks if each.last_progress_order is not None}
    indications = (
        finding
        for finding in findings
        if finding.role in (Role.ROOT, Role.CASCADE) or finding.signature in _END_SIGNATURES
        if max(finding.order, finding.last_order) > lasts.get(finding.source, -1)
    )
    return "failed" if next(indications, None) is not None else "unknown"


def _build_facts(evidence: Evidence, findings: Sequence[Finding], root: Cause | None) -> dict[str, float]:
    """Return the numbers that a report shows."""
    facts: dict[str, float] = {}
    firsts = [each.first_iteration for each in evidence.ranks if each.first_iteration is not None]
    lasts = [each.last_iteration for each in evidence.ranks if each.last_iteration is not None]
    if firsts and lasts:
        facts |= {"first_iteration": min(firsts), "last_iteration": max(lasts)}
    facts["ranks_with_logs"] = len(evidence.ranks)
    if root is not None and root.failure is FailureClass.GPU_MEMORY:
        facts |= extract_memory_facts(findings, evidence.job)
    return facts


def _extreme(which: Callable[[list[float]], float], times: Iterable[float | None]) -> float | None:
    """Return the first or the last of the times that are known."""
    known = [at for at in times if at is not None]
    return which(known) if known else None
