"""Determines what a log shows was survived: earlier jobs and runs in it, and failures that it goes on long after."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from opsk.postmortem.logs.levels import find_level
from opsk.postmortem.reasoning.candidate import is_labelled
from opsk.postmortem.reasoning.ends import ENDS_OF_COMMANDS, REPORTS_OF_ENDS, is_cancelled_step
from opsk.postmortem.reasoning.places import rank_identity
from opsk.postmortem.reasoning.steps import GOES_ON_BYTES
from opsk.postmortem.values import LAST_WORDS, TRIFLE, FailureClass, Finding, Origin, RankProgress, Role
from opsk.units import KIB

_NEXT_JOB_BYTES = 64 * KIB
"""More than the ranks of a job still write while Slurm ends it, unless they say why they end."""
_WARNED_GOES_ON_BYTES = KIB
"""A program that warned goes on: this much below its warning is no more its last words."""
_GOES_ON_S = 120.0
"""Lines with times go on for longer than a program takes to end after it has failed [s]."""
_GOES_ON_TIMED_BYTES = 4 * KIB
"""So much is to be there as well: the next run may have begun, and nobody knows yet how it ends."""
_MEETS = frozenset(
    ("rendezvous.address_in_use", "rendezvous.connection_refused", "rendezvous.name_unknown", "nccl.bootstrap_failed",
     "rendezvous.unique_id", "nccl.ranks_doubled", "gloo.full_mesh")
)  # fmt: skip
"""At the start: ranks that train have met, or those of another run have that writes the same log."""
_NEXT_TRIAL, _RUN_BEGINS = "sweep.next_trial", "run.begins"
_LSF_REPORT, _OUTPUT_BELOW = "batch.report", "batch.output_below"
_EXCEPTION = "python.exception"
_LAST_WORDS_OF_ANY = (
    "program.last_error", "program.last_refusal", "program.said_failed", "program.usage", "compile.refused",
    "program.last_words_on_files", "program.last_words_on_itself",
)  # fmt: skip
"""After training these may be words on anything."""
_PRINTED, _BUFFERED_BYTES = "Setting OMP_NUM_THREADS", 512
"""What torch.distributed.launch printed at its start comes last where it was buffered, with little below it."""
_MANY = 100
"""So often nothing was gained by trying again."""
_IN_REPORT = "batch."
"""LSF states in its report below a job's output how it ended; the output of the next job stands below that."""
_SURVIVABLE = frozenset((FailureClass.SOFTWARE, FailureClass.CONFIG, FailureClass.GPU_MEMORY))
"""Programs handle exceptions of these classes and go on, and scripts start the next program."""
_OF_A_RUN = _SURVIVABLE | {
    FailureClass.STORAGE, FailureClass.HOST_MEMORY, FailureClass.RENDEZVOUS, FailureClass.NUMERIC,
    FailureClass.CANCELLED,
}  # fmt: skip
"""What ended one run is over when the next one begins."""
_CAUGHT = _OF_A_RUN - {FailureClass.NUMERIC, FailureClass.CANCELLED}
"""Programs catch what raises these, say so, and go on with something else; numbers that went wrong stay wrong."""


