"""Where are the numbers of a script? Scripts of one sweep have one form: they are the same but for some of these."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from string import ascii_letters

from opsk.units import KIB
from opsk_jobcheck.readers.shell.source import MARK_CLOSE, MARK_OPEN

LONGEST_CHARS, MOST_NUMBERS = 16 * KIB, 256
"""Of a script that is longer, or has more numbers, nothing is looked for."""
Free = tuple[int, ...]
"""Which numbers of a script may be any, counted from 0, in order."""
BLANK = "\0"
"""Stands for a number that may be any; no script that is looked at holds it."""

_NUMBER = re.compile(r"([0-9][0-9]*(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)")
"""The first digit stands by itself, for what begins with a class of characters is found twice as fast."""
_STRANGE = re.compile(f"[{MARK_OPEN}{MARK_CLOSE}\r\0\ufeff]")
"""With any of these, offsets in the text as submitted are not those in the text as read."""
_STRANGE_ASCII = "\r\0"
_BEFORE = re.compile(r"(?:^|[\s=\"'/,:-]|[=\"'/,:-][A-Za-z_][A-Za-z_0-9]*)\Z")
"""What may stand before a free number on its line: never part of a variable's, function's or descriptor's name."""
_BEHIND = frozenset({"", *" \t\n\"'/,:;|)}-_", *ascii_letters})
_REMARK = re.compile(r"[ \t]*#")
_PLAIN_REMARK = re.compile(r"[ \t]*#+[ \t](?!.*(?:SBATCH|OPSK|PBS|BSUB|COBALT))")
"""A remark that nobody but people reads."""


def _is_strange(text: str) -> bool:
    """Tell whether a text holds such signs."""
    return any(sign in text for sign in _STRANGE_ASCII) if text.isascii() else _STRANGE.search(text) is not None


def text_digest(text: str) -> bytes:
    """Return what a text is remembered by.

    BLAKE2 is Python's own: to ask OpenSSL for SHA-256 takes longer than to work it out for a script.
    """
    return blake2b(text.encode("utf-8", errors="surrogatepass"), digest_size=32).digest()


@dataclass(frozen=True, slots=True)
class Numbered:
    """A script cut at its numbers: ``pieces`` alternate between text and number, text first and last."""

    pieces: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Numbered | None:
        """Return a script's pieces; ``None`` where it has no number, is too long, or holds signs that are read away."""
        if len(text) > LONGEST_CHARS or _is_strange(text):
            return None
        pieces = tuple(_NUMBER.split(text))
        return cls(pieces) if 1 < len(pieces) <= 2 * MOST_NUMBERS else None

    @property
    def numbers(self) -> tuple[str, ...]:
        """Its numbers, in order."""
        return self.pieces[1::2]

    @property
    def form(self) -> str:
        """The script with every number blank: equal for scripts that are the same but for their numbers."""
        return BLANK.join(self.pieces[0::2])

    def blanked(self, free: Free) -> str:
        """Return the script with some of its numbers blank."""
        pieces = list(self.pieces)
        for index in free:
            pieces[2 * index + 1] = BLANK
        return "".join(pieces)

    def spans(self, free: Free) -> tuple[tuple[int, int], ...]:
        """Return from where to where some of the numbers stand, in order."""
        at, found = 0, list[tuple[int, int]]()
        for index, piece in enumerate(self.pieces):
            if index % 2 and index // 2 in free:
                found.append((at, at + len(piece)))
            at += len(piece)
        return tuple(found)

    def differing(self, numbers: Sequence[str]) -> Free:
        """Return which numbers differ from those of another script of the same form."""
        return tuple(
            [index for index, (one, other) in enumerate(zip(self.numbers, numbers, strict=True)) if one != other]
        )

    def may_be_any(self, index: int) -> bool:
        """Tell whether another number here changes a word at most: no name, no redirection, no directive."""
        before, behind = "".join(self.pieces[: 2 * index + 1]), self.pieces[2 * index + 2]
        start = before.rpartition("\n")[2]
        if before.endswith("\\\n") or _BEFORE.search(start) is None or behind[:1] not in _BEHIND:
            return False
        line = start + "".join(self.pieces[2 * index + 1 :]).partition("\n")[0]
        return _REMARK.match(start) is None or _PLAIN_REMARK.match(line) is not None
