"""What does ``opsk plan`` leave when somebody presses Ctrl-C?"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from opsk.cli.plan import answer as best_plan_answer
from opsk.cli.plan import spread as best_plan_spread
from opsk.cli.plan.run import run_search as run_search
from tests.opsk.cli.plan.asking import HELD, JOB, document, run


def test_an_interrupted_search_gives_the_best_so_far(monkeypatch: pytest.MonkeyPatch):
    def interrupted_after_some(search: Any) -> Any:
        def some() -> Any:
            for found in search:
                yield found
                if found.best:
                    raise KeyboardInterrupt

        return run_search(some())

    monkeypatch.setattr(best_plan_spread, "run_search", interrupted_after_some)
    found = document(*JOB, "--what-if")
    assert found["interrupted"]
    assert found["best"]
    assert found["evaluated"] + found["bounded"] < found["space"]
    assert "what_if" not in found
    text = run(*JOB).stdout
    assert "interrupted: the best so far" in text.replace("\n", " ")


def test_a_search_that_is_interrupted_before_any_plan_has_no_answer(monkeypatch: pytest.MonkeyPatch):
    def interrupted(search: Any) -> Any:
        def none() -> Any:
            yield next(search)
            raise KeyboardInterrupt

        return run_search(none())

    monkeypatch.setattr(best_plan_spread, "run_search", interrupted)
    result = run(*JOB, "--json")
    assert result.exception is not None  # click's Abort, which main() turns into status 130
    assert result.stdout == ""


def test_what_was_answered_before_ctrl_c_is_kept(monkeypatch: pytest.MonkeyPatch):
    asked = best_plan_answer.build_what_if_documents

    def one_then_interrupted(*arguments: Any) -> Any:
        yield next(asked(*arguments))
        raise KeyboardInterrupt

    monkeypatch.setattr(best_plan_answer, "build_what_if_documents", one_then_interrupted)
    found = document(*JOB, *HELD, "--what-if")
    assert found["interrupted"]
    assert found["evaluated"] + found["bounded"] == found["space"]
    assert len(found["what_if"]) == 1
    assert "interrupted after the search" in run(*JOB, *HELD, "--what-if").stdout.replace("\n", " ")


_SIGNALLED = """
import os, signal, sys
from opsk.cli import main
from opsk.cli.plan import run as best_plan_run
signal.signal(signal.SIGINT, signal.default_int_handler)
given = best_plan_run._Bar.__call__
def bar(self, found):
    given(self, found)
    if bool(found.best) == is_late:
        os.kill(os.getpid(), signal.SIGINT)
best_plan_run._Bar.__call__ = bar
is_late = sys.argv.pop(1) == "late"
main.main()
"""


@pytest.mark.parametrize(("when", "status"), [("late", 0), ("early", 130)])
def test_ctrl_c_ends_the_process_without_a_traceback(when: str, status: int):
    done = subprocess.run(
        [sys.executable, "-c", _SIGNALLED, when, "plan", *JOB, "--json"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    if status:
        assert done.stdout == ""
        assert "interrupted" in done.stderr
    else:
        assert json.loads(done.stdout)["interrupted"]