_NOT_INSTALLED, _INSTALLED = "packages.unresolved", "packages.installed"
"""pip builds a package in another way where the first one fails."""
_INTERRUPTED = "lightning.interrupted"
"""Lightning ends its training only, and the program goes on."""
_OF_RAY = "ray."
"""The nodes of one start of Ray are not those of the next."""
_WHILE_AT_WORK = (FailureClass.TIME_LIMIT, FailureClass.PREEMPTED)
_OF_SET_UP = ("shell.", "packages.")
"""A script that one of its first lines ends does not work until its time is up."""
_STAYS = frozenset(
    (FailureClass.NUMERIC, FailureClass.CANCELLED, FailureClass.PREEMPTED, FailureClass.TIME_LIMIT,
     FailureClass.COLLECTIVE_HANG)
)  # fmt: skip
"""No program works these off: numbers stay wrong, and who ends a job ends it whatever it still prints."""
_ENDS_PROGRAMS = ("shell.", "args.", "build.", "process.", "program.", "launcher.", "slurm.", "mpi.", "batch.")
"""Families whose words are a program's last, or a launcher's or shell's on one that has ended."""
_OF_A_TOOL = re.compile(
    r"(?:\S{0,200}/)?(?:gzip|gunzip|zcat|cp|mv|rm|rmdir|ls|cat|ln|mkdir|tar|unzip|find|grep|sed|awk|head|tail|wc|chmod"
    r"|chown|touch|du|df|stat|rsync|scp|wget|curl|git|cmp|diff|sort|md5sum|sha256sum|readlink|realpath|nvidia-smi|which)"
    r": |cannot create directory ['‘]"
)
"""A tool that a script or program called complains, and the caller goes on."""
_ONLY_PREPARES, _ADVICE_BYTES = "shell.module_unknown", KIB
"""Lmod and conda give so much advice below what they say."""
_LOST_WORKER, _RUNS_AGAIN = "ray.worker_lost", "A worker died or was killed while executing a task"
"""Ray runs the tasks of such a process again."""
_CAUGHT_ERRNO = re.compile(r"\[Errno \d{1,3}\] ")
"""Python's words for an error of the system: a program that prints them has caught it, a shell has others."""
_CANNOT_OPEN = "can't open file"
"""Python itself says so of the script that it is to run, and ends."""
_LAST_WORDS = re.compile(
    r"\b(?:training|job|run|program|experiment|script|pipeline|evaluation) (?:has |was )?(?:failed|crashed|aborted)\b"
    r"|\bfatal\b|\b(?:aborting|exiting|giving up)\b",
    re.IGNORECASE,
)
"""A handler that says so ends the program, whatever it prints while it does."""


def drop_earlier_jobs(findings: Sequence[Finding], ranks: Sequence[RankProgress]) -> list[Finding]:
    """Return findings without those of jobs that ended in the same log before its last one did.

    The last one may have ended without a word of Slurm: then steps of training follow, or very much and no failure.
    """
    ends: dict[str, list[Finding]] = defaultdict(list)
    reports: dict[str, list[int]] = defaultdict(list)
    for finding in findings:
        if finding.origin is Origin.LAUNCHER and finding.role is Role.ROOT and finding.fields.get("level") == "JOB":
            ends[finding.source].append(finding)
        elif finding.signature == _LSF_REPORT:
            reports[finding.source].append(finding.order)
    below = {each.source for each in findings if each.signature == _OUTPUT_BELOW}
    begins = {
        source: sorted(orders)[-1 if source in below else -2] - 1 for source, orders in reports.items()
        if len(orders) > 1
    }  # fmt: skip
    reported = {source: max(orders) for source, orders in reports.items()}
    for source, those in ends.items():
        last = max(those, key=lambda each: each.order)
        earlier = [each.order for each in those if each.fields.get("job") != last.fields.get("job")]
        is_earlier = _is_followed_by_job(last, findings, ranks)
        begins[source] = last.order if is_earlier else max(earlier, default=-1)

    def is_of_last(finding: Finding) -> bool:
        order = _find_last_order(finding)
        if finding.signature.startswith(_IN_REPORT) and order < reported.get(finding.source, -1):
            return False
        return order > begins.get(finding.source, -1)

    return [each for each in findings if each.origin is Origin.KERNEL or is_of_last(each)]


def _is_followed_by_job(end: Finding, findings: Sequence[Finding], ranks: Sequence[RankProgress]) -> bool:
    """Return whether the end of a job is followed by another job in the same log, and not by its own last output."""
    rest_bytes = _find_size(end.source, ranks) - end.order
    has_ended = any(
        each.role is Role.END and each.signature != LAST_WORDS and each.source == end.source and each.order > end.order
        for each in findings
    )
    if has_ended and _find_step_before_last(end.source, ranks) > end.order and rest_bytes > _GOES_ON_TIMED_BYTES:
        return True
    begins = _find_last(each for each in findings if each.signature == _RUN_BEGINS).get(end.source, -1) > end.order
    if (begins or rest_bytes > GOES_ON_BYTES) and _find_last_step(end.source, ranks) > end.order:
        return True
    fails = any(each.source == end.source and each.order > end.order and _shows_failure(each) for each in findings)
    return rest_bytes > _NEXT_JOB_BYTES and not fails


