"""Starts daemons, waits until they answer, and records every one of them."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from opsk.errors import LabError
from opsk.lab.processes import MARKER, Process, identify
from opsk.lab.programs import build_search_path
from opsk.lab.record import Daemon, LabRecord

READY_WITHIN_S = 180.0
_POLL_S = 0.01
_LOG_TAIL = 5


class Stopped(Exception):  # noqa: N818
    """The start was called off; the thread that sees this ends."""


class Launcher:
    """Starts the processes of one lab and maintains its record; several threads use it at once.

    Parameters
    ----------
    record
        The lab; `record` is updated with what was started.
    """

    def __init__(self, record: LabRecord) -> None:
        self._record = record
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def record(self) -> LabRecord:
        """The record as last saved."""
        return self._record

    def amend(self, **changes: object) -> LabRecord:
        """Change fields of the record and save it."""
        with self._lock:
            self._record = replace(self._record, **changes)  # type: ignore[arg-type]
            self._record.save()
            return self._record

    def stop(self) -> None:
        """Start nothing more, and end every wait."""
        with self._lock:
            self._stopped.set()

    def forget(self) -> None:
        """Release the children: they outlive this process."""
        for child in self._children.values():
            child.returncode = child.poll() or 0
        self._children.clear()

    def start(
        self, name: str, command: Sequence[str | Path], *, extra: Mapping[str, str] | None = None, log: str = ""
    ) -> None:
        """Start a daemon in the foreground of a session of its own; its output goes to ``log/<name>.out``.

        Parameters
        ----------
        extra
            Variables that it gets besides PATH, locale and the mark of this lab.
        log
            Name of the log that it writes itself; it is the one shown to people.
        """
        folder = self._record.folder
        console = folder.path / "log" / f"{name}.out"
        shown = folder.path / "log" / log if log else console
        with self._lock:
            if self._stopped.is_set():
                raise Stopped
            with console.open("ab") as output:
                child = subprocess.Popen(
                    [os.fspath(word) for word in command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=folder.run,
                    env=self.environment(extra),
                    start_new_session=True,
                )
            self._children[name] = child
            daemon = Daemon(
                name=name, log=shown, process=identify(child.pid) or Process(pid=child.pid, started_ticks=0)
            )
            self._record = replace(self._record, daemons=(*self._record.daemons, daemon))
            self._record.save()

    def run(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        extra: Mapping[str, str] | None = None,
        output: Path | None = None,
    ) -> None:
        """Run a program to its end; ``output`` gets its stdout, else ``log/<name>.out``.

        Raises
        ------
        LabError
            When it fails; with the last lines that it printed.
        """
        console = self._record.folder.path / "log" / f"{name}.out"
        with console.open("ab") as errors, (output or console).open("wb" if output else "ab") as printed:
            child = subprocess.Popen(
                [os.fspath(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=errors,
                cwd=self._record.folder.run,
                env=self.environment(extra),
                start_new_session=True,
            )
        self._wait(lambda: child.poll() is not None, name, f"{name} did not end")
        if child.returncode != 0:
            raise LabError(f"{name} failed with status {child.returncode}: {read_tail(console)}", hint=f"see {console}")

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment of everything that is started.

        The mark of the lab comes last: daemons that write their title over their environment start at the front.
        """
        inherited = {name: os.environ[name] for name in ("HOME", "USER", "LOGNAME", "TZ") if name in os.environ}
        folder = self._record.folder
        return {
            "PATH": build_search_path(),
            "LC_ALL": "C.UTF-8",
            **inherited,
            "SLURM_CONF": str(folder.slurm_conf),
            **(extra or {}),
            MARKER: str(folder.path),
        }

    def await_socket(self, name: str, address: Path | int) -> None:
        """Wait until daemon ``name`` accepts on a Unix socket, or on a TCP port of this machine."""
        family = socket.AF_UNIX if isinstance(address, Path) else socket.AF_INET
        target = str(address) if isinstance(address, Path) else ("127.0.0.1", address)

        def accepts() -> bool:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                return probe.connect_ex(target) == 0

        self.await_ready(name, accepts)

    def await_ready(self, name: str, ready: Callable[[], bool], *, every_s: float = _POLL_S) -> None:
        """Wait until ``ready``, which is called again and again with this pause, returns true.

        Raises
        ------
        LabError
            When daemon ``name`` ends, or is not ready after ``READY_WITHIN_S``; with its last lines.
        """
        self._wait(lambda: ready() or self._has_ended(name), name, f"{name} did not answer", every_s=every_s)
        if self._has_ended(name):
            child = self._children[name]
            raise LabError(
                f"{name} ended with status {child.returncode} during its start: {self._last_lines(name)}",
                hint=f"see {self._get_log_path(name)}",
            )

    def _wait(self, done: Callable[[], bool], name: str, complaint: str, *, every_s: float = _POLL_S) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while not done():
            if self._stopped.is_set():
                raise Stopped
            if time.monotonic() > deadline:
                raise LabError(
                    f"{complaint} within {READY_WITHIN_S:.0f} s: {self._last_lines(name)}",
                    hint=f"see {self._get_log_path(name)}",
                )
            time.sleep(every_s)

    def _has_ended(self, name: str) -> bool:
        child = self._children.get(name)
        return child is not None and child.poll() is not None

    def _get_log_path(self, name: str) -> Path:
        known = {daemon.name: daemon.log for daemon in self._record.daemons}
        return known.get(name, self._record.folder.path / "log" / f"{name}.out")

    def _last_lines(self, name: str) -> str:
        return read_tail(self._get_log_path(name)) or read_tail(self._record.folder.path / "log" / f"{name}.out")


def read_tail(log: Path) -> str:
    """Return the last lines of a log in one line; empty when there is none."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return " | ".join(line.strip() for line in lines[-_LOG_TAIL:] if line.strip())
