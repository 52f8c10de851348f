"""Who printed a line of a log, and how far did each of them come?

A rank is told by the line itself, by the label before it, or by the name of the log. torchrun's labels
(``[default3]:``) number the ranks of one node only: which rank of the job that is, is said where the log tells it, and
else left open. In a log with such labels, what ``srun -l`` writes before them and the number in the log's name count
nodes, not ranks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from opsk.postmortem.logs.heading import Heading, Seat
from opsk.postmortem.logs.lines import LogLine, said_rank
from opsk.postmortem.logs.names import NamedRank
from opsk.postmortem.logs.progressing import LabelTail, LastLine, Printer, ProgressEnds
from opsk.postmortem.logs.times import LineClock
from opsk.postmortem.values import RankProgress

_LOCAL = re.compile(rb"^[ \t]*(\d{1,7}: )?(?:[\w.-]{1,64}: )?\[(?:default|trainer)\d{1,7}\]:", re.MULTILINE)


@dataclass(slots=True)
class Labels:
    """What labels of a log number.

    Parameters
    ----------
    are_local
        There are labels of torchrun: they number the ranks of a node.
    tasks_are_nodes
        ``srun -l`` writes its own before those: it numbers nodes.
    """

    are_local: bool = False
    tasks_are_nodes: bool = False

    def take(self, data: bytes) -> None:
        """Look at one piece, as long as nothing is known."""
        if self.tasks_are_nodes or not (b"[default" in data or b"[trainer" in data):
            return
        found = _LOCAL.search(data)
        if found is not None:
            self.are_local, self.tasks_are_nodes = True, found[1] is not None


def printer_of(line: LogLine, named: NamedRank, labels: Labels) -> Printer:
    """Return who printed a line, as far as it, its label and the log's name tell."""
    rank, node_rank = line.rank, line.node_rank
    if labels.tasks_are_nodes and _is_task(line.label):
        rank, node_rank = said_rank(line.text), rank
    if not labels.are_local:
        rank = rank if rank is not None else named.rank
    elif node_rank is None:
        node_rank = named.rank
    local = line.local_rank if line.local_rank is not None else named.local_rank
    return Printer(rank, local, node_rank)


def _is_task(label: str) -> bool:
    """Tell whether a label is one of ``srun -l``, and no more."""
    return label.startswith("srun") and label.count(" ") == 1


def rank_of(who: Printer, heading: Heading, node: str = "") -> int | None:
    """Return the rank of the job, where it is told or the log's beginning tells which ranks its node has."""
    if who.rank is not None or who.local_rank is None:
        return who.rank
    return heading.rank_of(who.local_rank, who.node_rank, node)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """What is known of a log when it was read to its end."""

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

    def ranks(self) -> tuple[RankProgress, ...]:
        """Return how far the ranks of a log came: one for the log, or one for each label of an interleaved one."""
        progress, heading, local = self.ends.progress(self.clock), self.heading, self.labels.are_local
        whole = RankProgress(
            rank=None if local else self.named.rank, local_rank=self.named.local_rank,
            node_rank=self.named.rank if local else None, node=self.named.node, source=self.path,
            first_iteration=progress.first, last_iteration=progress.last, first_progress_s=progress.first_s,
            last_progress_s=progress.last_s, last_progress_order=progress.last_order, first_line_s=heading.first_s,
            lines=self.lines, bytes=self.size_bytes, ended_well=self.ended_well or progress.is_complete,
        )  # fmt: skip
        printers = self._printers()
        if len(printers) < 2 and len(heading.seats) < 2:
            return (self._one(whole, printers),)
        found = [*printers.items(), *((Printer(rank), LastLine()) for rank in heading.seats
                                      if all(who.rank != rank for who in printers))]  # fmt: skip
        printing = [who for who, _ in found if self.ends.rank == (who.local_rank if local else who.rank)]
        apart = [replace(whole, rank=None)] if len(printing) != 1 and whole.last_iteration is not None else []
        each = [self._progress(whole, who, last, is_printing=printing == [who]) for who, last in found]
        return (*apart, *each)

    def _printers(self) -> dict[Printer, LastLine]:
        """Return who labels tell of, those whose rank is known each once."""
        found: dict[Printer, LastLine] = {}
        for who, last in self.tail.printers(self.clock, is_labelled=self.labels.are_local).items():
            if self.labels.tasks_are_nodes and who.local_rank is None and who.node_rank is None:
                continue  # torchrun itself, or a rank that is told elsewhere
            node_rank = self.named.rank if self.labels.are_local and who.node_rank is None else who.node_rank
            known = replace(who, node_rank=node_rank)
            known = replace(known, rank=rank_of(known, self.heading))
            found[known] = _later(found[known], last) if known in found else last
        return found

    def _one(self, whole: RankProgress, printers: Mapping[Printer, LastLine]) -> RankProgress:
        """Return the one rank of a log."""
        who, last = next(iter(printers.items()), (Printer(next(iter(self.heading.seats), None)), None))
        last = last or self.tail.end(self.clock)
        known = replace(whole, last_line_s=last.time_s, last_text=last.text)
        return _seated(known if whole.rank is not None else _named(known, who), self.heading)

    def _progress(self, whole: RankProgress, who: Printer, last: LastLine, *, is_printing: bool) -> RankProgress:
        """Return one rank of several; what is known of the whole log is of the one that prints the steps."""
        if is_printing:
            known = replace(whole, last_line_s=last.time_s, last_text=last.text)
        else:
            known = RankProgress(
                node=whole.node, source=self.path, first_line_s=self.heading.first_s, last_line_s=last.time_s,
                last_text=last.text, lines=last.lines, ended_well=whole.ended_well,
            )  # fmt: skip
        return _seated(_named(known, who), self.heading)


def _named(progress: RankProgress, who: Printer) -> RankProgress:
    local = who.local_rank if who.local_rank is not None else progress.local_rank
    node_rank = who.node_rank if who.node_rank is not None else progress.node_rank
    return replace(progress, rank=who.rank, local_rank=local, node_rank=node_rank)


def _later(one: LastLine, other: LastLine) -> LastLine:
    """Return the later of two last lines, which counts for both."""
    last = other if (other.time_s or 0.0) >= (one.time_s or 0.0) else one
    return replace(last, lines=one.lines + other.lines)


def _seated(progress: RankProgress, heading: Heading) -> RankProgress:
    """Return a rank with its node and GPU, where the log's beginning tells them."""
    seat = heading.seats.get(progress.rank) if progress.rank is not None else None
    if seat is None and len(heading.seats) == 1 and progress.local_rank is None:
        seat = next(iter(heading.seats.values()))
    seat = seat or (Seat(node=heading.host) if heading.host else None)
    if seat is None:
        return progress
    return replace(progress, node=seat.node, gpu_index=seat.gpu_index, pci=seat.pci)