def demote_survived(
    findings: Sequence[Finding], ranks: Sequence[RankProgress], *, has_failed: bool
) -> tuple[Finding, ...]:
    """Return findings in which what was survived is no root.

    A log goes on for long and nothing else in it fails, or much later something fails that is no consequence. In a
    search for settings the next trial is enough, and so is the beginning of another run after which nothing fails.
    A program that only warned went on if a little more is there, and ranks that train have met. Where several ranks
    write one log, the others go on for a while after one has failed.

    Parameters
    ----------
    has_failed
        Whether Slurm's record says so: then the one thing that failed is not survived, whatever follows.
    """
    if not has_failed:
        ends = _find_last(each for each in findings if each.role is Role.END and each.signature != LAST_WORDS)
        findings = [_demote_trifle(each, ends, ranks) for each in findings]
    last = _find_last(each for each in findings if _shows_failure(each))
    trials = _find_last(each for each in findings if each.signature == _NEXT_TRIAL)
    runs = _find_last(each for each in findings if each.signature == _RUN_BEGINS and _is_followed(each, ranks))
    installed = _find_last(each for each in findings if each.signature == _INSTALLED)
    late = _find_last(each for each in findings if each.role is Role.ROOT and not is_labelled(each))
    ended = _find_last(each for each in findings if each.role is Role.ROOT and each.fields.get("level") == "JOB")
    timed_out = _find_last(each for each in findings if each.role is Role.ROOT and each.failure in _WHILE_AT_WORK)
    cancelled = _find_last(
        each for each in findings if each.role is Role.ROOT and each.failure is FailureClass.CANCELLED
    )
    often = Counter[str]()
    for each in findings:
        often[each.source] += each.count if _is_failure_of_program(each) else 0
    of_several = _find_logs_of_several(ranks)
    outlived = frozenset[str]() if has_failed else _find_outlived(findings, ranks) - of_several

    def goes_on(finding: Finding, timed_bytes: int = _GOES_ON_TIMED_BYTES) -> bool:
        source, last_order = finding.source, last.get(finding.source, -1)
        rest_bytes = _find_size(source, ranks) - last_order
        if has_failed or source in of_several or rest_bytes <= timed_bytes:
            return False
        return rest_bytes > GOES_ON_BYTES or _goes_on_for_s(finding, last_order, ranks) > _GOES_ON_S

    last_of_all = _find_last_failures(findings)

    def works_on(source: str) -> bool:
        """Return whether the program goes on below what failed last in its log, which did not end it by itself."""
        failed = last_of_all.get(source)
        if failed is None or has_failed or source in of_several:
            return False
        if _ends_program(failed) and (often[source] < _MANY or failed.origin is not Origin.JOB_LOG):
            return False
        return last[source] < _find_ordinary(source, ranks)

    def is_survived(finding: Finding) -> bool:
        source, order = finding.source, max(finding.order, finding.last_order)
        if finding.role is not Role.ROOT or finding.origin is not Origin.JOB_LOG:
            return False
        is_of_one = source not in of_several
        level = find_level(finding) if not has_failed else ""
        if level == "WARNING":
            return _find_size(source, ranks) - order > _WARNED_GOES_ON_BYTES
        if level == "INFO" and finding.failure in _CAUGHT and is_of_one and not _ends_program(finding):
            return _find_size(source, ranks) - order > _GOES_ON_TIMED_BYTES
        if finding.signature in _MEETS and not has_failed and is_of_one and not is_labelled(finding):
            return order < _find_step_before_last(source, ranks) or goes_on(finding, timed_bytes=0)
        is_of_run = finding.failure in _OF_A_RUN or finding.signature.startswith(_OF_RAY)
        if is_of_run and last[source] < runs.get(source, -1) and is_of_one:
            return True
        if finding.signature == _NOT_INSTALLED and order < installed.get(source, -1) and not has_failed:
            return True
        if finding.signature == _INTERRUPTED and works_on(source):
            return True
        if finding.signature.startswith(_OF_SET_UP) and is_of_one and order < timed_out.get(source, -1):
            return True
        is_of_set_up = finding.signature.startswith(_OF_SET_UP) and is_of_one and not has_failed
        if is_of_set_up and order + _ADVICE_BYTES < _find_ordinary(source, ranks) < cancelled.get(source, -1):
            return True
        if finding.signature == _ONLY_PREPARES and last[source] + _ADVICE_BYTES < _find_ordinary(source, ranks):
            return not has_failed and is_of_one
        is_caught = not _ends_program(finding) or often[source] >= _MANY
        if finding.failure in _CAUGHT and is_caught and works_on(source):
            return True
        if finding.failure in _CAUGHT and is_of_one and ended.get(source, -1) - order > _NEXT_JOB_BYTES:
            return True
        if finding.failure in _OF_A_RUN and order < trials.get(source, -1):
            return True
        is_of_ended_program = finding.failure in _OF_A_RUN and bool(finding.fields.get("top"))
        if finding.failure not in _SURVIVABLE and not is_of_ended_program:
            return False
        is_followed = not is_labelled(finding) and late.get(source, -1) - order > _NEXT_JOB_BYTES
        return goes_on(finding) or (is_followed and is_of_one)

    def judge(finding: Finding) -> Finding:
        if finding.source in outlived and finding.origin is not Origin.KERNEL:
            return _demote_outlived(finding)
        is_of_any = finding.signature in _LAST_WORDS_OF_ANY and finding.role is Role.ROOT and not has_failed
        if is_of_any and _find_last_step(finding.source, ranks) >= 0:
            return replace(finding, role=Role.CONFIRMATION)
        rest_bytes = _find_size(finding.source, ranks) - finding.order
        if not has_failed and is_cancelled_step(finding) and rest_bytes > _NEXT_JOB_BYTES:
            return replace(finding, role=Role.CONFIRMATION)
        is_end = finding.signature in ENDS_OF_COMMANDS and finding.role is not Role.ADVICE
        if is_end or finding.signature == _LOST_WORKER:
            last_order = max(last.get(finding.source, -1), _find_last_order(finding))
            is_of_earlier = not has_failed and last_order < runs.get(finding.source, -1)
            is_again = is_end or finding.text.startswith(_RUNS_AGAIN)
            if is_of_earlier or (is_again and goes_on(finding)):
                return replace(finding, role=Role.ADVICE, failure=None)
        if finding.role is Role.CASCADE and finding.signature == _EXCEPTION and works_on(finding.source):
            return replace(finding, role=Role.CONFIRMATION)
        return replace(finding, role=Role.CONFIRMATION) if is_survived(finding) else finding

    return tuple(judge(each) for each in findings)


