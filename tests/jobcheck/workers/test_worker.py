"""Does a worker end quietly when the advisor that it works for is killed, whatever it was doing?"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from opsk.config import SiteConfig
from opsk_jobcheck.submission.protocol import frame
from opsk_jobcheck.submission.request import SlurmRequest
from opsk_jobcheck.workers.analysis import AnalysisRequest

THOUGHT = AnalysisRequest(text="FAKE sleep 0.3\n", file="", request=SlurmRequest(), files={})


@pytest.mark.parametrize(
    ("orders", "after_s"),
    [("FAKE sleep 0.5", 0.0), ("FAKE lines 3", 0.5), ("", 0.0)],
    ids=["while it thinks", "with an answer that nobody read", "at once"],
)
def test_a_worker_whose_advisor_was_killed_ends_without_a_word(orders: str, after_s: float) -> None:
    requests, read = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with read:
        forks = subprocess.Popen((sys.executable, "-m", "tests.fakes.analyzer"), stdin=read, stderr=subprocess.PIPE)
    ours, theirs = socket.socketpair()
    with requests, theirs:
        worker = {"program": "worker", "arguments": [], "environment": {}}
        socket.send_fds(requests, [json.dumps(worker).encode()], [theirs.fileno()] * 2)
        assert "started" in json.loads(requests.recv(1000))
        theirs.close()
        ours.sendall(frame(SiteConfig().model_dump_json().encode()))
        assert ours.recv(1000)
        ours.sendall(frame(json.dumps(replace(THOUGHT, text=orders).pack()).encode()))
        time.sleep(after_s)
        ours.close()
    _, said = forks.communicate(timeout=30)
    assert said == b""
    assert forks.returncode == 0
