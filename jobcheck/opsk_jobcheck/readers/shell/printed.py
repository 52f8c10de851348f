"""What does ``$(command)`` print, where that is certain without running it?

Followed are ``echo``, ``printf '%s'`` and ``cat`` with a here-document, each perhaps piped through filters that change
blanks and single characters only (``tr``, ``sed 's/  */ /g'``, ``xargs``) or through ``bc`` for a whole number, and
``basename`` and ``dirname`` of a known path. Of a text that is partly unknown the rest is kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from opsk_jobcheck.readers.shell.parser import Parser
from opsk_jobcheck.readers.shell.source import ShellLimitError, Source
from opsk_jobcheck.readers.shell.syntax import Command, Output, Pipeline, Simple
from opsk_jobcheck.readers.shell.values import Text, join, literal

if TYPE_CHECKING:
    from opsk_jobcheck.readers.shell.expansion import Expander

MAX_COMMAND_CHARS = 1 << 16
_FIRST = re.compile(r"\s*(?:echo|printf|cat|basename|dirname)\b")
_OPTION = re.compile(r"-[neE]+")
_SUM = re.compile(r"(?:[-+*/()\s]|(?<![0-9])(?:0|[1-9][0-9]{0,8})(?![0-9]))+")
"""Numbers that bc and the shell take alike."""
_SQUEEZE = re.compile(r"s/(?:  \*| ?\ \\\+|\[\[:space:\]\]\\\+|\\s\\\+)/ /g")
_SQUEEZE_EXTENDED = re.compile(r"s/(?:  \*| ?\ \+|\[\[:space:\]\]\+|\\s\+)/ /g")
"""What ``sed`` is given to make one blank of several."""
_SIGNS = {"\\n": "\n", "\\t": "\t", "\\r": "\r"}
_Filter = Callable[[str], str]


def printed(expander: Expander, segment: Output) -> Text | None:
    """Return what the command prints, without the newlines at its end; ``None`` where that is not known."""
    if len(segment.text) > MAX_COMMAND_CHARS or not _FIRST.match(segment.text):
        return None
    expander.source.spend(len(segment.text))
    source = _source(expander.source, segment)
    inner = type(expander)(expander.scope.copy(), source, expander.depth + 1)
    try:
        text = _of_pipeline(inner, Parser(source))
    except ShellLimitError:
        return None
    return _without_last_newlines(text) if text is not None else None


def _of_pipeline(expander: Expander, parser: Parser) -> Text | None:
    """Return what the one pipeline that there is prints."""
    commands = parser.script()
    if len(commands) != 1 or parser.problems:
        return None
    first, *rest = commands[0].commands if isinstance(commands[0], Pipeline) else commands
    text = _said(expander, first)
    for command in rest:
        text = _filtered(expander, command, text) if text is not None else None
    return text


def _source(outer: Source, segment: Output) -> Source:
    """Return the source of the command, whose lines go on in the script as they do in it."""
    starts = [0, *(match.end() for match in re.finditer("\n", segment.text))]
    goes_on = outer.lines[-1] - outer.lines[0] + 1 == len(outer.lines)
    lines = [segment.line + (index if goes_on else 0) for index in range(len(starts))]
    source = Source(segment.text, starts, lines, outer.unknown)
    source.work = outer.work
    return source


def _said(expander: Expander, command: Command) -> Text | None:
    """Return what the first command prints."""
    if not isinstance(command, Simple) or command.assignments:
        return None
    body = next((entry.body for entry in command.redirects if entry.body is not None), None)
    if any(entry.body is None for entry in command.redirects):
        return None
    row = expander.words(command.words)
    name, words = (row[0], row[1:]) if row else (Text(), [])
    if name.known == "cat" and body is not None and not words:
        return expander.text(body)
    if name.known == "echo" and body is None:
        return _echoed(words)
    if name.known == "printf" and len(words) == 2 and words[0].known in ("%s", "%s\\n", "%s\n"):
        return words[1] if words[0].known == "%s" else join((words[1], literal("\n", words[1].line)))
    if name.known in ("basename", "dirname") and len(words) == 1 and words[0].known:
        return literal(_part_of_path(name.known, words[0].known), words[0].line)
    return None


def _echoed(words: list[Text]) -> Text | None:
    """Return what ``echo`` says: its words with blanks between; escapes are not followed."""
    end = "\n"
    while words and _OPTION.fullmatch("".join(part.text for part in words[0].parts) or "-n"):
        if words[0].known is None or "e" in words[0].known:
            return None
        if not words[0].known:
            break
        end = ""
        words = words[1:]
    pieces = [piece for index, word in enumerate(words) for piece in ((literal(" ", word.line), word)[not index :])]
    return join((*pieces, literal(end, words[-1].line if words else 0)))


def _part_of_path(name: str, path: str) -> str:
    """Return what ``basename`` and ``dirname`` make of a path."""
    head, slash, last = (path.rstrip("/") or "/").rpartition("/")
    if name == "basename":
        return last or "/"
    return head.rstrip("/") or (slash or ".")


def _filtered(expander: Expander, command: Command, text: Text) -> Text | None:
    """Return what is left of a text behind one more command of a pipeline."""
    if not isinstance(command, Simple) or command.assignments or command.redirects:
        return None
    words = [word.known for word in expander.words(command.words)]
    if words == ["bc"]:
        known = text.known
        if known is None or not _SUM.fullmatch(known):
            return None
        return expander.calculated(known, text.line)
    change = _change(words, text)
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


def _without_last_newlines(text: Text) -> Text:
    """Return a text without the newlines at its end, which ``$(...)`` drops."""
    parts = list(text.parts)
    while parts and not parts[-1].why:
        kept = parts[-1].text.rstrip("\n")
        if kept:
            parts[-1] = parts[-1]._replace(text=kept)
            break
        parts.pop()
    return Text(tuple(parts))
