"""Parses JSON files with the line of each key."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from opsk.errors import InputError

MAX_CHARACTERS = 4 << 20
MAX_DEPTH = 64

_LENIENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|,(?=\s*[}\]])|(?://|#)[^\n]*')
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,\n]')


@dataclass(frozen=True, slots=True)
class LinedObject:
    """A JSON object with the lines (from 1) of its keys, by path from the top: ``("text_config", "vocab_size")``."""

    values: dict[str, Any]
    lines: dict[tuple[str, ...], int]


def read_object(text: str, *, is_lenient: bool = False) -> LinedObject:
    """Return the object that a JSON text holds; of a key given twice, the last counts.

    Parameters
    ----------
    is_lenient
        Accept commas before a closing bracket and comments, as the HJSON does that DeepSpeed reads.

    Raises
    ------
    InputError
        The text is too large, too deep, no JSON, or no object; the cause is a ``JSONDecodeError`` where one line is to
        blame.
    """
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"larger than {MAX_CHARACTERS} characters, no configuration of a model")
    text = text.removeprefix("\ufeff")
    hint = "it must be the config.json of a model"
    try:
        try:
            values = json.loads(text)
        except json.JSONDecodeError:
            if not is_lenient:
                raise
            text = _LENIENT.sub(_drop_lenient, text)
            values = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"no JSON: {error.msg}", hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise InputError("no JSON that can be read: nested too deep, or a number too long", hint=hint) from error
    if not isinstance(values, dict):
        raise InputError("holds no JSON object", hint=hint)
    return LinedObject(values, _find_lines(text))


def _drop_lenient(match: re.Match[str]) -> str:
    """Return a string as it is, and blanks in the place of anything else, so that lines stay where they are."""
    return match[0] if match[0].startswith('"') else " " * len(match[0])


def _find_lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the line of every key outside lists, in a text that is valid JSON."""
    lines: dict[tuple[str, ...], int] = {}
    path: list[str | None] = []
    line, last, last_line = 1, "", 1
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token == "\n":
            line += 1
        elif token[0] == '"':
            last, last_line = token, line
        elif token == ":":
            path[-1] = json.loads(last)
            if None not in path and len(path) <= MAX_DEPTH:
                lines[tuple(part for part in path if part is not None)] = last_line
        elif token in "{[":
            path.append(None)
        elif token in "}]":
            path.pop()
        elif path:
            path[-1] = None
    return lines
