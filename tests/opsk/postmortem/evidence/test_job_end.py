"""Is the end of a job awaited, by the accounting where it knows the job, else by slurmctld?"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from opsk.errors import InputError, OpskError, SlurmError
from opsk.postmortem.evidence import job_end
from opsk.postmortem.evidence.job_end import wait_for_end


class Answers:
    """Gives one answer after the other, the last one for ever; a state, or the error instead of one."""

    def __init__(self, answers: Sequence[str | OpskError]) -> None:
        self.answers = list(answers)
        self.asked = 0

    def _next(self) -> str:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if isinstance(answer, OpskError):
            raise answer
        return answer

    def runs(self, _job: str, *, is_number: bool) -> tuple[Any, ...]:
        assert is_number
        state = self._next()
        return (SimpleNamespace(state=state, has_ended=state not in job_end.ACTIVE),) if state else ()

    def job(self, _job: str) -> Any:
        return SimpleNamespace(state=self._next())


@pytest.mark.parametrize(
    ("accounting", "slurmctld", "state", "asked"),
    [
        (["COMPLETED"], ["no"], "COMPLETED", 1),
        (["RUNNING", "COMPLETING", "FAILED"], ["no"], "FAILED", 3),
        ([SlurmError("none")], ["COMPLETING", "COMPLETED"], "COMPLETED", 2),
        ([InputError("not yet"), "TIMEOUT"], [InputError("forgotten")], "TIMEOUT", 2),
        ([""], ["NODE_FAIL"], "NODE_FAIL", 1),
    ],
)
def test_the_state_is_final(
    accounting: list[str | OpskError], slurmctld: list[str | OpskError], state: str, asked: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(job_end, "ASK_EVERY_S", 0.0)
    runs, jobs = Answers(accounting), Answers(slurmctld)
    assert wait_for_end("7", runs, jobs, within_s=60.0) == state  # type: ignore[arg-type]
    assert runs.asked == asked


@pytest.mark.parametrize(("accounting", "state"), [("RUNNING", "RUNNING"), (SlurmError("down"), "")])
def test_after_its_time_the_state_is_what_it_is(accounting: str | OpskError, state: str) -> None:
    asked = Answers([accounting])
    assert wait_for_end("7", asked, Answers([SlurmError("down")]), within_s=0.0) == state  # type: ignore[arg-type]
    assert asked.asked == 1


def test_a_job_that_succeeded_loads_nothing_that_explains() -> None:
    """The collector starts this for each job that ends, on a node that has better to do."""
    program = "import sys, opsk.cli.postmortem.command; print(*(name for name in sys.modules if 'postmortem' in name))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    loaded = done.stdout.split()
    assert "opsk.postmortem.evidence.job_end" in loaded
    assert not [name for name in loaded if name.startswith(("opsk.postmortem.reasoning", "opsk.postmortem.logs"))]
