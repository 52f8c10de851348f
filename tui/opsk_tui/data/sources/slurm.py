"""Reads jobs and nodes from Slurm, through this host's advisor or else with the user's own rights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from opsk.errors import InputError, OpskError
from opsk.slurm.client import SlurmClient
from opsk.slurm.snapshot import Snapshot, SnapshotReader
from opsk_tui.data.sources.advisor import ask_cluster
from opsk_tui.data.sources.shared_snapshot import SharedSnapshot, find_runtime_folder

DIRECTLY = "asked directly"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmAnswer:
    """Slurm's answer, and the route by which it came (``the advisor`` or ``asked directly``)."""

    snapshot: Snapshot
    route: str


class SlurmSource:
    """Queries jobs and nodes, again and again.

    Parameters
    ----------
    socket
        Socket of the advisor; ``None`` to do without.
    slurm
        The Slurm client where no advisor shares a snapshot.
    interval_s
        Shortest time between direct queries of Slurm [s].
    sees_more
        Whether this user may see more than the advisor shares: operators then query Slurm themselves.
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
        self._shared_file = SharedSnapshot(folder or find_runtime_folder(), slurm, interval_s)
        self._sees_more = sees_more
        self._shared, self._direct = SnapshotReader(), SnapshotReader()

    def read(self) -> SlurmAnswer:
        """Return Slurm's last answer; it may block for as long as Slurm may take.

        Raises
        ------
        OpskError
            Slurm does not answer, and the advisor has nothing either.
        """
        found = self._from_advisor()
        if found is not None:
            return SlurmAnswer(snapshot=found, route="the advisor")
        return SlurmAnswer(snapshot=self._direct.read(self._shared_file.read()), route=DIRECTLY)

    def _from_advisor(self) -> Snapshot | None:
        """Return the advisor's snapshot; ``None`` where there is none, or it omits what this user may see."""
        if self._socket is None:
            return None
        try:
            snapshot = self._shared.read(ask_cluster(self._socket, self._shared.digest))
        except InputError:
            self._shared = SnapshotReader()
            return None
        except OpskError:
            return None
        if not snapshot.taken_at_s or (snapshot.is_partial and (not snapshot.nodes or self._sees_more())):
            return None
        return snapshot
