"""Determines when and where in each log training made its last step: what came before was survived."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from opsk.postmortem.values import Evidence, Finding, RankProgress
from opsk.units import KIB

GOES_ON_BYTES = 16 * KIB
"""More than a program that ends still writes: Python's own buffer of what is printed holds 8 KiB."""
_GOES_ON_S = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LastSteps:
    """When and where in each log training made its last step: what came before was survived."""

    time_s: float | None = None
    by_source: Mapping[str, RankProgress] = field(default_factory=dict)
    sizes_bytes: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, evidence: Evidence) -> LastSteps:
        """Return the last steps of a job."""
        times = [each.last_progress_s for each in evidence.ranks if each.last_progress_s is not None]
        progressing = [each for each in evidence.ranks if each.last_progress_order is not None]
        ordered = sorted(progressing, key=lambda each: each.last_progress_order or 0)
        sizes = {each.source: each.bytes for each in sorted(evidence.ranks, key=lambda each: each.bytes)}
        return cls(
            time_s=max(times, default=None), by_source={each.source: each for each in ordered}, sizes_bytes=sizes
        )

    def follow_in_log(self, finding: Finding) -> bool | None:
        """Return whether steps follow a finding in its own log; ``None`` where the log has none.

        One step that another rank reports does not count: it was under way. Nor do steps that Python wrote from its
        buffer when the program ended by an exception that nothing caught.
        """
        last = self.by_source.get(finding.source)
        if last is None or last.last_progress_order is None:
            return None
        order = max(finding.order, finding.last_order)
        if finding.fields.get("uncaught") and last.bytes - order < GOES_ON_BYTES:
            return False
        is_other = finding.place.rank is not None and finding.place.rank != last.rank
        if is_other and last.previous_progress_order is not None:
            return order < last.previous_progress_order
        return order < last.last_progress_order

    def are_after(self, finding: Finding) -> bool:
        """Return whether training went on after a finding."""
        follows = self.follow_in_log(finding)
        if follows is not None:
            return follows
        last_s = finding.last_time_s if finding.last_time_s is not None else finding.time_s
        return last_s is not None and self.time_s is not None and self.time_s > last_s + _GOES_ON_S

    def find_rest_bytes(self, finding: Finding) -> int:
        """Return how much of its log stands below a finding [B]; 0 where that is not known."""
        return max(0, self.sizes_bytes.get(finding.source, 0) - max(finding.order, finding.last_order))
