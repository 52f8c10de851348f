"""Manages the child process that imports pyslurm: frames over pipes, a deadline, and a restart after each failure."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from opsk.errors import SlurmError
from opsk.text import blank_controls
from opsk.units import MIB

CHILD = Path(__file__).with_name("child.py")
MAX_ANSWER_BYTES = 512 * MIB
"""An answer beyond this is not read: about a kilobyte a job, so that of half a million jobs."""

_LENGTH = struct.Struct(">I")
_CHUNK_BYTES = MIB
_COMPLAINT_BYTES = 4096
_END_WAIT_S = 0.2


class ProcessFailedError(SlurmError):
    """The process ended before it answered, or answered what cannot be read."""


class ProcessDeadlineError(SlurmError):
    """The process did not answer in time and was ended."""


class PyslurmProcess:
    """The process that imports pyslurm; it is started for the first request, and again after it was ended.

    Parameters
    ----------
    environment
        All variables of the process.
    python
        The interpreter, in which pyslurm is installed.
    """

    def __init__(self, environment: Mapping[str, str], *, python: str = sys.executable) -> None:
        self._environment = dict(environment)
        self._python = python
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._complaints = _memory_file()
        self._finalizer: weakref.finalize[..., PyslurmProcess] | None = None
        weakref.finalize(self, self._complaints.close)

    @property
    def is_running(self) -> bool:
        """True while a process waits for the next request."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Number of the running process."""
        return self._process.pid if self._process is not None and self.is_running else None

    def ask(self, question: Mapping[str, Any], *, deadline_s: float) -> dict[str, Any]:
        """Return the answer to one request; only one is sent at a time.

        Raises
        ------
        ProcessFailedError
            The process ended instead of answering (the message is its last line), or its answer cannot be read.
        ProcessDeadlineError
            The deadline passed, and the process was ended.
        SlurmError
            It cannot be started.
        """
        with self._lock:
            until = time.monotonic() + deadline_s
            process = self._started()
            self._complaints.truncate(0)
            body = json.dumps({**question, "deadline_s": deadline_s}).encode("ascii")
            try:
                assert process.stdin is not None
                process.stdin.write(_LENGTH.pack(len(body)) + body)
                process.stdin.flush()
                answer = json.loads(self._read(process, until, deadline_s))
            except BrokenPipeError:
                raise self._ended(process) from None
            except ValueError as error:
                self.close()
                raise ProcessFailedError(f"pyslurm's process answers what is no JSON: {error}") from error
            except BaseException:
                # Ctrl-C as well: what is left of this answer must not be taken for the next one.
                self.close()
                raise
            return dict(answer)

    def close(self) -> None:
        """End the process, if there is one."""
        with self._lock:
            finalizer, self._process, self._finalizer = self._finalizer, None, None
            if finalizer is not None:
                finalizer()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        try:
            self._process = subprocess.Popen(
                [self._python, "-P", str(CHILD)],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
            )
        except OSError as error:
            raise SlurmError(f"{self._python}: {error.strerror}", hint="set OPSK_SLURM_ADAPTER=commands") from error
        self._finalizer = weakref.finalize(self, _end, self._process)
        return self._process

    def _read(self, process: subprocess.Popen[bytes], until: float, deadline_s: float) -> bytes:
        """Return the body of one frame."""
        assert process.stdout is not None
        source = process.stdout.fileno()
        received, expected = bytearray(), _LENGTH.size
        with selectors.DefaultSelector() as waiting:
            waiting.register(source, selectors.EVENT_READ)
            while len(received) < expected:
                if not waiting.select(max(0.0, until - time.monotonic())):
                    raise ProcessDeadlineError(
                        f"pyslurm did not answer within {deadline_s:g} s", hint="see `scontrol ping`"
                    )
                chunk = os.read(source, min(_CHUNK_BYTES, expected - len(received)))
                if not chunk:
                    raise self._ended(process)
                received += chunk
                if len(received) == expected == _LENGTH.size:
                    expected += _LENGTH.unpack(received)[0]
                    if expected > MAX_ANSWER_BYTES:
                        raise ProcessFailedError(
                            f"pyslurm's answer has {expected} bytes, more than {MAX_ANSWER_BYTES}",
                            hint="set OPSK_SLURM_ADAPTER=commands",
                        )
        return bytes(received[_LENGTH.size :])

    def _ended(self, process: subprocess.Popen[bytes]) -> ProcessFailedError:
        """Return the error for a process that ended by itself, with the last line that it wrote."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_WAIT_S)
        status = process.returncode
        self._complaints.seek(0)
        written = self._complaints.read()[-_COMPLAINT_BYTES:].decode("utf-8", errors="replace")
        lines = [line for line in written.splitlines() if line.strip()]
        message = blank_controls(lines[-1]) if lines else "without a word"
        self.close()
        how = f"ended by signal {-status}" if status is not None and status < 0 else f"ended with status {status}"
        return ProcessFailedError(f"pyslurm's process {how}: {message}", hint="set OPSK_SLURM_ADAPTER=commands")


def _memory_file() -> IO[bytes]:
    """Return a file of this process's memory: there may be no folder to write to, and a pipe could fill up.

    It is appended to, so that what the child writes after it was emptied begins at its beginning.
    """
    file = os.fdopen(os.memfd_create("pyslurm-stderr"), "r+b", buffering=0)
    fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
    return file


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process at once: it may hold the interpreter's lock and ignore other signals."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    process.wait()
