"""Which signs can have begun this failure? Not those of other jobs and times, nor quotations and cascades."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from opsk.postmortem.reasoning.candidate import ENDS_OF_PROCESSES
from opsk.postmortem.values import Evidence, FailureClass, JobFacts, Origin, Place, Role, Sign

CASCADE_WORDS = re.compile(
    r"NCCL (?:error|communicator)|ncclRemoteError|nccl\w*Error|DistBackendError|unhandled system error"
    r"|[Cc]onnection (?:reset|closed|refused|lost)|Broken pipe|Connection(?:Reset|Aborted)Error|BrokenPipeError"
    r"|collective operation timeout|ProcessGroupNCCL|watchdog|Process group watchdog|aborted on rank"
    r"|SIGTERM|SignalException|ChildFailedError|RendezvousClosedError|CalledProcessError|EOFError"
    r"|failed to recv|Socket Timeout|Timed out waiting|wait timeout|DistNetworkError"
)
TRIED_AGAIN = re.compile(
    r"\b(?:re-?try(?:ing)?\b(?! (?:count )?exceeded)|retry loop|(?<!and )(?<!then )try(?:ing)? again"
    r"|attempt \d+ (?:of|/)|\(\d+ of \d+\)"
    r"|falling back|continuing (?:on|with)|will be ignored|ignoring|Exception ignored)",
    re.IGNORECASE,
)
_CONFIG_TYPES = frozenset(
    ("ArgumentError", "ConfigKeyError", "ConfigAttributeError", "MissingMandatoryValue", "ValidationError",
     "ParserError", "HydraException", "OmegaConfBaseException", "FileNotFoundError", "PermissionError",
     "ModuleNotFoundError", "ImportError", "NotADirectoryError", "IsADirectoryError", "HFValidationError",
     "RepositoryNotFoundError", "DeepSpeedConfigError", "OfflineModeIsEnabled", "LocalEntryNotFoundError",
     "GatedRepoError", "NoCredentialsError")
)  # fmt: skip
_CONFIG_WORDS = re.compile(
    r"divisible|must be|should be|not supported|unsupported|expected|invalid|unrecogni[sz]ed|mismatch|not found"
    r"|at least|does not (?:exist|match)|greater than|less than|world size|world_size|configuration|config\b|argument"
    r"|Can't load|JSONDecode|Scanner|YAML|TOMLDecode|offline mode|is not in struct"
    r"|got an unexpected|unauthori[sz]ed|authenticat|access to .{1,80} is (?:restricted|denied)|forbidden|\b40[134]\b",
    re.IGNORECASE,
)
_BY_WORDS: tuple[tuple[FailureClass, re.Pattern[str]], ...] = (
    (FailureClass.GPU_MEMORY, re.compile(
        r"(?:CUDA|HIP|GPU|cu\w+|device).{0,60}out of memory|out of (?:CUDA|HIP|GPU|device) memory|RESOURCE_EXHAUSTED"
    )),
    (FailureClass.HOST_MEMORY, re.compile(
        r"[Cc]an(?:no|')t allocate memory|out of (?:shared |host |system |CPU )?memory|\[Errno 12\]"
        r"|\b_?(?:Array)?MemoryError\b|memory pressure|running low on memory"
    )),
    (FailureClass.STORAGE, re.compile(
        r"\[Errno (?:5|28|30|107|108|116|121|122)\]"
        r"|\((?:SlowDown|RequestTimeout|InternalError|ServiceUnavailable)\) when"
    )),
    (FailureClass.NUMERIC, re.compile(
        r"\b(?:nan|infs?|non-?finite|not finite)\b|FloatingPointError|\bdiverged\b", re.IGNORECASE
    )),
    (FailureClass.GPU_HARDWARE, re.compile(r"uncorrectable|GPU (?:is )?lost|fallen off", re.IGNORECASE)),
)  # fmt: skip


def classed(sign: Sign, *, has_progress: bool) -> Sign:
    """Return an exception's sign with the class and part that its words tell.

    Parameters
    ----------
    has_progress
        Whether training had begun: exceptions before that are more often of the configuration.
    """
    kind, text = sign.fields.get("type", ""), f"{sign.fields.get('message', '')} {sign.text}"
    message = f"{kind}: {text}"
    if sign.role is Role.ROOT and not kind:
        return replace(sign, role=Role.CONFIRMATION)  # cut off: what was raised is not there
    if kind == "KeyboardInterrupt":
        return replace(sign, role=Role.ROOT, failure=FailureClass.CANCELLED)
    if sign.role is not Role.ROOT or CASCADE_WORDS.search(message):
        return replace(sign, role=Role.CASCADE)
    if sign.fields.get("handled"):
        return replace(sign, role=Role.CONFIRMATION)
    for failure, words in _BY_WORDS:
        if words.search(message):
            return replace(sign, failure=failure)
    is_config = kind in _CONFIG_TYPES or (not has_progress and bool(_CONFIG_WORDS.search(message)))
    return replace(sign, failure=FailureClass.CONFIG if is_config else FailureClass.SOFTWARE)


BEFORE_S, AFTER_S = 120.0, 600.0
"""What the kernel says so long before a job's start and after its end still counts."""
_JOB_CGROUP = re.compile(r"job_(\d+)")
_NETWORK_FLUSH = "5"
_NEAR_BYTES = 8192
_BEFORE_STEP_ENDS = (
    "slurm.node_not_responding", "slurm.node_lost", "slurm.node_failure", "slurm.task_out_of_memory", "slurm.oom_kill",
    "slurm.launch_failed", "slurm.launch_on_node_failed", "mpi.pmix_error", "mpi.abort",
)  # fmt: skip
"""After these srun cancels the step by itself: nobody typed scancel."""


