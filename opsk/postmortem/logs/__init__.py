"""Reads the logs of all ranks as a stream, never whole in memory."""

from __future__ import annotations

from opsk.postmortem.logs.reading import LogFile, read_logs

__all__ = ["LogFile", "read_logs"]
