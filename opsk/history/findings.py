"""Says what earlier runs of a program mean for a submission: memory, idle GPUs, time limit, host memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from opsk.history.memory import LAST_RUNS, Change, MemoryEstimate, estimate_memory
from opsk.history.runs import PastRun
from opsk.history.submission import GPUS, Submission
from opsk.text import escape, format_count, format_duration
from opsk.units import as_gib

LOW_ACTIVITY = 0.4
"""GPUs that are busy for a smaller share of the time wait for something else."""
TIGHT_RATIO = 0.95
_PREALLOCATED = (0.745, 0.77)
"""JAX takes 75 % of a GPU at its start (XLA_PYTHON_CLIENT_MEM_FRACTION), whatever the program needs; its context adds
a little.
"""
_FILLED_RATIO = 0.88
"""TensorFlow and inference servers fill a GPU: from this share on, a peak says nothing about a smaller GPU."""
_CONSTANT = 0.005
"""The share of a GPU that a library takes differs by less between runs."""
_FAILED = frozenset({"FAILED", "OUT_OF_MEMORY", "BOOT_FAIL"})


class FindingKind(StrEnum):
    """What a finding is about."""

    MEMORY = "memory"
    CHANGE = "change"
    IDLE = "idle"
    TIME = "time"
    HOST_MEMORY = "host_memory"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One sentence about earlier runs; ``is_warning`` where this submission is likely to fail or to waste GPUs."""

    kind: FindingKind
    text: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedGpu:
    """The GPU that a submission requests: its name for people, and the memory of one, ``None`` where unknown."""

    name: str = ""
    capacity_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What is known of a submission from earlier runs.

    Parameters
    ----------
    runs
        Earlier runs of the program, the last one first.
    is_same_script
        Whether they are of the same script; else of the same command in another script.
    memory
        The memory that it needs; ``None`` where no run shows any.
    findings
        Sentences, the most important one first.
    """

    runs: tuple[PastRun, ...]
    is_same_script: bool
    memory: MemoryEstimate | None
    findings: tuple[Finding, ...]

    @property
    def states_memory(self) -> bool:
        """Whether the runs show how much memory this submission needs."""
        return self.memory is not None and self.memory.expected_bytes is not None


def summarise_program(
    same_script: Sequence[PastRun],
    same_command: Sequence[PastRun],
    submission: Submission,
    *,
    gpu: RequestedGpu,
    time_limit_s: float | None = None,
    account: str = "",
) -> History | None:
    """Return what earlier runs mean for a submission: those of its script, else those of its command too.

    The runs of the same command in scripts with more or fewer flags count where those of the script do not show how
    much memory the submission needs. Parameters are those of `summarise`.
    """
    of_script = summarise(same_script, submission, gpu=gpu, time_limit_s=time_limit_s, account=account)
    if of_script is not None and of_script.states_memory:
        return of_script
    runs = {(run.job, run.ended_at_s): run for run in (*same_script, *same_command)}
    if len(runs) == len(same_script):
        return of_script
    of_command = summarise(
        list(runs.values()), submission, gpu=gpu, time_limit_s=time_limit_s, is_same_script=False, account=account
    )
    is_better = of_command is not None and of_command.states_memory
    return of_command if is_better or of_script is None else of_script


def summarise(
    runs: Sequence[PastRun],
    submission: Submission,
    *,
    gpu: RequestedGpu,
    time_limit_s: float | None = None,
    is_same_script: bool = True,
    account: str = "",
) -> History | None:
    """Return what earlier runs mean for a submission; ``None`` without any run.

    Parameters
    ----------
    runs
        Runs of the same program, in any order.
    gpu
        The GPU that the submission requests.
    time_limit_s
        The time that it requests [s].
    account
        The account whose runs they are, for its coordinators; empty where they are the user's own.
    """
    ordered = tuple(sorted(runs, key=lambda run: -run.ended_at_s))
    if not ordered:
        return None
    settings = submission.settings
    if GPUS not in settings and GPUS in ordered[0].settings:
        settings = {**settings, GPUS: ordered[0].settings[GPUS]}  # the request does not say how many
    memory = estimate_memory(ordered, settings)
    program = "this script" if is_same_script else escape(submission.command) or "this command"
    subject = f"{program} in account {escape(account)}" if account else program
    whose = "" if account else "your "
    recent = ordered[:LAST_RUNS]
    candidates = (
        _judge_memory(memory, gpu, subject, whose) if memory is not None else None,
        _describe_change(memory, gpu) if memory is not None else None,
        _judge_time(recent, ordered, time_limit_s),
        _judge_host_memory(recent),
        _judge_idle(recent),
        _judge_failures(recent, whose),
    )
    findings = [finding for finding in candidates if finding is not None]
    if not findings:
        return None
    return History(runs=ordered, is_same_script=is_same_script, memory=memory, findings=tuple(findings))


def _judge_memory(memory: MemoryEstimate, gpu: RequestedGpu, subject: str, whose: str) -> Finding:
    """Return the sentence on measured memory, and whether the requested GPU has as much."""
    runs = [run for run in memory.runs[:LAST_RUNS] if run.memory_peak_bytes]
    peaks = sorted(run.memory_peak_bytes or 0.0 for run in runs)
    middle = peaks[len(peaks) // 2]
    spread = f" ({as_gib(peaks[0]):.1f}–{as_gib(peaks[-1]):.1f})" if as_gib(peaks[-1] - peaks[0]) >= 0.1 else ""
    on = ", ".join(dict.fromkeys(_name_gpu(run) for run in runs if run.gpu_type))
    count = "last run" if len(runs) == 1 else f"last {len(runs)} runs"
    text = f"{whose}{count} of {subject} peaked at {as_gib(middle):.1f} GiB a GPU{f' on {on}' if on else ''}{spread}"
    if memory.expected_bytes is None and gpu.capacity_bytes is not None and peaks[0] > gpu.capacity_bytes:
        is_share = _may_preallocate(runs)
        return Finding(
            kind=FindingKind.MEMORY, text=text if is_share else f"{text}, more than {_name_requested(gpu)} has",
            is_warning=not is_share,
        )  # fmt: skip
    if memory.changes or memory.expected_bytes is None:
        return Finding(kind=FindingKind.MEMORY, text=text)
    ending, is_warning = _judge_fit(memory, gpu, runs)
    return Finding(kind=FindingKind.MEMORY, text=text + ending, is_warning=is_warning)


def _judge_fit(memory: MemoryEstimate, gpu: RequestedGpu, runs: Sequence[PastRun]) -> tuple[str, bool]:
    """Return the words on whether an estimate fits, and whether they warn."""
    capacity = gpu.capacity_bytes
    if capacity is None or memory.low_bytes is None or memory.high_bytes is None:
        return "", False
    name = _name_requested(gpu)
    if memory.low_bytes > capacity:
        if _may_preallocate(runs):
            return f": may not fit into {name}, unless it takes whatever memory there is", True
        return f": will not fit into {name}", True
    if memory.high_bytes > TIGHT_RATIO * capacity and not _may_preallocate(runs):
        return f": tight in {name}", True
    return "", False


def _name_requested(gpu: RequestedGpu) -> str:
    size = f"{as_gib(gpu.capacity_bytes or 0.0):.1f} GiB"
    return f"{escape(gpu.name)} ({size})" if gpu.name else f"a GPU of {size}"


def _may_preallocate(runs: Sequence[PastRun]) -> bool:
    """Return whether the peaks may be the share of a GPU that a library takes, and not what the program needs."""
    shares = [
        run.memory_peak_bytes / run.capacity_bytes for run in runs if run.memory_peak_bytes and run.capacity_bytes
    ]
    if not shares or max(shares) - min(shares) > _CONSTANT:
        return False
    return _PREALLOCATED[0] <= min(shares) <= max(shares) <= _PREALLOCATED[1] or min(shares) >= _FILLED_RATIO


def _describe_change(memory: MemoryEstimate, gpu: RequestedGpu) -> Finding | None:
    """Return the sentence on settings that changed since the runs, with their effect where runs show it."""
    if not memory.changes:
        return None
    changes = ", ".join(_format_change(change) for change in memory.changes[:3])
    more = f" and {len(memory.changes) - 3} more" if len(memory.changes) > 3 else ""
    text = f"changed since then: {changes}{more}"
    if memory.expected_bytes is None or memory.low_bytes is None or memory.high_bytes is None:
        return Finding(kind=FindingKind.CHANGE, text=f"{text}; no earlier runs show what that does to memory")
    low, expected, high = (as_gib(value) for value in (memory.low_bytes, memory.expected_bytes, memory.high_bytes))
    line = (
        f"{as_gib(memory.constant_bytes):.1f} + {as_gib(memory.bytes_per_unit):.3g} GiB per {escape(memory.scaled_by)}"
    )
    count = format_count(len(memory.runs), "run")
    text += f"; memory was {line} in {count}: about {expected:.0f} GiB ({low:.0f}–{high:.0f})"
    ending, is_warning = _judge_fit(memory, gpu, memory.runs)
    return Finding(kind=FindingKind.CHANGE, text=text + ending, is_warning=is_warning)


def _format_change(change: Change) -> str:
    before, after = escape(change.before) or "not set", escape(change.after) or "not set"
    return f"{escape(change.name)} {before} → {after}"


def _name_gpu(run: PastRun) -> str:
    return escape(run.gpu_type).upper()


def _judge_time(recent: Sequence[PastRun], runs: Sequence[PastRun], limit_s: float | None) -> Finding | None:
    """Return the sentence on the time limit, where earlier runs met theirs or took longer than this one may."""
    ended = [run for run in recent if run.state == "TIMEOUT" and run.elapsed_s]
    whole = [run.elapsed_s for run in runs if run.state == "COMPLETED" and run.elapsed_s][:LAST_RUNS]
    longest_s = max(whole, default=0.0)
    met_s = max((run.elapsed_s or 0.0 for run in ended), default=0.0)
    if ended and (limit_s is None or limit_s <= 1.05 * met_s or longest_s > limit_s):
        times = {1: "once", 2: "twice"}.get(len(ended), f"{len(ended)} times")
        needed = f": {format_duration(longest_s)} needed" if longest_s > met_s else ""
        count = format_count(len(recent), "run")
        text = f"ended by the time limit {times} in {count} (after {format_duration(met_s)}){needed}"
        return Finding(kind=FindingKind.TIME, text=text, is_warning=True)
    if whole and limit_s is not None and min(whole) > limit_s:
        text = f"runs took {format_duration(min(whole))} or more: the limit of {format_duration(limit_s)} is too short"
        return Finding(kind=FindingKind.TIME, text=text, is_warning=True)
    return None


def _judge_host_memory(recent: Sequence[PastRun]) -> Finding | None:
    """Return the sentence on runs that were ended for lack of host memory."""
    ended = [run for run in recent if run.state == "OUT_OF_MEMORY"]
    if not ended:
        return None
    peaks = [run.host_memory_peak_bytes for run in ended if run.host_memory_peak_bytes]
    at = f", at {as_gib(max(peaks)):.1f} GiB in one task" if peaks else ""
    text = f"ran out of host memory in {len(ended)} of {format_count(len(recent), 'run')}{at}: request more with --mem"
    return Finding(kind=FindingKind.HOST_MEMORY, text=text, is_warning=True)


def _judge_idle(recent: Sequence[PastRun]) -> Finding | None:
    """Return the sentence on GPUs that nothing ran on, or that mostly waited."""
    known = [run for run in recent if run.activity is not None and run.has_memory]
    if not known:
        return None
    idle = min(run.idle_gpus or 0 for run in known)
    gpus = min(run.gpus for run in known)
    if 0 < idle < gpus and len({run.gpus for run in known}) == 1:
        text = f"nothing ran on {idle} of {gpus} GPUs in {format_count(len(known), 'run')}: request {gpus - idle}"
        return Finding(kind=FindingKind.IDLE, text=text, is_warning=True)
    activity = sum(run.activity or 0.0 for run in known) / len(known)
    if activity < LOW_ACTIVITY:
        text = f"used {activity:.0%} of the GPUs' time in {format_count(len(known), 'run')}"
        return Finding(kind=FindingKind.IDLE, text=text, is_warning=True)
    return None


def _judge_failures(recent: Sequence[PastRun], whose: str) -> Finding | None:
    """Return the sentence on a program that failed again and again."""
    failed = [run for run in recent if run.state in _FAILED]
    if len(failed) < 2 or any(run.state == "COMPLETED" for run in recent):
        return None
    text = f"{len(failed)} of {whose or 'the '}last {format_count(len(recent), 'run')} failed, and none completed"
    return Finding(kind=FindingKind.FAILED, text=text, is_warning=True)
