"""Reads the state of the services that GPUs need: systemd's units, and the IMEX domain.

IMEX lets GPUs of several nodes share memory over multi-node NVLink; ``nvidia-imex-ctl`` reports whether its daemon is
ready, and with ``-N`` whether the daemons of all nodes in its configuration see one another. Both start a process: once
a minute, in a thread, never in a scrape.

Source: NVIDIA, "IMEX Service for NVLink Networks" (states); DCGM's fields 1502 and 1503 (the same words).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsk.errors import TelemetryError
from opsk.telemetry.background_reader import Background, Latest
from opsk.units import MIB

_UNITS = ("etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system")
_UNITS_OLD = "lib/systemd/system"
_WANTS = ("multi-user.target", "graphical.target", "basic.target", "default.target")
_GROUPS = ("sys/fs/cgroup/system.slice", "sys/fs/cgroup/systemd/system.slice", "sys/fs/cgroup/unified/system.slice")
DAEMON_STATES = (
    "initializing",
    "starting_auth_server",
    "waiting_for_peers",
    "waiting_for_recovery",
    "init_gpu",
    "ready",
    "shutting_down",
    "unavailable",
)
DOMAIN_STATES = ("up", "degraded", "down")
_PROGRAM = "nvidia-imex-ctl"
_EVERY_S = 60.0
_TIMEOUT_S = 10.0
_LONGEST_ANSWER = MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSample:
    """One service that is installed: whether it is enabled at boot, and running now."""

    name: str
    enabled: bool
    running: bool


def read_service(name: str, root: Path = Path("/")) -> ServiceSample | None:
    """Return the state of a service; ``None`` when the node does not have it, or has no systemd.

    It comes from systemd's own files, without special rights: a unit that runs has processes in its control group; one
    that is enabled at boot has a link in a ``.wants`` folder. One that is enabled and does not run needs attention.

    Parameters
    ----------
    name
        Name of the unit without ``.service``.
    root
        Where the file system begins.
    """
    unit = f"{name}.service"
    groups = [root / group for group in _GROUPS if (root / group).is_dir()]
    if not groups:
        return None
    running = any(_has_process(group / unit) for group in groups)
    installed = any(os.path.lexists(root / folder / unit) for folder in (*_UNITS, _UNITS_OLD))
    if not installed and not running:
        return None
    wants = [root / folder / f"{target}.wants" for folder in _UNITS for target in _WANTS]
    return ServiceSample(name=name, enabled=any(os.path.lexists(folder / unit) for folder in wants), running=running)


def _has_process(group: Path) -> bool:
    """Return whether a control group, or one below it, has a process."""
    try:
        events = (group / "cgroup.events").read_text(encoding="ascii", errors="replace")
    except OSError:
        events = ""
    if "populated" in events:
        return "populated 1" in events
    try:
        return bool((group / "cgroup.procs").read_text(encoding="ascii", errors="replace").strip())
    except OSError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ImexSample:
    """State of the daemon and of its domain; ``None`` is "not reported"."""

    daemon: str | None = None
    domain: str | None = None
    nodes: int | None = None
    nodes_ready: int | None = None


class ImexReader:
    """Queries the IMEX daemon once a minute.

    Parameters
    ----------
    program
        The command to run; ``None`` for the one in the path, if there is one.
    """

    def __init__(self, program: str | None = None) -> None:
        self._program = program or shutil.which(_PROGRAM)
        self._background = Background("imex", self._read, every_s=_EVERY_S)

    def latest(self) -> Latest[ImexSample] | None:
        """Return the last answer and its age, without waiting; ``None`` on a node without the program."""
        return None if self._program is None else self._background.latest()

    def close(self) -> None:
        """Stop querying."""
        self._background.close()

    def _read(self) -> ImexSample:
        """Query once."""
        assert self._program is not None
        daemon = parse_daemon(_run_command([self._program, "-q"]))
        domain = parse_domain(_run_command([self._program, "-N", "-j"]))
        return ImexSample(daemon=daemon, domain=domain.domain, nodes=domain.nodes, nodes_ready=domain.nodes_ready)


def parse_daemon(text: str) -> str | None:
    """Return the daemon's state (``READY`` and so on) as one of ``DAEMON_STATES``."""
    words = (line.strip().lower().replace(" ", "_") for line in text.splitlines())
    return next((word for word in words if word in DAEMON_STATES), None)


def parse_domain(text: str) -> ImexSample:
    """Read the JSON of ``-N -j``: the state of the domain, and how many of its nodes are ready."""
    start = text.find("{")
    try:
        document: Any = json.loads(text[start:]) if start >= 0 else None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        return ImexSample()
    state, nodes = document.get("status"), document.get("nodes")
    word = state.lower() if isinstance(state, str) else ""
    members = list(nodes.values() if isinstance(nodes, dict) else nodes if isinstance(nodes, list) else ())
    ready = sum(isinstance(node, dict) and node.get("status") == "READY" for node in members)
    return ImexSample(
        domain=word if word in DOMAIN_STATES else None,
        nodes=len(members) if members else None,
        nodes_ready=ready if members else None,
    )


def _run_command(command: Sequence[str]) -> str:
    """Return the output of a command, whatever its exit status: a daemon that is not ready ends it with 1."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TelemetryError(f"{_PROGRAM}: {error}") from error
    return done.stdout[:_LONGEST_ANSWER].decode("utf-8", "replace")
