"""What is left of a known text behind a filter: ``echo $LIST | tr , ' ' | wc -w``?

Followed are those that change blanks and single characters only (``tr``, ``sed 's/  */ /g'``, ``xargs``), in a text
that is partly unknown as well; those that count or choose fields and lines (``wc``, ``cut``, ``head``, ``tail``, ``awk
'{print NF}'``); and ``bc`` for a whole number.
"""

from __future__ import annotations

import getopt
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from opsk_jobcheck.readers.shell.syntax import Command, Simple
from opsk_jobcheck.readers.shell.values import Text, literal

if TYPE_CHECKING:
    from opsk_jobcheck.readers.shell.expansion import Expander

_SUM = re.compile(r"(?:[-+*/()\s]|(?<![0-9])(?:0|[1-9][0-9]{0,8})(?![0-9]))+")
"""Numbers that bc and the shell take alike."""
_SQUEEZE = re.compile(r"s/(?:  \*| ?\ \\\+|\[\[:space:\]\]\\\+|\\s\\\+)/ /g")
_SQUEEZE_EXTENDED = re.compile(r"s/(?:  \*| ?\ \+|\[\[:space:\]\]\+|\\s\+)/ /g")
"""What ``sed`` is given to make one blank of several."""
_SIGNS = {"\\n": "\n", "\\t": "\t", "\\r": "\r"}
_WORD, _AWK_WORD = re.compile(r"[^ \t\n\r\f\v]+"), re.compile(r"[^ \t\n]+")
_SEPARATOR = re.compile(r"[,:;/_|=-]")
"""Separators that ``awk`` and ``cut`` take as they are."""
_AWK_FIELD = re.compile(r"\{ ?print +(NF|\$(?:NF|[1-9][0-9]?)) ?;? ?\}")
_FIELD = re.compile(r"[1-9][0-9]?")
_FIRST_OR_LAST = re.compile(r"-n? ?1")
_Filter = Callable[[str], str]


def filtered(expander: Expander, command: Command, text: Text) -> Text | None:
    """Return what is left of a text behind one more command of a pipeline."""
    if not isinstance(command, Simple) or command.assignments or command.redirects:
        return None
    words = [word.known for word in expander.words(command.words)]
    if words == ["bc"]:
        known = text.known
        if known is None or not _SUM.fullmatch(known):
            return None
        return expander.calculated(known, text.line)
    change = _change(words, text) or (_of_lines(words) if text.known is not None else None)
    if change is None:
        return None
    if text.known is not None:
        said = change(text.known)
        return literal(said.strip() if words[0] == "xargs" else said, text.line)
    parts = [part if part.why else part._replace(text=change(part.text)) for part in text.parts]
    if words[0] == "xargs":
        parts[0] = parts[0]._replace(text=parts[0].text.lstrip())
        parts[-1] = parts[-1]._replace(text=parts[-1].text.rstrip())
    return Text(tuple(parts))


def _change(words: list[str | None], text: Text) -> _Filter | None:
    """Return what a filter does to known text, ``None`` where it is not followed."""
    name, *rest = words or [None]
    if name == "tr" and len(rest) == 2 and None not in rest:
        return _translation(rest[0] or "", rest[1] or "")
    if name == "xargs" and not rest:
        is_odd = text.shown.lstrip()[:1] == "-" or any(sign in part.text for part in text.parts for sign in "'\"\\")
        return None if is_odd else lambda piece: re.sub(r"\s+", " ", piece)
    if name == "sed":
        is_extended = "-E" in rest or "-r" in rest
        rest = [word for word in rest if word not in ("-e", "-E", "-r")]
        squeeze = _SQUEEZE_EXTENDED if is_extended else _SQUEEZE
        if len(rest) == 1 and squeeze.fullmatch(rest[0] or ""):
            return lambda piece: re.sub(r"[ \t]+" if "s" in (rest[0] or "")[2:] else " +", " ", piece)
    return None


def _translation(one: str, other: str) -> _Filter | None:
    """Return what ``tr`` does with one character."""
    if one in ("-s", "-d"):
        sign = _SIGNS.get(other, " " if other == "[:space:]" and one == "-s" else other)
        if len(sign) != 1:
            return None
        if one == "-d":
            return lambda piece: piece.replace(sign, "")
        return lambda piece: re.sub(f"{re.escape(sign)}+", lambda _: sign, piece)
    before, after = _SIGNS.get(one, one), _SIGNS.get(other, other)
    if len(before) != 1 or len(after) != 1:
        return None
    return lambda piece: piece.replace(before, after)


def _of_lines(words: list[str | None]) -> _Filter | None:
    """Return what a filter makes of a whole text that counts or chooses fields and lines, ``None`` for any other."""
    if None in words or not words:
        return None
    name, *rest = [word or "" for word in words]
    if name == "wc" and rest == ["-l"]:
        return lambda text: f"{text.count(chr(10))}\n"
    if name == "wc" and rest == ["-w"]:
        return lambda text: f"{len(_WORD.findall(text))}\n"
    if name in ("head", "tail") and _FIRST_OR_LAST.fullmatch(" ".join(rest)):
        return _first_line if name == "head" else _last_line
    if name == "cut":
        options, others = _options(rest, "d:f:")
        separator, field = options.get("-d", ""), options.get("-f", "")
        is_plain = _SEPARATOR.fullmatch(separator) or separator == " "
        if not others and is_plain and _FIELD.fullmatch(field):
            return lambda text: _each_line(text, lambda line: _cut(line, separator, int(field)))
    if name == "awk":
        options, others = _options(rest, "F:")
        between, program = options.get("-F", ""), _AWK_FIELD.fullmatch(others[0]) if len(others) == 1 else None
        if program and (_SEPARATOR.fullmatch(between) or not options):
            return lambda text: _each_line(text, lambda line: _awk(line, between, program[1]))
    return None


def _first_line(text: str) -> str:
    line, end, _ = text.partition("\n")
    return line + end


def _last_line(text: str) -> str:
    line = text.removesuffix("\n").rpartition("\n")[2]
    return line + "\n" * text.endswith("\n")


def _options(words: list[str], letters: str) -> tuple[dict[str, str], list[str]]:
    """Return what options of one letter are given, attached or behind, and the words behind them."""
    try:
        given, rest = getopt.getopt(words, letters)
    except getopt.GetoptError:
        return {}, words
    return dict(given), rest


def _each_line(text: str, change: _Filter) -> str:
    """Change each line of a text; each ends with a newline."""
    lines = text.removesuffix("\n").split("\n") if text else []
    return "".join(f"{change(line)}\n" for line in lines)


def _cut(line: str, separator: str, field: int) -> str:
    """Return a field as ``cut`` does: the whole line where it has no separator."""
    fields = line.split(separator)
    return line if len(fields) == 1 else (fields[field - 1 : field] or [""])[0]


def _awk(line: str, separator: str, said: str) -> str:
    """Return what ``awk`` prints of a line: how many fields there are, or one of them."""
    fields = (line.split(separator) if line else []) if separator else _AWK_WORD.findall(line)
    if said == "NF":
        return str(len(fields))
    number = len(fields) if said == "$NF" else int(said[1:])
    return line if number == 0 else (fields[number - 1 : number] or [""])[0]
