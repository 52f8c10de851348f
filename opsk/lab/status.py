"""Determines whether the lab is up, which of its daemons run, and where their logs are."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from opsk.lab.launcher import read_tail
from opsk.lab.processes import is_running, read_boot_id
from opsk.lab.programs import build_search_path
from opsk.lab.record import Daemon, LabRecord, LabState, read_record

_ANSWER_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonStatus:
    """One daemon: whether it runs, its pid, its log, and the log's last lines when it does not run."""

    name: str
    running: bool
    pid: int | None
    log: Path
    last_lines: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabStatus:
    """The status of a lab now.

    Parameters
    ----------
    state
        ``up``, ``down``, ``starting``, ``stopping``, ``broken`` (parts of it do not run), or ``none`` (never was one).
    nodes
        Slurm's node states, each with the number of nodes; empty when slurmctld does not answer.
    """

    path: Path
    state: str
    record: LabRecord | None = None
    daemons: tuple[DaemonStatus, ...] = ()
    nodes: dict[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def is_fully_up(record: LabRecord) -> bool:
    """Return whether the lab is up and every daemon of it still runs."""
    return record.state is LabState.UP and record.boot == read_boot_id() and all(map(_runs, record.daemons))


def read_lab_status(path: Path) -> LabStatus:
    """Read the status of the lab in ``path``.

    Raises
    ------
    LabError
        When its record cannot be read.
    """
    record = read_record(path)
    if record is None:
        return LabStatus(path=path, state="none")
    daemons = tuple(_build_daemon_status(daemon, same_boot=record.boot == read_boot_id()) for daemon in record.daemons)
    if record.state is not LabState.UP:
        return LabStatus(path=path, state=record.state.value, record=record, daemons=daemons)
    stopped = (each for each in daemons if not each.running)
    problems = [f"{each.name} is not running; its last lines: {each.last_lines}" for each in stopped]
    nodes, complaint = _query_node_states(record)
    if complaint:
        problems.append(complaint)
    usable = sum(count for state, count in nodes.items() if state.rstrip("*+~#!%$@^-") in _USABLE)
    if nodes and usable < record.shape.nodes:
        problems.append(f"{record.shape.nodes - usable} of {record.shape.nodes} nodes take no jobs")
    return LabStatus(
        path=path,
        state="broken" if problems else "up",
        record=record,
        daemons=daemons,
        nodes=nodes,
        problems=tuple(problems),
    )


_USABLE = frozenset({"idle", "mixed", "allocated", "completing"})


def build_slurm_environment(record: LabRecord) -> dict[str, str]:
    """Return the variables with which Slurm's and opsk's commands use this lab."""
    folder = record.folder
    return {
        "SLURM_CONF": str(folder.slurm_conf),
        "OPSK_LAB_DIR": str(folder.path),
        "OPSK_CONFIG": str(folder.site),
        "IBSIM_SOCKNAME": record.ibsim_socket,
    }


def _query_node_states(record: LabRecord) -> tuple[dict[str, int], str]:
    """Query slurmctld for its nodes; the second value is why there is no answer."""
    try:
        result = subprocess.run(
            ["sinfo", "-h", "-o", "%T %D"],
            env={"PATH": build_search_path(), "LC_ALL": "C.UTF-8", **build_slurm_environment(record)},
            capture_output=True,
            text=True,
            timeout=_ANSWER_WITHIN_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}, f"slurmctld does not answer within {_ANSWER_WITHIN_S:.0f} s"
    if result.returncode != 0:
        return {}, f"slurmctld does not answer: {' '.join(result.stderr.split())[:200]}"
    states: dict[str, int] = {}
    for line in result.stdout.splitlines():
        state, _, count = line.rpartition(" ")
        states[state.strip()] = states.get(state.strip(), 0) + int(count)
    return states, ""


def _build_daemon_status(daemon: Daemon, *, same_boot: bool) -> DaemonStatus:
    running = same_boot and _runs(daemon)
    pid = daemon.process.pid if daemon.process is not None else None
    return DaemonStatus(
        name=daemon.name, running=running, pid=pid, log=daemon.log, last_lines="" if running else read_tail(daemon.log)
    )


def _runs(daemon: Daemon) -> bool:
    return daemon.process is not None and is_running(daemon.process)
