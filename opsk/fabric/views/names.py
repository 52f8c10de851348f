"""Abbreviates names: ranges of numbers, and short names of switches that stay unique."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable

from opsk.fabric.cabling import shorten_name
from opsk.fabric.fabric import Fabric
from opsk.fabric.hosts.ports import natural_key

_NUMBER = re.compile(r"(\d{1,15})")
_GUID = re.compile(r"[0-9a-f]{16}")


def format_ranges(names: Iterable[str]) -> str:
    """Return names with ranges for their numbers, in natural order: for people, not for commands.

    Unlike ``opsk.hostlist.fold`` it takes any text, and folds numbers inside a name too;
    a guid is no number.

    Examples
    --------
    >>> ranges(["leaf-01-a", "leaf-02-a", "leaf-07-a", "spine"])
    'leaf-[01-02,07]-a,spine'
    >>> ranges(f"{rail}-{unit}" for rail in (1, 2) for unit in (3, 4))
    '[1-2]-[3-4]'
    """
    kinds: defaultdict[tuple[str, ...], set[tuple[str, ...]]] = defaultdict(set)
    for name in names:
        pieces = [name] if _GUID.fullmatch(name) else _NUMBER.split(name)
        kinds[tuple(pieces[::2])].add(tuple(pieces[1::2]))
    parts = [
        "".join(piece for pair in zip(texts, (*numbers, ""), strict=True) for piece in pair)
        for texts, number_rows in kinds.items()
        for numbers in _fold_numbers(number_rows, len(texts) - 1)
    ]
    return ",".join(sorted(parts, key=natural_key))


def _fold_numbers(tuples: set[tuple[str, ...]], places: int) -> set[tuple[str, ...]]:
    """Return tuples of numbers with those that differ in one place only put together, the last place first."""
    for place in reversed(range(places)):
        groups: defaultdict[tuple[tuple[str, ...], tuple[str, ...]], set[str]] = defaultdict(set)
        for numbers in tuples:
            groups[numbers[:place], numbers[place + 1 :]].add(numbers[place])
        tuples = {(*before, _format_runs(values), *after) for (before, after), values in groups.items()}
    return tuples


def _format_runs(values: set[str]) -> str:
    """Return numbers, zeros in front kept, as one text: ``7`` or ``[01-03,9]``."""
    if len(values) == 1:
        return next(iter(values))
    runs: list[list[str]] = []
    for value in sorted(values, key=lambda text: (int(text), len(text))):
        if runs and value == str(int(runs[-1][-1]) + 1).zfill(len(runs[-1][-1])):
            runs[-1][1:] = [value]
        else:
            runs.append([value])
    return f"[{','.join('-'.join(run) for run in runs)}]"


def build_switch_labels(fabric: Fabric) -> dict[str, str]:
    """Return a short name for each switch by guid: its guid where it has none, or shares it with others."""
    short = {guid: shorten_name(switch.description).strip() for guid, switch in fabric.switches.items()}
    counts = Counter(short.values())
    return {guid: name if name and counts[name] == 1 else guid for guid, name in short.items()}
