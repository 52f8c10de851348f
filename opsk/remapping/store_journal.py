"""How do remaps reach the store as well? A journal that also tells the store; the store's trouble stops nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import cast, get_args

from opsk.errors import OpskError
from opsk.remapping.journal import Journal, Line, PlannedRemap, Remapping
from opsk.store.records.remaps import RemapMoved, RemapProposed, RemapState, RemapStep, StepState
from opsk.store.writing import Record, Writer

_STATES = get_args(RemapState)
_STEPS = get_args(StepState)


class StoreJournal:
    """Writes into a journal first, and then tells the store.

    Parameters
    ----------
    journal
        What decides.
    writer
        Takes the store's records.
    cluster
        Name of the cluster.
    warn
        Is told, once, that the store cannot be written.
    """

    def __init__(self, journal: Journal, writer: Writer, cluster: str, warn: Callable[[str], None]) -> None:
        self._journal = journal
        self._writer = writer
        self._cluster = cluster
        self._warn = warn
        self._warned = False
        self._texts: dict[str, dict[int, str]] = {}

    def begin(self, planned: PlannedRemap) -> None:
        """Write down what is to be done."""
        self._journal.begin(planned)
        self._texts[planned.id] = _texts(planned)
        self._tell(proposed(planned, self._cluster))

    def add(self, remap: str, line: Line) -> None:
        """Write down what is about to happen, or what became of it."""
        self._journal.add(remap, line)
        if remap in self._texts:
            self._tell(moved(remap, line, self._cluster, self._texts[remap]))
            return
        # Whoever began it may have been ended before the store knew: what it knows already it keeps once.
        known = self._journal.read(remap)
        texts = self._texts[remap] = _texts(known.planned)
        later = [record for each in known.lines for record in moved(remap, each, self._cluster, texts)]
        self._tell([*proposed(known.planned, self._cluster), *later])

    def read(self, remap: str) -> Remapping:
        """Return one remap."""
        return self._journal.read(remap)

    def all(self) -> tuple[Remapping, ...]:
        """Return all remaps."""
        return self._journal.all()

    def _tell(self, records: Sequence[Record]) -> None:
        if not records:
            return
        try:
            self._writer.write(records)
        except OpskError as error:
            if not self._warned:
                self._warned = True
                self._warn(f"the store does not know of this remap: {error.message}")


def proposed(planned: PlannedRemap, cluster: str) -> tuple[Record, ...]:
    """Return what the store is told when a remap is begun: that it was proposed and approved."""
    at = _time(planned.at_s)
    return (
        RemapProposed(
            cluster=cluster, remap=planned.id, at=at, by=planned.by, job=planned.job,
            failed=" ".join(planned.failed)[:255],
            option=planned.kind, title=planned.title, world=planned.world.hash, document=asdict(planned),
        ),
        RemapMoved(cluster=cluster, remap=planned.id, at=at, state="approved", by=planned.by),
    )  # fmt: skip


def moved(remap: str, line: Line, cluster: str, texts: dict[int, str]) -> tuple[Record, ...]:
    """Return what the store is told of a line."""
    at = _time(line.at_s)
    if line.number is None:
        if line.state not in _STATES:
            return ()
        state = cast("RemapState", line.state)
        return (RemapMoved(cluster=cluster, remap=remap, at=at, state=state, by=line.by, text=line.said or None),)
    if line.state not in _STEPS:
        return ()
    return (
        RemapStep(
            cluster=cluster, remap=remap, number=line.number, state=cast("StepState", line.state), at=at,
            command=texts.get(line.number, ""), said=line.said or None,
        ),
    )  # fmt: skip


def _texts(planned: PlannedRemap) -> dict[int, str]:
    return {step.number: step.text for step in planned.steps}


def _time(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, tz=UTC)
