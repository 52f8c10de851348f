"""In which order are questions of several connections looked at?"""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

from opsk_jobcheck.service.connections import Connections, Limits
from opsk_jobcheck.service.session import AnswerResult, Session
from opsk_jobcheck.submission.protocol import Answer, Question, frame
from tests.fakes.bad_servers import read_question

ADVISE = {"v": 1, "kind": "advise", "command": "sbatch", "argv": ["a.sh"], "script": "#!/bin/sh\n"}
PING = {"v": 1, "kind": "ping"}


class Hooks:
    """Thinks about advice; once that is sent, it is read and the job comes, before the advisor does anything else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kinds: list[str] = []
        self.shown = asyncio.Event()
        self.cli, self.submit = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)

    def answer(self, question: Question, session: Session) -> AnswerResult:
        self.kinds.append(question.kind)
        if question.kind != "advise":
            return Answer(status="pong")
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.01, future.set_result, Answer(status="advice", lines=("x",)))
        return future

    def handle_end(self, session: Session) -> None:
        self.kinds.append("ended")

    def note(self, question: Question, answer: Answer, session: Session, took_s: float) -> None:
        if question.kind == "advise":
            read_question(self.cli)
            self.submit.connect(str(self.path))
            self.submit.sendall(packed(PING))
            self.cli.close()
            self.shown.set()

    def note_refused(self, session: Session, why: str) -> None:
        raise AssertionError(why)


def packed(question: dict[str, object]) -> bytes:
    return frame(json.dumps(question).encode())


def test_what_an_open_connection_said_is_heard_before_a_new_one(tmp_path: Path) -> None:
    """``cli_filter`` has shown advice and hangs up just before ``job_submit`` asks: nobody is to read it twice."""

    async def run() -> list[str]:
        hooks = Hooks(tmp_path / "socket")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(hooks.path))
            listener.listen()
            listener.setblocking(False)
            connections = Connections(hooks, Limits())
            connections.accept_from(listener)
            hooks.cli.connect(str(hooks.path))
            hooks.cli.sendall(packed(ADVISE))
            await asyncio.wait_for(hooks.shown.wait(), 5)
            await asyncio.wait_for(asyncio.to_thread(read_question, hooks.submit), 5)
            connections.refuse_from(listener)
            connections.close()
        hooks.submit.close()
        return hooks.kinds

    assert asyncio.run(run()) == ["advise", "ended", "ping"]
