"""Reads the commands of a batch script, whatever program they start, with the variables that the script sets.

This is no shell: it follows plain assignments, continued lines and arguments, and stops there. What it cannot follow
stays as it is written. The time is linear in the length of the script, which may be hostile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from opsk.units import KIB

MAX_SCRIPT_CHARS = 16 * KIB
"""Only the start of a longer script is read."""
MAX_COMMANDS, MAX_WORDS, MAX_WORD_CHARS = 200, 400, 4000
_TOKEN = re.compile(
    r"""(?P<comment>(?<![^\s;&|])\#[^\n]*)|(?P<redirect>(?:\d|&)?[<>]{1,3}&?[ \t]*[^\s;&|<>]*)"""
    r"""|(?P<end>\n|;+|&&|\|\|?|&)|(?P<word>(?:[^\s'"\\;&|<>]|\\.|'[^']*'|"(?:[^"\\]|\\.)*"|['"\\])+)""",
    re.DOTALL,
)
_PIECE = re.compile(
    r"""'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|\\(?P<escaped>.)|(?P<plain>[^'"\\]+|.)""", re.DOTALL
)
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?:\[[@*]\]|:?[-=]([^}]*))?\}|(\w+)|([@*]))")
_WHOLE_LIST = re.compile(r'"\$(?:[@*]|\{\w+\[[@*]\]\})"')
"""A quoted word that is all of a list: as many words."""
_NESTED = re.compile(
    r"(?P<quoted>'[^']*'|\\.)|(?P<list>\b[A-Za-z_]\w*\+?=\()|(?P<open>\$\(|\()|(?P<close>\))|(?P<tick>`)"
)
_SHELLS = frozenset({"bash", "sh"})
_COMMAND_FLAG = re.compile(r"-[a-z]*c")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_HERE_DOCUMENT = re.compile(r"(?<!<)<<-?\s*['\"\\]?(\w+)")
_KEYWORDS = frozenset(
    {
        "if",
        "then",
        "else",
        "elif",
        "do",
        "while",
        "until",
        "time",
        "exec",
        "nohup",
        "command",
        "!",
    }
)
_GROUPING = frozenset({"(", ")", "{", "}"})
_COMMENT = re.compile(r"(?:^|\s)#.*")
_DECLARING = frozenset({"export", "declare", "local", "readonly", "typeset"})


