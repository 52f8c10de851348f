"""What does Slurm say of jobs and nodes? As the advisor of this host shares it, else as this user may ask himself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from opsk.errors import InputError, OpskError
from opsk.slurm.client import SlurmClient
from opsk.slurm.snapshot import Snapshot, SnapshotReader
from opsk_tui.data.sources.advisor import ask_cluster
from opsk_tui.data.sources.kept_snapshot import KeptSnapshot, folder_of

DIRECTLY = "asked directly"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmAnswer:
    """What Slurm said, and which way it came (``the advisor`` or ``asked directly``)."""

    snapshot: Snapshot
    way: str


class SlurmSource:
    """Asks for jobs and nodes, again and again.

    Parameters
    ----------
    socket
        Of the advisor; ``None`` to do without.
    slurm
        Who asks where no advisor shares.
    interval_s
        Slurm itself is asked no more often than this [s].
    sees_more
        Whether this user may see what the advisor leaves out: operators are then asked for themselves.
    """

    def __init__(
        self,
        socket: Path | None,
        slurm: SlurmClient,
        interval_s: float,
        *,
        sees_more: Callable[[], bool] = lambda: False,
        folder: Path | None = None,
    ) -> None:
        self._socket = socket
        self._kept = KeptSnapshot(folder or folder_of(), slurm, interval_s)
        self._sees_more = sees_more
        self._shared, self._own = SnapshotReader(), SnapshotReader()

    def read(self) -> SlurmAnswer:
        """Return what Slurm said last; it may block for as long as Slurm may take.

        Raises
        ------
        OpskError
            Slurm does not answer, and the advisor has nothing either.
        """
        found = self._from_advisor()
        if found is not None:
            return SlurmAnswer(snapshot=found, way="the advisor")
        return SlurmAnswer(snapshot=self._own.read(self._kept.read()), way=DIRECTLY)

    def _from_advisor(self) -> Snapshot | None:
        """Return what the advisor shares; ``None`` where it does not, or leaves out what this user may see."""
        if self._socket is None:
            return None
        try:
            found = self._shared.read(ask_cluster(self._socket, self._shared.digest))
        except InputError:
            self._shared = SnapshotReader()
            return None
        except OpskError:
            return None
        if not found.taken_at_s or (found.is_partial and (not found.nodes or self._sees_more())):
            return None
        return found
