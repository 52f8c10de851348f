"""A stored answer is given again for as long as what runs is the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from opsk.config import AdvisorConfig
from opsk_jobcheck.service.answering import Answerer
from opsk_jobcheck.service.session import NoSideServices, Peer, Session
from opsk_jobcheck.submission.protocol import AdviseQuestion, Answer
from opsk_jobcheck.submission.request import parse_advise_request
from opsk_jobcheck.workers.analysis import Analysis


class CountingPool:
    """Says how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def analyze(self, *_: object, then: Callable[[Analysis, dict[str, float]], None], **__: object) -> None:
        self.asked += 1
        then(Analysis(verdict="fits", lines=(f"answer {self.asked}",)), {})


class Versions(NoSideServices):
    """Returns the version of the state that a test sets."""

    version = "state-1"

    def state_version(self) -> str:
        return self.version


def test_a_new_state_asks_again_and_the_same_does_not() -> None:
    pool, services = CountingPool(), Versions()
    answerer = Answerer(AdvisorConfig(), pool, frozenset(), side_services=services)  # type: ignore[arg-type]
    question = AdviseQuestion(kind="advise", command="sbatch", argv=("job.sh",), script="#!/bin/bash\ntorchrun a\n")

    async def ask() -> tuple[str, ...]:
        answer = answerer.advise(question, Session(peer=Peer(pid=1, uid=7, gid=7)))
        return (answer if isinstance(answer, Answer) else await answer).lines

    async def ask_all() -> list[tuple[str, ...]]:
        said = [await ask(), await ask()]
        services.version = "state-2"
        return [*said, await ask(), await ask()]

    assert asyncio.run(ask_all()) == [("answer 1",), ("answer 1",), ("answer 2",), ("answer 2",)]
    assert pool.asked == 2


def test_what_the_hook_says_of_nodes_reaches_the_request() -> None:
    options = '{"nodelist": "n[1-2]", "exclude": "n9", "reservation": "night", "partition": "gpu"}'
    request = parse_advise_request(
        AdviseQuestion(kind="advise", command="sbatch", argv=(), script="", options_json=options)
    )
    assert (request.nodelist, request.exclude, request.reservation) == ("n[1-2]", "n9", "night")
