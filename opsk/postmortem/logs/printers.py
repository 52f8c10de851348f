"""Determines who printed each line of a log, and how far each of them came.

The line itself, the label before it, or the name of the log gives the rank. torchrun's labels (``[default3]:``) number
the ranks of one node only: the job's number of such a rank is given where the log states it, and left open elsewhere.
In a log with such labels, the label of ``srun -l`` before them and the number in the log's name count nodes, not ranks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from opsk.postmortem.logs.header import Heading, LineClock, NamedRank, RankSlot
from opsk.postmortem.logs.lines import LogLine, find_rank
from opsk.postmortem.logs.progress import LabelTail, LastLine, Printer, ProgressEnds
from opsk.postmortem.values import RankProgress

_LOCAL = re.compile(rb"^[ \t]*(\d{1,7}: )?(?:[\w.-]{1,64}: )?\[(?:default|trainer)\d{1,7}\]:", re.MULTILINE)

_RAY = re.compile(rb"\(\w[\w.:]{0,63} pid=\d{1,10}(?:, ip=[\w.:]{1,64})?\) ")
_RAY_BELOW = re.compile(rb"\n" + _RAY.pattern)
"""At the beginning of a later line: what begins with a fixed byte is searched for many times faster."""


@dataclass(slots=True)
class Labels:
    """The numbering of a log's labels.

    Parameters
    ----------
    are_local
        There are labels of torchrun: they number the ranks of a node.
    are_ray
        Ray starts the processes: each sees its own GPU as number 0.
    tasks_are_nodes
        ``srun -l`` writes its own before those: it numbers nodes.
    """

    are_local: bool = False
    are_ray: bool = False
    tasks_are_nodes: bool = False

    def take(self, data: bytes) -> None:
        """Read one piece, as long as nothing is known."""
        if not self.are_ray and (b"RayTaskError(" in data or (b" pid=" in data and _has_ray_label(data))):
            self.are_ray = True
        if self.tasks_are_nodes or not (b"[default" in data or b"[trainer" in data):
            return
        match = _LOCAL.search(data)
        if match is not None:
            self.are_local, self.tasks_are_nodes = True, match[1] is not None


def _has_ray_label(data: bytes) -> bool:
    """Return whether a line begins with a label of Ray."""
    return _RAY.match(data) is not None or _RAY_BELOW.search(data) is not None


def find_printer(line: LogLine, named: NamedRank, labels: Labels) -> Printer:
    """Return who printed a line, from the line, its label and the log's name."""
    rank, node_rank = line.rank, line.node_rank
    if labels.tasks_are_nodes and _is_task(line.label):
        rank, node_rank = find_rank(line.text), rank
    if not labels.are_local:
        rank = rank if rank is not None else named.rank
    elif node_rank is None:
        node_rank = named.rank
    local = line.local_rank if line.local_rank is not None else named.local_rank
    return Printer(rank, local, node_rank)


def _is_task(label: str) -> bool:
    """Return whether a label is one of ``srun -l``, and no more."""
    return label.startswith("srun") and label.count(" ") == 1


