"""Reports to look at: one of everything, with text that would like to be more than text."""

from __future__ import annotations

import pytest

from opsk.postmortem.values import (
    Action,
    Audience,
    Cause,
    Divergence,
    Evidence,
    FailureClass,
    Finding,
    JobFacts,
    Missing,
    Moment,
    Origin,
    Place,
    RankProgress,
    Recurrence,
    Report,
    Role,
    Skew,
)

HOSTILE = (
    "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
    "\x1b[31m\u202egnp\u2066 [x](javascript:alert(1)) `a` | \x00"
)


@pytest.fixture
def report() -> Report:
    finding = Finding(
        signature="torch.cuda_oom", role=Role.ROOT, origin=Origin.JOB_LOG, failure=FailureClass.GPU_MEMORY,
        place=Place(rank=13, node="n01"), time_s=1.787e9, source=f"/logs/{HOSTILE}.out", line=4, text=HOSTILE, count=3,
    )  # fmt: skip
    root = Cause(
        failure=FailureClass.GPU_MEMORY, what=HOSTILE, where=Place(rank=13, node=HOSTILE, gpu_index=5), confidence=0.93,
        why=("first", HOSTILE), findings=(finding,),
    )  # fmt: skip
    return Report(
        state=HOSTILE,
        job=JobFacts(job_id="4711", user=HOSTILE, name=HOSTILE, nodes=("n00", "n01"), start_s=1.787e9, end_s=1.7871e9),
        root=root,
        alternatives=(Cause(failure=FailureClass.FABRIC, what=HOSTILE, where=Place(hca=HOSTILE), confidence=0.05),),
        timeline=(
            Moment(time_s=1.787e9, what=HOSTILE, place=Place(node=HOSTILE), role=Role.ROOT, finding=finding),
            Moment(time_s=1.787e9 + 600, what="a rank waited", place=Place(rank=2), role=Role.CASCADE),
            Moment(time_s=None, what=HOSTILE),
        ),
        divergence=Divergence(group="", seq=7, op=HOSTILE, never_arrived=(13,), waiting=tuple(range(13))),
        evidence=Evidence(
            ranks=tuple(RankProgress(rank=rank, last_text=HOSTILE) for rank in range(16)),
            gathered={HOSTILE: HOSTILE},
            unreadable=(HOSTILE,),
        ),
        skews=(Skew(node=HOSTILE, ahead_s=1.5, error_s=0.2),),
        missing=(Missing(what=HOSTILE, why=HOSTILE, how=HOSTILE),),
        actions=(Action(what=HOSTILE, command="scontrol show node n01", audience=Audience.ADMINISTRATOR),),
        recurrence=(Recurrence(subject=HOSTILE, failures=3, jobs=9, days=30, lemon=4.0, text=HOSTILE),),
        facts={"capacity_bytes": 79.1 * 2**30, "last_iteration": 30.0},
    )
