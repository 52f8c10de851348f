"""``python -m opsk …`` without the seconds that Python needs to load it: forked from a process that has loaded it all.

On a busy machine a command of opsk loads for longer than it works. A call here has the arguments, environment, folder
and streams that it would have had, and ends as it would have; what it starts is started as ever.
"""

from __future__ import annotations

import array
import gc
import json
import os
import pkgutil
import runpy
import select
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO

OPSK = (sys.executable, "-m", "opsk")
_PACKAGES = ("opsk.cli", "opsk_jobcheck", "opsk_exporters")
_START_TIMEOUT_S = 120.0
_KILL_AFTER_S = 10.0
_EXECUTED_WITH = ("PYTHON", "LD_", "FAKETIME")
"""Variables that act when a program is loaded: a call that changes one is no call for a fork."""


class WarmOpsk:
    """A process that has loaded opsk, and forks for each call; it ends with the process that made it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="opsk-warm-", ignore_cleanup_errors=True)
        self._address = str(Path(self._folder.name) / "socket")
        environment = {**os.environ, **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.warm_opsk", self._address], env=environment,
            cwd=Path(__file__).resolve().parent.parent.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n", "opsk could not be loaded"

    def start(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        cwd: Path | None,
        streams: Sequence[int],
        *,
        program: Path | None = None,
    ) -> tuple[socket.socket, int]:
        """Start a call; return the connection on which its status will come, and its process.

        Parameters
        ----------
        program
            A file of Python to run in place of opsk.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_START_TIMEOUT_S)
        connection.connect(self._address)
        call = {"words": [str(program or ""), *words], "environment": dict(environment), "cwd": str(cwd or Path.cwd())}
        data = json.dumps(call).encode()
        socket.send_fds(connection, [len(data).to_bytes(8, "big")], list(streams))
        connection.sendall(data)
        return connection, int.from_bytes(_receive(connection, 8), "big")

    def command(self) -> tuple[str, ...]:
        """Return the words of a command that, followed by those of opsk, is a call."""
        return sys.executable, "-I", "-S", str(Path(__file__).with_name("warm_call.py")), self._address

    def shell_function(self) -> dict[str, str]:
        """Return variables by which ``opsk`` is a call in each bash that has them."""
        return {"BASH_FUNC_opsk%%": f'() {{ {shlex.join(self.command())} "$@"; }}'}

    def run(
        self,
        words: Sequence[str],
        *,
        environment: Mapping[str, str],
        cwd: Path | None = None,
        stdin: str | bytes | None = None,
        timeout_s: float,
        program: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a call to its end, as `subprocess.run` with pipes; without `stdin` it reads what this process reads."""
        # Files, not pipes: nothing has to be read while it runs, and what it leaves running holds nobody up.
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as erred:
            given.write(stdin.encode() if isinstance(stdin, str) else stdin or b"")
            given.seek(0)
            source = given.fileno() if stdin is not None else 0
            streams = (source, said.fileno(), erred.fileno())
            connection, pid = self.start(words, environment, cwd, streams, program=program)
            with connection:
                connection.settimeout(timeout_s)
                try:
                    status = int.from_bytes(_receive(connection, 8), "big", signed=True)
                except TimeoutError:
                    os.kill(pid, signal.SIGKILL)
                    connection.settimeout(_KILL_AFTER_S)
                    _receive(connection, 8)
                    raise subprocess.TimeoutExpired(list(words), timeout_s, _text(said), _text(erred)) from None
            return subprocess.CompletedProcess(list(words), status, _text(said), _text(erred))

    def end(self) -> None:
        """End the process; calls that still run are left alone."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_KILL_AFTER_S)
        self._folder.cleanup()


class WarmProcess:
    """A call of opsk, or of a program of Python, in a fork; asked, waited for and ended as `subprocess.Popen` is."""

    def __init__(
        self, program: Path | None, words: Sequence[str], *, environment: Mapping[str, str], stdout: int = 1
    ) -> None:
        self._connection, self.pid = warm().start(words, environment, None, (0, stdout, 2), program=program)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return how it ended; ``None`` while it runs."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it ends; return how it did."""
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired([str(self.pid)], timeout or 0.0)
            self.returncode = int.from_bytes(_receive(self._connection, 8), "big", signed=True)
            self._connection.close()
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to it while it runs."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


_WARM: dict[int, WarmOpsk] = {}


def warm() -> WarmOpsk:
    """Return this process's own, started at the first call."""
    pid = os.getpid()
    if pid not in _WARM:
        _WARM[pid] = WarmOpsk()
    return _WARM[pid]


def run(
    words: Sequence[str],
    *,
    environment: Mapping[str, str],
    cwd: Path | None = None,
    stdin: str | None = None,
    timeout_s: float,
) -> subprocess.CompletedProcess[str]:
    """Run any command as `subprocess.run` with pipes does; ``python -m opsk`` is forked where that is the same."""
    if tuple(words[:3]) == OPSK and _loads_alike(environment):
        return warm().run(words[3:], environment=environment, cwd=cwd, stdin=stdin, timeout_s=timeout_s)
    return subprocess.run(
        list(words), env=dict(environment), cwd=cwd, input=stdin, capture_output=True, text=True, timeout=timeout_s,
        check=False,
    )  # fmt: skip


def _loads_alike(environment: Mapping[str, str]) -> bool:
    def acting(variables: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in variables.items() if name.startswith(_EXECUTED_WITH)}

    return acting(environment) == acting(os.environ)


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the process that has loaded opsk is gone")
        data += part
    return data


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


class _Server:
    """The process that has loaded opsk: forks for each connection, and says how each fork ended."""

    def __init__(self, address: str) -> None:
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(address)
        self._listener.listen()
        self._calls: dict[int, tuple[socket.socket, int]] = {}

    def serve(self) -> None:
        """Answer until standard input ends; returns in each fork as well, with what it has to run in `sys.argv`."""
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(0, selectors.EVENT_READ)
        print("ready", flush=True)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    if self._accept():
                        return
                elif key.fd == 0:
                    os._exit(0)
                else:
                    self._reap(key.fd)

    def _accept(self) -> bool:
        """Fork for a connection; true in the fork."""
        connection, _ = self._listener.accept()
        size, streams, _, _ = socket.recv_fds(connection, 8, 3)
        call = json.loads(_receive(connection, int.from_bytes(size, "big")))
        pid = os.fork()
        if pid == 0:
            self._become(call, streams, connection)
            return True
        for descriptor in streams:
            os.close(descriptor)
        connection.sendall(pid.to_bytes(8, "big"))
        watch = os.pidfd_open(pid)
        self._calls[watch] = (connection, pid)
        self._selector.register(watch, selectors.EVENT_READ)
        return False

    def _reap(self, watch: int) -> None:
        connection, pid = self._calls.pop(watch)
        self._selector.unregister(watch)
        os.close(watch)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with connection, suppress(OSError):  # who asked may be gone
            connection.sendall(status.to_bytes(8, "big", signed=True))

    def _become(self, call: Mapping[str, object], streams: array.array[int] | list[int], own: socket.socket) -> None:
        for descriptor, (connection, _) in self._calls.items():
            os.close(descriptor)
            connection.close()
        own.close()
        self._listener.close()
        self._selector.close()
        for target, source in enumerate(streams):
            os.dup2(source, target)
            os.close(source)
        # What they remember is of the streams of this process: whether one can seek, say.
        sys.stdin, sys.stdout, sys.stderr = (
            open(stream.fileno(), stream.mode, encoding=stream.encoding, errors=stream.errors, closefd=False)  # noqa: SIM115
            for stream in (sys.stdin, sys.stdout, sys.stderr)
        )
        environment, words = call["environment"], call["words"]
        assert isinstance(environment, dict)
        assert isinstance(words, list)
        os.environ.clear()
        os.environ.update(environment)
        time.tzset()
        os.chdir(str(call["cwd"]))
        sys.argv = words


def _load() -> None:
    for name in _PACKAGES:
        package = import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    _load()
    _Server(sys.argv[1]).serve()
    if sys.argv[0]:
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        runpy.run_module("opsk", run_name="__main__", alter_sys=True)
