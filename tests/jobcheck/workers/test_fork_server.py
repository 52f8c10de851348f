"""Does the fork server start, end and report the processes of an advisor, also where one of the two is killed?"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from opsk_jobcheck.workers import forked_processes
from opsk_jobcheck.workers.forked_processes import ForkServer

PROGRAMS = """
import os, sys, time
from pathlib import Path
from opsk_jobcheck.workers import fork_server
fork_server.END_WITHIN_S = 0.2
fork_server.serve({
    "says": lambda words: print(*words, os.environ["SAID"], Path("/proc/self/comm").read_text(), sep=",", flush=True),
    "hangs": lambda _: time.sleep(600),
    "reads": lambda _: sys.stdin.read(),
    "fails": lambda _: 1 / 0,
    "ends": lambda words: os._exit(int(words[0])),
})
"""
COMMAND = (sys.executable, "-c", PROGRAMS)


def run(scene: Callable[[ForkServer], Awaitable[None]], loop: str = "asyncio") -> None:
    """Run a scene with a fork server, which ends with it."""

    async def whole() -> None:
        forks = ForkServer(COMMAND)
        try:
            async with asyncio.timeout(60):
                await scene(forks)
        finally:
            await forks.close()

    new_loop = pytest.importorskip("uvloop").new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(whole())


async def until_gone(pid: int) -> None:
    """Wait until a process is gone, or waits only for whoever inherits it from its parent."""
    stat = Path(f"/proc/{pid}/stat")
    with suppress(FileNotFoundError, ProcessLookupError):
        while ") Z " not in stat.read_text():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_fork_has_its_own_streams_variables_and_name(loop: str) -> None:
    async def scene(forks: ForkServer) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            process = await forks.fork("says", ("a", "b"), {"SAID": "c"}, (theirs.fileno(), theirs.fileno()))
            theirs.close()
            assert await process.wait() == 0
            assert ours.recv(1000) == b"a,b,c,opsk says\n\n"
            assert "SAID" not in os.environ

    run(scene, loop)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_process_that_is_started_reads_what_is_written_until_it_is_closed(loop: str) -> None:
    async def scene(forks: ForkServer) -> None:
        process = await forks.start(("reads",), {})
        assert process.stdin is not None
        process.stdin.write(b"x" * 1_000_000)
        await process.stdin.drain()
        assert process.returncode is None
        process.stdin.close()
        assert await process.wait() == 0

    run(scene, loop)


def test_a_process_is_ended_and_its_end_is_known() -> None:
    async def scene(forks: ForkServer) -> None:
        hangs, ends = await forks.start(("hangs",), {}), await forks.start(("ends", "3"), {})
        assert await ends.wait() == 3
        assert hangs.returncode is None
        hangs.kill()
        assert await hangs.wait() == -signal.SIGKILL
        hangs.kill()  # once more does nothing

    run(scene)


def test_a_program_that_fails_says_so_and_the_next_one_runs(capfd: pytest.CaptureFixture[str]) -> None:
    async def scene(forks: ForkServer) -> None:
        assert await (await forks.start(("fails",), {})).wait() == 1
        assert await (await forks.start(("ends", "0"), {})).wait() == 0

    run(scene)
    assert "ZeroDivisionError" in capfd.readouterr().err


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_with_the_fork_server_its_processes_end_and_the_next_one_is_started_anew(loop: str) -> None:
    async def scene(forks: ForkServer) -> None:
        hangs = await forks.start(("hangs",), {})
        server = int(Path(f"/proc/{hangs.pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(server, signal.SIGKILL)
        assert await hangs.wait() == -signal.SIGKILL
        await until_gone(hangs.pid)
        assert await (await forks.start(("ends", "0"), {})).wait() == 0

    run(scene, loop)


def test_a_process_that_nobody_waits_for_any_more_is_ended() -> None:
    async def scene(forks: ForkServer) -> None:
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                asking = asyncio.create_task(forks.fork("hangs", (), {}, (theirs.fileno(), theirs.fileno())))
                await asyncio.sleep(0)
                while not forks._pending:
                    await asyncio.sleep(0.001)
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
            ours.setblocking(False)
            assert await asyncio.get_running_loop().sock_recv(ours, 1) == b""  # the process has closed its end

    run(scene)


def test_a_fork_server_that_cannot_be_started_says_why() -> None:
    async def scene() -> None:
        forks = ForkServer(("/nowhere/opsk",))
        with pytest.raises(OSError, match="No such file"):
            await forks.start(("ends", "0"), {})
        await forks.close()

    asyncio.run(scene())


def test_a_fork_server_that_does_not_answer_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked_processes, "ANSWERS_WITHIN_S", 0.2)

    async def scene() -> None:
        forks = ForkServer((sys.executable, "-c", "import time; time.sleep(600)"))
        with pytest.raises(TimeoutError, match="does not answer within 0 s"):
            await forks.start(("ends", "0"), {})
        await forks.close()
        assert forks._process is not None
        assert forks._process.returncode == -signal.SIGKILL

    asyncio.run(scene())


def test_when_the_advisor_is_gone_processes_end_even_those_that_hang() -> None:
    async def scene(forks: ForkServer) -> None:
        hangs, reads = await forks.start(("hangs",), {}), await forks.start(("reads",), {})
        assert forks._socket is not None
        assert reads.stdin is not None
        reads.stdin.close()
        forks._socket.shutdown(socket.SHUT_WR)
        assert forks._process is not None
        assert await forks._process.wait() == 0
        await until_gone(hangs.pid)
        await until_gone(reads.pid)

    run(scene)
