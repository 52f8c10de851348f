"""How do times, places and texts of others read in a report? Every text of others is printable afterwards."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from opsk.postmortem.values import Divergence, Place
from opsk.text import escape
from opsk.units import GIB

LONGEST_CHARS = 400
_LATEST_S = 1e11
_FEW_RANKS = 8
_TERM = re.compile(r"predicted_\w+_bytes")


def shown(text: str, longest: int = LONGEST_CHARS) -> str:
    """Return hostile text in printable signs, cut; it is still to be escaped for where it goes."""
    return escape(text[:longest] + ("…" if len(text) > longest else ""))


def clock(time_s: float | None) -> str:
    """Return a time in UTC to the millisecond; empty where it is not known."""
    if time_s is None or not 0 <= time_s < _LATEST_S:
        return ""
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:23]


def place_words(place: Place) -> str:
    """Return a place in words, harmless."""
    from opsk.postmortem.reasoning.places import words

    return shown(words(place))


def parted_words(parted: Divergence | None) -> str:
    """Return where ranks parted, who is behind and who did not come, in a sentence; empty where none waited."""
    if parted is None:
        return ""
    number = f" number {parted.seq}" if parted.seq is not None else ""
    told = [f"{len(parted.waiting)} rank{'' if len(parted.waiting) == 1 else 's'} waited"]
    told += [f"behind: rank {few_ranks(parted.behind)}"] if parted.behind else []
    told += [f"did not come: rank {few_ranks(parted.never_arrived)}"] if parted.never_arrived else []
    return f"{shown(parted.op, 40) or 'a collective'}{number}: {'; '.join(told)}"


def few_ranks(ranks: Sequence[int]) -> str:
    """Return some ranks, and how many more."""
    told = ", ".join(map(str, ranks[:_FEW_RANKS]))
    return told if len(ranks) <= _FEW_RANKS else f"{told} and {len(ranks) - _FEW_RANKS} more"


def percent(ratio: float) -> str:
    """Return a probability as people read it."""
    return f"{100 * ratio:.0f} %"


def memory_words(facts: Mapping[str, float]) -> str:
    """Return in a sentence what is known of memory that ran out; empty where nothing is."""
    told = [
        f"{words} {size_words(facts[name])}"
        for name, words in (
            ("asked_bytes", "asked for"),
            ("free_bytes", "free"),
            ("allocated_bytes", "held by PyTorch"),
            ("capacity_bytes", "the GPU has"),
            ("predicted_bytes", "predicted"),
        )
        if name in facts
    ]
    terms = [
        f"{shown(name.removeprefix('predicted_').removesuffix('_bytes'), 40)} {size_words(facts[name])}"
        for name in facts
        if _TERM.fullmatch(name)
    ]
    return ", ".join(told) + (f" (most of it: {', '.join(terms)})" if terms else "")


def size_words(size_bytes: float) -> str:
    """Return bytes in GiB."""
    return f"{size_bytes / GIB:.2f} GiB"
