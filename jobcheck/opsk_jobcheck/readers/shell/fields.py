"""How does the shell cut a known text into fields, by IFS?"""

from __future__ import annotations

import re

DEFAULT_IFS = " \t\n"


def split_fields(text: str, ifs: str) -> list[tuple[int, str]]:
    """Return the fields that an unquoted expansion becomes, each with its offset.

    Source: bash manual, "Word Splitting": blanks of IFS at both ends go away and count once between fields; any other
    character of IFS ends a field, which may be empty.
    """
    fields: list[tuple[int, str]] = []
    blank = "".join(sign for sign in ifs if sign in DEFAULT_IFS)
    start = len(text) - len(text.lstrip(blank)) if blank else 0
    for found in _delimiters(ifs).finditer(text, start):
        fields.append((start, text[start : found.start()]))
        start = found.end()
    if start < len(text):
        fields.append((start, text[start:]))
    return fields


def read_fields(text: str, ifs: str, count: int) -> list[tuple[int, str]]:
    """Return what ``read`` gives to ``count`` names from one line; the last takes all that is left."""
    blank = "".join(sign for sign in ifs if sign in DEFAULT_IFS)
    end = len(text.rstrip(blank)) if blank else len(text)
    start = min(len(text) - len(text.lstrip(blank)) if blank else 0, end)
    fields: list[tuple[int, str]] = []
    delimiters = _delimiters(ifs)
    while len(fields) < count - 1 and start < end:
        found = delimiters.search(text, start, end)
        fields.append((start, text[start : found.start() if found else end]))
        start = found.end() if found else end
    rest = text[start:end]
    only = delimiters.search(rest)
    if only and only.end() == len(rest):
        rest = rest[: only.start()]
    fields.append((start, rest))
    return fields + [(end, "")] * (count - len(fields))


def _delimiters(ifs: str) -> re.Pattern[str]:
    """Return the pattern of what stands between two fields."""
    if not ifs:
        return re.compile(r"(?!)")
    blank = "".join(sign for sign in ifs if sign in DEFAULT_IFS)
    other = "".join(sign for sign in ifs if sign not in DEFAULT_IFS)
    blanks = f"[{re.escape(blank)}]" if blank else "(?!)"
    if not other:
        return re.compile(f"{blanks}+")
    return re.compile(f"{blanks}*[{re.escape(other)}]{blanks}*|{blanks}+")
