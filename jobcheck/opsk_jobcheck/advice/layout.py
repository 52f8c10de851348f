"""Defines a line of advice, and fits it to a terminal: wrapped in full, or cut to one row."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from opsk.text import escape

LABEL_WIDTH = 9
MAX_WIDTH = 106
"""Lines are wrapped here: with sbatch's prefix of 14 characters they fit a terminal of 120 columns."""
CUTS = ("; ", " — ", " (", ", ", ": ")
"""Separators where a row is cut, so that the rest reads as a whole."""
MIN_LEFT = 40
CUT_MARK = " …"
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
    """The priority of a line where there is room for a few: smaller comes first."""

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
    """One line of advice.

    Parameters
    ----------
    label, text
        The label before it, and its full text; hostile until `rows` or `row` has escaped it.
    brief
        The text in one row; without it, ``text`` is cut.
    weight
        Its priority.
    topic
        The name under which it is counted where it is omitted: ``way out``; empty for lines that are not counted.
    """

    label: str
    text: str
    weight: Weight
    brief: str = ""
    topic: str = ""

    @property
    def is_whole(self) -> bool:
        """Return whether its row contains all of its text."""
        return self.row() == self._add_label(self.text)

    @property
    def is_cut(self) -> bool:
        """Return whether a part of its text is left out of its row, with a mark in its place."""
        return CUT_MARK in self.row() and CUT_MARK not in self.text

    def row(self) -> str:
        """Return it in one row, cut where it is too long; flags for pasting are never cut."""
        line = self._add_label(self.brief or self.text)
        return line if len(line) <= MAX_WIDTH or self.brief else cut(line, MAX_WIDTH)

    def rows(self) -> list[str]:
        """Return all of it, wrapped at blanks and indented below its text; longer words stay whole."""
        line = self._add_label(self.text)
        if len(line) <= MAX_WIDTH:
            return [line]
        start = LABEL_WIDTH if self.label or line.startswith(" ") else 0
        pieces = textwrap.wrap(
            line[start:], MAX_WIDTH - start, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
        )
        hang = "  " if pieces and pieces[0].startswith("→") else ""
        indent = " " * LABEL_WIDTH
        return [line[:start] + pieces[0], *(indent + hang + piece for piece in pieces[1:])]

    def _add_label(self, text: str) -> str:
        """Return a text after the label of fixed width; a headline has none."""
        label = f"{self.label:<{LABEL_WIDTH}}" if self.weight is not Weight.HEADLINE else ""
        return escape(label + text)


def continuation(text: str, weight: Weight, *, topic: str = "", brief: str = "") -> Line:
    """Return a line that continues the one above."""
    return Line(label="", text=text, weight=weight, topic=topic, brief=brief)


def fit_parts(parts: list[str], *, joint: str) -> str:
    """Return as many parts as fit into one row after a label, and at least the first."""
    text = parts[0]
    for part in parts[1:]:
        if LABEL_WIDTH + len(text) + len(joint) + len(part) > MAX_WIDTH:
            break
        text += joint + part
    return text


def to_ascii(line: str) -> str:
    """Return a line for an ASCII-only terminal; characters without a substitute are written as escapes."""
    plain = "".join(_ASCII.get(char, char) for char in line)
    return plain.encode("ascii", "backslashreplace").decode("ascii")


def is_ascii_only(environment: Mapping[str, str]) -> bool:
    """Return whether the terminal shows ASCII only, from the user's environment.

    Without any setting, Unicode is shown. Python sets ``LC_CTYPE`` to ``C.UTF-8`` where it finds ``LANG=C`` (PEP 538),
    so ``LANG`` takes precedence over that value.
    """
    names = [environment.get(name, "") for name in ("LC_ALL", "LC_CTYPE", "LANG")]
    everything, ctype, language = names
    if not everything and ctype == "C.UTF-8" and language:
        ctype = ""
    locale = everything or ctype or language
    return bool(locale) and "utf" not in locale.lower()


def cut(text: str, width: int) -> str:
    """Return the longest start of a text that reads well alone and fits, with a mark where it was cut."""
    if len(text) <= width:
        return text
    room = width - len(CUT_MARK)
    positions = [text.rfind(separator, 0, room) for separator in CUTS]
    best = max((position for position in positions if position >= MIN_LEFT), default=-1)
    if best < 0:
        best = text.rfind(" ", MIN_LEFT, room)
    return text[: best if best >= MIN_LEFT else room].rstrip() + CUT_MARK
