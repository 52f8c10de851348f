"""What do a log's first lines tell: when it began, and on which node and GPU each rank runs?

NCCL says it when it starts: host, process and GPU before each line, and for each communicator rank and PCI address. Of
several communicators the largest is that of the whole job.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from opsk.postmortem.logs.times import LineClock
from opsk.telemetry.progress.lines import clean, labelled
from opsk.units import MIB

_MOST_BYTES = 8 * MIB
_MOST_IDLE = 256
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
"""torchrun tells which ranks its node got, the first one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
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
    seats: dict[int, Seat] = field(default_factory=dict)
    _hosts: set[str] = field(default_factory=set)
    _firsts: dict[int | None, set[int]] = field(default_factory=dict)
    _largest: dict[int, int] = field(default_factory=dict)
    _looked_at: int = 0
    _idle: dict[bytes, int] = field(default_factory=dict)

    @property
    def host(self) -> str:
        """Return the host where all lines are of one, else nothing."""
        return next(iter(self._hosts)) if len(self._hosts) == 1 else ""

    def rank_of(self, local_rank: int, node_rank: int | None, node: str) -> int | None:
        """Return which rank of the job a rank of a node is, where this log tells it of that node."""
        firsts = self._firsts.get(node_rank, set())
        if len(firsts) == 1 and (node_rank is not None or len(self._firsts) == 1):
            return next(iter(firsts)) + local_rank
        wanted = node or self.host
        found = [
            rank
            for rank, seat in self.seats.items()
            if seat.local_rank == local_rank and seat.node_rank == node_rank and seat.node == wanted
        ]
        return found[0] if len(found) == 1 else None

    def take(self, data: bytes, clock: LineClock) -> None:
        """Look at one piece."""
        if not self._looked_at:
            self._begin(data, clock)
        if self._looked_at < _MOST_BYTES:
            self._communicators(data)
        self._looked_at += len(data)

    def _begin(self, data: bytes, clock: LineClock) -> None:
        """Read the first time, and the hosts of the first lines."""
        for raw in data[: 64 << 10].splitlines()[:_FIRST_LINES]:
            text = labelled(clean(raw[:2048])).text
            if self.first_s is None:
                self.first_s = clock.read(text)
            if (found := _HOST.match(text)) is not None:
                self._hosts.add(found["node"])

    def _communicators(self, data: bytes) -> None:
        """Read which rank sits where, by its own words or by the label before them."""
        for word in (_COMM, _INFO, _ELASTIC):
            at, idle = data.find(word), self._idle.get(word, 0)
            while at >= 0 and idle < _MOST_IDLE:
                low = max(0, at - _REACH_BYTES)
                start = max(data.rfind(b"\n", low, at), data.rfind(b"\r", low, at), low - 1) + 1
                stop = data.find(b"\n", at, at + _REACH_BYTES)
                before = len(self.seats) + len(self._firsts)
                self._line(data[start : stop if stop >= 0 else at + _REACH_BYTES])
                idle = idle + 1 if len(self.seats) + len(self._firsts) == before else 0
                at = data.find(word, max(stop, at + 1))
            self._idle[word] = idle

    def _line(self, raw: bytes) -> None:
        """Take in one line of NCCL, or of torchrun."""
        line = labelled(clean(raw))
        if (told := _GLOBAL.search(line.text)) is not None:
            node_rank = line.node_rank if line.node_rank is not None else line.rank
            self._firsts.setdefault(node_rank, set()).add(int(told["first"]))
            return
        if (host := _HOST.match(line.text)) is not None:
            self._hosts.add(host["node"])
        found = _COMMUNICATOR.match(line.text)
        if found is not None:
            rank, ranks = int(found["rank"]), int(found["ranks"])
            known = line.rank if line.rank is not None else rank
            if line.rank is None and ranks < self._largest.get(-1, 0):
                return
            if ranks > self._largest.get(-1, 0) and line.rank is None:
                self.seats.clear()
            self._largest[-1] = max(ranks, self._largest.get(-1, 0))
            self.seats[known] = Seat(
                node=found["node"], gpu_index=int(found["device"]), pci=_pci(found["bus"]),
                local_rank=line.local_rank, node_rank=line.node_rank,
            )  # fmt: skip
        elif line.rank is not None and line.rank not in self.seats and host is not None:
            self.seats[line.rank] = Seat(node=host["node"], gpu_index=int(host["gpu"]))


def _pci(bus: str) -> str:
    """Return a PCI address from NCCL's ``busId``: domain, bus, device and function, written together in hex."""
    number = int(bus, 16)
    return f"{number >> 20 & 0xFFFF:04x}:{number >> 12 & 0xFF:02x}:{number >> 4 & 0x1F:02x}"
