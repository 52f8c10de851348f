"""What does ``$(command)`` print, where that is certain without running it?

Followed are ``echo``, ``printf '%s'`` and ``cat`` with a here-document, ``seq`` and ``expr`` of whole numbers,
``basename`` and ``dirname`` of a known path; each perhaps piped through `filters`. Of a text that is partly unknown the
rest is kept.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from opsk_jobcheck.readers.shell.filters import filtered
from opsk_jobcheck.readers.shell.parser import Parser
from opsk_jobcheck.readers.shell.source import ShellLimitError, Source
from opsk_jobcheck.readers.shell.syntax import Command, Output, Pipeline, Simple
from opsk_jobcheck.readers.shell.values import Text, join, literal

if TYPE_CHECKING:
    from opsk_jobcheck.readers.shell.expansion import Expander

MAX_COMMAND_CHARS = 1 << 16
CHARS_PER_COMMAND = 100
"""Each command that prints counts as so many characters more."""
_FIRST = re.compile(r"\s*(?:echo|printf|cat|basename|dirname|seq|expr)\b")
_OPTION = re.compile(r"-[neE]+")
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,8})")
_EXPR = re.compile(r"-?(?:0|[1-9][0-9]{0,8})(?: [-+*/%] -?(?:0|[1-9][0-9]{0,8})){1,16}")
"""What ``expr`` and the shell calculate alike."""
MAX_COUNTED = 256


def printed(expander: Expander, segment: Output) -> Text | None:
    """Return what the command prints, without the newlines at its end; ``None`` where that is not known."""
    if len(segment.text) > MAX_COMMAND_CHARS or not _FIRST.match(segment.text):
        return None
    expander.source.spend(len(segment.text) + CHARS_PER_COMMAND)
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
        text = filtered(expander, command, text) if text is not None else None
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
    return _calculated(expander, name, words)


def _calculated(expander: Expander, name: Text, words: list[Text]) -> Text | None:
    """Return what ``expr`` and ``seq`` print."""
    known = [word.known or "" for word in words]
    if name.known == "expr" and _EXPR.fullmatch(" ".join(known)):
        return expander.calculated(" ".join(known), name.line)
    counted = _counted(known) if name.known == "seq" else None
    return literal(counted, name.line) if counted is not None else None


def _counted(words: list[str]) -> str | None:
    """Return what ``seq`` prints; between the numbers a newline, or what ``-s`` says."""
    between = "\n"
    if words[:1] == ["-s"] and len(words) > 2:
        between, words = words[1], words[2:]
    elif words and words[0].startswith("-s"):
        between, words = words[0][2:], words[1:]
    if not 1 <= len(words) <= 3 or not all(map(_WHOLE.fullmatch, words)) or "%" in between or "\\" in between:
        return None
    numbers = list(map(int, words))
    first, last = (1 if len(numbers) == 1 else numbers[0]), numbers[-1]
    step = numbers[1] if len(numbers) == 3 else 1
    if step == 0:
        return None
    row = range(first, last + (1 if step > 0 else -1), step)
    return between.join(map(str, row)) + "\n" * bool(row) if len(row) <= MAX_COUNTED else None


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
