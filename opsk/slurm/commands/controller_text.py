"""Parses what ``sdiag``, ``scontrol ping`` and ``scontrol show reservation`` print about slurmctld, into SI units.

``sdiag`` is the same from 22.05 to 26.05. Source: ``src/sdiag/sdiag.c``; times of cycles are printed in microseconds,
and counts are those since the statistics were last reset: at midnight UTC, by ``sdiag --reset``, or by a start of
slurmctld.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from opsk.errors import SlurmError
from opsk.slurm.commands.fields import parse_count

_LINE = re.compile(r"^\s*([A-Za-z][^:\n]*?):?\s*:\s*(\S.*?)\s*$")
_MOMENT = re.compile(r"\((\d{9,11})\)\s*$")
_RPC = re.compile(
    r"^\s+(REQUEST|MESSAGE|RESPONSE)\S*\s+\(\s*\d+\)\s+count:(\d+)\s+ave_time:\d+\s+total_time:(\d+)", re.M
)
_SECTIONS = (("Main schedul", "main"), ("Backfill", "backfill"), ("Latency for", ""), ("Remote Procedure", "end"))
_US_PER_S = 1e6
_EVENTS = {
    "submitted": "Jobs submitted",
    "started": "Jobs started",
    "completed": "Jobs completed",
    "cancelled": "Jobs canceled",
    "failed": "Jobs failed",
}
_NOW = {"pending": "Jobs pending", "running": "Jobs running"}
_CONTROLLER = re.compile(r"^Slurmctld\((\w+)\) at (\S+) is (UP|DOWN)\b", re.M)
_RESERVATION = re.compile(r"^ReservationName=\S.*?(?=^ReservationName=|\Z)", re.M | re.S)
_FIELD = re.compile(r"(?<!\S)(State|Flags|NodeCnt)=(\S*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleStatistics:
    """Statistics of one of the two schedulers; ``None`` is what this slurmctld does not report (yet).

    ``depth`` is how many jobs a cycle tried, on average; ``queue`` how many there were at the last one.
    """

    last_s: float | None = None
    mean_s: float | None = None
    longest_s: float | None = None
    cycles: int | None = None
    depth: float | None = None
    queue: int | None = None
    last_unix_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerStatistics:
    """Statistics of slurmctld; ``None`` is what it does not report.

    Parameters
    ----------
    since_unix_s
        Start of the counts.
    threads
        Threads that serve requests now.
    agents, agent_threads, agent_queue
        Messages to nodes and users in progress, and those that are queued.
    database_queue
        Messages that wait for slurmdbd.
    jobs
        Jobs by what happened to them since then.
    jobs_now
        Pending and running jobs as it last counted them.
    main, backfill
        Its two schedulers.
    backfilled
        Jobs that backfill started since slurmctld started.
    rpcs, rpc_s
        Requests that it has served since then, and the time that took.
    """

    since_unix_s: int | None = None
    threads: int | None = None
    agents: int | None = None
    agent_threads: int | None = None
    agent_queue: int | None = None
    database_queue: int | None = None
    jobs: Mapping[str, int] = field(default_factory=dict)
    jobs_now: Mapping[str, int] = field(default_factory=dict)
    main: CycleStatistics = CycleStatistics()
    backfill: CycleStatistics = CycleStatistics()
    backfilled: int | None = None
    rpcs: int | None = None
    rpc_s: float | None = None


def parse_sdiag(text: str) -> SchedulerStatistics:
    """Return the statistics in the output of ``sdiag``.

    Raises
    ------
    SlurmError
        It is not sdiag's output.
    """
    sections = _split_sections(text)
    head = sections[""]
    if "Server thread count" not in head:
        raise SlurmError("sdiag answers what cannot be read", hint="is this Slurm's sdiag?")
    since = re.search(r"^Data since\s.*\((\d{9,11})\)\s*$", text, re.M)
    rpcs = _RPC.findall(text)
    return SchedulerStatistics(
        since_unix_s=int(since.group(1)) if since else None,
        threads=_parse_count(head, "Server thread count"),
        agents=_parse_count(head, "Agent count"),
        agent_threads=_parse_count(head, "Agent thread count"),
        agent_queue=_parse_count(head, "Agent queue size"),
        database_queue=_parse_count(head, "DBD Agent queue size"),
        jobs=_parse_counts(head, _EVENTS),
        jobs_now=_parse_counts(head, _NOW),
        main=_parse_cycles(sections["main"], depth="Mean depth cycle"),
        backfill=_parse_cycles(sections["backfill"], depth="Depth Mean"),
        backfilled=_parse_count(sections["backfill"], "Total backfilled jobs (since last slurm start)"),
        rpcs=sum(int(number) for _, number, _ in rpcs) if rpcs else None,
        rpc_s=sum(int(spent) for _, _, spent in rpcs) / _US_PER_S if rpcs else None,
    )


def _split_sections(text: str) -> dict[str, dict[str, str]]:
    """Return the lines ``name: value`` by the scheduler that they are of."""
    sections: dict[str, dict[str, str]] = {"": {}, "main": {}, "backfill": {}}
    section = ""
    for line in text.splitlines():
        for begin, name in _SECTIONS:
            if line.startswith(begin):
                section = name
        if section == "end":
            break
        match = _LINE.match(line)
        if match:
            sections[section].setdefault(match.group(1), match.group(2))
    return sections


def _parse_cycles(values: Mapping[str, str], depth: str) -> CycleStatistics:
    """Return one scheduler's cycles; means and the last one are absent before the first cycle."""
    cycles = _parse_count(values, "Total cycles")
    if not cycles:
        return CycleStatistics(cycles=cycles)
    moment = _MOMENT.search(values.get("Last cycle when", ""))
    last, mean, longest = (_parse_count(values, name) for name in ("Last cycle", "Mean cycle", "Max cycle"))
    return CycleStatistics(
        last_s=None if last is None else last / _US_PER_S,
        mean_s=None if mean is None else mean / _US_PER_S,
        longest_s=None if longest is None else longest / _US_PER_S,
        cycles=cycles,
        depth=_parse_count(values, depth),
        queue=_parse_count(values, "Last queue length"),
        last_unix_s=int(moment.group(1)) if moment else None,
    )


