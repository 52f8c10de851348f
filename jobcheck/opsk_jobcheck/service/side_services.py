"""Defines the port of the advisor's other services on its socket, besides advice, and a null implementation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class SideServices(Protocol):
    """The advisor's services besides advice, on the same socket; none of them may take time."""

    def cluster(self, uid: int, have: str) -> bytes | None:
        """Return the frame of the jobs and nodes that a user may see; ``None`` while they are unknown."""

    def record(self, uid: int, records: Sequence[str]) -> bool:
        """Accept records for the store; return whether there was room for them."""


class NoSideServices:
    """Provides no service besides advice."""

    def cluster(self, uid: int, have: str) -> bytes | None:
        """Return ``None``."""

    def record(self, uid: int, records: Sequence[str]) -> bool:
        """Accept nothing."""
        return False
