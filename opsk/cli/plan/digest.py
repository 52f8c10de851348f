"""Computes digests of all inputs that a search depends on, so that two processes can compare them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from opsk.planning.search.request import PlanRequest
from opsk.text import to_json_values

_IGNORED_KEYS = frozenset({"sources", "aliases"})
"""Sources and aliases: no result depends on them, and they contain paths."""
_SEPARATE_FIELDS = frozenset({"efficiency", "refuses"})
"""The efficiencies have a separate digest; the refusals of a framework are identified by the name of its limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Digests:
    """Hexadecimal SHA-256 of the requests and search options, and of the efficiencies."""

    request: str
    efficiency: str


def compute_digests(requests: Sequence[PlanRequest], *, exhaustive: bool, front: bool) -> Digests:
    """Return the digests of a search."""
    described = [
        {item.name: getattr(request, item.name) for item in fields(request) if item.name not in _SEPARATE_FIELDS}
        for request in requests
    ]
    return Digests(
        request=_compute_digest({"requests": described, "exhaustive": exhaustive, "front": front}),
        efficiency=_compute_digest([request.efficiency for request in requests[:1]]),
    )


def _compute_digest(value: Any) -> str:
    """Return the digest of any value."""
    text = json.dumps(_strip_ignored(to_json_values(value)), sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _strip_ignored(value: Any) -> Any:
    """Return plain values without the ignored keys."""
    if isinstance(value, Mapping):
        return {key: _strip_ignored(entry) for key, entry in value.items() if key not in _IGNORED_KEYS}
    return [_strip_ignored(entry) for entry in value] if isinstance(value, list) else value