def _find_outlived(findings: Sequence[Finding], ranks: Sequence[RankProgress]) -> frozenset[str]:
    """Return the logs of one program that is at work to the end, long after anything in them failed.

    Whatever failed there did not end it: a GPU, a link or a node that had would have.
    """
    failing: dict[str, list[Finding]] = defaultdict(list)
    ends = _find_last(each for each in findings if each.role is Role.END)
    for each in findings:
        if each.origin is not Origin.KERNEL and (_shows_failure(each) or each.role is Role.CONFIRMATION):
            failing[each.source].append(each)
    outlived = set()
    for source, those in failing.items():
        last_order = max(map(_find_last_order, those))
        rest_bytes = _find_size(source, ranks) - last_order
        is_long = rest_bytes > (GOES_ON_BYTES if ends.get(source, -1) > last_order else _NEXT_JOB_BYTES)
        if is_long and last_order < _find_ordinary(source, ranks) and not any(map(_ends_job_or_numbers, those)):
            outlived.add(source)
    return frozenset(outlived)


def _ends_job_or_numbers(finding: Finding) -> bool:
    """Return whether a finding tells that a job was ended, that numbers went wrong, or of one of several ranks."""
    return finding.failure in _STAYS or finding.fields.get("level") == "JOB" or is_labelled(finding)


def _demote_outlived(finding: Finding) -> Finding:
    """Return what the program outlived as no cause, and as no sign that it ended."""
    if finding.signature in REPORTS_OF_ENDS or (finding.role is Role.CONFIRMATION and finding.failure is not None):
        return replace(finding, role=Role.ADVICE, failure=None)
    return replace(finding, role=Role.CONFIRMATION) if finding.role in (Role.ROOT, Role.CASCADE) else finding


def _is_failure_of_program(finding: Finding) -> bool:
    """Return whether a program of the job says that it failed."""
    return finding.origin is Origin.JOB_LOG and (finding.role is Role.ROOT or finding.signature == _EXCEPTION)


def _is_followed(begin: Finding, ranks: Sequence[RankProgress]) -> bool:
    """Return whether more than an end stands below the line by which a run begins: a launcher's own may be buffered."""
    rest_bytes = _find_size(begin.source, ranks) - max(begin.order, begin.last_order)
    return not begin.text.startswith(_PRINTED) or rest_bytes > _BUFFERED_BYTES


