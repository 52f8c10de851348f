"""Expands Slurm host lists (``n[0-3,7],login1``) into node names, and folds node names into host lists.

The grammar is Slurm's (slurm.conf(5), NodeName): ranges in brackets, leading zeros fix the width, several brackets make
a product. Node groups and set operators of other tools are not supported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import product

from opsk.errors import InputError

MAX_NODES = 200_000
"""More names than this are refused before they are built: ``n[0-999999999]`` in a script must not fill the memory."""

MAX_NAME_LENGTH = 255
"""Longest host name (RFC 1035); a longer part is refused before it is multiplied."""

_ALLOWED = re.compile(r"[A-Za-z0-9._\-\[\],]*")
_NAME = re.compile(r"[A-Za-z0-9._\-]+")
_RANGE = re.compile(r"(\d{1,15})(?:-(\d{1,15}))?")
_TRAILING_NUMBER = re.compile(r"(.*?)(\d{0,15})$")


def expand(text: str) -> tuple[str, ...]:
    """Return the node names of a Slurm host list, in the order written, each once.

    Raises
    ------
    InputError
        For brackets that do not match, characters that Slurm does not allow, or more than ``MAX_NODES`` names.

    Examples
    --------
    >>> expand("n[08-10],login1")
    ('n08', 'n09', 'n10', 'login1')
    """
    if not _ALLOWED.fullmatch(text):
        raise InputError(f"host list {text[:80]!r} has signs that no host list has", hint="write it as n[0-3],m1")
    names: dict[str, None] = {}
    for part in _split(text):
        pieces = _parse_pieces(part)
        size = 1
        for piece in pieces:
            size *= sum(last - first + 1 for first, last, _ in piece) if isinstance(piece, list) else 1
        if size > MAX_NODES - len(names):
            raise InputError(f"host list {text[:80]!r} names more than {MAX_NODES} nodes")
        names.update(dict.fromkeys(map("".join, product(*map(_expand_piece, pieces)))))
    return tuple(names)


def fold(names: Iterable[str]) -> str:
    """Return a short Slurm host list for ``names``; sorted, each once, brackets only at the end of a name.

    Raises
    ------
    InputError
        For an invalid node name, which could inject text into the command that uses the list.

    Examples
    --------
    >>> fold(["n2", "n0", "n1"])
    'n[0-2]'
    >>> fold(["n09", "n10", "n1-ib"])
    'n[09-10],n1-ib'
    """
    numbers: dict[str, set[str]] = {}
    for name in names:
        if not _NAME.fullmatch(name):
            raise InputError(f"{name[:80]!r} is no node name", hint="names have letters, digits, '.', '_' and '-'")
        match = _TRAILING_NUMBER.match(name)
        prefix, number = match.groups() if match else (name, "")
        numbers.setdefault(prefix, set()).add(number)
    return ",".join(part for prefix in sorted(numbers) for part in _fold_prefix(prefix, numbers[prefix]))


def _split(text: str) -> list[str]:
    """Split at commas outside brackets; nested or unmatched brackets are an error."""
    parts, depth, start = [], 0, 0
    for position, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            raise InputError(f"host list {text[:80]!r}: brackets do not match")
        if char == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    if depth:
        raise InputError(f"host list {text[:80]!r}: brackets do not match")
    parts.append(text[start:])
    return [part for part in parts if part]


def _parse_pieces(part: str) -> list[str | list[tuple[int, int, int]]]:
    """Return the texts and, for each bracket, the ranges (first, last, width) that one part consists of."""
    texts = re.split(r"\[([^\[\]]*)\]", part)
    if sum(map(len, texts[::2])) > MAX_NAME_LENGTH:
        raise InputError(f"host list part {part[:80]!r}...: longer than a host name can be")
    return [_parse_ranges(text, part) if index % 2 else text for index, text in enumerate(texts)]


def _parse_ranges(inside: str, part: str) -> list[tuple[int, int, int]]:
    ranges = []
    for item in inside.split(","):
        match = _RANGE.fullmatch(item)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if match is None or last < first:
            raise InputError(f"host list part {part[:80]!r}: {item[:40]!r} is no range", hint="write it as n[0-3]")
        ranges.append((first, last, len(match[1])))
    return ranges


def _expand_piece(piece: str | list[tuple[int, int, int]]) -> list[str]:
    if isinstance(piece, str):
        return [piece]
    return [f"{number:0{width}d}" for first, last, width in piece for number in range(first, last + 1)]


def _fold_prefix(prefix: str, numbers: set[str]) -> list[str]:
    """Return the parts for one prefix: the bare name, then plain numbers, then those of each padded width."""
    padded = {len(number) for number in numbers if len(number) > 1 and number.startswith("0")}
    families: dict[int, list[int]] = {}
    for number in numbers - {""}:
        families.setdefault(len(number) if len(number) in padded else 0, []).append(int(number))
    parts = [prefix] if "" in numbers else []
    for width, members in sorted(families.items()):
        runs: list[list[int]] = []
        for member in sorted(members):
            if runs and member == runs[-1][1] + 1:
                runs[-1][1] = member
            else:
                runs.append([member, member])
        texts = [_format_run(first, last, width) for first, last in runs]
        inside = ",".join(texts)
        parts.append(f"{prefix}{inside}" if len(texts) == 1 and "-" not in inside else f"{prefix}[{inside}]")
    return parts


def _format_run(first: int, last: int, width: int) -> str:
    return f"{first:0{width}d}" if first == last else f"{first:0{width}d}-{last:0{width}d}"
