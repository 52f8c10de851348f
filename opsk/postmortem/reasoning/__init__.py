"""Finds what failed first, with reasons that can be followed; pure: evidence in, report out, no files, no clock."""

from __future__ import annotations

from opsk.postmortem.reasoning.explain import explain

__all__ = ["explain"]