def _demote_trifle(finding: Finding, ends: Mapping[str, int], ranks: Sequence[RankProgress]) -> Finding:
    """Return what failed of a script after its program had run as no cause."""
    trifle = finding.fields.get(TRIFLE)
    if finding.role is not Role.ROOT or not trifle:
        return finding
    is_after = -1 < max(ends.get(finding.source, -1), _find_last_step(finding.source, ranks)) < finding.order
    return replace(finding, role=Role.ADVICE, failure=None) if trifle == "yes" or is_after else finding


def _goes_on_for_s(finding: Finding, last_order: int, ranks: Sequence[RankProgress]) -> float:
    """Return for how long a log goes on after its last failure, by the times of its lines [s]; 0 where unknown."""
    since_s = finding.time_s if finding.time_s is not None else finding.latest_s
    until_s = max(
        (each.last_line_s for each in ranks if each.source == finding.source and each.last_line_s), default=0.0
    )
    if since_s is None or max(finding.order, finding.last_order) < last_order:
        return 0.0
    return until_s - max(since_s, finding.last_time_s or since_s)


def _find_logs_of_several(ranks: Sequence[RankProgress]) -> frozenset[str]:
    """Return the logs that several ranks write."""
    counts = Counter(each.source for each in ranks if rank_identity(each))
    return frozenset(source for source, count in counts.items() if count > 1)


def was_in_vain(finding: Finding, ranks: Sequence[RankProgress]) -> bool:
    """Return whether a program tried the same on storage again until its log ends: a full disk stays full."""
    rest_bytes = _find_size(finding.source, ranks) - finding.last_order
    return finding.failure is FailureClass.STORAGE and finding.count >= _MANY and rest_bytes < GOES_ON_BYTES


def _find_last(findings: Iterable[Finding]) -> Mapping[str, int]:
    """Return where in each log the last of some findings is."""
    last: dict[str, int] = {}
    for finding in findings:
        last[finding.source] = max(last.get(finding.source, -1), finding.order, finding.last_order)
    return last


def _shows_failure(finding: Finding) -> bool:
    """Return whether a finding shows that something failed, or followed from a failure."""
    return finding.role in (Role.ROOT, Role.CASCADE) or finding.signature in REPORTS_OF_ENDS


def _find_last_failures(findings: Iterable[Finding]) -> Mapping[str, Finding]:
    """Return the last finding of each log that shows that something failed."""
    failures: dict[str, Finding] = {}
    for finding in findings:
        if _shows_failure(finding):
            known = failures.get(finding.source)
            if known is None or _find_last_order(finding) > _find_last_order(known):
                failures[finding.source] = finding
    return failures


def _find_last_order(finding: Finding) -> int:
    """Return where a finding was seen last in its log."""
    return max(finding.order, finding.last_order)


def _ends_program(finding: Finding) -> bool:
    """Return whether a finding is a program's end by itself, or tells of one: what follows is of something else."""
    if _OF_A_TOOL.match(finding.text) is not None:
        return False
    is_caught = _CAUGHT_ERRNO.search(finding.text) is not None and _CANNOT_OPEN not in finding.text
    return (
        finding.origin is not Origin.JOB_LOG
        or bool(finding.fields.get("top") or finding.fields.get("uncaught"))
        or finding.signature in REPORTS_OF_ENDS
        or (finding.signature.startswith(_ENDS_PROGRAMS) and not is_caught)
        or _LAST_WORDS.search(finding.text) is not None
    )


def _find_ordinary(source: str, ranks: Sequence[RankProgress]) -> int:
    """Return where the third-last line of a program at work begins in a log; -1 where there is none near its end."""
    return max((each.ordinary_order for each in ranks if each.source == source and each.ordinary_order), default=-1)


def _find_size(source: str, ranks: Sequence[RankProgress]) -> int:
    """Return the size of a log [B]; 0 where it is not known."""
    return max((each.bytes for each in ranks if each.source == source), default=0)


def _find_step_before_last(source: str, ranks: Sequence[RankProgress]) -> int:
    """Return where a log reports the step before its last one; -1 where it reports none."""
    orders = (each.previous_progress_order for each in ranks if each.source == source)
    return max((order for order in orders if order is not None), default=-1)


def _find_last_step(source: str, ranks: Sequence[RankProgress]) -> int:
    """Return where a log reports its last step; -1 where it reports none."""
    orders = (each.last_progress_order for each in ranks if each.source == source)
    return max((order for order in orders if order is not None), default=-1)
