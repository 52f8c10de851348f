"""What does the advisor, a real process, leave out while many wait? Only what takes long, and it says so."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fakes.advisor_process import Client, RunningAdvisor, config_text, start_advisor

GPUS = '{"gpus-per-node":"8","nodes":"2"}'


def script(*orders: str) -> str:
    """Return a script of its own that orders something of the stand-in for the analysis."""
    return f"#!/bin/bash\n# {random.random()}\n" + "".join(f"FAKE {order}\n" for order in orders) + "torchrun x.py\n"


def crowd(advisor: RunningAdvisor, texts: list[str]) -> list[list[str]]:
    """Ask about all at once, behind a slow script that has the only worker that one user gets; return their lines."""
    slow = advisor.client()
    slow.send(kind="advise", script=script("sleep 1"), options_json=GPUS)
    clients: list[Client] = []
    for text in texts:
        clients.append(advisor.client())
        clients[-1].send(kind="advise", script=text, options_json=GPUS)
    found = []
    for client in clients:
        answer = client.receive()
        assert answer is not None
        found.append(answer["lines"])
        client.connection.close()
    slow.connection.close()
    return found


def started(directory: Path, short_advice_from: int) -> RunningAdvisor:
    """Start an advisor with this setting."""
    return start_advisor(directory, text=f"{config_text(directory)}short_advice_from = {short_advice_from}\n")


def test_who_has_a_crowd_behind_gets_the_short_advice(socket_directory: Path) -> None:
    """Four wait; behind the first two of them there are two or more, behind the others fewer."""
    advisor = started(socket_directory, 2)
    found = crowd(advisor, [script() for _ in range(4)])
    assert ["in a hurry" in lines for lines in found] == [True, True, False, False]
    advisor.stop()


def test_once_nobody_waits_all_of_it_is_said(socket_directory: Path) -> None:
    """The short advice is stored for job_submit, but it is not what the next question is answered with."""
    advisor = started(socket_directory, 2)
    text = script()
    assert "in a hurry" in crowd(advisor, [text, script(), script()])[0]
    with advisor.client() as client:
        answer = client.ask(kind="advise", script=text, options_json=GPUS)
    assert "in a hurry" not in answer["lines"]
    records = advisor.records_when(lambda rows: sum(row["kind"] == "advise" for row in rows) == 5)
    assert sum(row.get("short", False) for row in records) == 1
    advisor.stop()


@pytest.mark.parametrize("short_advice_from", [0, 100])
def test_a_site_may_want_all_of_it_always(socket_directory: Path, short_advice_from: int) -> None:
    advisor = started(socket_directory, short_advice_from)
    assert not any("in a hurry" in lines for lines in crowd(advisor, [script() for _ in range(4)]))
    advisor.stop()
