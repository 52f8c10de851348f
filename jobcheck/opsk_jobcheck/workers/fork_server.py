"""Loads the analysis once, and forks an advisor's workers and its watcher from it.

Loading takes a second of a processor, a fork some milliseconds: a worker that was killed is soon replaced, a
configuration is soon read again, and the processes share the memory of what was loaded.

Its standard input is a socket of whole messages (SOCK_SEQPACKET), each a JSON object. A request to fork passes the new
process's standard input and output; `forked_processes` is the other end. It ends when the advisor does, after its
processes, which see the end of their own input.
"""

from __future__ import annotations

import errno
import gc
import json
import logging
import os
import selectors
import signal
import socket
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from opsk.units import KIB

Program = Callable[[Sequence[str]], None]
"""What a forked process runs, with its arguments."""
MAX_MESSAGE_BYTES = 256 * KIB
END_WITHIN_S = 5.0
"""Processes have so long to end by themselves once the advisor has ended."""
_STREAMS = 2
_NAME = Path("/proc/self/comm")


def serve(programs: Mapping[str, Program]) -> None:
    """Fork on request until the advisor ends; everything that the programs need has been imported."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    gc.collect()
    gc.freeze()  # a collection would write to memory that forks share
    _close_copies(0)
    _ForkServer(programs, socket.socket(fileno=os.dup(0))).serve()


def _close_copies(original: int) -> None:
    """Close the copies of a descriptor that the advisor's event loop (uvloop) passes on.

    A fork that held one would hide from the advisor that this process has ended.
    """
    for path in list(Path("/proc/self/fd").iterdir()):
        descriptor = int(path.name)
        with suppress(OSError):  # the folder's own, closed by now
            if descriptor > 2 and os.path.sameopenfile(descriptor, original):
                os.close(descriptor)


class _ForkServer:
    """Forks on request, and says how each process ended."""

    def __init__(self, programs: Mapping[str, Program], advisor: socket.socket) -> None:
        self._programs = programs
        self._advisor = advisor
        self._selector = selectors.DefaultSelector()
        self._selector.register(advisor, selectors.EVENT_READ)
        self._pids: dict[int, int] = {}
        """Running processes by the end of a pipe whose other end each holds open until it ends."""

    def serve(self) -> None:
        """Serve until the advisor ends, then end what is left."""
        while self._handle(None):
            pass
        self._selector.unregister(self._advisor)
        end_s = time.monotonic() + END_WITHIN_S
        while self._pids and (left_s := end_s - time.monotonic()) > 0:
            self._handle(left_s)
        for pid in self._pids.values():
            os.kill(pid, signal.SIGKILL)

    def _handle(self, wait_s: float | None) -> bool:
        """Wait for requests and for processes that end; false when the advisor has ended."""
        goes_on = True
        for key, _ in self._selector.select(wait_s):
            if key.fileobj is self._advisor:
                goes_on = self._read_request()
            else:
                self._reap(key.fd)
        return goes_on

    def _read_request(self) -> bool:
        """Do what one message asks for; false at the end."""
        try:
            data, streams, _, _ = socket.recv_fds(self._advisor, MAX_MESSAGE_BYTES, _STREAMS)
        except ConnectionError:
            return False
        if not data:
            return False
        request = json.loads(data)
        if "kill" in request:
            if request["kill"] in self._pids.values():  # not reaped: the number is still this process's
                os.kill(request["kill"], signal.SIGKILL)
            return True
        try:
            self._fork(request, streams)
        except OSError as error:
            self._send({"failed": error.errno or errno.EAGAIN})
        finally:
            for descriptor in streams:
                os.close(descriptor)
        return True

    def _fork(self, request: Mapping[str, Any], streams: Sequence[int]) -> None:
        """Start a process; returns in this one.

        Raises
        ------
        OSError
            There can be no more processes or files.
        """
        alive, held = os.pipe()
        try:
            pid = os.fork()
            if pid == 0:
                os.close(alive)
                self._become(request, streams)
        except OSError:
            os.close(alive)
            raise
        finally:
            os.close(held)
        self._pids[alive] = pid
        self._selector.register(alive, selectors.EVENT_READ)
        self._send({"started": pid})

    def _become(self, request: Mapping[str, Any], streams: Sequence[int]) -> NoReturn:
        """Be the requested process, in a fork."""
        status = 1
        try:
            for descriptor in self._pids:
                os.close(descriptor)
            self._selector.close()
            self._advisor.close()
            for target, source in enumerate(streams):
                os.dup2(source, target)
                os.close(source)
            os.environ.update(request["environment"])
            with suppress(OSError):
                _NAME.write_text(f"opsk {request['program']}", encoding="ascii")
            self._programs[request["program"]](request["arguments"])
            status = 0
        except BaseException:  # noqa: BLE001 - nothing of this process may run on as the server
            traceback.print_exc()
        finally:
            os._exit(status)

    def _reap(self, alive: int) -> None:
        """Take the status of a process that has ended."""
        pid = self._pids.pop(alive)
        self._selector.unregister(alive)
        os.close(alive)
        self._send({"ended": pid, "status": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])})

    def _send(self, message: Mapping[str, int]) -> None:
        with suppress(OSError):  # an advisor that was killed waits for nothing
            self._advisor.send(json.dumps(message).encode("ascii"))


if __name__ == "__main__":
    import scipy.sparse  # noqa: F401 - else the first job that is placed waits for it

    from opsk_jobcheck.workers import watcher, worker  # what is imported from here on is shared by all forks
    from opsk_jobcheck.workers.site_analyzer import SiteAnalyzer

    def _work(_arguments: Sequence[str]) -> None:
        logging.basicConfig(level=logging.WARNING, format="opsk advisor worker: %(levelname)s %(message)s")
        worker.run(SiteAnalyzer)

    def _watch(arguments: Sequence[str]) -> None:
        logging.basicConfig(level=logging.WARNING, format="opsk advisor: %(levelname)s %(message)s")
        watcher.main(Path(arguments[0]))

    serve({"worker": _work, "watcher": _watch})
