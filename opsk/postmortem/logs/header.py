"""Reads what names and first lines of logs say: times, and on which node and GPU each rank runs.

NCCL prints this when it starts: host, process and GPU before each line, and for each communicator rank and PCI address.
Of several communicators the largest is that of the whole job.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from pathlib import PurePath

from opsk.telemetry.progress.lines import parse_label, parse_timestamp_unix_s, strip_escapes
from opsk.units import MIB

_RANK = re.compile(r"(?:^|[^a-z])(?:global[_-]?)?(?:rank|task|proc)[_\-.]?(?P<rank>\d{1,7})(?!\d)", re.IGNORECASE)
_LOCAL = re.compile(r"(?:^|[^a-z])local[_-]?rank[_\-.]?(?P<local>\d{1,4})(?!\d)", re.IGNORECASE)
_TASK = re.compile(r"[_\-.](?P<rank>\d{1,6})\.(?:out|err|log|txt|stdout|stderr)(?:\.(?:gz|xz|bz2))?$")
"""``%x_%j_%t.out``: the last number, where another one precedes it."""
_NO_TASKS = re.compile(
    r"(?<!\d)(?:(?:19|20)\d{6}|(?:19|20)\d\d[_\-.]\d\d|\d\d[_\-.]\d\d)$|(?:slurm|job|jobid)$", re.IGNORECASE
)
"""What stands before a number that is part of a time or a date, or a job's."""
_MAX_TASK_DIGITS = 5
"""No job has a million tasks: such a number is a job, or a time."""
_NUMBERS = re.compile(r"\d+")
_BARE_NUMBERS = re.compile(r"(?<![0-9A-Za-z])\d+(?![0-9A-Za-z])")
"""Numbers that are separate words: neither of ``llama3-8b``."""
_NODE = re.compile(
    r"(?:^|[_\-.])(?P<node>(?=[a-zA-Z-]{1,24}\d)[a-zA-Z][a-zA-Z-]{0,23}\d{1,6}[a-zA-Z0-9-]{0,24}?)(?=[_.]|$)"
)
_NO_NODES = re.compile(
    r"^(?:rank|task|proc|job|slurm|step|run|log|node_?rank|local|attempt|iter|epoch|seed|part)-?\d", re.IGNORECASE
)
_TORCHRUN = re.compile(r"attempt_\d+/(?P<local>\d+)/std(?:out|err)\.log$")
_MIN_NUMBERS = 2
_HEAD = 160
"""A time stamp precedes the message; later dates are part of the message."""
_GLOG = re.compile(
    r"\[?[EWIFD] ?(?P<date>\d{3,4}) (?P<hour>\d{2}):(?P<minute>\d{2}):(?P<second>\d{2})(?P<part>\.\d+)?", re.ASCII
)
_SYSLOG = re.compile(
    r"\b(?P<month>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}(?P<day>\d{1,2}) "
    r"(?:(?P<year>\d{4}) )?(?P<hour>\d{2}):(?P<minute>\d{2}):(?P<second>\d{2})(?P<part>\.\d+)?(?: (?P<after>\d{4}))?",
    re.ASCII,
)
_US = re.compile(
    r"\b(?P<month>\d{2})/(?P<day>\d{2})/(?P<year>\d{4}) (?P<hour>\d{2}):(?P<minute>\d{2}):(?P<second>\d{2})", re.ASCII
)
_LEVEL = re.compile(
    r"\b(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<month>\d{2})-(?P<day>\d{2}) "
    r"(?:\[[\w.]{1,60}\] )?(?P<hour>\d{2}):(?P<minute>\d{2}):(?P<second>\d{2})",
    re.ASCII,
)
"""vLLM and its kin: level, month and day, time."""
_CLOCK = re.compile(r"(?:^|[\s\[])(?P<hour>[01]\d|2[0-3]):(?P<minute>[0-5]\d):(?P<second>[0-5]\d)(?P<part>[.,]\d+)?\b")
_ANY_TIME = re.compile(r"\d:\d\d")
"""Part of every time that is read here: a line without it needs no other pattern."""
_CANCELLED = re.compile(r"CANCELLED AT (\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAY_S = 86400.0
_MAX_BYTES = 8 * MIB
_MAX_IDLE = 256
"""Lines without anything new after which no more is expected."""
_REACH_BYTES = 1024
_FIRST_LINES = 64
_COMMUNICATOR = re.compile(
    r"(?P<node>[A-Za-z][\w.-]{0,63}):\d{1,8}:\d{1,8} \[(?P<gpu>\d{1,3})\] NCCL INFO .{0,40}?comm \w{1,20} "
    r"rank (?P<rank>\d{1,7}) n[rR]anks (?P<ranks>\d{1,7}) cudaDev (?P<device>\d{1,3}).{0,24}? "
    r"busId (?P<bus>[0-9a-f]{2,9})\b"
)
_HOST = re.compile(r"(?P<node>[A-Za-z][\w.-]{0,63}):\d{1,8}:\d{1,8} \[(?P<gpu>\d{1,3})\]")
_COMM, _INFO, _ELASTIC = b" nranks ", b"NCCL INFO ", b"global_ranks=["
_GLOBAL = re.compile(r"global_ranks=\[(?P<first>\d{1,7})\b")
"""torchrun reports which ranks its node got, the first one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedRank:
    """Rank and node in the name of a log; ``None`` and empty are unknown."""

    rank: int | None = None
    local_rank: int | None = None
    node: str = ""


def parse_log_name(path: str) -> NamedRank:
    """Parse rank and node from the name of a log."""
    pure = PurePath(path)
    torchrun = _TORCHRUN.search(path)
    if torchrun is not None:
        return NamedRank(local_rank=int(torchrun["local"]), node=_parse_node(PurePath(*pure.parts[:-3]).name))
    local, name = _LOCAL.search(pure.name), pure.name
    bare = _LOCAL.sub("", name)
    match = _RANK.search(bare)
    rank = int(match["rank"]) if match else None
    task = _TASK.search(bare) if len(_BARE_NUMBERS.findall(bare)) >= _MIN_NUMBERS else None
    if task is not None and (len(task["rank"]) > _MAX_TASK_DIGITS or _NO_TASKS.search(bare[: task.start()])):
        task = None
    if rank is None and task is not None:
        rank = int(task["rank"])
        name = name[: name.rindex(task[0])]
    return NamedRank(rank=rank, local_rank=int(local["local"]) if local else None, node=_parse_node(name))


def parse_nodes(paths: Sequence[str]) -> dict[str, str]:
    """Return the node in each name, where several names differ only in it; a single name is ambiguous."""
    nodes = {path: parse_log_name(path).node for path in paths}
    stems: dict[str, set[str]] = {}
    for node in nodes.values():
        stems.setdefault(_NUMBERS.sub("#", node), set()).add(node)
    return {path: node for path, node in nodes.items() if node and len(stems[_NUMBERS.sub("#", node)]) > 1}


def _parse_node(name: str) -> str:
    """Return a host name within a file name."""
    for match in _NODE.finditer(name):
        if not _NO_NODES.match(match["node"]):
            return match["node"]
    return ""


class LineClock:
    """Reads the times of one log's lines.

    Parameters
    ----------
    not_after_s
        No line is later than this (when the file was last written, or the job ended) [s since 1970]: gives the year,
        or the day, where a line does not.
    zone
        Zone of clocks that state none; UTC when ``None``.
    """

    def __init__(self, not_after_s: float | None = None, zone: tzinfo | None = None) -> None:
        self._not_after_s = not_after_s
        self._zone = zone or UTC
        self._latest: float | None = None

    def read(self, text: str) -> float | None:
        """Return when a line was written [s since 1970]; ``None`` where it has no time."""
        cancelled = _CANCELLED.search(text)
        head = cancelled[1] if cancelled else text[:_HEAD]
        if _ANY_TIME.search(head) is None:
            return None
        time_s = self._read_stated(head)
        if time_s is None:
            time_s = (
                self._read_glog(head)
                or self._read_dated(_SYSLOG, head)
                or self._read_dated(_US, head)
                or self._read_dated(_LEVEL, head)
                or self._read_clock(head)
            )
        if time_s is not None:
            self._latest = time_s
        return time_s

    def _read_stated(self, head: str) -> float | None:
        """Read ISO and its kin."""
        time_s = parse_timestamp_unix_s(head)
        if time_s is None or re.search(r"[Zz]|[+-]\d{2}:?\d{2}\b", head[19:40]):
            return time_s
        return time_s - self._utc_offset_s(time_s)

    def _utc_offset_s(self, naive_s: float) -> float:
        """Return how far the zone is ahead of UTC at this wall clock [s]."""
        offset = datetime.fromtimestamp(naive_s, UTC).replace(tzinfo=self._zone).utcoffset()
        return offset.total_seconds() if offset else 0.0

    def _read_glog(self, head: str) -> float | None:
        """Read ``E321 02:07:08.4``: 100 times the month plus the day, without a year (c10/util/Logging.cpp)."""
        match = _GLOG.search(head)
        if match is None:
            return None
        month, day = divmod(int(match["date"]), 100)
        return self._build_moment(None, month, day, match)

    def _read_dated(self, pattern: re.Pattern[str], head: str) -> float | None:
        """Read syslog's and American dates."""
        match = pattern.search(head)
        if match is None:
            return None
        groups = match.groupdict()
        month = _MONTHS.index(groups["month"]) + 1 if groups["month"] in _MONTHS else int(groups["month"])
        year = groups.get("year") or groups.get("after")
        return self._build_moment(int(year) if year else None, month, int(groups["day"]), match)

    def _read_clock(self, head: str) -> float | None:
        """Read a clock without a date: the day is that of the line before, or of the end."""
        match = _CLOCK.search(head)
        anchor = self._latest if self._latest is not None else self._not_after_s
        if match is None or anchor is None:
            return None
        day = datetime.fromtimestamp(anchor, self._zone)
        first = self._build_moment(day.year, day.month, day.day, match)
        return None if first is None else self._pick_nearest([first - _DAY_S, first, first + _DAY_S])

    def _build_moment(self, year: int | None, month: int, day: int, match: re.Match[str]) -> float | None:
        """Return a moment; without a year the latest that is not after the end."""
        part = (match.groupdict().get("part") or "").replace(",", ".")
        clock = (int(match["hour"]), int(match["minute"]), int(match["second"]))
        if year is not None:
            return self._to_unix_s(year, month, day, clock, part)
        if self._not_after_s is None:
            return None
        last = datetime.fromtimestamp(self._not_after_s, self._zone).year
        for guess in (last, last - 1, last - 2, last - 3, last - 4):
            time_s = self._to_unix_s(guess, month, day, clock, part)
            if time_s is not None and time_s <= self._not_after_s + _DAY_S:
                return time_s
        return None

    def _to_unix_s(self, year: int, month: int, day: int, clock: tuple[int, int, int], part: str) -> float | None:
        """Return a wall clock as seconds since 1970; ``None`` where there is no such day."""
        try:
            whole = datetime(year, month, day, clock[0], clock[1], min(clock[2], 59), tzinfo=self._zone)
        except ValueError:
            return None
        return whole.timestamp() + (float(f"0{part}") if part else 0.0)

    def _pick_nearest(self, moments: list[float]) -> float | None:
        """Return the moment nearest to the line before, or to the end."""
        anchor = self._latest if self._latest is not None else self._not_after_s
        allowed = [each for each in moments if self._not_after_s is None or each <= self._not_after_s + _DAY_S]
        if anchor is None or not allowed:
            return allowed[0] if allowed else None
        return min(allowed, key=lambda each: abs(each - anchor))


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSlot:
    """Where a rank runs; ``pci`` has no function, as the kernel writes it; numbers on and of the node by its label."""

    node: str
    gpu_index: int | None = None
    pci: str = ""
    local_rank: int | None = None
    node_rank: int | None = None


@dataclass(slots=True)
class Heading:
    """Reads the beginning of a log."""

    first_s: float | None = None
    slots: dict[int, RankSlot] = field(default_factory=dict)
    _hosts: set[str] = field(default_factory=set)
    _firsts: dict[int | None, set[int]] = field(default_factory=dict)
    _largest: dict[int, int] = field(default_factory=dict)
    _scanned_bytes: int = 0
    _idle: dict[bytes, int] = field(default_factory=dict)

    @property
    def host(self) -> str:
        """Return the host where all lines are of one, else nothing."""
        return next(iter(self._hosts)) if len(self._hosts) == 1 else ""

    def find_rank(self, local_rank: int, node_rank: int | None, node: str) -> int | None:
        """Return the job's rank of a rank of a node, where this log states it for that node."""
        firsts = self._firsts.get(node_rank, set())
        if len(firsts) == 1 and (node_rank is not None or len(self._firsts) == 1):
            return next(iter(firsts)) + local_rank
        requested = node or self.host
        ranks = [
            rank
            for rank, slot in self.slots.items()
            if slot.local_rank == local_rank and slot.node_rank == node_rank and slot.node == requested
        ]
        return ranks[0] if len(ranks) == 1 else None

    def rank_on(self, node: str, gpu_index: int) -> int | None:
        """Return the rank that has a GPU of a node, where NCCL said so of one rank."""
        ranks = [rank for rank, slot in self.slots.items() if (slot.node, slot.gpu_index) == (node, gpu_index)]
        return ranks[0] if len(ranks) == 1 else None

    def take(self, data: bytes, clock: LineClock) -> None:
        """Read one piece."""
        if not self._scanned_bytes:
            self._read_first_lines(data, clock)
        if self._scanned_bytes < _MAX_BYTES:
            self._read_communicators(data)
        self._scanned_bytes += len(data)

    def _read_first_lines(self, data: bytes, clock: LineClock) -> None:
        """Read the first time, and the hosts of the first lines."""
        for raw in data[: 64 << 10].splitlines()[:_FIRST_LINES]:
            text = parse_label(strip_escapes(raw[:2048])).text
            if self.first_s is None:
                self.first_s = clock.read(text)
            if (match := _HOST.match(text)) is not None:
                self._hosts.add(match["node"])

    def _read_communicators(self, data: bytes) -> None:
        """Read the slot of each rank, from the line itself or from the label before it."""
        for word in (_COMM, _INFO, _ELASTIC):
            position, idle = data.find(word), self._idle.get(word, 0)
            while position >= 0 and idle < _MAX_IDLE:
                low = max(0, position - _REACH_BYTES)
                start = max(data.rfind(b"\n", low, position), data.rfind(b"\r", low, position), low - 1) + 1
                stop = data.find(b"\n", position, position + _REACH_BYTES)
                before = len(self.slots) + len(self._firsts)
                self._read_line(data[start : stop if stop >= 0 else position + _REACH_BYTES])
                idle = idle + 1 if len(self.slots) + len(self._firsts) == before else 0
                position = data.find(word, max(stop, position + 1))
            self._idle[word] = idle

    def _read_line(self, raw: bytes) -> None:
        """Take in one line of NCCL, or of torchrun."""
        line = parse_label(strip_escapes(raw))
        if (global_ranks := _GLOBAL.search(line.text)) is not None:
            node_rank = line.node_rank if line.node_rank is not None else line.rank
            self._firsts.setdefault(node_rank, set()).add(int(global_ranks["first"]))
            return
        if (host := _HOST.match(line.text)) is not None:
            self._hosts.add(host["node"])
        match = _COMMUNICATOR.match(line.text)
        if match is not None:
            rank, ranks = int(match["rank"]), int(match["ranks"])
            known = line.rank if line.rank is not None else rank
            if line.rank is None and ranks < self._largest.get(-1, 0):
                return
            if ranks > self._largest.get(-1, 0) and line.rank is None:
                self.slots.clear()
            self._largest[-1] = max(ranks, self._largest.get(-1, 0))
            self.slots[known] = RankSlot(
                node=match["node"], gpu_index=int(match["device"]), pci=_format_pci(match["bus"]),
                local_rank=line.local_rank, node_rank=line.node_rank,
            )  # fmt: skip
        elif line.rank is not None and line.rank not in self.slots and host is not None:
            self.slots[line.rank] = RankSlot(node=host["node"], gpu_index=int(host["gpu"]))


def _format_pci(bus: str) -> str:
    """Return a PCI address from NCCL's ``busId``: domain, bus, device and function, written together in hex."""
    number = int(bus, 16)
    return f"{number >> 20 & 0xFFFF:04x}:{number >> 12 & 0xFF:02x}:{number >> 4 & 0x1F:02x}"
