"""Explains a failure: filters signs, aligns clocks, finds candidates, scores them, and lists what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from opsk.postmortem.reasoning.actions import list_actions
from opsk.postmortem.reasoning.candidates import build_candidates
from opsk.postmortem.reasoning.collectives import find_divergence, find_hang_start, list_logged_ranks, list_ranks
from opsk.postmortem.reasoning.ends import REPORTS_OF_ENDS, find_victim
from opsk.postmortem.reasoning.filtering import filter_findings
from opsk.postmortem.reasoning.job_of_logs import with_job_notes
from opsk.postmortem.reasoning.memory import extract_memory_facts
from opsk.postmortem.reasoning.owners import is_owned_by_user
from opsk.postmortem.reasoning.places import RankPlacement, build_placement, with_ranks
from opsk.postmortem.reasoning.runs import has_progressed, with_run_notes
from opsk.postmortem.reasoning.scoring import Scene, score_candidates
from opsk.postmortem.reasoning.steps import LastSteps
from opsk.postmortem.reasoning.timeline import UNKNOWN_ERROR_S, align_clocks, build_timeline, estimate_skews
from opsk.postmortem.values import (
    LAST_WORDS,
    Cause,
    Divergence,
    Evidence,
    FailureClass,
    Finding,
    Missing,
    Recurrence,
    Report,
    Role,
    Skew,
)

_SURE_ENOUGH = 0.9
_GPU = (FailureClass.GPU_HARDWARE, FailureClass.NVLINK, FailureClass.SOFTWARE, FailureClass.COLLECTIVE_HANG)
_NETWORK = (FailureClass.FABRIC, FailureClass.COLLECTIVE_HANG, FailureClass.NVLINK, FailureClass.RENDEZVOUS)
MIN_CONFIDENCE = 0.25
"""Below this no cause is named: alternatives and missing evidence are shown."""
_MAX_ALTERNATIVES = 4
_MAX_CUT_OFF = 3
_MIN_ALTERNATIVE = 0.05
_UNKNOWN = "unknown"
_BEFORE_ENDS = ("submitit.timed_out", "torch.dataloader_terminated")
"""An end below them tells how it went on: submitit runs the job again into the same log, and workers are terminated."""
_NOT_FAILED_STATES = ("COMPLETED", "COMPLETING", "RUNNING", "PENDING")


def list_missing(evidence: Evidence, causes: Sequence[Cause], divergence: Divergence | None) -> tuple[Missing, ...]:
    """Return the evidence that would settle a failure; empty where all is certain."""
    have = evidence.gathered
    classes = {cause.failure for cause in causes[:3] if cause.confidence >= _MIN_ALTERNATIVE}
    classes = classes or {FailureClass.HOST_MEMORY}
    root = causes[0] if causes else None
    missing = []
    if "sacct" not in have and evidence.job is None:
        missing.append(Missing(
            what="Slurm's record of the job",
            why="it says how the job ended and who ended it, and is right where the output says otherwise",
            how="opsk postmortem JOB on a host that has sacct",
        ))  # fmt: skip
    is_open = root is None or root.confidence < _SURE_ENOUGH or root.failure in (*_GPU, *_NETWORK)
    asks_kernel = bool(classes & {*_GPU, *_NETWORK, FailureClass.HOST_MEMORY, FailureClass.NODE})
    if "kernel_log" not in have and asks_kernel and is_open and not _is_settled(root):
        missing.append(Missing(
            what="kernel logs of the job's nodes", why="an Xid, a lost link or a killed process then settles it",
            how="the epilog of opsk keeps them; else journalctl -k on the node, given with --kernel-log",
        ))  # fmt: skip
    if "ib_counters" not in have and classes & set(_NETWORK) and root is not None and root.confidence < _SURE_ENOUGH:
        missing.append(Missing(
            what="InfiniBand counters before and after", why="errors on one port tell a bad cable from a dead peer",
            how="the prolog and epilog of opsk keep them",
        ))  # fmt: skip
    if divergence is not None:
        unseen = _find_unlogged(evidence, divergence) or divergence.unseen
        if unseen:
            missing.append(Missing(
                what=f"logs of rank{'s' if len(unseen) > 1 else ''} {_format_ranks(unseen)}",
                why="the others waited for it, and what it said last is not there",
                how="one log a rank: srun --output=%x-%j-%t.out",
            ))  # fmt: skip
    missing += [
        Missing(
            what=f"the end of {finding.source}", why="it ends within a traceback: what was raised is not there",
            how="read the log again when it is written to its end",
        )
        for finding in evidence.findings if _is_cut_off(finding) and root is None
    ][:_MAX_CUT_OFF]  # fmt: skip
    if root is None:
        return tuple(missing)
    if "flight_recorder" not in have and root.failure is FailureClass.COLLECTIVE_HANG:
        missing.append(Missing(
            what="PyTorch's flight recorder", why="it tells in which collective each rank was, and from which line",
            how="TORCH_FR_BUFFER_SIZE=2000 (TORCH_NCCL_TRACE_BUFFER_SIZE up to 2.6), TORCH_NCCL_DUMP_ON_TIMEOUT=1",
        ))  # fmt: skip
    if root.failure is FailureClass.FABRIC and not any(finding.origin != "job_log" for finding in root.findings):
        missing.append(Missing(
            what="what the other end of the link saw", why="one end alone cannot tell its own port from the peer's",
            how="opsk fabric and the kernel log of the peer's node",
        ))  # fmt: skip
    return tuple(missing)


def _is_settled(root: Cause | None) -> bool:
    """Return whether no kernel log can add to a cause: Python raised it, or ranks met on a port or name of the job."""
    if root is None:
        return False
    observed = {finding.signature for finding in root.findings if finding.role is Role.ROOT}
    return observed == {"python.exception"} or (root.failure is FailureClass.RENDEZVOUS and is_owned_by_user(root))


def _find_unlogged(evidence: Evidence, divergence: Divergence) -> tuple[int, ...]:
    """Return ranks that never arrived and have no log."""
    logged = {each.rank for each in evidence.ranks}
    return tuple(rank for rank in divergence.never_arrived if rank not in logged)


def _format_ranks(ranks: Sequence[int]) -> str:
    """Return some numbers as people write them."""
    shown = ", ".join(str(rank) for rank in ranks[:6])
    return shown if len(ranks) <= 6 else f"{shown} and {len(ranks) - 6} more"


def explain(evidence: Evidence, *, recurrence: Sequence[Recurrence] = ()) -> Report:
    """Return the post-mortem of the gathered evidence.

    Parameters
    ----------
    recurrence
        Earlier failures of the parts and of the user.
    """
    evidence = with_ranks(with_job_notes(evidence))
    placement = build_placement(evidence)
    filtered = filter_findings(
        evidence, has_progress=has_progressed(evidence), node_of_rank=placement.node,
    )  # fmt: skip
    evidence = with_run_notes(evidence, filtered)
    skews = estimate_skews(filtered, placement.node)
    findings = align_clocks(filtered, skews, placement.node)
    state = _find_state(evidence, findings)
    divergence = find_divergence(findings, list_ranks(evidence), list_logged_ranks(evidence))
    causes = [] if _has_succeeded(evidence, findings) else _build_causes(evidence, findings, placement, skews)
    named = causes[:1] if causes and causes[0].confidence >= MIN_CONFIDENCE else []
    root = named[0] if named else None
    others = tuple(cause for cause in causes if cause is not root and cause.confidence >= _MIN_ALTERNATIVE)
    facts = _build_facts(evidence, findings, root)
    before, timeline = build_timeline(evidence, findings, root)
    return Report(
        state="failed" if root is not None and state == _UNKNOWN else state,
        job=evidence.job, root=root, alternatives=others[:_MAX_ALTERNATIVES],
        timeline=timeline, before=before, divergence=divergence,
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
        return any(each.signature == LAST_WORDS for each in findings) and not _shows_failure(evidence, findings)
    if any(_is_bad_exit(finding) for finding in findings):
        return False
    ends = {
        each.source: each.last_progress_order
        for each in reporting if each.ended_well and each.last_progress_order is not None
    }  # fmt: skip
    ends |= {
        finding.source: finding.order
        for finding in findings
        if finding.role is Role.END and finding.signature != LAST_WORDS
    }
    by_slurm = {FailureClass.TIME_LIMIT, FailureClass.PREEMPTED, FailureClass.CANCELLED, FailureClass.NODE}
    return not any(
        finding.role is Role.ROOT
        and (
            finding.source not in ends
            or finding.order > ends[finding.source]
            or (finding.failure in by_slurm and finding.signature not in _BEFORE_ENDS)
        )
        for finding in findings
        if finding.source in ends or finding.failure in by_slurm
    )  # fmt: skip


def _is_cut_off(finding: Finding) -> bool:
    """Return whether a traceback ends before its exception."""
    return finding.signature == "python.exception" and not finding.fields.get("type")


def _is_bad_exit(finding: Finding) -> bool:
    """Return whether a launcher reports that a process ended with another status than 0."""
    if finding.signature not in REPORTS_OF_ENDS or finding.signature == "process.killed":
        return False
    if finding.role is Role.ADVICE:
        return False  # of a command that a script went on after
    status = finding.fields.get("exit") or finding.fields.get("signal", "")
    return bool(status.strip("0")) or bool(finding.fields.get("end"))


def _find_state(evidence: Evidence, findings: Sequence[Finding]) -> str:
    """Return Slurm's state, else the state by the output."""
    if evidence.job is not None and evidence.job.state:
        return evidence.job.state
    if _has_succeeded(evidence, findings):
        return "ended well"
    return "failed" if _shows_failure(evidence, findings) else _UNKNOWN


