"""Starts the lab's daemons again when they end, as systemd does on a site, and ends one by each signal."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from opsk.lab.launcher import Launcher
from opsk.lab.processes import MARKER, Process, find_all, identify, is_running, read_command_line, send, wait_gone

FORKED = "opsk "
"""How the names of processes begin that the advisor has forked."""
LOOK_EVERY_S = 0.3
TELLS = "PYTHONFAULTHANDLER"
"""With it a daemon says on SIGABRT in which lines its threads are."""


@dataclass(slots=True)
class Daemon:
    """One daemon: how it is started, the process that it is now, and until when it stays down.

    ``pause_s`` is what its unit says under RestartSec.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    pause_s: float = 1.0
    process: Process | None = None
    down_since_s: float | None = None
    is_held: bool = False
    is_ending: bool = False


@dataclass(slots=True)
class Daemons:
    """The daemons of one lab, looked after by a thread."""

    launcher: Launcher
    ended_by_themselves: list[str] = field(default_factory=list)
    deaf: list[str] = field(default_factory=list)
    _all: dict[str, Daemon] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def adopt(self, name: str, *, pause_s: float = 1.0, extra: Mapping[str, str] | None = None) -> None:
        """Look after a daemon that the lab has started; ``extra`` holds from its next start on."""
        (process,) = (each.process for each in self.launcher.record.daemons if each.name == name)
        assert process is not None, name
        words = (Path("/proc") / str(process.pid) / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        said = (Path("/proc") / str(process.pid) / "environ").read_bytes().split(b"\0")
        pairs = (os.fsdecode(entry).partition("=") for entry in said if b"=" in entry)
        environment = {key: value for key, _, value in pairs if key != MARKER}
        command = tuple(os.fsdecode(word) for word in words)
        self._all[name] = Daemon(name, command, {**environment, **(extra or {})}, pause_s, process)

    def add(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None, *, pause_s: float = 1.0
    ) -> None:
        """Start a daemon that the lab does not have."""
        self._all[name] = Daemon(name, tuple(command), dict(environment or {}), pause_s)
        self.start(name)

    def replace(self, name: str, command: Sequence[str] | None = None) -> None:
        """End a daemon well and start it anew, perhaps in another way."""
        with self._lock:
            self.end(name)
            if command is not None:
                self._all[name].command = tuple(command)
            self.start(name)

    def start(self, name: str) -> None:
        """Start a daemon that does not run."""
        with self._lock:
            daemon = self._all[name]
            if daemon.process is not None and is_running(daemon.process):
                return
            self.launcher.start(name, daemon.command, extra=daemon.environment)
            daemon.process = self.launcher.record.daemons[-1].process
            daemon.down_since_s, daemon.is_held, daemon.is_ending = None, False, False

    def end(self, name: str, number: signal.Signals = signal.SIGTERM, *, within_s: float = 120.0) -> None:
        """End a daemon, and leave it so until it is started."""
        with self._lock:
            daemon = self._all[name]
            daemon.is_held = daemon.is_ending = True
        if daemon.process is not None:
            send(daemon.process, number)
            for left in wait_gone((daemon.process,), timeout_s=within_s):
                self.deaf.append(f"{name} had not ended {within_s:.0f} s after {number.name}")
                if TELLS in daemon.environment:
                    send(left, signal.SIGABRT)
                    wait_gone((left,), timeout_s=5.0)
                send(left, signal.SIGKILL)
                wait_gone((left,), timeout_s=5.0)

    def kill(self, name: str) -> None:
        """Kill a daemon; it is started again after its pause."""
        with self._lock:
            self._all[name].is_ending = True
        if (process := self._all[name].process) is not None:
            send(process, signal.SIGKILL)

    def process(self, name: str) -> Process | None:
        """Return the process that a daemon is now; ``None`` while there is none."""
        found = self._all[name].process
        return found if found is not None and is_running(found) else None

    def await_running(self, name: str, within_s: float = 60.0) -> None:
        """Wait until a daemon runs again."""
        end = time.monotonic() + within_s
        while self.process(name) is None and time.monotonic() < end:
            time.sleep(LOOK_EVERY_S)

    @property
    def names(self) -> tuple[str, ...]:
        """All daemons."""
        return tuple(self._all)

    def children(self, name: str) -> dict[int, str]:
        """Return what a daemon has started and what that has started: name by pid."""
        process = self.process(name)
        return {} if process is None else dict(_descendants(process.pid))

    def of_lab(self, *words: str) -> list[Process]:
        """Return the processes of the lab with these words in their command line."""
        folder = self.launcher.record.folder
        found = find_all(folder.path, slurm_confs=[folder.slurm_conf])
        return [each for each in found if all(word in read_command_line(each) for word in words)]

    def watch(self) -> None:
        """Begin to start again what ends."""
        self._thread = threading.Thread(target=self._look, name="daemons", daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Start nothing again from now on."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _look(self) -> None:
        while not self._stopped.wait(LOOK_EVERY_S):
            for daemon in list(self._all.values()):
                with self._lock, suppress(OSError):
                    self._look_at(daemon)

    def _look_at(self, daemon: Daemon) -> None:
        if daemon.process is not None and is_running(daemon.process):
            return
        now_s = time.monotonic()
        if daemon.down_since_s is None:
            daemon.down_since_s = now_s
            if not daemon.is_ending:
                self.ended_by_themselves.append(f"{daemon.name} at {time.strftime('%H:%M:%S')}")
        if not daemon.is_held and now_s - daemon.down_since_s >= daemon.pause_s:
            self.start(daemon.name)


def read_name(process: Process) -> str:
    """Return what a process is called: its own name where it is a fork, else its command line."""
    with suppress(OSError):
        name = (Path("/proc") / str(process.pid) / "comm").read_text().strip()
        if name.startswith(FORKED):
            return name
    return read_command_line(process)


def _descendants(pid: int) -> list[tuple[int, str]]:
    found = []
    with suppress(OSError):
        for task in (Path("/proc") / str(pid) / "task").iterdir():
            for word in (task / "children").read_text().split():
                child = identify(int(word))
                if child is not None:
                    found += [(child.pid, read_name(child)), *_descendants(child.pid)]
    return found
