"""Reduces thousands of matches to a bounded number of signs by counting equal ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from opsk.postmortem.values import Finding

MAX_FINDINGS = 4096
"""Of one log; beyond them only known ones are counted."""
MAX_READ = 2048
"""Lines of one signature in one log that are read closely; of the others the last in each piece is."""
TEXT_CHARS = 400
_KEY_FIELDS = (
    "seq", "op", "hca", "peer", "peer_rank", "local_rank", "tasks", "step", "signal", "exit", "status", "type", "call",
    "event", "level", "module", "path", "code", "end", "completed", "enqueued", "message",
)  # fmt: skip
"""Fields by which two findings differ; others (times, sizes) may vary between equal ones."""

Key = tuple[object, ...]


@dataclass(slots=True)
class FindingSet:
    """Findings of one log."""

    findings: dict[Key, Finding] = field(default_factory=dict)
    left_out: int = 0
    read: dict[str, int] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        """Add a finding, or count it where an equal one is known."""
        key = _key(finding)
        known = self.findings.get(key)
        if known is not None:
            self.findings[key] = replace(
                known,
                count=known.count + 1,
                last_order=finding.order,
                last_time_s=finding.time_s if finding.time_s is not None else known.last_time_s,
            )
        elif len(self.findings) < MAX_FINDINGS:
            self.findings[key] = finding
        else:
            self.left_out += 1

    def is_worth_reading(self, signature: str) -> bool:
        """Count one more line of a signature; return whether it is to be read closely."""
        count = self.read[signature] = self.read.get(signature, 0) + 1
        return count <= MAX_READ

    def total(self, signature: str) -> int:
        """Return how many lines of a signature were seen."""
        return self.read.get(signature, 0)


def _key(finding: Finding) -> Key:
    """Return the key by which findings of one log are equal."""
    fields: Mapping[str, str] = finding.fields
    place = finding.place
    who = (place.rank, place.local_rank, place.node_rank, place.node, place.gpu_index)
    return (finding.signature, *who, *(fields.get(name) for name in _KEY_FIELDS))
