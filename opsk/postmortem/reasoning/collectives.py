"""In which collective did ranks part: who waits, who is behind, who never came?

A rank that waits says so when its time is up. The root is a rank that does not say it: it died, hangs elsewhere, or is
behind: its last completed collective is lower than the others'.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from opsk.postmortem.values import Divergence, Evidence, FailureClass, Sign

_TIMEOUT = "torch.watchdog_timeout"
_STATES = ("torch.watchdog_exception", "torch.flight_recorder_state")
_RECORDER = "flight_recorder.entry"
_FEW = 4
_UNNUMBERED = -1
"""PyTorch numbers collectives since 1.13."""


def divergence_of(signs: Iterable[Sign], ranks: Iterable[int], logged: Iterable[int] = ()) -> Divergence | None:
    """Return where ranks parted; ``None`` where no collective timed out.

    Parameters
    ----------
    logged
        Ranks of which there is a log: one that is silent there is more suspect than one of which nothing is known.
    """
    signs = tuple(signs)
    timeouts = [sign for sign in signs if sign.signature == _TIMEOUT]
    completed = _completed(signs)
    if not timeouts and not completed:
        return None
    waiting: dict[int, int] = {}
    operations: Counter[tuple[int, str]] = Counter()
    for sign in timeouts:
        told = sign.fields.get("seq", "")
        sequence = int(told) if told.isdecimal() else _UNNUMBERED
        operations[sequence, sign.fields.get("op", "")] += 1
        if sign.place.rank is not None:
            waiting[sign.place.rank] = min(sequence, waiting.get(sign.place.rank, sequence))
    parted, operation = _parted(operations, completed)
    known = set(ranks) | set(waiting) | set(completed)
    behind = _behind(waiting, completed, parted)
    spoke = {
        sign.place.rank
        for sign in signs
        if sign.failure is FailureClass.COLLECTIVE_HANG and sign.place.rank is not None
    }
    silent = known - set(waiting) - set(completed) - spoke
    silent = (silent & set(logged)) or silent
    others = known - set(waiting) - set(completed)
    if not silent and waiting and len(others) * _FEW <= len(waiting):
        silent = others  # they tell of a failure of their own, and not that they waited
    return Divergence(
        group="", seq=parted, op=operation, behind=tuple(sorted(behind)),
        never_arrived=tuple(sorted(silent)) if waiting or completed else (),
        waiting=tuple(sorted(rank for rank in known if rank in waiting and rank not in behind)),
    )  # fmt: skip


def _completed(signs: Iterable[Sign]) -> dict[int, int]:
    """Return the last collective that each rank completed."""
    found: dict[int, int] = {}
    for sign in signs:
        if sign.signature in (*_STATES, _RECORDER) and sign.place.rank is not None:
            text = sign.fields.get("completed", "")
            if text.lstrip("-").isdecimal():
                found[sign.place.rank] = max(int(text), found.get(sign.place.rank, -1))
    return found


def _parted(operations: Counter[tuple[int, str]], completed: Mapping[int, int]) -> tuple[int | None, str]:
    """Return the collective that most ranks waited for, the earliest of equals."""
    if operations:
        (sequence, operation), _ = max(operations.items(), key=lambda item: (item[1], -item[0][0]))
        return None if sequence == _UNNUMBERED else sequence, operation
    most = Counter(completed.values()).most_common(1)
    return (most[0][0] + 1 if most else None), ""


def _behind(waiting: Mapping[int, int], completed: Mapping[int, int], sequence: int | None) -> set[int]:
    """Return ranks that had not come as far as the others."""
    behind: set[int] = set()
    if completed:
        common = Counter(completed.values()).most_common(1)[0][0]
        lowest = min(completed.values())
        if lowest < common:
            behind |= {rank for rank, done in completed.items() if done == lowest}
    if sequence is not None and waiting:
        lower = {rank for rank, at in waiting.items() if at < sequence}
        if lower and len(lower) * 4 <= len(waiting):
            behind |= lower
    return behind


def ranks_of(evidence: Evidence) -> set[int]:
    """Return all ranks that are known: from logs, signs, and Slurm's number of tasks."""
    found = {each.rank for each in evidence.ranks if each.rank is not None}
    found |= {sign.place.rank for sign in evidence.signs if sign.place.rank is not None}
    if evidence.job is not None and evidence.job.tasks and found and max(found) < evidence.job.tasks:
        found |= set(range(evidence.job.tasks))
    return found


def logged_of(evidence: Evidence) -> set[int]:
    """Return the ranks of which there is a log."""
    return {each.rank for each in evidence.ranks if each.rank is not None}


def hang_starts(signs: Iterable[Sign]) -> float | None:
    """Return when the first collective that timed out began to wait [s since 1970]."""
    starts = defaultdict(list)
    for sign in signs:
        if sign.signature == _TIMEOUT and sign.time_s is not None and sign.fields.get("ran_ms", "").isdecimal():
            starts[sign.fields.get("seq", "")].append(sign.time_s - int(sign.fields["ran_ms"]) / 1e3)
    return min((min(found) for found in starts.values()), default=None)
