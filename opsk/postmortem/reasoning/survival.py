"""Determines what a log shows was survived: jobs before the last one in it, and failures that it goes on long after."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from opsk.postmortem.reasoning.ends import REPORTS_OF_ENDS
from opsk.postmortem.values import FailureClass, Finding, Origin, RankProgress, Role
from opsk.units import KIB

_GOES_ON_BYTES = 16 * KIB
"""More than a program that ends still writes: Python's own buffer of what is printed holds 8 KiB."""
_NEXT_JOB_BYTES = 64 * KIB
"""More than the ranks of a job still write while Slurm ends it, unless they say why they end."""
_NEXT_TRIAL = "sweep.next_trial"
_SURVIVABLE = frozenset((FailureClass.SOFTWARE, FailureClass.CONFIG, FailureClass.GPU_MEMORY))
"""Programs handle exceptions of these classes and go on, and scripts start the next program."""


def drop_earlier_jobs(findings: Sequence[Finding], ranks: Sequence[RankProgress]) -> list[Finding]:
    """Return findings without those of jobs that ended in the same log before its last one did.

    The last one may have ended without a word of Slurm: then steps of training follow, or very much and no failure.
    """
    ends: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        if finding.origin is Origin.LAUNCHER and finding.role is Role.ROOT and finding.fields.get("level") == "JOB":
            ends[finding.source].append(finding)
    begins = {}
    for source, those in ends.items():
        last = max(those, key=lambda each: each.order)
        earlier = [each.order for each in those if each.fields.get("job") != last.fields.get("job")]
        is_earlier = _is_followed_by_job(last, findings, ranks)
        begins[source] = last.order if is_earlier else max(earlier, default=-1)
    return [each for each in findings if each.origin is Origin.KERNEL or each.order > begins.get(each.source, -1)]


def _is_followed_by_job(end: Finding, findings: Sequence[Finding], ranks: Sequence[RankProgress]) -> bool:
    """Return whether the end of a job is followed by another job in the same log, and not by its own last output."""
    rest_bytes = _find_size(end.source, ranks) - end.order
    if rest_bytes > _GOES_ON_BYTES and _find_last_step(end.source, ranks) > end.order:
        return True
    fails = any(each.source == end.source and each.order > end.order and _shows_failure(each) for each in findings)
    return rest_bytes > _NEXT_JOB_BYTES and not fails


def demote_survived(findings: Sequence[Finding], ranks: Sequence[RankProgress]) -> tuple[Finding, ...]:
    """Return findings in which failures are no roots after which their log goes on for long, and nothing else fails.

    In a search for settings the next trial is enough.
    """
    last: dict[str, int] = defaultdict(lambda: -1)
    trials: dict[str, int] = {}
    for finding in findings:
        order = max(finding.order, finding.last_order)
        if _shows_failure(finding):
            last[finding.source] = max(last[finding.source], order)
        elif finding.signature == _NEXT_TRIAL:
            trials[finding.source] = max(trials.get(finding.source, -1), order)
    went_on = {source for source, order in last.items() if _find_size(source, ranks) - order > _GOES_ON_BYTES}
    return tuple(
        replace(finding, role=Role.CONFIRMATION)
        if (finding.source in went_on or max(finding.order, finding.last_order) < trials.get(finding.source, -1))
        and finding.role is Role.ROOT
        and finding.origin is Origin.JOB_LOG
        and finding.failure in _SURVIVABLE
        else finding
        for finding in findings
    )


def _shows_failure(finding: Finding) -> bool:
    """Return whether a finding shows that something failed, or followed from a failure."""
    return finding.role in (Role.ROOT, Role.CASCADE) or finding.signature in REPORTS_OF_ENDS


def _find_size(source: str, ranks: Sequence[RankProgress]) -> int:
    """Return the size of a log [B]; 0 where it is not known."""
    return max((each.bytes for each in ranks if each.source == source), default=0)


def _find_last_step(source: str, ranks: Sequence[RankProgress]) -> int:
    """Return where a log reports its last step; -1 where it reports none."""
    orders = (each.last_progress_order for each in ranks if each.source == source)
    return max((order for order in orders if order is not None), default=-1)
