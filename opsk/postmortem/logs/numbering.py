"""Are the numbers in the names of logs ranks? They are where every log that tells its rank has it in its name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

from opsk.postmortem.values import Origin, RankProgress, Sign

_NUMBER = re.compile(r"(?<!\d)(\d{1,6})(?!.*\d)")
_LEAST_TELLING = 2


def with_numbered_ranks(
    signs: Sequence[Sign], ranks: Sequence[RankProgress]
) -> tuple[tuple[Sign, ...], tuple[RankProgress, ...]]:
    """Return signs and progress with the ranks of logs whose lines tell none: a silent rank is often the cause."""
    told: dict[str, set[int]] = {each.source: set() for each in ranks}
    for each in ranks:
        told[each.source] |= {each.rank} if each.rank is not None else set()
    for sign in signs:
        if sign.origin is Origin.JOB_LOG and sign.place.rank is not None and sign.source in told:
            told[sign.source].add(sign.place.rank)
    number = {source: int(found[1]) for source in told if (found := _NUMBER.search(PurePath(source).name)) is not None}
    telling = [source for source, those in told.items() if those]
    agree = len(telling) >= _LEAST_TELLING and all(told[source] == {number.get(source)} for source in telling)
    silent = {source: rank for source, rank in number.items() if not told[source]}
    if not agree or len(telling) < len(silent) or len(set(number.values())) < len(told):
        return tuple(signs), tuple(ranks)
    return (
        tuple(
            replace(sign, place=replace(sign.place, rank=silent[sign.source]))
            if sign.source in silent and sign.origin is Origin.JOB_LOG
            else sign
            for sign in signs
        ),
        tuple(replace(each, rank=silent[each.source]) if each.source in silent else each for each in ranks),
    )
