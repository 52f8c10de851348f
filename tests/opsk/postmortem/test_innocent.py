"""Is a message that looks like a failure and is none left alone, at the start, in the middle and at the end?"""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.reasoning import explain
from tests.fakes.hard_logs.innocent import INNOCENT

QUOTED = "text of data"
"""What a program quotes is no failure while it goes on; as the last line of a log nobody can tell."""


def steps(first: int, last: int) -> str:
    return "".join(f"step {step} | loss: 2.3100 | 1.23 s/step\n" for step in range(first, last))


@pytest.mark.parametrize("program", INNOCENT)
def test_an_innocent_message_is_no_failure(program: str, tmp_path: Path) -> None:
    log = tmp_path / "slurm-4711.out"
    called = {}
    for message in INNOCENT[program]:
        logs = {
            "start": message + "\n" + steps(100, 140),
            "middle": steps(100, 110) + message + "\n" + steps(110, 140),
            "end": steps(100, 110) + message + "\n",
        }
        for where, text in logs.items():
            if program == QUOTED and where == "end":
                continue
            log.write_text(text)
            report = explain(read_logs([LogFile(path=log)], processes=1))
            if report.root is not None:
                called[where, message] = (report.root.failure.value, report.root.what)
    assert called == {}