def read_commands(
    text: str, *, arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> tuple[tuple[str, ...], ...]:
    """Return the commands of a script as words, in the order of the script.

    A word ``NAME=value`` before a command stays in front of it; ``export NAME=value`` is a command. Redirections are
    left out.

    Parameters
    ----------
    arguments
        The script's own arguments, ``$1`` and so on.
    environment
        Variables that the job will have.
    """
    variables = dict(environment or {})
    variables |= {str(number): value for number, value in enumerate(arguments, start=1)}
    variables["@"] = variables["*"] = " ".join(arguments)
    return _read(text, variables)


def _read(text: str, variables: dict[str, str], *, is_inner: bool = False) -> tuple[tuple[str, ...], ...]:
    """Return the commands; of those that a shell is given as text, the commands in it."""
    commands: list[tuple[str, ...]] = []
    lines = "\n".join(_skip_here_documents(text[:MAX_SCRIPT_CHARS])).replace("\\\n", " ")
    for raw in islice(_split(_flatten(lines)), MAX_COMMANDS):
        words = [word for word in _expand(raw, variables) if word not in _GROUPING]
        while words and (words[0] in _KEYWORDS or words[0].endswith(")")):  # also the patterns of a case
            words = words[1:]
        if not words:
            continue
        if words[0] in _DECLARING:
            _assign(words[1:], variables)
        elif all(_ASSIGNMENT.fullmatch(word) for word in words):
            _assign(words, variables)
            continue
        place = -1 if is_inner else _find_inner(words)
        if place >= 0:
            inner = _read(words[place], variables, is_inner=True)
            before = tuple(words[: place - 2])
            commands += [(*before, *command) if not index else command for index, command in enumerate(inner)]
        else:
            commands.append(tuple(words))
    return tuple(commands[:MAX_COMMANDS])


def _find_inner(words: Sequence[str]) -> int:
    """Return the place of the text in ``bash -c TEXT``; -1 where there is none."""
    for index in range(2, len(words)):
        if _COMMAND_FLAG.fullmatch(words[index - 1]) and words[index - 2].rpartition("/")[2] in _SHELLS:
            return index
    return -1


def parse_assignment(word: str) -> tuple[str, str] | None:
    """Return name and value of ``NAME=value``; ``None`` for another word."""
    match = _ASSIGNMENT.fullmatch(word)
    return (match[1], match[2]) if match is not None else None


def _skip_here_documents(text: str) -> Iterator[str]:
    """Yield the lines of a script that are no input of a command; a document without an end goes to the last line."""
    end = ""
    for line in text.splitlines():
        if end:
            end = "" if line.strip() == end else end
            continue
        match = _HERE_DOCUMENT.search(line) if "<<" in line else None
        end = match[1] if match is not None else ""
        yield line


def _flatten(text: str) -> str:
    """Return a script in which lists are texts, and what other commands print is left out.

    ``ARGS=(--a 1)`` becomes ``ARGS="--a 1"``, and ``ARGS+=(--b 2)`` adds to it. Brackets that are not closed end with
    the script.
    """
    parts: list[str] = []
    position, depth, in_list, in_ticks = 0, 0, False, False
    for match in _NESTED.finditer(text):
        between = text[position : match.start()]
        position = match.end()
        is_hidden = depth > 0 or in_ticks
        if not is_hidden:
            parts.append(_as_list(between) if in_list else between)
        if match["tick"] is not None:
            in_ticks = not in_ticks
        elif match["quoted"] is not None:
            if not is_hidden:
                parts.append(match[0])
        elif in_ticks:
            continue
        elif match["list"] is not None and not in_list and not depth:
            name, adds = match[0].rstrip("=+("), "+" in match[0]
            parts.append(f'{name}="${{{name}}} ' if adds else f'{name}="')
            in_list = True
        elif match["close"] is None:
            if not is_hidden and match[0] == "(" and not in_list:
                parts.append("(")  # a group of commands, or a function
            else:
                depth += 1
        elif depth:
            depth -= 1
        elif in_list:
            parts.append('"')
            in_list = False
        else:
            parts.append(")")
    return "".join((*parts, "" if depth or in_ticks else text[position:]))


def _as_list(text: str) -> str:
    """Return the lines of a list in one, without comments and quotes."""
    return " ".join(_COMMENT.sub("", line) for line in text.splitlines()).replace('"', "")


def _split(text: str) -> Iterator[list[str]]:
    """Yield the words of each command, with their quotes."""
    words: list[str] = []
    for match in _TOKEN.finditer(text):
        if match["word"] is not None:
            if len(words) < MAX_WORDS:
                words.append(match["word"][:MAX_WORD_CHARS])
        elif match["end"] is not None and words:
            yield words
            words = []
    if words:
        yield words


def _expand(raw: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """Return words without quotes and with known variables; an unquoted value of several words is several words."""
    words: list[str] = []
    for word in raw:
        text = _unquote(word, variables)
        is_plain = "'" not in word and '"' not in word and "$" in word
        words += text.split() if is_plain and "$(" not in text else [text]
        if _WHOLE_LIST.fullmatch(word):
            words[-1:] = text.split()
    return words[:MAX_WORDS]


def _unquote(word: str, variables: Mapping[str, str]) -> str:
    if not any(mark in word for mark in "'\"\\$"):
        return word
    parts = []
    for match in _PIECE.finditer(word):
        if match["single"] is not None:
            parts.append(match["single"])
        elif match["escaped"] is not None:
            parts.append(match["escaped"])
        else:
            parts.append(_substitute(match["double"] if match["double"] is not None else match["plain"], variables))
    return "".join(parts)[:MAX_WORD_CHARS]


def _substitute(text: str, variables: Mapping[str, str]) -> str:
    if "$" not in text:
        return text

    def get_value(match: re.Match[str]) -> str:
        name = match[1] or match[3] or match[4]
        return variables.get(name, match[2] if match[2] is not None else match[0])

    return _VARIABLE.sub(get_value, text)


def _assign(words: Sequence[str], variables: dict[str, str]) -> None:
    for word in words:
        pair = parse_assignment(word)
        if pair is not None and "$(" not in pair[1] and "`" not in pair[1]:
            variables[pair[0]] = pair[1]
