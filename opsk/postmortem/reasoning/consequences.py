"""Demotes what follows from another failure: later exceptions, exceptions after hardware failed, and clean-up."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from opsk.postmortem.logs.exceptions import is_plain_end
from opsk.postmortem.reasoning.candidate import ENDS_JOB, PROCESS_ENDS, is_labelled
from opsk.postmortem.reasoning.ends import find_step_begins
from opsk.postmortem.reasoning.steps import LastSteps
from opsk.postmortem.values import FailureClass, Finding, Origin, Role
from opsk.units import KIB

_EXCEPTION = "python.exception"
_CHAIN_BYTES = 65536
_NEAR_BYTES = 8192
_AFTER_S = 300.0
"""An exception this soon after hardware failed on its node follows from that [s]."""
_CLOCK_S = 2.5
_INFRASTRUCTURE = frozenset(
    (FailureClass.GPU_HARDWARE, FailureClass.NVLINK, FailureClass.FABRIC, FailureClass.NODE, FailureClass.STORAGE)
)
_OF_PROGRAM = (FailureClass.SOFTWARE, FailureClass.CONFIG)
_LOOKUPS = frozenset(
    ("KeyError", "IndexError", "LookupError", "AttributeError", "ImportError", "ModuleNotFoundError", "StopIteration",
     "FileNotFoundError", "FileExistsError", "Empty", "TimeoutError", "NotImplementedError")
)  # fmt: skip
"""Programs try these and go on in another way; what fails on that way is the root, unless they raise it themselves."""
_LOOKUPS_OF_FILES = ("ImportError", "ModuleNotFoundError", "FileNotFoundError")
_MISSING = ("python.import", "config.hydra", "hub.unknown_model")
"""What they miss may be what a line above did not set up."""
_CLEANED_UP = ("Terminated", "Killed")
"""How several tasks end that srun or scancel ended; anything else they did themselves."""
_OF_SCRIPTS = ("shell.not_found", "shell.syntax", "shell.denied")
_LINE_OF_SCRIPT = re.compile(r": line \d{1,6}: ")
_REFUSED = "args.unrecognised"
_FAR_BYTES = 16384
"""What stands this far below is not of the same start of a program."""
_WATCHDOG = "torch.watchdog_timeout"
_MEETINGS = ("rendezvous.store_timeout", "rendezvous.connection_refused")
_ENDS_A_RANK = (_EXCEPTION, "torch.cuda_oom", "args.unrecognised", "python.import")
_WARNS = ("horovod.stalled", "rendezvous.barrier_waiting", "lightgbm.connecting")
"""They warn of a hang that may still end well."""
_FOLLOWS = {
    "cuda.unknown_error": ("deepep.timeout",),
    "torch.dataloader_killed": ("torch.dataloader_ended", "torch.dataloader_terminated"),
}
"""DeepEP's kernels print that they waited in vain, and trap: CUDA calls that a launch failure. PyTorch says with which
status a worker of the data loader ended, and in its last exception without it."""
_LISTING_BYTES = 32 * KIB
"""Horovod lists the tensors of all missing ranks below its warning."""
_WAITING = ("rendezvous.barrier_waiting", "lightgbm.connecting")
_PASSED = ("rendezvous.barrier_passed", "lightgbm.connected")
"""Ranks wait for others at the start; they came."""
_ASKED_TO_END = "launcher.sigterm"
_UNKILLABLE = "slurm.unkillable"
_KILLS_ON_BAD_EXIT = "Terminating StepId="
"""srun prints this when a task failed, and not after scancel."""
_BEFORE_STEP_ENDS = (
    "slurm.node_not_responding", "slurm.node_lost", "slurm.node_failure", "slurm.task_out_of_memory", "slurm.oom_kill",
    "slurm.launch_failed", "slurm.launch_on_node_failed", "mpi.pmix_error", "mpi.abort",
)  # fmt: skip
"""After these srun cancels the step by itself: nobody called scancel."""


def demote_consequences(
    findings: Sequence[Finding], dropped: Sequence[Finding], steps: LastSteps, node_of_rank: Mapping[int, str]
) -> tuple[Finding, ...]:
    """Return findings in which only what can have begun the failure is a root.

    Parameters
    ----------
    dropped
        Exceptions that have a signature of their own: what is chained to them follows from them.
    node_of_rank
        The node of each rank, where it is known.
    """
    changed = _demote_later_exceptions([_demote_warning(each, steps) for each in findings], dropped, steps)
    changed = _demote_after_hardware(changed, steps, node_of_rank)
    changed = _demote_after_time_out(changed)
    changed = _demote_after_program(_demote_repeated(changed), steps)
    changed = _demote_first_tries(changed)
    changed = _demote_lines_of_script(changed, steps)
    changed = _demote_clean_up(changed, steps)
    return tuple(_demote_waits(_demote_ends(changed)))


def _demote_warning(finding: Finding, steps: LastSteps) -> Finding:
    """Demote a warning of a hang after which training went on: the ranks that were late did come."""
    if finding.signature in _WARNS and (steps.are_after(finding) or steps.find_rest_bytes(finding) > _LISTING_BYTES):
        return replace(finding, role=Role.ADVICE, failure=None)
    return finding


def _demote_waits(findings: Sequence[Finding]) -> list[Finding]:
    """Demote that ranks waited at the start where they came, or where another failure says why they did not."""
    passed: dict[str, int] = {}
    for finding in findings:
        if finding.signature in _PASSED:
            passed[finding.source] = max(finding.order, finding.last_order, passed.get(finding.source, -1))
    explained = any(
        each.role is Role.ROOT and each.signature not in _WAITING and each.failure not in ENDS_JOB for each in findings
    )
    return [
        replace(each, role=Role.CONFIRMATION)
        if each.signature in _WAITING and (explained or max(each.order, each.last_order) < passed.get(each.source, -1))
        else each
        for each in findings
    ]


def _demote_later_exceptions(
    findings: Sequence[Finding], dropped: Sequence[Finding], steps: LastSteps
) -> list[Finding]:
    """Demote the exceptions that one rank raises after its first: the others are raised while it is handled.

    What training survived is no first one.
    """
    groups: dict[tuple[str, int | None, bool], list[Finding]] = defaultdict(list)
    asked: dict[tuple[str, int | None], list[int]] = defaultdict(list)
    for finding in findings:
        if finding.signature == _ASKED_TO_END or is_plain_end(finding.fields.get("type", "")):
            asked[finding.source, finding.place.rank] += [finding.order, finding.last_order]
        if finding.signature == _EXCEPTION and finding.role is Role.ROOT:
            groups[finding.source, finding.place.rank, steps.are_after(finding)].append(finding)
    later: set[int] = set()
    for (source, rank, _), exceptions in groups.items():
        ordered = sorted(exceptions, key=lambda each: each.order)
        root = _find_unhandled(ordered)
        later |= {id(each) for each in ordered if each is not root and each.order - ordered[0].order < _CHAIN_BYTES}
        heads = [each for each in dropped if (each.source, each.place.rank) == (source, rank)]
        if any(each.fields.get("chained") and 0 < root.order - each.order < _CHAIN_BYTES for each in heads):
            later.add(id(root))
        if _is_handled_lookup(root) and any(0 < at - root.order < _CHAIN_BYTES for at in asked[source, rank]):
            later.add(id(root))  # a signal came while it was handled
    return [_demote(finding, later, steps) for finding in findings]


def _demote(finding: Finding, later: set[int], steps: LastSteps) -> Finding:
    """Return an exception with its role: what follows another one is a cascade, what training survived is no root."""
    if finding.signature != _EXCEPTION or finding.role is not Role.ROOT:
        return finding
    if id(finding) in later:
        return replace(finding, role=Role.CASCADE)
    return replace(finding, role=Role.CONFIRMATION) if steps.are_after(finding) else finding


def _find_unhandled(ordered: Sequence[Finding]) -> Finding:
    """Return the first exception of a row that was not handled: a failed look-up is, unless what follows is raised."""
    root = ordered[0]
    for following in ordered[1:]:
        if not _is_handled_lookup(root) or following.fields.get("raised"):
            break
        root = following
    return root


def _is_handled_lookup(finding: Finding) -> bool:
    """Return whether an exception is a failed look-up, during whose handling another one was raised."""
    return finding.fields.get("type") in _LOOKUPS and finding.fields.get("chained") == "during"


def _demote_after_hardware(
    findings: Sequence[Finding], steps: LastSteps, node_of_rank: Mapping[int, str]
) -> list[Finding]:
    """Demote exceptions in a program whose GPU, network or storage had just failed on the same node or rank."""

    def find_node(finding: Finding) -> str:
        rank = finding.place.rank
        return finding.place.node or (node_of_rank.get(rank, "") if rank is not None else "")

    failed = [
        finding
        for finding in findings
        if finding.role is Role.ROOT
        and finding.failure in _INFRASTRUCTURE
        and finding.signature != _EXCEPTION
        and not steps.are_after(finding)
    ]
    changed = []
    for finding in findings:
        is_exception = finding.signature == _EXCEPTION and finding.role is Role.ROOT and finding.failure in _OF_PROGRAM
        node = find_node(finding) if is_exception and failed else ""
        follows = is_exception and any(
            ((node and node == find_node(each)) or _is_same_rank(finding, each)) and _is_soon_after(finding, each)
            for each in failed
        )
        changed.append(replace(finding, role=Role.CASCADE) if follows else finding)
    return changed


def _is_same_rank(first: Finding, second: Finding) -> bool:
    """Return whether two findings are of one rank of one log."""
    is_rank = first.place.rank is not None and first.place.rank == second.place.rank
    return is_rank and first.source == second.source


def _is_soon_after(finding: Finding, failed: Finding) -> bool:
    """Return whether a finding came after a failure, and soon: by times, else by the log that both are in."""
    if finding.source == failed.source:
        return finding.order > failed.order
    time_s = finding.time_s if finding.time_s is not None else finding.latest_s
    if time_s is None:
        return finding.earliest_s is None or failed.time_s is None or finding.earliest_s - failed.time_s <= _AFTER_S
    return failed.time_s is not None and -_CLOCK_S <= time_s - failed.time_s <= _AFTER_S


def _demote_after_time_out(findings: Sequence[Finding]) -> list[Finding]:
    """Demote what a rank says after its own watchdog: the collective was aborted, and its results are garbage."""
    gave_up: dict[tuple[str, int], int] = {}
    for finding in findings:
        if finding.signature == _WATCHDOG and finding.place.rank is not None:
            who = finding.source, finding.place.rank
            gave_up[who] = min(finding.order, gave_up.get(who, finding.order))
    return [
        replace(finding, role=Role.CASCADE)
        if finding.role is Role.ROOT
        and finding.place.rank is not None
        and finding.signature in (_EXCEPTION, *PROCESS_ENDS)
        and finding.failure in _OF_PROGRAM
        and finding.order > gave_up.get((finding.source, finding.place.rank), finding.order)
        else finding
        for finding in findings
    ]


def _demote_after_program(findings: Sequence[Finding], steps: LastSteps) -> list[Finding]:
    """Demote the loss of the store in a log after a rank raised an exception: the agents went away one by one."""
    raised: dict[str, int] = {}
    for finding in findings:
        is_end = finding.signature in _ENDS_A_RANK and finding.role is Role.ROOT and not steps.are_after(finding)
        if is_end and is_labelled(finding):
            raised[finding.source] = min(finding.order, raised.get(finding.source, finding.order))
    return [
        replace(finding, role=Role.CASCADE)
        if finding.role is Role.ROOT
        and finding.signature in _MEETINGS
        and finding.order > raised.get(finding.source, finding.order)
        else finding
        for finding in findings
    ]


def _demote_first_tries(findings: Sequence[Finding]) -> list[Finding]:
    """Demote an argument that a program refused where much further down it ran, and failed in another way."""
    last: dict[str, int] = {}
    for finding in findings:
        is_root = finding.role is Role.ROOT and finding.origin is Origin.JOB_LOG and not is_labelled(finding)
        if is_root and finding.failure not in (FailureClass.CONFIG, FailureClass.RENDEZVOUS):
            last[finding.source] = max(finding.order, last.get(finding.source, 0))
    return [
        replace(finding, role=Role.CONFIRMATION)
        if finding.signature == _REFUSED
        and finding.role is Role.ROOT
        and not is_labelled(finding)
        and max(finding.order, finding.last_order) < last.get(finding.source, 0) - _FAR_BYTES
        else finding
        for finding in findings
    ]


def _demote_lines_of_script(findings: Sequence[Finding], steps: LastSteps) -> list[Finding]:
    """Demote what a shell says of a line of its script where it went on, as after its program failed or trained.

    A program that ran below a line that failed, and ended by an exception on anything but what is missing, is the root.
    """
    failed: dict[str, int] = {}
    raised: dict[str, int] = {}
    for finding in findings:
        if finding.role is Role.ROOT and finding.fields.get("top"):
            failed[finding.source] = min(finding.order, failed.get(finding.source, finding.order))
            if finding.fields.get("type") not in _LOOKUPS_OF_FILES and finding.signature not in _MISSING:
                raised[finding.source] = max(finding.order, raised.get(finding.source, -1))

    begins = {each.source: each.order for each in findings if each.fields.get("opening")}

    def is_later(finding: Finding) -> bool:
        if finding.role is not Role.ROOT or finding.signature not in _OF_SCRIPTS:
            return False
        if _LINE_OF_SCRIPT.search(finding.text) is None:
            return False
        if finding.order > failed.get(finding.source, finding.order):
            return True
        if max(finding.order, finding.last_order) < raised.get(finding.source, -1) and not is_labelled(finding):
            return True
        last = steps.by_source.get(finding.source)
        is_of_run = last is not None and (last.last_progress_order or 0) > begins.get(finding.source, -1)
        return is_of_run and steps.follow_in_log(finding) is False

    return [replace(each, role=Role.ADVICE, failure=None) if is_later(each) else each for each in findings]


def _demote_repeated(findings: Sequence[Finding]) -> list[Finding]:
    """Demote what a library says of a failure that another line of it has told more of."""
    seen = {each.signature for each in findings}
    return [
        replace(each, role=Role.CASCADE)
        if seen.intersection(_FOLLOWS.get(each.signature, ())) and "signal" not in each.fields
        else each
        for each in findings
    ]


def _demote_clean_up(findings: Sequence[Finding], steps: LastSteps) -> list[Finding]:
    """Demote the cancellation of a step after one of its tasks failed: srun cancels it by itself.

    Somebody who calls scancel ends the job, which slurmstepd says as well. Of a step that could not be ended the node
    is at fault, whoever asked for its end.
    """
    failed: dict[str, list[int]] = defaultdict(list)
    begins = find_step_begins(findings)
    first = dict(sorted(begins, reverse=True))
    for finding in findings:
        is_ended = finding.fields.get("end", "").startswith(_CLEANED_UP)
        is_before = finding.order < first.get(finding.source, finding.order + 1)
        is_task = finding.signature == "slurm.task_killed" and (
            not is_ended or (is_before and finding.fields.get("tasks", "").isdecimal())
        )
        is_by_srun = finding.signature == "slurm.step_aborted" and _KILLS_ON_BAD_EXIT in finding.text
        if is_task or is_by_srun or finding.signature in _BEFORE_STEP_ENDS:
            failed[finding.source] += [finding.order, *([finding.last_order] if finding.last_order else [])]
    sorted_failed = {source: sorted(each) for source, each in failed.items()}
    is_job = any(each.signature == "slurm.cancelled" and each.fields.get("level") == "JOB" for each in findings)
    is_stuck = any(each.signature == _UNKILLABLE for each in findings)
    raised = [
        each
        for each in findings
        if each.role is Role.ROOT and each.origin is Origin.JOB_LOG and not steps.are_after(each)
    ]

    def is_clean_up(finding: Finding) -> bool:
        if finding.signature != "slurm.cancelled" or finding.fields.get("level") != "STEP":
            return False
        if is_stuck and not is_job:
            return True
        if finding.source in failed:
            begin, orders = begins[finding.source, finding.order], sorted_failed[finding.source]
            return bisect_right(orders, begin) < bisect_left(orders, finding.order)
        return not is_job and (bool(failed) or any(_came_before(each, finding) for each in raised))

    return [replace(finding, role=Role.CASCADE) if is_clean_up(finding) else finding for finding in findings]


def _came_before(raised: Finding, cancelled: Finding) -> bool:
    """Return whether a failure came before a step was cancelled, or may have."""
    if raised.source == cancelled.source:
        return raised.order < cancelled.order
    time_s = raised.time_s if raised.time_s is not None else raised.earliest_s
    return time_s is None or cancelled.time_s is None or time_s <= cancelled.time_s + _CLOCK_S


def _demote_ends(findings: Sequence[Finding]) -> list[Finding]:
    """Demote how a process ended where it printed a failure just before or after."""
    roots: dict[tuple[str, int | None], list[Finding]] = defaultdict(list)
    for finding in findings:
        if finding.role is Role.ROOT and finding.origin is Origin.JOB_LOG and finding.signature not in PROCESS_ENDS:
            roots[finding.source, finding.place.rank].append(finding)
    return [
        replace(finding, role=Role.CASCADE)
        if finding.role is Role.ROOT
        and finding.signature in PROCESS_ENDS
        and any(abs(each.order - finding.order) < _NEAR_BYTES for each in roots[finding.source, finding.place.rank])
        else finding
        for finding in findings
    ]
