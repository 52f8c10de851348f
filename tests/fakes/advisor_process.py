"""A real advisor process around the stand-in for the analysis, and someone to talk to it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes.warm_opsk import WarmProcess

FAKE_ADVISOR = Path(__file__).with_name("advisor.py")
READY_WITHIN_S = 60.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5


@dataclass
class Client:
    """A connection to the advisor that speaks frames."""

    path: Path
    timeout_s: float = 20.0
    connection: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        self.connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.connection.settimeout(self.timeout_s)
        self.connection.connect(str(self.path))

    def send_bytes(self, data: bytes) -> None:
        self.connection.sendall(data)

    def send(self, **question: Any) -> None:
        body = json.dumps({"v": 1, **question}).encode()
        self.send_bytes(len(body).to_bytes(4, "big") + body)

    def receive(self) -> dict[str, Any] | None:
        """Return the next answer, ``None`` when the advisor closed."""
        header = self._exactly(4)
        if not header:
            return None
        body = self._exactly(int.from_bytes(header, "big"))
        answer: dict[str, Any] = json.loads(body.decode("ascii"))
        return answer

    def ask(self, **question: Any) -> dict[str, Any]:
        self.send(**question)
        answer = self.receive()
        assert answer is not None, "the advisor closed instead of answering"
        return answer

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self.connection.recv(count - len(data))
            if not part:
                return data
            data += part
        return data

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()


@dataclass
class RunningAdvisor:
    """A real advisor process with its own directory."""

    directory: Path
    process: WarmProcess | subprocess.Popen[bytes]

    @property
    def socket(self) -> Path:
        return self.directory / "advisor.sock"

    @property
    def audit(self) -> Path:
        return self.directory / "audit.jsonl"

    @property
    def config(self) -> Path:
        return self.directory / "opsk.toml"

    @property
    def analyses(self) -> int:
        """How often a worker was asked to think."""
        count = self.directory / "thoughts"
        return len(count.read_text()) if count.exists() else 0

    def client(self) -> Client:
        return Client(self.socket)

    def written(self) -> list[dict[str, Any]]:
        """Return all that stands in the audit log."""
        return [json.loads(line) for line in self.audit.read_text().splitlines()] if self.audit.exists() else []

    def records(self) -> list[dict[str, Any]]:
        """Return what was asked; that an answer was shown comes whenever its asker hangs up."""
        return [record for record in self.written() if record.get("kind") != "shown"]

    def records_when(self, enough: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """Wait until the audit log, which a thread writes, holds what is looked for."""
        found: list[dict[str, Any]] = eventually(self.records, enough)
        return found

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        return self.process.wait(20)


def eventually(look: Callable[[], Any], enough: Callable[[Any], bool], within_s: float = 60.0) -> Any:
    """Look until it is enough. The time is for a machine that is busy with other tests; only what fails takes it.

    Most looks start a program: who waits long looks seldom, and leaves the processor to what it waits for.
    """
    end, pause_s = time.monotonic() + within_s, FIRST_PAUSE_S
    while not enough(seen := look()):
        assert time.monotonic() < end, f"not within {within_s} s; last seen: {seen!r}"
        time.sleep(pause_s)
        pause_s = min(1.5 * pause_s, LONGEST_PAUSE_S)
    return seen


def config_text(directory: Path, *, cluster: str = "lab", submit_s: float = 0.4, cli_s: float = 6.0) -> str:
    """Return a configuration whose deadlines a loaded machine can keep."""
    return (
        f'cluster = "{cluster}"\n[advisor]\nsocket = "{directory}/advisor.sock"\n'
        f'audit_log = "{directory}/audit.jsonl"\n'
        f"submit_deadline_s = {submit_s}\ncli_deadline_s = {cli_s}\nworkers = 2\n"
    )


def start_advisor(directory: Path, *, text: str | None = None) -> RunningAdvisor:
    """Start an advisor and wait until it listens."""
    (directory / "opsk.toml").write_text(text or config_text(directory))
    environ = {**os.environ, "FAKE_COUNT": str(directory / "thoughts")}
    process = WarmProcess(FAKE_ADVISOR, [str(directory / "opsk.toml")], environment=environ)
    advisor = RunningAdvisor(directory, process)
    end = time.monotonic() + READY_WITHIN_S
    while not advisor.socket.exists():
        assert process.poll() is None, "the advisor ended at its start"
        assert time.monotonic() < end, "the advisor did not come up"
        time.sleep(0.02)
    return advisor
