"""Determines which process of a job ended first, and how.

srun, torchrun and mpirun see each of their processes end, so the first that they name is near the cause, though they
report no reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opsk.postmortem.reasoning.places import TASK_ENDED, RankPlacement, complete_place, names_several
from opsk.postmortem.values import Finding, Place, Role

REPORTS_OF_ENDS = frozenset(
    ("launcher.root_rank", "launcher.first_failure", "launcher.child_signal", "launcher.rank_ended", "mpi.abort",
     "mpi.pmix_error", "slurm.task_killed", "slurm.unkillable", "process.killed", "nccl.unhandled_system_error",
     "nccl.internal_error", "shell.child_ended", "mpi.first_exit", "serving.worker_died", "mpi.ended_by",
     "launcher.command_ended", "batch.ended", "program.exit_status")
)  # fmt: skip
"""They confirm causes, and show that something failed where no cause is known."""
_CANCELLED = "slurm.cancelled"
ENDS_OF_COMMANDS = ("shell.child_ended", "process.killed")
"""A shell reports them of one line of its script, and goes on with the next."""
_NAMED = (TASK_ENDED, "launcher.root_rank", "launcher.rank_ended", "mpi.abort", "mpi.first_exit", "batch.ended")
_RAY = "ray.worker_lost"
_UNPLACED_ENDS = (
    "launcher.first_failure", "launcher.child_signal", "launcher.command_ended", "process.killed", "shell.child_ended",
    "mpi.ended_by", "batch.ended", "program.exit_status", _RAY,
)  # fmt: skip
"""They name a process by its number within the node, or not at all; torchrun's report, where it is there, says more."""
_KILLED, _TERMINATED = ("9", "-9", "137"), ("15", "-15", "143", "0")
_CRASHES = frozenset(("4", "6", "8", "11", "-4", "-6", "-8", "-11", "132", "134", "136", "139"))
_BUS_ERRORS = ("7", "-7", "135")
_USAGE = "2"
"""argparse ends so, and Python itself where it cannot open the script."""


def find_victim(findings: Sequence[Finding], placement: RankPlacement) -> Place:
    """Return the place of the process that ended first by reports; an empty one where nothing is reported."""
    end = find_first_end(findings, placement)
    return end[1] if end is not None else Place()


def find_first_end(findings: Sequence[Finding], placement: RankPlacement) -> tuple[Finding, Place] | None:
    """Return the line that reports the first end, and the place of that process."""
    ends = [finding for finding in findings if finding.signature in _NAMED]
    for finding in sorted(
        ends, key=lambda each: (each.signature != TASK_ENDED, each.earliest_s or each.time_s or 0.0, each.order)
    ):
        place = complete_place(_find_place(finding), placement)
        if place.rank is not None:
            return finding, place
        if finding.signature == TASK_ENDED and place.node_rank is None:
            return None
    unplaced = [
        each
        for each in findings
        if each.signature in _UNPLACED_ENDS and each.role is not Role.ADVICE and classify_end(each)
    ]
    first = min(unplaced, key=lambda each: (each.earliest_s or each.time_s or 0.0, each.order), default=None)
    return (first, complete_place(first.place, placement)) if first is not None else None


def classify_end(finding: Finding) -> str:
    """Return how a process ended, as the table of weights calls it; empty where that was asked for or explained."""
    if finding.signature == _RAY:
        return "lost"
    end, number = finding.fields.get("end", ""), finding.fields.get("exit", finding.fields.get("signal", ""))
    if end.startswith("Killed") or number in _KILLED:
        return "kill"
    if end.startswith(("Terminated", "Out Of Memory")) or number in _TERMINATED or not (end or number):
        return ""
    if end.startswith("Bus error") or number in _BUS_ERRORS:
        return "bus"
    if number == _USAGE:
        return "usage"
    return "crash" if number in _CRASHES or (end and not end.startswith("Exited")) else "exit"


def was_aborted(finding: Finding) -> bool:
    """Return whether a process ended itself by SIGABRT."""
    number = finding.fields.get("exit", finding.fields.get("signal", ""))
    return finding.fields.get("end", "").startswith("Aborted") or number in ("6", "-6", "134")


def _find_place(finding: Finding) -> Place:
    """Return the one process that a line names; none where it names several."""
    if finding.signature != TASK_ENDED:
        return finding.place
    if finding.place.node_rank is not None:
        return Place(node=finding.place.node, node_rank=finding.place.node_rank)
    tasks, node = finding.fields.get("tasks", ""), finding.fields.get("node", "")
    return Place(
        node="" if names_several(node) else node, rank=int(tasks) if tasks.isdecimal() and len(tasks) < 9 else None
    )


def is_cancelled_step(finding: Finding) -> bool:
    """Return whether somebody cancelled one step, and not its job."""
    return finding.signature == _CANCELLED and finding.role is Role.ROOT and finding.fields.get("level") == "STEP"


def find_step_begins(findings: Sequence[Finding]) -> Mapping[tuple[str, int], int]:
    """Return for each cancellation, by log and place, where the step before it was cancelled; -1 where none was.

    A task that failed before that is of another step.
    """
    steps: dict[str, tuple[str, int, int]] = {}
    begins: dict[tuple[str, int], int] = {}
    for finding in sorted(findings, key=lambda each: each.order):
        if finding.signature != _CANCELLED:
            continue
        job = finding.fields.get("job", "")
        last_job, last, before = steps.get(finding.source, (job, -1, -1))
        before = before if _is_same(job, last_job) else last
        steps[finding.source] = job, finding.order, before
        begins[finding.source, finding.order] = before
    return begins


def _is_same(job: str, other: str) -> bool:
    """Return whether two lines are of one step, or one of them of the job that it is of."""
    names_job = "." not in job or "." not in other
    return job == other or (names_job and job.partition(".")[0] == other.partition(".")[0])
