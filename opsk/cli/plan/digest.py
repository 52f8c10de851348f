"""By which signs do two processes know that they search for the same? Digests of all that an answer depends on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from opsk.planning.search.request import PlanRequest
from opsk.text import to_json_values

_WITHOUT = frozenset({"sources", "aliases"})
"""Where numbers were read, and what else things are called: no number depends on it, and it names paths."""
_APART = frozenset({"efficiency", "refuses"})
"""The efficiencies have a digest of their own; what a framework refuses goes by the name of its limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Digests:
    """Hexadecimal SHA-256 of the requests with the way they are searched, and of the efficiencies."""

    request: str
    efficiency: str


def digests_of(requests: Sequence[PlanRequest], *, exhaustive: bool, front: bool) -> Digests:
    """Return the digests of a search."""
    asked = [
        {item.name: getattr(one, item.name) for item in fields(one) if item.name not in _APART} for one in requests
    ]
    return Digests(
        request=_digest({"requests": asked, "exhaustive": exhaustive, "front": front}),
        efficiency=_digest([one.efficiency for one in requests[:1]]),
    )


def _digest(value: Any) -> str:
    """Return the digest of any value."""
    text = json.dumps(_bare(to_json_values(value)), sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _bare(value: Any) -> Any:
    """Return plain values without what no number depends on."""
    if isinstance(value, Mapping):
        return {key: _bare(entry) for key, entry in value.items() if key not in _WITHOUT}
    return [_bare(entry) for entry in value] if isinstance(value, list) else value
