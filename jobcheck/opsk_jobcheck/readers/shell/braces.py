"""Which words does bash make of ``{a,b}`` and ``{1..3}``, before it looks at anything else?

Source: "Brace Expansion" of bash(1). Followed is one pair of braces in a word without quotes or ``$``.
"""

from __future__ import annotations

import re

from opsk_jobcheck.readers.shell.syntax import Lit, Word

MAX_WORDS = 256
_PAIR = re.compile(r"\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}")
_RANGE = re.compile(r"(0|-?[1-9][0-9]{0,3})\.\.(0|-?[1-9][0-9]{0,3})")
_ELSE = "\1"
"""Stands for what is no plain text while a pair is looked for."""


def is_braced(word: Word) -> bool:
    """Tell whether bash makes several words of a word."""
    for piece in word.segments:
        if isinstance(piece, Lit) and "{" in piece.text and not piece.quoted:
            break
    else:  # nearly all words
        return False
    pieces = [piece.text if isinstance(piece, Lit) and not piece.quoted else _ELSE for piece in word.segments]
    return _PAIR.search("".join(pieces)) is not None


def braced(word: Word) -> list[Word] | None:
    """Return the words that bash makes of a word with braces, ``None`` where that is not followed."""
    text = word.bare or ""
    pair = _PAIR.search(text)
    if pair is None or text.count("{") > 1 or text.count("}") > 1:
        return None
    inside = pair.group()[1:-1]
    if "," in inside:
        members = inside.split(",")
    elif span := _RANGE.fullmatch(inside):
        first, last = int(span[1]), int(span[2])
        step = 1 if last >= first else -1
        if abs(last - first) >= MAX_WORDS:
            return None
        members = [str(number) for number in range(first, last + step, step)]
    else:
        return None
    whole = [f"{text[: pair.start()]}{member}{text[pair.end() :]}" for member in members[:MAX_WORDS]]
    return [Word([Lit(text, word.line)], word.line) for text in whole if text]
