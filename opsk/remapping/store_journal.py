"""Writes remaps to a journal and to the store; a failing store stops nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import cast, get_args

from opsk.errors import OpskError
from opsk.remapping.journal import Journal, JournalLine, PlannedRemap, Remapping
from opsk.store.records.remaps import RemapMoved, RemapProposed, RemapState, RemapStep, StepState
from opsk.store.writing import Record, Writer

_STATES = get_args(RemapState)
_STEPS = get_args(StepState)


class StoreJournal:
    """Writes to a journal first, and then to the store.

    Parameters
    ----------
    journal
        The authoritative journal.
    writer
        Takes the store's records.
    cluster
        Name of the cluster.
    warn
        Is called, once, when the store cannot be written.
    """

    def __init__(self, journal: Journal, writer: Writer, cluster: str, warn: Callable[[str], None]) -> None:
        self._journal = journal
        self._writer = writer
        self._cluster = cluster
        self._warn = warn
        self._warned = False
        self._texts: dict[str, dict[int, str]] = {}

    def begin(self, planned: PlannedRemap) -> None:
        """Record a remap before it starts."""
        self._journal.begin(planned)
        self._texts[planned.id] = _list_texts(planned)
        self._write_to_store(build_proposal_records(planned, self._cluster))

    def add(self, remap: str, line: JournalLine) -> None:
        """Record what is about to happen, or its result."""
        self._journal.add(remap, line)
        if remap in self._texts:
            self._write_to_store(build_state_records(remap, line, self._cluster, self._texts[remap]))
            return
        # The process that started it may have ended before the store was written: the store keeps each record once.
        known = self._journal.read(remap)
        texts = self._texts[remap] = _list_texts(known.planned)
        later = [record for each in known.lines for record in build_state_records(remap, each, self._cluster, texts)]
        self._write_to_store([*build_proposal_records(known.planned, self._cluster), *later])

    def read(self, remap: str) -> Remapping:
        """Return one remap."""
        return self._journal.read(remap)

    def all(self) -> tuple[Remapping, ...]:
        """Return all remaps."""
        return self._journal.all()

    def _write_to_store(self, records: Sequence[Record]) -> None:
        if not records:
            return
        try:
            self._writer.write(records)
        except OpskError as error:
            if not self._warned:
                self._warned = True
                self._warn(f"the store does not know of this remap: {error.message}")


def build_proposal_records(planned: PlannedRemap, cluster: str) -> tuple[Record, ...]:
    """Return the store's records of a new remap: that it was proposed and approved."""
    at = _to_datetime(planned.at_s)
    return (
        RemapProposed(
            cluster=cluster, remap=planned.id, at=at, by=planned.by, job=planned.job,
            failed=" ".join(planned.failed)[:255],
            option=planned.kind, title=planned.title, world=planned.world.hash, document=asdict(planned),
        ),
        RemapMoved(cluster=cluster, remap=planned.id, at=at, state="approved", by=planned.by),
    )  # fmt: skip


def build_state_records(remap: str, line: JournalLine, cluster: str, texts: dict[int, str]) -> tuple[Record, ...]:
    """Return the store's records of a line."""
    at = _to_datetime(line.at_s)
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


def _list_texts(planned: PlannedRemap) -> dict[int, str]:
    return {step.number: step.text for step in planned.steps}


def _to_datetime(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, tz=UTC)
