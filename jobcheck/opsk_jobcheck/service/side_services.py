"""What else does the advisor do on its socket, besides advice? The port, and the one that does nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Beside(Protocol):
    """What the advisor does beside advice, on the same socket; none of it may take time."""

    def cluster(self, uid: int, have: str) -> bytes | None:
        """Return the frame of what a user may see of all jobs and nodes; ``None`` while it is not known."""

    def record(self, uid: int, records: Sequence[str]) -> bool:
        """Take records for the store; tell whether there was room for them."""


class Nothing:
    """Does nothing beside advice."""

    def cluster(self, uid: int, have: str) -> bytes | None:
        """Know nothing."""

    def record(self, uid: int, records: Sequence[str]) -> bool:
        """Take nothing."""
        return False
