"""Lists the actions to take now, for whom, and with which command."""

from __future__ import annotations

import re

from opsk.postmortem.reasoning.meanings import find_advice
from opsk.postmortem.values import Action, Audience, Cause, FailureClass, JobFacts, Recurrence

_DRAIN = frozenset((FailureClass.GPU_HARDWARE, FailureClass.NVLINK, FailureClass.FABRIC, FailureClass.NODE))
_HOPELESS = frozenset((FailureClass.CONFIG, FailureClass.GPU_MEMORY))
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_JOB = re.compile(r"\d{1,10}(?:_\d{1,10}|\+\d{1,6})?")
_SURE = 0.6
_LEMON = 3.0


def list_actions(root: Cause | None, job: JobFacts | None, recurrence: tuple[Recurrence, ...]) -> tuple[Action, ...]:
    """Return what to do, the most useful first; nothing where nothing failed.

    Commands contain only names that Slurm allows: text from logs is never pasted into one.
    """
    if root is None:
        return ()
    actions = []
    node = root.where.node if _NODE.fullmatch(root.where.node) else ""
    is_hardware = root.failure in _DRAIN and root.confidence >= _SURE
    if is_hardware and node:
        reason = f"opsk: {root.failure.value}".replace("'", "")
        actions.append(Action(
            what=f"drain {node} until it was looked at", audience=Audience.ADMINISTRATOR,
            command=f"scontrol update NodeName={node} State=DRAIN Reason='{reason}'",
        ))  # fmt: skip
    advices = [find_advice(finding) for finding in root.findings]
    for text, source in dict.fromkeys(each for each in advices if each[0]):
        audience = Audience.ADMINISTRATOR if root.failure in _DRAIN else Audience.USER
        actions.append(Action(what=text, audience=audience, source=source))
    actions += _list_next_steps(root, job, node)
    actions += [
        Action(
            what=f"{each.subject} was in {each.failures} failures within {each.days} days: test it before its next use",
            audience=Audience.ADMINISTRATOR,
        )
        for each in recurrence
        if each.lemon >= _LEMON
    ]  # fmt: skip
    return tuple(actions[:8])


def _list_next_steps(root: Cause, job: JobFacts | None, node: str) -> list[Action]:
    """Return the actions that bring the job back."""
    if root.failure in _HOPELESS:
        return [Action(what="do not submit it unchanged: it would end the same way", audience=Audience.USER)]
    if root.failure in (FailureClass.CANCELLED, FailureClass.TIME_LIMIT):
        return []
    number = job.job_id if job is not None and _JOB.fullmatch(job.job_id) else ""
    if root.failure in _DRAIN and node:
        return [Action(
            what=f"submit it again without {node}; it goes on from its last checkpoint", audience=Audience.USER,
            command=f"sbatch --exclude={node} SCRIPT" + (f"   # was job {number}" if number else ""),
        )]  # fmt: skip
    return []
