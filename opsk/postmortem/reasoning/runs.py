"""Determines which failures in a log are of earlier runs: output is appended, and the last run decides.

Two things tell where another run begins: the first lines of the log stand again, or the same program raises a second
exception that nothing in it caught. Neither counts in a log that several ranks write, or that a launcher reports in.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from opsk.postmortem.reasoning.ends import ENDS_OF_COMMANDS, REPORTS_OF_ENDS
from opsk.postmortem.reasoning.places import rank_identity
from opsk.postmortem.values import TRIFLE, Evidence, FailureClass, Finding, Origin, RankProgress, Role

_RUN_BEGINS = "run.begins"
EARLIER = "earlier_run"
"""Field of a finding that is of an earlier run."""
_OF_A_RUN = frozenset(
    (FailureClass.SOFTWARE, FailureClass.CONFIG, FailureClass.GPU_MEMORY, FailureClass.HOST_MEMORY,
     FailureClass.STORAGE, FailureClass.RENDEZVOUS, FailureClass.NUMERIC, FailureClass.CANCELLED)
)  # fmt: skip
"""Over when the next run begins; a broken GPU, link or node is not."""
_MAX_NOTES = 4
_REFUSED = "args.unrecognised"
_REFUSED_BY = re.compile(r"(?P<program>[\w./-]{1,200}\.py): error: ")
"""argparse ends a program by this line."""


def demote_earlier_runs(findings: Sequence[Finding], ranks: Sequence[RankProgress]) -> list[Finding]:
    """Return findings in which what ended an earlier run of the same log is no root where the last one failed too."""
    counts = Counter(each.source for each in ranks if rank_identity(each))
    several = {source for source, count in counts.items() if count > 1}
    several |= {
        each.source
        for each in findings
        if _is_of_a_rank(each) or (each.signature in REPORTS_OF_ENDS and each.signature not in ENDS_OF_COMMANDS)
    }
    by_source: dict[str, list[Finding]] = defaultdict(list)
    for each in findings:
        if each.origin in (Origin.JOB_LOG, Origin.LAUNCHER) and each.source not in several:
            by_source[each.source].append(each)
    begins = {source: max(_find_opening(those), _find_end_before(those)) for source, those in by_source.items()}

    def is_earlier(finding: Finding) -> bool:
        return (
            finding.role is Role.ROOT
            and finding.origin is Origin.JOB_LOG
            and finding.failure in _OF_A_RUN
            and _find_last_order(finding) < begins.get(finding.source, -1)
        )

    return [
        replace(each, role=Role.CONFIRMATION, fields={**each.fields, EARLIER: "yes"}) if is_earlier(each) else each
        for each in findings
    ]


def has_progressed(evidence: Evidence) -> bool:
    """Return whether training made steps, of several runs in a log the last one's."""
    begins = {each.source: each.order for each in evidence.findings if _is_opening(each)}
    return any(
        each.last_progress_order is not None and each.last_progress_order > begins.get(each.source, -1)
        for each in evidence.ranks
    )


def with_run_notes(evidence: Evidence, findings: Sequence[Finding]) -> Evidence:
    """Return evidence that notes which logs hold earlier runs that failed, and which lines of scripts failed last."""
    last: dict[str, Finding] = {}
    for finding in findings:
        known = last.get(finding.source)
        if finding.fields.get(EARLIER) and (known is None or finding.order > known.order):
            last[finding.source] = finding
    notes = [
        f"{source}: several runs, one below the other: what ended those up to line {finding.line} is no cause of how "
        "the last one ended"
        for source, finding in last.items()
    ]
    notes += [
        f"{each.source}: line {each.line}: a line of the script failed after its program had run: its exit status is "
        "that of the script only if it is the last one"
        for each in findings
        if each.fields.get(TRIFLE) and each.role is Role.ADVICE
    ]
    return replace(evidence, notes=(*evidence.notes, *notes[:_MAX_NOTES])) if notes else evidence


def _is_of_a_rank(finding: Finding) -> bool:
    """Return whether a label tells which of several processes printed a line; the number of a GPU does not."""
    place = finding.place
    is_local = place.local_rank is not None and "local_rank" not in finding.fields
    return place.rank is not None or bool(place.ranks) or is_local


def _find_opening(findings: Sequence[Finding]) -> int:
    """Return where the first lines of a log stand again and a run begins that fails; -1 where there is none.

    A script whose programs begin with the same lines is one run: what failed first made the others fail.
    """
    opening = max((each.order for each in findings if each.signature == _RUN_BEGINS and _is_opening(each)), default=-1)
    after = [each for each in findings if each.role is Role.ROOT and each.order > opening]
    before = [each for each in findings if each.role is Role.ROOT and _find_last_order(each) < opening]
    if opening < 0 or not after:
        return -1
    programs = [{name for each in those if (name := each.fields.get("program"))} for those in (before, after)]
    return -1 if all(programs) and not programs[0] & programs[1] else opening


def _find_end_before(findings: Sequence[Finding]) -> int:
    """Return where the last run but one of a program ended by an exception, and the last one did; -1 where none did."""
    ends: Mapping[str, list[Finding]] = defaultdict(list)
    for each in findings:
        refused = _REFUSED_BY.match(each.text) if each.signature == _REFUSED else None
        program = refused["program"] if refused is not None else each.fields.get("program", "")
        has_ended = refused is not None or bool(each.fields.get("top") and not each.fields.get("chained"))
        if program and has_ended and each.role is Role.ROOT:
            ends[program].append(each)
    if not ends:
        return -1
    those = max(ends.values(), key=lambda each: max(map(_find_last_order, each)))
    last = max(those, key=_find_last_order)
    if last.failure is FailureClass.CANCELLED or not (last.signature == _REFUSED or last.fields.get("apart")):
        return -1  # another rank of the same job, or the same exception raised anew
    orders = [order for each in those if (order := _find_last_order(each)) < last.order]
    return max(orders, default=-2) + 1


def _is_opening(finding: Finding) -> bool:
    """Return whether a finding is of the log's own first lines."""
    return bool(finding.fields.get("opening"))


def _find_last_order(finding: Finding) -> int:
    """Return where a finding was seen last in its log."""
    return max(finding.order, finding.last_order)
