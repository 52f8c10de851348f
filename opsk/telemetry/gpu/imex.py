"""Reads the state of this node's IMEX domain from ``nvidia-imex-ctl``, seldom and in a thread of its own.

IMEX lets GPUs of several nodes share memory over multi-node NVLink; its daemon reports whether it is ready itself, and
with ``-N`` whether the daemons of all nodes in its configuration see one another. Both start a process: once a minute,
never in a scrape.

Source: NVIDIA, "IMEX Service for NVLink Networks" (states); DCGM's fields 1502 and 1503 (the same words).
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opsk.errors import TelemetryError
from opsk.telemetry.background_reader import Background, Latest
from opsk.units import MIB

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