def sifted(evidence: Evidence, *, has_progress: bool) -> tuple[Sign, ...]:
    """Return the signs that count, with the parts that they play here.

    Parameters
    ----------
    has_progress
        Whether training had begun: exceptions before that are more often of the configuration.
    """
    start, end = window_of(evidence)
    own = [sign for sign in evidence.signs if _is_of_job(sign, evidence.job, start, end)]
    specific = {(sign.source, sign.line) for sign in own if sign.signature != "python.exception"}
    kept = []
    for sign in own:
        if sign.signature == "python.exception":
            if (sign.source, sign.line) in specific and sign.fields.get("type"):
                continue  # what was raised has a signature of its own
            sign = classed(sign, has_progress=has_progress)
        elif (sign.signature in ENDS_OF_PROCESSES and CASCADE_WORDS.search(sign.text)) or (
            sign.signature == "nccl.ib_completion_error" and sign.fields.get("status") == _NETWORK_FLUSH
        ):
            sign = replace(sign, role=Role.CASCADE)
        elif sign.signature == "slurm.node_failure":
            sign = replace(sign, place=Place())  # the node named is the one that printed it, which lives
        elif sign.role is Role.ROOT and sign.origin is Origin.JOB_LOG and TRIED_AGAIN.search(sign.text):
            sign = replace(sign, role=Role.CONFIRMATION)
        kept.append(_believed(sign, evidence.job))
    kept = _steps_that_srun_ended(kept)
    return tuple(_without_ends(_without_floods_of_tracebacks(kept)))


def window_of(evidence: Evidence) -> tuple[float, float]:
    """Return when what the kernel says can be about this job: by Slurm's record, else as far as the logs reach."""
    job, infinite = evidence.job, float("inf")
    start = job.start_s if job is not None else None
    end = job.end_s if job is not None else None
    if start is None:
        start = min((each.first_line_s for each in evidence.ranks if each.first_line_s is not None), default=None)
    if end is None:
        told = [at for each in evidence.ranks for at in (each.last_line_s, each.last_progress_s) if at is not None]
        told += [sign.time_s for sign in evidence.signs if sign.time_s is not None and sign.origin in _OWN_TEXT]
        end = max(told, default=None)
    return (
        start - BEFORE_S if start is not None else -infinite,
        end + AFTER_S if end is not None else infinite,
    )