def resolve_rank(who: Printer, heading: Heading, node: str = "") -> int | None:
    """Return the rank of the job, where it is stated or the log's beginning lists its node's ranks."""
    if who.rank is not None or who.local_rank is None:
        return who.rank
    return heading.find_rank(who.local_rank, who.node_rank, node)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """The state of a log that was read to its end; ``asks_for_work`` where what failed in it may have been caught."""

    path: str
    named: NamedRank
    labels: Labels
    heading: Heading
    ends: ProgressEnds
    tail: LabelTail
    clock: LineClock
    size_bytes: int
    lines: int
    ended_well: bool
    asks_for_work: bool = True

    def ranks(self) -> tuple[RankProgress, ...]:
        """Return how far the ranks of a log came: one for the log, or one for each label of an interleaved one."""
        progress, heading, local = self.ends.progress(self.clock), self.heading, self.labels.are_local
        whole = RankProgress(
            rank=None if local else self.named.rank, local_rank=self.named.local_rank,
            node_rank=self.named.rank if local else None, node=self.named.node, source=self.path,
            first_iteration=progress.first, last_iteration=progress.last, first_progress_s=progress.first_s,
            last_progress_s=progress.last_s, last_progress_order=progress.last_order,
            previous_progress_order=progress.previous_order, first_line_s=heading.first_s,
            ordinary_order=self.tail.find_ordinary(self.size_bytes) if self.asks_for_work else None,
            lines=self.lines, bytes=self.size_bytes, ended_well=self.ended_well or progress.is_complete,
        )  # fmt: skip
        printers = self._find_printers()
        if len(printers) < 2 and len(heading.slots) < 2:
            return (self._build_single_rank(whole, printers),)
        ranks = [*printers.items(), *((Printer(rank), LastLine()) for rank in heading.slots
                                      if all(who.rank != rank for who in printers))]  # fmt: skip
        printing = [who for who, _ in ranks if self.ends.rank == (who.local_rank if local else who.rank)]
        unassigned = [replace(whole, rank=None)] if len(printing) != 1 and whole.last_iteration is not None else []
        progresses = [self._build_progress(whole, who, last, is_printing=printing == [who]) for who, last in ranks]
        return (*unassigned, *progresses)

    def _find_printers(self) -> dict[Printer, LastLine]:
        """Return the printers that labels name, each known rank once."""
        printers: dict[Printer, LastLine] = {}
        for who, last in self.tail.printers(self.clock, is_labelled=self.labels.are_local).items():
            if self.labels.tasks_are_nodes and who.local_rank is None and who.node_rank is None:
                continue  # torchrun itself, or a rank that another line names
            node_rank = self.named.rank if self.labels.are_local and who.node_rank is None else who.node_rank
            known = replace(who, node_rank=node_rank)
            known = replace(known, rank=resolve_rank(known, self.heading))
            printers[known] = _merge_last_lines(printers[known], last) if known in printers else last
        return printers

    def _build_single_rank(self, whole: RankProgress, printers: Mapping[Printer, LastLine]) -> RankProgress:
        """Return the one rank of a log."""
        who, last = next(iter(printers.items()), (Printer(next(iter(self.heading.slots), None)), None))
        last = last or self.tail.end(self.clock)
        known = replace(whole, last_line_s=last.time_s, last_text=last.text)
        return _with_slot(known if whole.rank is not None else _with_printer(known, who), self.heading)

    def _build_progress(self, whole: RankProgress, who: Printer, last: LastLine, *, is_printing: bool) -> RankProgress:
        """Return one rank of several; facts of the whole log belong to the one that prints the steps."""
        if is_printing:
            known = replace(whole, last_line_s=last.time_s, last_text=last.text)
        else:
            known = RankProgress(
                node=whole.node, source=self.path, first_line_s=self.heading.first_s, last_line_s=last.time_s,
                last_text=last.text, lines=last.lines, ended_well=whole.ended_well,
            )  # fmt: skip
        return _with_slot(_with_printer(known, who), self.heading)


def _with_printer(progress: RankProgress, who: Printer) -> RankProgress:
    local = who.local_rank if who.local_rank is not None else progress.local_rank
    node_rank = who.node_rank if who.node_rank is not None else progress.node_rank
    return replace(progress, rank=who.rank, local_rank=local, node_rank=node_rank)


def _merge_last_lines(first: LastLine, second: LastLine) -> LastLine:
    """Return the later of two last lines, which counts for both."""
    last = second if (second.time_s or 0.0) >= (first.time_s or 0.0) else first
    return replace(last, lines=first.lines + second.lines)


def _with_slot(progress: RankProgress, heading: Heading) -> RankProgress:
    """Return a rank with its node and GPU, where the log's beginning states them."""
    slot = heading.slots.get(progress.rank) if progress.rank is not None else None
    if slot is None and len(heading.slots) == 1 and progress.local_rank is None:
        slot = next(iter(heading.slots.values()))
    slot = slot or (RankSlot(node=heading.host) if heading.host else None)
    if slot is None:
        return progress
    return replace(progress, node=slot.node, gpu_index=slot.gpu_index, pci=slot.pci)
