"""Slurm host-range syntax (``n[0-3,7],login1``) to ordered node names and back, on top of ClusterShell's node sets."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ClusterShell.NodeSet import NodeSet, NodeSetException

from opsk.errors import InputError

MAX_NODES = 200_000
"""More names than this are refused before they are built: ``n[0-999999999]`` in a script must not fill the memory."""

_ALLOWED = re.compile(r"[A-Za-z0-9._\-\[\],]*")


def expand(text: str) -> tuple[str, ...]:
    """Return the node names of a Slurm host list, in the order written, each once.

    Raises
    ------
    InputError
        For brackets that do not match, signs that Slurm does not allow, or more than ``MAX_NODES`` names.

    Examples
    --------
    >>> expand("n[08-10],login1")
    ('n08', 'n09', 'n10', 'login1')
    """
    if not _ALLOWED.fullmatch(text):
        raise InputError(f"host list {text[:80]!r} has signs that no host list has", hint="write it as n[0-3],m1")
    names: dict[str, None] = {}
    for part in _split(text):
        if _size(part) > MAX_NODES - len(names):
            raise InputError(f"host list {text[:80]!r} names more than {MAX_NODES} nodes")
        try:
            names.update(dict.fromkeys(NodeSet(part)))
        except NodeSetException as error:
            raise InputError(f"host list {text[:80]!r}: {error}", hint="write it as n[0-3],m1") from error
    return tuple(names)


def fold(names: Iterable[str]) -> str:
    """Return the shortest Slurm host list for ``names``; sorted, each once.

    Examples
    --------
    >>> fold(["n2", "n0", "n1"])
    'n[0-2]'
    """
    return str(NodeSet.fromlist(list(names)))


def _split(text: str) -> list[str]:
    """Split at commas outside brackets; nested or unmatched brackets are an error."""
    parts, depth, start = [], 0, 0
    for position, sign in enumerate(text):
        depth += (sign == "[") - (sign == "]")
        if depth not in (0, 1):
            raise InputError(f"host list {text[:80]!r}: brackets do not match")
        if sign == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    if depth:
        raise InputError(f"host list {text[:80]!r}: brackets do not match")
    parts.append(text[start:])
    return [part for part in parts if part]


def _size(part: str) -> int:
    """Return how many names one part of a host list stands for, without building them."""
    total = 1
    for inside in re.findall(r"\[([^\[\]]*)\]", part):
        count = 0
        for item in inside.split(","):
            first, _, last = item.partition("-")
            if not first.isdigit() or (last and not last.isdigit()):
                raise InputError(f"host list part {part[:80]!r}: {item[:40]!r} is no range", hint="write it as n[0-3]")
            count += max(int(last) - int(first) + 1, 0) if last else 1
        total *= count
    return total
