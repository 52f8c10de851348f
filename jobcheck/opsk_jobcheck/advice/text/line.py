"""What is one line of advice, and how does it fit a terminal? All of it wrapped, or one row that is cut."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from opsk.text import escape

LABEL_WIDTH = 9
MAX_WIDTH = 106
"""Lines are broken here: with sbatch's prefix of 14 signs they fit a terminal of 120 columns."""
CUTS = ("; ", " — ", " (", ", ", ": ")
"""Where a row is cut, so that what is left reads as a whole."""
LEAST_LEFT = 40
MARK_OF_CUT = " …"
_ASCII: Mapping[str, str] = {
    "✓": "ok:",
    "✗": "NO:",
    "→": "->",
    "·": "|",
    "×": "x",
    "–": "-",
    "—": "-",
    "−": "-",
    "…": "...",
    "≥": ">=",
    "≤": "<=",
    "“": '"',
    "”": '"',
    "’": "'",
}


class Weight(IntEnum):
    """How much a line matters where there is room for a few: the smaller, the more."""

    HEADLINE = 0
    MEMORY = 1
    VERDICT = 2
    PROBLEM = 3
    WAY_OUT = 4
    STATEMENT = 5
    SPEED = 6
    WASTE = 7
    SHARES = 8
    NETWORK = 9
    SECOND = 10
    OTHER = 11
    NO_NETWORK = 12
    BEST = 13
    NEVER = 99
    """Only in the long form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One thing to say.

    Parameters
    ----------
    label, text
        What stands before it, and all of it; hostile until `rows` or `row` made it harmless.
    brief
        The same in one row; left out, ``text`` is cut.
    weight
        How much it matters.
    topic
        What it is counted as where it is left out: ``way out``; empty for what nobody misses.
    """

    label: str
    text: str
    weight: Weight
    brief: str = ""
    topic: str = ""

    @property
    def is_whole(self) -> bool:
        """Tell whether its row says all of it."""
        return self.row() == self._labelled(self.text)

    def row(self) -> str:
        """Return it in one row, cut where it is too long; flags that are to be pasted are never cut."""
        line = self._labelled(self.brief or self.text)
        return line if len(line) <= MAX_WIDTH or self.brief else cut(line, MAX_WIDTH)

    def rows(self) -> list[str]:
        """Return all of it, broken at blanks, continued under its text; a word that is longer stays whole."""
        line = self._labelled(self.text)
        if len(line) <= MAX_WIDTH:
            return [line]
        start = LABEL_WIDTH if self.label or line.startswith(" ") else 0
        pieces = textwrap.wrap(
            line[start:], MAX_WIDTH - start, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
        )
        hang = "  " if pieces and pieces[0].startswith("→") else ""
        indent = " " * LABEL_WIDTH
        return [line[:start] + pieces[0], *(indent + hang + piece for piece in pieces[1:])]

    def _labelled(self, text: str) -> str:
        """Return the label of fixed width before a text; a headline has none."""
        label = f"{self.label:<{LABEL_WIDTH}}" if self.weight is not Weight.HEADLINE else ""
        return escape(label + text)


def continued(text: str, weight: Weight, *, topic: str = "", brief: str = "") -> Line:
    """Return a line that belongs to the one above."""
    return Line(label="", text=text, weight=weight, topic=topic, brief=brief)


def fitting(parts: list[str], *, joint: str) -> str:
    """Return as many parts as fit into one row beside a label, the first in any case."""
    text = parts[0]
    for part in parts[1:]:
        if LABEL_WIDTH + len(text) + len(joint) + len(part) > MAX_WIDTH:
            break
        text += joint + part
    return text


def in_ascii(line: str) -> str:
    """Return a line for a terminal that shows nothing but ASCII; what it has no sign for is written as its number."""
    plain = "".join(_ASCII.get(sign, sign) for sign in line)
    return plain.encode("ascii", "backslashreplace").decode("ascii")


def is_ascii_only(environment: Mapping[str, str]) -> bool:
    """Tell from a person's environment whether the terminal shows ASCII alone.

    Nothing set says nothing: then signs are shown. Python sets ``LC_CTYPE`` to ``C.UTF-8`` where it finds ``LANG=C``
    (PEP 538), so that this one does not stand over it.
    """
    names = [environment.get(name, "") for name in ("LC_ALL", "LC_CTYPE", "LANG")]
    everything, signs, language = names
    if not everything and signs == "C.UTF-8" and language:
        signs = ""
    locale = everything or signs or language
    return bool(locale) and "utf" not in locale.lower()


def cut(text: str, width: int) -> str:
    """Return as much of the start of a text as makes sense alone and fits, with a mark where it goes on."""
    if len(text) <= width:
        return text
    room = width - len(MARK_OF_CUT)
    places = [text.rfind(sign, 0, room) for sign in CUTS]
    best = max((place for place in places if place >= LEAST_LEFT), default=-1)
    if best < 0:
        best = text.rfind(" ", LEAST_LEFT, room)
    return text[: best if best >= LEAST_LEFT else room].rstrip() + MARK_OF_CUT
