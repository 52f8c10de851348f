"""What may peers do to the advisor? Ask much at once, talk garbage, go away, claim to be others: it stays."""

from __future__ import annotations

import json
import os
import random
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.advisor_process import RunningAdvisor, start_advisor

GPUS = '{"gpus-per-node":"8","nodes":"2"}'
JOB = {"tres_per_node": "gres/gpu:8", "min_nodes": 2}
UID = os.getuid()


def script(*orders: str) -> str:
    """Return a script of its own that orders something of the stand-in for the analysis."""
    return f"#!/bin/bash\n# {random.random()}\n" + "".join(f"FAKE {order}\n" for order in orders) + "torchrun x.py\n"


def test_two_hundred_clients_at_once_are_all_answered(advisor: RunningAdvisor) -> None:
    text = script()
    answers: list[str] = []

    def one(number: int) -> None:
        with advisor.client() as client:
            if number % 2:
                answer = client.ask(kind="advise", script=text, options_json=GPUS)
            else:
                answer = client.ask(kind="ping")
            answers.append(answer["status"])

    before = advisor.analyses
    threads = [threading.Thread(target=one, args=(number,)) for number in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == ["advice"] * 100 + ["pong"] * 100
    assert advisor.analyses == before + 1


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_garbage_never_kills_it(advisor: RunningAdvisor, data: bytes, framed: bool) -> None:
    with advisor.client() as client:
        client.send_bytes((len(data).to_bytes(4, "big") if framed else b"") + data)
    with advisor.client() as client:
        assert client.ask(kind="ping")["status"] == "pong"


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x05hello",
        b'\x00\x00\x00\x0f{"kind":"ping"}',
        b'\x00\x00\x00\x10{"v":1,"kind":7}',
    ],
)
def test_nonsense_gets_an_error_and_a_closed_connection(advisor: RunningAdvisor, data: bytes) -> None:
    with advisor.client() as client:
        client.send_bytes(data)
        answer = client.receive()
        assert answer is not None
        assert answer["status"] == "error"
        assert client.receive() is None


def test_half_a_question_is_not_waited_for_for_ever(advisor: RunningAdvisor) -> None:
    with advisor.client() as client:
        client.send_bytes(b"\x00\x00\x10\x00{")
        assert client.receive() is None


def test_a_connection_asks_a_few_questions_only(advisor: RunningAdvisor) -> None:
    with advisor.client() as client:
        answers = [client.ask(kind="ping") for _ in range(8)]
        assert len(answers) == 8
        assert client.receive() is None


def test_peers_that_go_without_reading_do_no_harm(advisor: RunningAdvisor) -> None:
    for _ in range(30):
        with advisor.client() as client:
            client.send(kind="advise", script=script("lines 20"), options_json=GPUS)
    with advisor.client() as client:
        assert client.ask(kind="ping")["status"] == "pong"


ASK_AS_SOMEBODY = """
import json, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
for question in json.loads(sys.argv[2]):
    body = json.dumps(question).encode()
    connection.sendall(len(body).to_bytes(4, 'big') + body)
    length = int.from_bytes(connection.recv(4), 'big')
    print(connection.recv(length, socket.MSG_WAITALL).decode())
"""
NOBODY = 65534


def test_ordinary_users_may_not_ask_for_others() -> None:
    """And who they are is taken from the kernel, whatever uid they claim."""
    if UID != 0:
        pytest.skip("only root can ask as somebody else")
    questions = [
        {"v": 1, "kind": "submit", "uid": 0, "script": script(), "job": JOB},
        {"v": 1, "kind": "advise", "script": script(), "options_json": GPUS, "uid": 0},
    ]
    with tempfile.TemporaryDirectory(prefix="opsk-open-") as made:
        Path(made).chmod(0o755)
        running = start_advisor(Path(made))
        words = ["/usr/bin/python3", "-c", ASK_AS_SOMEBODY, str(running.socket), json.dumps(questions)]
        done = subprocess.run(words, user=NOBODY, capture_output=True, text=True, check=True)
        running.stop()
        refused, analysis = (json.loads(line) for line in done.stdout.splitlines())
        assert refused["status"] == "error"
        assert analysis["status"] == "advice"
        assert [record["uid"] for record in running.records()] == [NOBODY, NOBODY]
