"""Hostile questions to a real advisor with real workers: everyone gets an answer, and the same workers live on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from psutil import Process

from tests.fakes.advisor_process import RunningAdvisor, config_text, eventually
from tests.fakes.hostile_questions import advise_question, submit_question
from tests.fakes.mutations import fuzz_case
from tests.fakes.recipes import HEAD

COUNT = int(os.environ.get("OPSK_FUZZ", "0")) // 10 or 150
FIRST = int(os.environ.get("OPSK_FUZZ_FROM", "0"))


@pytest.fixture(scope="module")
def advisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningAdvisor]:
    """Return a real advisor with the real analysis."""
    directory = tmp_path_factory.mktemp("a")
    text = config_text(directory, cluster="superpod-h100", submit_s=1.0, cli_s=10.0)
    rule = '[[advisor.policy]]\npartition = "a*"\naction = "reject"\n'
    (directory / "opsk.toml").write_text(text + rule)
    row = [sys.executable, "-m", "opsk", "advisor", "--config", str(directory / "opsk.toml")]
    running = RunningAdvisor(directory, subprocess.Popen(row, cwd=directory))
    eventually(running.socket.exists, bool, 60.0)
    yield running
    running.stop()


def test_hostile_questions_are_answered_by_the_same_workers(advisor: RunningAdvisor) -> None:
    before = {child.pid for child in Process(advisor.process.pid).children(recursive=True)}
    for number in range(FIRST, FIRST + COUNT):
        random = Random(f"asked {number}")
        case = fuzz_case(random)
        question = random.choice((advise_question, submit_question))(random, case)
        with advisor.client() as client:
            answer = client.ask(**question)
        assert answer["v"] == 1
        assert answer["status"] in ("advice", "files", "silent", "later", "error"), number
        assert answer.get("verdict", "fits") in ("fits", "tight", "oom", "unknown")
        for text in (*answer.get("lines", ()), answer.get("comment", ""), answer.get("error", "")):
            assert text.isprintable(), (number, text)
        assert len(answer.get("paths", ())) <= 8
        assert all(path.isprintable() and len(path) <= 4096 for path in answer.get("paths", ()))
    assert {child.pid for child in Process(advisor.process.pid).children(recursive=True)} == before
    log = Path(advisor.audit).read_text(encoding="ascii")
    assert all(line.isprintable() for line in log.split("\n"))


def test_files_that_once_ended_a_worker_do_not(advisor: RunningAdvisor) -> None:
    """Deep YAML overran the stack of libyaml, and the process with it."""
    before = {child.pid for child in Process(advisor.process.pid).children(recursive=True)}
    script = f"{HEAD}axolotl train a.yaml\n"
    with advisor.client() as client:
        answer = client.ask(kind="advise", script=script, files={"a.yaml": "[" * (256 << 10)}, cwd="")
    assert answer["status"] == "advice"
    assert {child.pid for child in Process(advisor.process.pid).children(recursive=True)} == before
