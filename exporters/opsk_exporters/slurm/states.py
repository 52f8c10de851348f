"""Maps Slurm's states of nodes, jobs and drained nodes to small fixed sets of label values.

Slurm joins a node's base state with any number of flags, a pending reason may be a sentence, and the reason of a drain
is free text. As labels they would create an unbounded number of series.
"""

from __future__ import annotations

import re
from collections.abc import Collection

JOB_STATES = ("pending", "running", "suspended", "completing", "configuring")
"""Always exported; others (``stage_out``, ``resizing``, ``stopped``, ``signaling``) only when there are such jobs."""

_JOB_WORD = re.compile(r"[a-z_]{1,24}")

_NODE_FLAGS = (
    ("draining", frozenset({"DRAIN", "DRAINED", "DRAINING"})),
    ("rebooting", frozenset({"REBOOT_ISSUED", "REBOOT"})),
    ("failing", frozenset({"FAIL", "FAILING"})),
    ("down", frozenset({"DOWN", "ERROR", "INVALID_REG"})),
    ("powering_up", frozenset({"POWERING_UP", "POWER_UP"})),
    ("powered_down", frozenset({"POWERED_DOWN", "POWER_DOWN", "POWERING_DOWN"})),
    ("not_responding", frozenset({"NOT_RESPONDING"})),
    ("completing", frozenset({"COMPLETING"})),
)
"""What counts first, and the words of Slurm for it: as ``sinfo`` has it, a drained node that is down is drained.

``draining`` is ``drained`` where nothing runs any more.
"""

_MAINTENANCE = frozenset({"MAINT", "MAINTENANCE"})
_IDLE_FLAGS = (
    ("maintenance", _MAINTENANCE),
    ("reserved", frozenset({"RESERVED"})),
    ("planned", frozenset({"PLANNED", "BLOCKED"})),
)
"""What counts only where no job runs."""

NODE_STATES = (
    "allocated",
    "mixed",
    "idle",
    "completing",
    "planned",
    "reserved",
    "maintenance",
    "draining",
    "drained",
    "failing",
    "down",
    "not_responding",
    "rebooting",
    "powered_down",
    "powering_up",
    "unknown",
)
_BASE = {"ALLOCATED": "allocated", "MIXED": "mixed", "IDLE": "idle"}

_DOWN = frozenset({"down", "failing", "not_responding", "unknown"})
_DRAINED = frozenset({"draining", "drained", "rebooting"})

WAITING_ON_PURPOSE = frozenset({"held", "dependency", "begin_time"})
"""Reasons with which a job does not wait for nodes: that time is no queueing time."""

_PENDING: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (word, re.compile(pattern, re.I))
    for word, pattern in (
        ("impossible", r"BadConstraints|DependencyNeverSatisfied|Invalid|configuration is not available|InactiveLimit"),
        ("dependency", r"Dependency"),
        ("held", r"JobHeld|JobHold|.*\bheld\b"),
        ("begin_time", r"BeginTime"),
        ("array_limit", r"JobArrayTaskLimit"),
        ("limit", r"Assoc|QOS|MaxCpuPerAccount|.*Limit$"),
        ("partition", r"Partition"),
        ("reservation", r"Reserv"),
        ("licenses", r"Licenses?|.*License"),
        ("nodes_unavailable", r"ReqNodeNotAvail|Nodes required|NodeDown|FrontEndDown|NonRespons"),
        ("priority", r"Priority"),
        ("resources", r"Resources|No suitable topology|No reason|OverTimeLimit|DeadLine"),
        ("preparing", r"Prolog|Cleaning|BurstBuffer|StageIn|Scheduler|Configuring"),
    )
)
PENDING_REASONS = (*(word for word, _ in _PENDING), "none", "other")

_DRAIN: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (word, re.compile(pattern, re.I))
    for word, pattern in (
        ("registration", r"gres/|low (real ?memory|cpus|tmpdisk|socket|core|swap)|count changed|duplicate"),
        ("job_end", r"kill task failed|(batch )?job complete failure|epilog|prolog"),
        ("not_responding", r"not responding|unexpectedly rebooted|node.*(unreachable|no response)|ping"),
        ("gpu", r"\bgpus?|xid|nvlink|nvml|nvidia|dcgm|\becc\b|cuda|amdgpu|retired page|row remap"),
        ("fabric", r"infiniband|\bib\b|\bib\d|mlx\d|\bhca|link|fabric|roce|nccl|network|\bnic\b|opa\b|switch"),
        ("power", r"power|\bpsu\b|thermal|temperature|cooling|\bleak|throttl"),
        ("memory", r"memory|dimm|\bmce\b|\boom\b"),
        ("storage", r"disk|nvme|lustre|gpfs|nfs|mount|filesystem|file system|\bfs\b|weka|beegfs|storage"),
        ("health_check", r"\bnhc\b|health|\bhc\b|check"),
        ("maintenance", r"maint|reboot|upgrade|update|firmware|bios|kernel|rma\b|repair|replac|service|ticket"),
    )
)
DRAIN_REASONS = (*(word for word, _ in _DRAIN), "none", "other")


def classify_job_state(state: str) -> str:
    """Return the label of a job's base state."""
    word = state.lower()
    return word if _JOB_WORD.fullmatch(word) else "other"


def classify_node_state(words: Collection[str], *, is_busy: bool) -> str:
    """Return the one word for a node's base state and flags.

    Parameters
    ----------
    words
        Slurm's words, in upper case.
    is_busy
        CPUs or GPUs of it are allocated.
    """
    flag = _find_first(words, _NODE_FLAGS)
    if flag == "draining":
        return "draining" if is_busy or "COMPLETING" in words else "drained"
    if flag is not None:
        return flag
    base = next((_BASE[word] for word in words if word in _BASE), None)
    if base == "idle":
        return _find_first(words, _IDLE_FLAGS) or base
    return base or "unknown"


def classify_free_gpus(state: str, words: Collection[str]) -> str:
    """Return the state of GPUs without a job, on a node with this state and these words of Slurm."""
    if state in _DOWN:
        return "down"
    return "drained" if state in _DRAINED or not _MAINTENANCE.isdisjoint(words) else "idle"


def classify_pending_reason(reason: str | None) -> str:
    """Return the class of why a job waits."""
    return _classify_text(reason, _PENDING, anywhere=False)


def classify_drain_reason(reason: str | None) -> str:
    """Return the class of why a node was drained or set down, by the words in it: a hint, not a finding."""
    return _classify_text(reason, _DRAIN, anywhere=True)


def is_mig(gres_type: str) -> bool:
    """Return whether a GRES type is named after a MIG profile (``1g.10gb``, ``a100_3g.20gb``)."""
    return re.search(r"(?:^|[^a-z0-9])\d{1,2}g\.\d{1,4}gb", gres_type, re.I) is not None


def _find_first(words: Collection[str], table: tuple[tuple[str, frozenset[str]], ...]) -> str | None:
    """Return the first entry that has one of Slurm's words."""
    return next((word for word, theirs in table if not theirs.isdisjoint(words)), None)


def _classify_text(text: str | None, table: tuple[tuple[str, re.Pattern[str]], ...], *, anywhere: bool) -> str:
    """Return the first class whose pattern is in the text, or begins it."""
    if not text:
        return "none"
    short = text[:256]
    for word, pattern in table:
        if pattern.search(short) if anywhere else pattern.match(short):
            return word
    return "other"
