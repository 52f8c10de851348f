"""Finds the process that ended first, as reported by srun, torchrun and mpirun.

They see each of their processes end, so the first that they name is near the cause, though they report no reason.
"""

from __future__ import annotations

from collections.abc import Iterable

from opsk.postmortem.reasoning.places import RankPlacement, complete_place
from opsk.postmortem.values import Finding, Place

_TASK = "slurm.task_killed"
_NAMED = (_TASK, "launcher.root_rank", "launcher.rank_ended", "mpi.abort")
_KILLED, _TERMINATED = ("9", "-9", "137"), ("15", "-15", "143", "0")
_CRASHES = frozenset(("4", "6", "7", "8", "11", "-4", "-6", "-7", "-8", "-11", "132", "134", "135", "136", "139"))


def find_victim(findings: Iterable[Finding], placement: RankPlacement) -> Place:
    """Return the place of the process that ended first by reports; an empty one where nothing is reported."""
    end = find_first_end(findings, placement)
    return end[1] if end is not None else Place()


def find_first_end(findings: Iterable[Finding], placement: RankPlacement) -> tuple[Finding, Place] | None:
    """Return the line that reports the first end, and the place of that process."""
    ends = [finding for finding in findings if finding.signature in _NAMED]
    for finding in sorted(
        ends, key=lambda each: (each.signature != _TASK, each.earliest_s or each.time_s or 0.0, each.order)
    ):
        place = complete_place(_find_place(finding), placement)
        if place.rank is not None:
            return finding, place
        if finding.signature == _TASK and place.node_rank is None:
            return None
    return None


def classify_end(finding: Finding) -> str:
    """Return ``crash``, ``kill`` or ``exit``; empty where it was asked to end, or another line gives the reason."""
    end, number = finding.fields.get("end", ""), finding.fields.get("exit", finding.fields.get("signal", ""))
    if end.startswith("Killed") or number in _KILLED:
        return "kill"
    if end.startswith(("Terminated", "Out Of Memory")) or number in _TERMINATED or not (end or number):
        return ""
    return "crash" if number in _CRASHES or (end and not end.startswith("Exited")) else "exit"


def was_aborted(finding: Finding) -> bool:
    """Return whether a process ended itself by SIGABRT."""
    number = finding.fields.get("exit", finding.fields.get("signal", ""))
    return finding.fields.get("end", "").startswith("Aborted") or number in ("6", "-6", "134")


def _find_place(finding: Finding) -> Place:
    """Return the one process that a line names; none where it names several."""
    if finding.signature != _TASK:
        return finding.place
    if finding.place.node_rank is not None:
        return Place(node=finding.place.node, node_rank=finding.place.node_rank)
    tasks, node = finding.fields.get("tasks", ""), finding.fields.get("node", "")
    return Place(node="" if _is_list(node) else node, rank=int(tasks) if tasks.isdecimal() and len(tasks) < 9 else None)


def _is_list(node: str) -> bool:
    """Return whether a name denotes several nodes."""
    return "[" in node or "," in node