_OWN_TEXT = (Origin.JOB_LOG, Origin.LAUNCHER)


def _is_of_job(sign: Sign, job: JobFacts | None, start: float, end: float) -> bool:
    """Tell whether a sign is about this job: its nodes, its time, its processes."""
    cgroup = _JOB_CGROUP.search(sign.fields.get("cgroup", ""))
    if cgroup is not None and job is not None and job.job_id.isdecimal() and cgroup[1] != job.job_id:
        return False
    if sign.origin in _OWN_TEXT or sign.time_s is None:
        return True
    if job is not None and sign.place.node and job.nodes and sign.place.node not in job.nodes:
        return False
    last = sign.last_time_s if sign.last_time_s is not None else sign.time_s
    return sign.time_s <= end and last >= start


def _believed(sign: Sign, job: JobFacts | None) -> Sign:
    """Return a line that claims to be of Slurm as no more than a claim where Slurm's record says otherwise."""
    if sign.origin is not Origin.LAUNCHER or job is None or not job.state:
        return sign
    claims = {
        FailureClass.TIME_LIMIT: ("TIMEOUT", "DEADLINE"),
        FailureClass.PREEMPTED: ("PREEMPTED", "REQUEUED"),
        FailureClass.CANCELLED: ("CANCELLED",),
    }.get(sign.failure or FailureClass.SOFTWARE)
    if claims is None or sign.role is not Role.ROOT or job.state.split()[0] in claims:
        return sign
    return replace(sign, role=Role.CONFIRMATION)


def _steps_that_srun_ended(signs: Sequence[Sign]) -> list[Sign]:
    """Return signs where a step that was cancelled after one of its tasks had failed is what srun does then."""
    failed: dict[str, int] = {}
    for sign in signs:
        is_task = sign.signature == "slurm.task_killed" and sign.fields.get("tasks", "").isdecimal()
        if is_task or sign.signature in _BEFORE_STEP_ENDS:
            failed[sign.source] = min(sign.order, failed.get(sign.source, sign.order))
    return [
        replace(sign, role=Role.CASCADE)
        if sign.signature == "slurm.cancelled"
        and sign.fields.get("level") == "STEP"
        and failed.get(sign.source, sign.order) < sign.order
        else sign
        for sign in signs
    ]


def _without_ends(signs: Sequence[Sign]) -> list[Sign]:
    """How a process ended is a consequence of what it said of itself just before or behind."""
    roots: dict[tuple[str, int | None], list[Sign]] = defaultdict(list)
    for sign in signs:
        if sign.role is Role.ROOT and sign.origin is Origin.JOB_LOG and sign.signature not in ENDS_OF_PROCESSES:
            roots[sign.source, sign.place.rank].append(sign)
    return [
        replace(sign, role=Role.CASCADE)
        if sign.role is Role.ROOT
        and sign.signature in ENDS_OF_PROCESSES
        and any(abs(each.order - sign.order) < _NEAR_BYTES for each in roots[sign.source, sign.place.rank])
        else sign
        for sign in signs
    ]


def _without_floods_of_tracebacks(signs: Sequence[Sign]) -> list[Sign]:
    """Of several exceptions that one rank raises in a row only the first can be the root: the others handle it."""
    by_source: dict[tuple[str, int | None], list[Sign]] = defaultdict(list)
    for sign in signs:
        if sign.signature == "python.exception" and sign.role is Role.ROOT:
            by_source[sign.source, sign.place.rank].append(sign)
    later = {
        id(sign)
        for found in by_source.values()
        for sign in sorted(found, key=lambda each: each.order)[1:]
        if sign.order - min(each.order for each in found) < 65536
    }
    return [replace(sign, role=Role.CASCADE) if id(sign) in later else sign for sign in signs]
