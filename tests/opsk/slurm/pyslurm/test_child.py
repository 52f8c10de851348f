"""The process that imports pyslurm ends by itself: with its asker, and at the deadline even without one."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from opsk.slurm.pyslurm.client import CHILD, ProcessFailedError, PyslurmProcess, child_environment
from tests.fakes.slurm_cluster import cluster, install_pyslurm

LENGTH = struct.Struct(">I")
PATIENCE_S = 30.0
"""The stand-in hangs for twice as long."""


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


def start(folder: Path, mode: str, processes: list[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    environment = child_environment(install_pyslurm(folder, cluster(1), mode))
    process = subprocess.Popen(
        [sys.executable, "-P", str(CHILD)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    processes.append(process)
    return process


def send(process: subprocess.Popen[bytes], **question: object) -> None:
    body = json.dumps(question).encode()
    assert process.stdin is not None
    process.stdin.write(LENGTH.pack(len(body)) + body)
    process.stdin.flush()


def test_it_ends_with_its_asker(tmp_path: Path, processes: list[subprocess.Popen[bytes]]) -> None:
    process = start(tmp_path, "", processes)
    send(process, ask="start", deadline_s=20)
    assert process.stdout is not None
    assert process.stdout.read(LENGTH.size)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(PATIENCE_S) == 0


def test_it_ends_soon_after_the_deadline_when_nobody_is_left_to_end_it(
    tmp_path: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    process = start(tmp_path, "hangs", processes)
    send(process, ask="jobs", details=False, deadline_s=0.5)
    assert process.wait(PATIENCE_S) == -signal.SIGALRM


def test_ctrl_c_at_the_terminal_does_not_end_it(tmp_path: Path, processes: list[subprocess.Popen[bytes]]) -> None:
    process = start(tmp_path, "", processes)
    for _ in range(2):
        send(process, ask="start", deadline_s=20)
        assert process.stdout is not None
        (count,) = LENGTH.unpack(process.stdout.read(LENGTH.size))
        assert json.loads(process.stdout.read(count)) == {"answer": {"release": "25.11.2"}}
        os.kill(process.pid, signal.SIGINT)


def test_nothing_but_frames_comes_out_whatever_a_library_prints(
    tmp_path: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    """pyslurm prints TRES that it does not know to stdout, and so does its stand-in."""
    process = start(tmp_path, "", processes)
    send(process, ask="jobs", details=True, deadline_s=20)
    assert process.stdin is not None
    process.stdin.close()
    assert process.stdout is not None
    written = process.stdout.read()
    (count,) = LENGTH.unpack(written[: LENGTH.size])
    assert len(written) == LENGTH.size + count
    assert len(json.loads(written[LENGTH.size :])["answer"]) == len(cluster(1)["jobs"])


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("import os; os.write(1, b'\\xff\\xff\\xff\\xff')", "more than"),
        ("import os; os.write(1, b'\\0\\0\\0\\3abc')", "no JSON"),
        ("import os; os.write(1, b'\\0\\0\\1\\0abc')", "ended with status 0"),
        ("import sys; sys.exit('one\\n\\x1b[31mtwo')", r"ended with status 1:  \[31mtwo"),
    ],
)
def test_an_answer_that_cannot_be_read_is_said_and_the_process_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text(f"import sys; sys.stdin.buffer.read(4)\n{script}\n")
    monkeypatch.setattr("opsk.slurm.pyslurm.client.CHILD", broken)
    process = PyslurmProcess({"PATH": os.defpath})
    with pytest.raises(ProcessFailedError, match=said):
        process.ask({"ask": "start"}, deadline_s=20)
    assert process.pid is None
