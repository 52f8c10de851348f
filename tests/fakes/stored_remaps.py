"""Remaps as the store holds them, with their moves and journal: what tests read back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import cast

from sqlalchemy import Engine
from sqlmodel import Session, col, select

from opsk.store.database.tables import RemapMoveRow, RemapRow, RemapStepRow
from opsk.store.database.transactions import read
from opsk.store.records.record import build_record
from opsk.store.records.remaps import FINAL, RemapMoved, RemapProposed, RemapState, RemapStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Remap:
    """A remap in its current state: what was proposed, all its moves and its journal, in their order."""

    proposed: RemapProposed
    state: RemapState
    state_at: datetime
    moves: tuple[RemapMoved, ...]
    steps: tuple[RemapStep, ...]

    @property
    def over(self) -> bool:
        """Whether its state is final."""
        return self.state in FINAL


def find_remaps(
    engine: Engine,
    *,
    cluster: str | None = None,
    remap: str | None = None,
    job: str | None = None,
    unfinished: bool = False,
    limit: int = 200,
) -> list[Remap]:
    """Return remaps with their journals, those proposed last first.

    Parameters
    ----------
    unfinished
        Only those whose state is not final.

    Raises
    ------
    StoreError
        The database does not answer.
    """
    query = select(RemapRow).order_by(col(RemapRow.at).desc(), col(RemapRow.id).desc()).limit(limit)
    for column, value in ((RemapRow.cluster, cluster), (RemapRow.remap, remap), (RemapRow.job, job)):
        if value is not None:
            query = query.where(col(column) == value)
    if unfinished:
        query = query.where(col(RemapRow.state).not_in(FINAL))
    return read(engine, lambda session: [_load_remap(session, row) for row in session.exec(query)])


def _load_remap(session: Session, row: RemapRow) -> Remap:
    mine = (col(RemapMoveRow.cluster) == row.cluster, col(RemapMoveRow.remap) == row.remap)
    moves = session.exec(select(RemapMoveRow).where(*mine).order_by(col(RemapMoveRow.id))).all()
    mine = (col(RemapStepRow.cluster) == row.cluster, col(RemapStepRow.remap) == row.remap)
    steps = session.exec(select(RemapStepRow).where(*mine).order_by(col(RemapStepRow.id))).all()
    return Remap(
        proposed=build_record(RemapProposed, row),
        state=cast("RemapState", row.state),
        state_at=row.state_at,
        moves=tuple(build_record(RemapMoved, move) for move in moves),
        steps=tuple(build_record(RemapStep, step) for step in steps),
    )
