"""Matches texts against shell patterns, and cuts or replaces the part that matches.

In a pattern, a backslash makes the character after it literal; quoted parts are passed in that form.
"""

from __future__ import annotations

import re

MAX_TEXT_CHARS = (65536, 4096, 256, 64)
"""The longest text that is tried, by the number of stars: each star multiplies the work of a hostile pattern."""
MAX_PATTERN_CHARS = 256

_SPECIAL = re.compile(r"([\\*?\[\]!^@+(|)-])")
_TOKEN = re.compile(r"\\(.)|(\*+)|(\?)|\[([!^]?)(\]?[^\]\\]*)\]|(.)", re.DOTALL)
_EXTENDED = re.compile(r"[@*+?!]\(")


def quote_pattern(text: str) -> str:
    """Return a pattern that matches exactly ``text``."""
    return _SPECIAL.sub(r"\\\1", text)


def find_exact_text(pattern: str) -> str | None:
    """Return the one text that a pattern matches, ``None`` when it may match several."""
    tokens = list(_TOKEN.finditer(pattern))
    if any(match[1] is None and match[6] is None for match in tokens):
        return None
    return "".join(match[1] or match[6] for match in tokens)


def matches(text: str, pattern: str) -> bool | None:
    """Return whether a whole text matches; ``None`` when the pattern is one that is not tried."""
    if (exact := find_exact_text(pattern)) is not None and not _EXTENDED.search(pattern):
        return text == exact
    compiled = _compile(text, pattern)
    return None if compiled is None else compiled.fullmatch(text) is not None


def remove_match(operator: str, text: str, pattern: str) -> str | None:
    """Return what ``#``, ``##``, ``%`` or ``%%`` leaves of a text; ``None`` when the pattern is not tried."""
    compiled = _compile(text, pattern)
    if compiled is None:
        return None
    if len(text) > MAX_TEXT_CHARS[1]:
        return None
    cuts = range(len(text) + 1)
    if operator in ("#", "##"):
        ends = [end for end in cuts if compiled.fullmatch(text, 0, end)]
        return text[(ends[0] if operator == "#" else ends[-1]) :] if ends else text
    starts = [start for start in cuts if compiled.fullmatch(text, start)]
    return text[: (starts[-1] if operator == "%" else starts[0])] if starts else text


def replace_match(text: str, pattern: str, new: str, *, everywhere: bool) -> str | None:
    """Return a text with the first, or every, longest match replaced; ``None`` when the pattern is not tried."""
    if not pattern:
        return text
    compiled = _compile(text, pattern)
    if compiled is None or compiled.fullmatch(""):
        return None
    return compiled.sub(lambda _: new, text, count=0 if everywhere else 1)


def _compile(text: str, pattern: str) -> re.Pattern[str] | None:
    """Return a pattern as a regular expression, ``None`` when it is too costly or of a kind that is not followed."""
    if len(pattern) > MAX_PATTERN_CHARS or _EXTENDED.search(pattern):
        return None
    pieces: list[str] = []
    stars = 0
    for match in _TOKEN.finditer(pattern):
        escaped, star, question, negated, members, letter = match.groups()
        if star:
            stars += 1
            pieces.append(".*")
        elif question:
            pieces.append(".")
        elif members:
            if "[" in members:
                return None
            inside = re.sub(r"([\\\]^&~|])", r"\\\1", members)
            pieces.append(f"[{'^' if negated else ''}{inside}]")
        else:
            pieces.append(re.escape(escaped or letter))
    if stars >= len(MAX_TEXT_CHARS) or len(text) > MAX_TEXT_CHARS[stars]:
        return None
    try:
        return re.compile("".join(pieces), re.DOTALL)
    except re.error:
        return None
