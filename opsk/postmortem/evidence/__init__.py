"""Which evidence is there of a job that failed? Kept on its nodes when it is fresh, gathered from all places later."""

from __future__ import annotations

from opsk.postmortem.evidence.gathering import Asked, gather_job

__all__ = ["Asked", "gather_job"]
