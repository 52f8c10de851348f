"""How do thousands of hits become a bounded number of signs? What says the same is counted, not kept again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from opsk.postmortem.values import Sign

MOST_SIGNS = 4096
"""Of one log; beyond them only known ones are counted."""
MOST_READ = 2048
"""Lines of one signature in one log that are read closely; of the others the last in each piece is."""
TEXT_CHARS = 400
_SAME = (
    "seq", "op", "hca", "peer", "peer_rank", "local_rank", "tasks", "step", "signal", "exit", "status", "type", "call",
    "event", "level", "module", "path", "code", "end", "completed", "enqueued", "message",
)  # fmt: skip
"""Fields by which two signs differ; others (times, sizes) may vary in what is the same."""

Key = tuple[object, ...]


@dataclass(slots=True)
class Gathered:
    """Signs of one log."""

    signs: dict[Key, Sign] = field(default_factory=dict)
    left_out: int = 0
    read: dict[str, int] = field(default_factory=dict)

    def add(self, sign: Sign) -> None:
        """Take a sign, or count it as one that is known."""
        key = _key(sign)
        known = self.signs.get(key)
        if known is not None:
            self.signs[key] = replace(
                known,
                count=known.count + 1,
                last_order=sign.order,
                last_time_s=sign.time_s if sign.time_s is not None else known.last_time_s,
            )
        elif len(self.signs) < MOST_SIGNS:
            self.signs[key] = sign
        else:
            self.left_out += 1

    def is_worth_reading(self, signature: str) -> bool:
        """Count one more line of a signature; tell whether it is read closely."""
        count = self.read[signature] = self.read.get(signature, 0) + 1
        return count <= MOST_READ

    def total(self, signature: str) -> int:
        """Return how many lines of a signature were seen."""
        return self.read.get(signature, 0)


def _key(sign: Sign) -> Key:
    """Return what makes two signs of one log the same."""
    fields: Mapping[str, str] = sign.fields
    place = sign.place
    who = (place.rank, place.local_rank, place.node_rank, place.node, place.gpu_index)
    return (sign.signature, *who, *(fields.get(name) for name in _SAME))
