r"""Escapes text that users, logs or vendors wrote, so that it has no effect on the terminal.

It is never parsed as markup: widgets get it as plain segments. Control characters, direction marks and lone surrogates
are shown as ``\xNN``; combining marks are limited to two per letter, so that none runs into other lines.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from rich.cells import cell_len, set_cell_size

from opsk.text import escape

_STACKED = 2
_MAX_CHARS = 4096
"""Characters of one text that are processed: a log line of megabytes must not delay a key."""


@lru_cache(maxsize=16384)
def safe(text: str) -> str:
    """Return hostile text made safe for display: one line, no controls, no markup, no stacks of combining marks."""
    if len(text) > _MAX_CHARS:
        text = text[:_MAX_CHARS] + "…"
    shown = escape(text)
    return shown if shown.isascii() else _without_stacks(shown)


def _without_stacks(text: str) -> str:
    """Return text without combining marks beyond the second on one letter."""
    chars: list[str] = []
    stacked = 0
    for char in text:
        stacked = stacked + 1 if unicodedata.category(char) in ("Mn", "Me") else 0
        if stacked <= _STACKED:
            chars.append(char)
    return "".join(chars)


def fit_text(text: str, width: int, *, right: bool = False, ellipsis: str = "…") -> str:
    """Return safe text in exactly ``width`` cells: cut with an ellipsis, or padded."""
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


def wrap_text(text: str, width: int) -> list[str]:
    """Return a text wrapped at blanks; words longer than the width are split."""
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
    """Return text for an ASCII-only terminal: known characters have substitutes, others become question marks."""
    if text.isascii():
        return text
    return "".join(char if char.isascii() else _ASCII_SUBSTITUTES.get(char) or "?" * cell_len(char) for char in text)


_ASCII_SUBSTITUTES = {
    "–": "-", "—": "-", "…": ".", "·": "-", "×": "x", "→": ">", "←": "<", "↑": "^", "↓": "v", "✗": "X", "✓": "+",
    "─": "-", "│": "|", "█": "#", "▌": "#", "▁": "0", "▂": "1", "▃": "2", "▄": "4", "▅": "5", "▆": "6", "▇": "7",
    "°": "'", "±": "~", "≤": "<", "≥": ">", "▲": "^", "▼": "v", "●": "*", "░": ".", "▒": ":", "▓": "%", "┃": "#",
}  # fmt: skip