def _parse_counts(values: Mapping[str, str], names: Mapping[str, str]) -> dict[str, int]:
    """Return the counts that are present, by opsk's names."""
    counts = {word: _parse_count(values, name) for word, name in names.items()}
    return {word: number for word, number in counts.items() if number is not None}


def _parse_count(values: Mapping[str, str], name: str) -> int | None:
    """Return one count."""
    text = values.get(name, "")
    return int(text) if text.isdecimal() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """One slurmctld: its role in slurm.conf (``primary``, ``backup``), its host, whether it answers."""

    role: str
    host: str
    is_up: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """One reservation: whether its time is now, whether it is for maintenance, its nodes."""

    is_active: bool
    is_maintenance: bool
    nodes: int


def parse_ping(text: str) -> tuple[Controller, ...]:
    """Return the controllers in the order of slurm.conf: the first that answers is the one in charge."""
    return tuple(
        Controller(role=role, host=host, is_up=state == "UP") for role, host, state in _CONTROLLER.findall(text)
    )


def parse_reservations(text: str) -> tuple[Reservation, ...]:
    """Return the reservations of ``scontrol show reservation``; none of ``No reservations in the system``."""
    reservations = []
    for record in _RESERVATION.findall(text):
        fields = dict(_FIELD.findall(record))
        flags = fields.get("Flags", "").split(",")
        reservations.append(
            Reservation(
                is_active=fields.get("State") == "ACTIVE",
                is_maintenance="MAINT" in flags,
                nodes=parse_count(fields.get("NodeCnt", "")) or 0,
            )
        )
    return tuple(reservations)
