"""What is to be done now, by whom, with which command?"""

from __future__ import annotations

import re

from opsk.postmortem.reasoning.meanings import advice
from opsk.postmortem.values import Action, Audience, Cause, FailureClass, JobFacts, Recurrence

_DRAIN = frozenset((FailureClass.GPU_HARDWARE, FailureClass.NVLINK, FailureClass.FABRIC, FailureClass.NODE))
_HOPELESS = frozenset((FailureClass.CONFIG, FailureClass.GPU_MEMORY))
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_JOB = re.compile(r"\d{1,10}(?:_\d{1,10}|\+\d{1,6})?")
_SURE = 0.6
_LEMON = 3.0


def actions_of(root: Cause | None, job: JobFacts | None, recurrence: tuple[Recurrence, ...]) -> tuple[Action, ...]:
    """Return what to do, the most useful first; nothing where nothing failed.

    Commands hold only names that Slurm allows: what logs say is never pasted into one.
    """
    if root is None:
        return ()
    found = []
    node = root.where.node if _NODE.fullmatch(root.where.node) else ""
    is_hardware = root.failure in _DRAIN and root.confidence >= _SURE
    if is_hardware and node:
        reason = f"opsk: {root.failure.value}".replace("'", "")
        found.append(Action(
            what=f"drain {node} until it was looked at", audience=Audience.ADMINISTRATOR,
            command=f"scontrol update NodeName={node} State=DRAIN Reason='{reason}'",
        ))  # fmt: skip
    told = [advice(sign) for sign in root.signs]
    for text, source in dict.fromkeys(each for each in told if each[0]):
        audience = Audience.ADMINISTRATOR if root.failure in _DRAIN else Audience.USER
        found.append(Action(what=text, audience=audience, source=source))
    found += _again(root, job, node)
    found += [
        Action(
            what=f"{each.subject} was in {each.failures} failures within {each.days} days: test it before its next use",
            audience=Audience.ADMINISTRATOR,
        )
        for each in recurrence
        if each.lemon >= _LEMON
    ]  # fmt: skip
    return tuple(found[:8])


def _again(root: Cause, job: JobFacts | None, node: str) -> list[Action]:
    """Say how the job goes on."""
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
