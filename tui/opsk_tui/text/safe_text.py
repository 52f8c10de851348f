r"""How does text that users, logs or vendors wrote reach the screen without doing anything there?

It is never read as markup: widgets get it as plain segments. Control characters, direction marks and lone surrogates
are shown as ``\xNN``; marks that stack above and below a letter are kept to two, so that none runs into other lines.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from rich.cells import cell_len, set_cell_size

from opsk.text import escape

_STACKED = 2
_LONGEST = 4096
"""Signs of one text that are looked at: a log line of megabytes must not hold up a key."""


@lru_cache(maxsize=16384)
def safe(text: str) -> str:
    """Return hostile text that can only be seen: one line, no controls, no markup meaning, no tall stacks of marks."""
    if len(text) > _LONGEST:
        text = text[:_LONGEST] + "…"
    shown = escape(text)
    return shown if shown.isascii() else _without_stacks(shown)


def _without_stacks(text: str) -> str:
    """Drop combining marks beyond the second on one letter."""
    kept: list[str] = []
    stacked = 0
    for sign in text:
        stacked = stacked + 1 if unicodedata.category(sign) in ("Mn", "Me") else 0
        if stacked <= _STACKED:
            kept.append(sign)
    return "".join(kept)


def fitted(text: str, width: int, *, right: bool = False, ellipsis: str = "…") -> str:
    """Return harmless text in exactly ``width`` cells: cut with an ellipsis, or padded."""
    if text.isascii():
        length = len(text)
        if length <= width:
            return text.rjust(width) if right else text.ljust(width)
        return text[: width - 1] + ellipsis if width > 0 else ""
    length = cell_len(text)
    if length <= width:
        blank = " " * (width - length)
        return blank + text if right else text + blank
    return set_cell_size(text, width - 1) + ellipsis if width > 0 else ""


def wrapped(text: str, width: int) -> list[str]:
    """Break a text at blanks; words longer than the width at the width."""
    lines, line = [], ""
    for word in text.split(" "):
        rest = word
        while len(rest) > width:
            if line:
                lines.append(line)
                line = ""
            lines.append(rest[:width])
            rest = rest[width:]
        if line and len(line) + 1 + len(rest) > width:
            lines.append(line)
            line = rest
        else:
            line = f"{line} {rest}" if line else rest
    return [*lines, line] if line or not lines else lines


def ascii_text(text: str) -> str:
    """Return text for a terminal that shows ASCII only: known signs have a likeness, others become question marks."""
    if text.isascii():
        return text
    return "".join(sign if sign.isascii() else _LIKE.get(sign) or "?" * cell_len(sign) for sign in text)


_LIKE = {
    "–": "-", "—": "-", "…": ".", "·": "-", "×": "x", "→": ">", "←": "<", "↑": "^", "↓": "v", "✗": "X", "✓": "+",
    "─": "-", "│": "|", "█": "#", "▌": "#", "▁": "0", "▂": "1", "▃": "2", "▄": "4", "▅": "5", "▆": "6", "▇": "7",
    "°": "'", "±": "~", "≤": "<", "≥": ">", "▲": "^", "▼": "v", "●": "*", "░": ".", "▒": ":", "▓": "%", "┃": "#",
}  # fmt: skip
