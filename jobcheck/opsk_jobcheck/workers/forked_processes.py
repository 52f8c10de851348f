"""Has the fork server of an advisor start and end processes; all of it on the advisor's event loop."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from opsk_jobcheck.workers.supervision import ONE_THREAD

FORK_SERVER_COMMAND = (sys.executable, "-P", "-m", "opsk_jobcheck.workers.fork_server")
ANSWERS_WITHIN_S = 60.0
"""Loading takes a second; from a slow network file system, many."""
_MAX_MESSAGE_BYTES = 4096


class ForkedProcess:
    """A process that the fork server has started; the part of `asyncio.subprocess.Process` that an advisor needs."""

    def __init__(self, pid: int, server: ForkServer) -> None:
        self.pid = pid
        self.returncode: int | None = None
        """How it ended, as `subprocess` states it; ``None`` while it runs."""
        self.stdin: asyncio.StreamWriter | None = None
        self._server = server
        self._has_ended = asyncio.Event()

    def kill(self) -> None:
        """End it at once."""
        if self.returncode is None:
            self._server.kill(self.pid)

    async def wait(self) -> int | None:
        """Wait for its end; return its status."""
        await self._has_ended.wait()
        return self.returncode

    def end(self, status: int) -> None:
        """Note how it has ended."""
        self.returncode = status
        self._has_ended.set()
        if self.stdin is not None:
            self.stdin.close()


class ForkServer:
    """The process that has loaded the analysis, started with the first fork, and again where it was killed.

    Parameters
    ----------
    command
        Program that runs `fork_server.serve`.
    """

    def __init__(self, command: Sequence[str] = FORK_SERVER_COMMAND) -> None:
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._socket: socket.socket | None = None
        self._connecting = asyncio.Lock()
        self._pending: deque[asyncio.Future[ForkedProcess]] = deque()
        self._running: dict[int, ForkedProcess] = {}

    async def fork(
        self, program: str, arguments: Sequence[str], environment: Mapping[str, str], streams: tuple[int, int]
    ) -> ForkedProcess:
        """Start a process.

        Parameters
        ----------
        program
            Its name in the fork server.
        environment
            Variables in addition to the advisor's own.
        streams
            Its standard input and output; standard error is the advisor's.

        Raises
        ------
        OSError
            It cannot be started, or the fork server was killed or does not answer.
        """
        connection = await self._connect()
        request = {"program": program, "arguments": list(arguments), "environment": dict(environment)}
        socket.send_fds(connection, [json.dumps(request).encode("ascii")], streams)
        answer: asyncio.Future[ForkedProcess] = asyncio.get_running_loop().create_future()
        self._pending.append(answer)
        try:
            async with asyncio.timeout(ANSWERS_WITHIN_S):
                return await answer
        except TimeoutError as error:
            self._lose()
            message = f"the process that loads the analysis does not answer within {ANSWERS_WITHIN_S:.0f} s"
            raise TimeoutError(errno.ETIMEDOUT, message) from error

    async def start(self, command: Sequence[str], environment: Mapping[str, str]) -> ForkedProcess:
        """Start the program that the first word names, with the others as arguments and a standard input to write to.

        Raises
        ------
        OSError
            It cannot be started, or the fork server was killed.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs, Path(os.devnull).open("wb") as nowhere:
                process = await self.fork(command[0], command[1:], environment, (theirs.fileno(), nowhere.fileno()))
            _, process.stdin = await asyncio.open_unix_connection(sock=ours)
        except BaseException:
            ours.close()
            raise
        return process

    def kill(self, pid: int) -> None:
        """End one of its processes at once."""
        if self._socket is not None:
            with suppress(OSError):  # its end is noticed elsewhere
                self._socket.send(json.dumps({"kill": pid}).encode("ascii"))

    async def close(self) -> None:
        """End the fork server, and its processes where there are still any."""
        self._lose()
        if self._process is not None:
            await self._process.wait()

    async def _connect(self) -> socket.socket:
        """Return the connection to the fork server, which is started unless it runs.

        Raises
        ------
        OSError
            It cannot be started.
        """
        async with self._connecting:
            if self._socket is None:
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                try:
                    with theirs:
                        self._process = await asyncio.create_subprocess_exec(
                            *self._command,
                            stdin=theirs.fileno(),
                            stdout=asyncio.subprocess.DEVNULL,
                            start_new_session=True,
                            env={**os.environ, **ONE_THREAD},
                        )
                except BaseException:
                    ours.close()
                    raise
                ours.setblocking(False)
                self._socket = ours
                asyncio.get_running_loop().add_reader(ours.fileno(), self._read)
            return self._socket

    def _read(self) -> None:
        """Read one message."""
        assert self._socket is not None
        try:
            data = self._socket.recv(_MAX_MESSAGE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose()
            return
        message = json.loads(data)
        if "started" in message:
            self._deliver(ForkedProcess(message["started"], self))
        elif "failed" in message:
            self._refuse(OSError(message["failed"], os.strerror(message["failed"])))
        elif (process := self._running.pop(message["ended"], None)) is not None:
            process.end(message["status"])

    def _deliver(self, process: ForkedProcess) -> None:
        """Hand a process to who asked for it, or end it where nobody waits any more."""
        answer = self._pending.popleft()
        self._running[process.pid] = process
        if answer.done():
            process.kill()
        else:
            answer.set_result(process)

    def _refuse(self, error: OSError) -> None:
        answer = self._pending.popleft()
        if not answer.done():
            answer.set_exception(error)

    def _lose(self) -> None:
        """End the fork server and all of its processes: none of them could be ended later."""
        if self._socket is None:
            return
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()
        self._socket = None
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                # Process.kill() takes the status of one that has just ended away from the loop, which then says 255
                os.kill(self._process.pid, signal.SIGKILL)
        while self._pending:
            self._refuse(ConnectionResetError("the process that has loaded the analysis has ended"))
        while self._running:
            pid, process = self._running.popitem()
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            process.end(-signal.SIGKILL)
