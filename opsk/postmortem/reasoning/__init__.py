"""What failed first, by evidence that can be followed? Pure: evidence in, report out; no files, no clock."""

from __future__ import annotations

from opsk.postmortem.reasoning.explaining import explain

__all__ = ["explain"]
