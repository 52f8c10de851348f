"""In which state can a remap be, and what can become of it from there?"""

from __future__ import annotations

from typing import Literal, cast, get_args

RemapState = Literal[
    "proposed", "approved", "applying", "applied", "failed", "undoing", "undone", "refused", "outdated"
]
"""``refused`` by a person, ``outdated`` because the world has changed since; ``failed`` half way through."""

STATES = cast("tuple[RemapState, ...]", get_args(RemapState))
MOVES: dict[RemapState, frozenset[RemapState]] = {
    "proposed": frozenset({"approved", "refused", "outdated"}),
    "approved": frozenset({"applying", "refused", "outdated"}),
    "applying": frozenset({"applied", "failed", "applying"}),
    "applied": frozenset({"undoing"}),
    "failed": frozenset({"applying", "undoing", "refused"}),
    "undoing": frozenset({"undone", "failed", "undoing"}),
    "undone": frozenset(),
    "refused": frozenset(),
    "outdated": frozenset(),
}
"""What a remap can become. ``applying`` again is another program that goes on with what one left."""

FINAL: tuple[RemapState, ...] = ("applied", "undone", "refused", "outdated")
"""Where nothing is left to be done; what was applied can still be undone."""


def state_of(text: str) -> RemapState:
    """Return the state that a row names; one that is not known is as good as over."""
    return next((state for state in STATES if state == text), "outdated")
