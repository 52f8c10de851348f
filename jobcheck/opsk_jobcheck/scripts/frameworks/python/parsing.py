"""Parses the text of a program, also one of a later Python than runs here.

Since Python 3.12 the braces of an f-string may hold its own quotes and backslashes: ``f"{path.split("/")[0]}"``.
"""

from __future__ import annotations

import ast
import re
import warnings

_NO_FILE = "<program>"
_STARTS = re.compile(r"(?<![\w\"'])(?:[fF][rR]?|[rR][fF])(?P<quote>[\"'])(?!(?P=quote)(?P=quote))")


def parse_program(text: str) -> ast.Module:
    """Return the syntax tree of a program.

    Raises
    ------
    SyntaxError, ValueError, RecursionError, MemoryError
        As `ast.parse` does.
    """
    text = text.removeprefix("\ufeff")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text, filename=_NO_FILE)
        except SyntaxError:
            older = write_as_before_3_12(text)
            if older == text:
                raise
            return ast.parse(older, filename=_NO_FILE)


def write_as_before_3_12(text: str) -> str:
    """Return a program with other quotes, and no backslashes, inside the braces of its f-strings; lines stay."""
    pieces: list[str] = []
    position = 0
    while (match := _STARTS.search(text, position)) is not None:
        pieces.append(text[position : match.end()])
        position, inside = _find_end(text, match.end(), match["quote"])
        pieces.append(inside)
    return "".join([*pieces, text[position:]])


def _find_end(text: str, start: int, quote: str) -> tuple[int, str]:
    """Return where an f-string ends, and what is in it as it was written before; it is of one line."""
    other = "'" if quote == '"' else '"'
    inside: list[str] = []
    depth, position = 0, start
    while position < len(text) and text[position] != "\n":
        sign = text[position]
        if depth == 0 and (sign == quote or sign == "\\"):
            if sign == quote:
                break
            inside.append(text[position : position + 2])
            position += 2
            continue
        if sign == "{" and depth == 0 and text[position + 1 : position + 2] == "{":
            inside.append("{{")
            position += 2
            continue
        depth += (sign == "{") - (sign == "}" and depth > 0)
        inside.append(other if depth and sign == quote else " " if depth and sign == "\\" else sign)
        position += 1
    return position, "".join(inside)
