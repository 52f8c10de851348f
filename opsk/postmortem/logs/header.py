"""Reads from a log's first lines when it began, and on which node and GPU each rank runs.

NCCL prints this when it starts: host, process and GPU before each line, and for each communicator rank and PCI address.
Of several communicators the largest is that of the whole job.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from opsk.postmortem.logs.times import LineClock
from opsk.telemetry.progress.lines import parse_label, strip_escapes
from opsk.units import MIB

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

    def rank_of(self, local_rank: int, node_rank: int | None, node: str) -> int | None:
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
            if (found := _HOST.match(text)) is not None:
                self._hosts.add(found["node"])

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
