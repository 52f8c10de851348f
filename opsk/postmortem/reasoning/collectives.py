"""Finds the collective in which ranks diverged: who waits, who is behind, who never arrived.

A rank that waits reports its time-out. The root is a rank that does not report one: it died, hangs elsewhere, or is
behind: its last completed collective is lower than the others'.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from opsk.postmortem.values import Divergence, Evidence, FailureClass, Finding

_TIMEOUT = "torch.watchdog_timeout"
_STATES = ("torch.watchdog_exception", "torch.flight_recorder_state")
_RECORDER = "flight_recorder.entry"
_FEW = 4
_UNNUMBERED = -1
"""PyTorch numbers collectives since 1.13."""


def find_divergence(findings: Iterable[Finding], ranks: Iterable[int], logged: Iterable[int] = ()) -> Divergence | None:
    """Return where ranks parted; ``None`` where no collective timed out.

    Parameters
    ----------
    logged
        Ranks of which there is a log: one that is silent there is more suspect than one of which nothing is known.
    """
    findings = tuple(findings)
    timeouts = [finding for finding in findings if finding.signature == _TIMEOUT]
    completed = _find_completed(findings)
    if not timeouts and not completed:
        return None
    waiting: dict[int, int] = {}
    operations: Counter[tuple[int, str]] = Counter()
    for finding in timeouts:
        number = finding.fields.get("seq", "")
        sequence = int(number) if number.isdecimal() else _UNNUMBERED
        operations[sequence, finding.fields.get("op", "")] += 1
        if finding.place.rank is not None:
            waiting[finding.place.rank] = min(sequence, waiting.get(finding.place.rank, sequence))
    parted, operation = _find_divergence_point(operations, completed)
    known = set(ranks) | set(waiting) | set(completed)
    lagging = _find_lagging(waiting, completed, parted)
    spoke = {
        finding.place.rank
        for finding in findings
        if finding.failure is FailureClass.COLLECTIVE_HANG and finding.place.rank is not None
    }
    silent = known - set(waiting) - set(completed) - spoke
    silent = (silent & set(logged)) or silent
    others = known - set(waiting) - set(completed)
    if not silent and waiting and len(others) * _FEW <= len(waiting):
        silent = others  # they report a failure of their own, and not that they waited
    done = {rank: number - 1 for rank, number in waiting.items() if number > 0} | completed
    unseen = set(range(max(known, default=0))) - known - set(logged)
    return Divergence(
        group="", seq=parted, op=operation, behind=tuple(sorted(lagging)),
        never_arrived=tuple(sorted(silent)) if waiting or completed else (),
        waiting=tuple(sorted(rank for rank in known if rank in waiting and rank not in lagging)),
        unseen=tuple(sorted(unseen)) if len(unseen) * _FEW <= len(waiting) else (),
        completed=_find_commonest(number for rank, number in done.items() if rank not in lagging),
        lowest_completed=min((number for rank, number in done.items() if rank in lagging), default=None),
    )  # fmt: skip


def _find_commonest(numbers: Iterable[int]) -> int | None:
    """Return the number that most ranks have."""
    commonest = Counter(numbers).most_common(1)
    return commonest[0][0] if commonest else None


def _find_completed(findings: Iterable[Finding]) -> dict[int, int]:
    """Return the last collective that each rank completed."""
    completed: dict[int, int] = {}
    for finding in findings:
        if finding.signature in (*_STATES, _RECORDER) and finding.place.rank is not None:
            text = finding.fields.get("completed", "")
            if text.lstrip("-").isdecimal():
                completed[finding.place.rank] = max(int(text), completed.get(finding.place.rank, -1))
    return completed


def _find_divergence_point(
    operations: Counter[tuple[int, str]], completed: Mapping[int, int]
) -> tuple[int | None, str]:
    """Return the collective that most ranks waited for, the earliest of equals."""
    if operations:
        (sequence, operation), _ = max(operations.items(), key=lambda item: (item[1], -item[0][0]))
        return None if sequence == _UNNUMBERED else sequence, operation
    commonest = Counter(completed.values()).most_common(1)
    return (commonest[0][0] + 1 if commonest else None), ""


def _find_lagging(waiting: Mapping[int, int], completed: Mapping[int, int], sequence: int | None) -> set[int]:
    """Return ranks that had not come as far as the others."""
    lagging: set[int] = set()
    if completed:
        common = Counter(completed.values()).most_common(1)[0][0]
        lowest = min(completed.values())
        if lowest < common:
            lagging |= {rank for rank, done in completed.items() if done == lowest}
    if sequence is not None and waiting:
        lower = {rank for rank, waiting_for in waiting.items() if waiting_for < sequence}
        if lower and len(lower) * 4 <= len(waiting):
            lagging |= lower
    return lagging


def list_ranks(evidence: Evidence) -> set[int]:
    """Return all known ranks: from logs, findings, and Slurm's number of tasks."""
    ranks = {each.rank for each in evidence.ranks if each.rank is not None}
    ranks |= {finding.place.rank for finding in evidence.findings if finding.place.rank is not None}
    if evidence.job is not None and evidence.job.tasks and ranks and max(ranks) < evidence.job.tasks:
        ranks |= set(range(evidence.job.tasks))
    return ranks


def list_logged_ranks(evidence: Evidence) -> set[int]:
    """Return the ranks of which there is a log."""
    return {each.rank for each in evidence.ranks if each.rank is not None}


def find_hang_start(findings: Iterable[Finding]) -> float | None:
    """Return when the first collective that timed out began to wait [s since 1970]."""
    starts = defaultdict(list)
    for finding in findings:
        if (
            finding.signature == _TIMEOUT
            and finding.time_s is not None
            and finding.fields.get("ran_ms", "").isdecimal()
        ):
            starts[finding.fields.get("seq", "")].append(finding.time_s - int(finding.fields["ran_ms"]) / 1e3)
    return min((min(times) for times in starts.values()), default=None)