def _shows_failure(evidence: Evidence, findings: Sequence[Finding]) -> bool:
    """Return whether something failed that training did not survive, or a process ended badly."""
    steps = LastSteps.of(evidence)
    indications = (
        finding
        for finding in findings
        if finding.role is not Role.ADVICE
        if finding.role in (Role.ROOT, Role.CASCADE) or finding.signature in REPORTS_OF_ENDS or _is_cut_off(finding)
        if not steps.follow_in_log(finding)
    )
    return next(indications, None) is not None


def _build_facts(evidence: Evidence, findings: Sequence[Finding], root: Cause | None) -> dict[str, float]:
    """Return the numbers that a report shows."""
    facts: dict[str, float] = {}
    firsts = [each.first_iteration for each in evidence.ranks if each.first_iteration is not None]
    lasts = [each.last_iteration for each in evidence.ranks if each.last_iteration is not None]
    if firsts and lasts:
        facts |= {"first_iteration": min(firsts), "last_iteration": max(lasts)}
    facts["ranks_with_logs"] = len(list_logged_ranks(evidence)) or len(evidence.ranks)
    if root is not None and root.failure is FailureClass.GPU_MEMORY:
        facts |= extract_memory_facts(findings, evidence.job)
    return facts


def _extreme(which: Callable[[list[float]], float], times: Iterable[float | None]) -> float | None:
    """Return the first or the last of the times that are known."""
    known = [at for at in times if at is not None]
    return which(known) if known else None
