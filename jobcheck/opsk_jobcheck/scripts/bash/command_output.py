"""Computes the output of ``$(command)`` where it is certain without running the command.

Supported are ``echo``, ``printf '%s'`` and ``cat`` with a here-document, ``seq`` and ``expr`` of whole numbers,
``basename`` and ``dirname`` of a known path; each optionally piped through `apply_filter`. In a text that is partly
unknown, the known parts stay known.
"""

from __future__ import annotations

import getopt
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from opsk_jobcheck.scripts.bash.parser import Parser
from opsk_jobcheck.scripts.bash.source import ShellLimitError, Source
from opsk_jobcheck.scripts.bash.syntax import Command, Output, Pipeline, Simple
from opsk_jobcheck.scripts.bash.values import Text, join, literal

if TYPE_CHECKING:
    from opsk_jobcheck.scripts.bash.expansion import Expander
if TYPE_CHECKING:
    from opsk_jobcheck.scripts.bash.expansion import Expander

_SUM = re.compile(r"(?:[-+*/()\s]|(?<![0-9])(?:0|[1-9][0-9]{0,8})(?![0-9]))+")
"""Expressions with the same value in bc and the shell."""
_SQUEEZE = re.compile(r"s/(?:  \*| ?\ \\\+|\[\[:space:\]\]\\\+|\\s\\\+)/ /g")
_SQUEEZE_EXTENDED = re.compile(r"s/(?:  \*| ?\ \+|\[\[:space:\]\]\+|\\s\+)/ /g")
"""Arguments of ``sed`` that squeeze several blanks into one."""
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r"}
_WORD, _AWK_WORD = re.compile(r"[^ \t\n\r\f\v]+"), re.compile(r"[^ \t\n]+")
_SEPARATOR = re.compile(r"[,:;/_|=-]")
"""Separators that ``awk`` and ``cut`` take as they are."""
_AWK_FIELD = re.compile(r"\{ ?print +(NF|\$(?:NF|[1-9][0-9]?)) ?;? ?\}")
_FIELD = re.compile(r"[1-9][0-9]?")
_FIRST_OR_LAST = re.compile(r"-n? ?1")
_Filter = Callable[[str], str]


def apply_filter(expander: Expander, command: Command, text: Text) -> Text | None:
    """Return a text after one more command of a pipeline."""
    if not isinstance(command, Simple) or command.assignments or command.redirects:
        return None
    words = [word.known for word in expander.words(command.words)]
    if words == ["bc"]:
        known = text.known
        if known is None or not _SUM.fullmatch(known):
            return None
        return expander.calculate(known, text.line)
    change = _find_filter(words, text) or (_make_line_filter(words) if text.known is not None else None)
    if change is None:
        return None
    if text.known is not None:
        output = change(text.known)
        return literal(output.strip() if words[0] == "xargs" else output, text.line)
    parts = [part if part.why else part._replace(text=change(part.text)) for part in text.parts]
    if words[0] == "xargs":
        parts[0] = parts[0]._replace(text=parts[0].text.lstrip())
        parts[-1] = parts[-1]._replace(text=parts[-1].text.rstrip())
    return Text(tuple(parts))


def _find_filter(words: list[str | None], text: Text) -> _Filter | None:
    """Return the function of a filter on known text, ``None`` where it is not followed."""
    name, *rest = words or [None]
    if name == "tr" and len(rest) == 2 and None not in rest:
        return _make_tr_filter(rest[0] or "", rest[1] or "")
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


def _make_tr_filter(first: str, second: str) -> _Filter | None:
    """Return the function of ``tr`` with one character."""
    if first in ("-s", "-d"):
        sign = _ESCAPES.get(second, " " if second == "[:space:]" and first == "-s" else second)
        if len(sign) != 1:
            return None
        if first == "-d":
            return lambda piece: piece.replace(sign, "")
        return lambda piece: re.sub(f"{re.escape(sign)}+", lambda _: sign, piece)
    before, after = _ESCAPES.get(first, first), _ESCAPES.get(second, second)
    if len(before) != 1 or len(after) != 1:
        return None
    return lambda piece: piece.replace(before, after)


def _make_line_filter(words: list[str | None]) -> _Filter | None:
    """Return the function of a filter that counts or selects fields and lines, ``None`` for any other."""
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
        options, others = _parse_options(rest, "d:f:")
        separator, field = options.get("-d", ""), options.get("-f", "")
        is_plain = _SEPARATOR.fullmatch(separator) or separator == " "
        if not others and is_plain and _FIELD.fullmatch(field):
            return lambda text: _map_lines(text, lambda line: _cut_field(line, separator, int(field)))
    if name == "awk":
        options, others = _parse_options(rest, "F:")
        between, program = options.get("-F", ""), _AWK_FIELD.fullmatch(others[0]) if len(others) == 1 else None
        if program and (_SEPARATOR.fullmatch(between) or not options):
            return lambda text: _map_lines(text, lambda line: _awk_field(line, between, program[1]))
    return None


def _first_line(text: str) -> str:
    line, end, _ = text.partition("\n")
    return line + end


def _last_line(text: str) -> str:
    line = text.removesuffix("\n").rpartition("\n")[2]
    return line + "\n" * text.endswith("\n")


def _parse_options(words: list[str], letters: str) -> tuple[dict[str, str], list[str]]:
    """Return the values of one-letter options, and the words after them."""
    try:
        given, rest = getopt.getopt(words, letters)
    except getopt.GetoptError:
        return {}, words
    return dict(given), rest


def _map_lines(text: str, change: _Filter) -> str:
    """Change each line of a text; each ends with a newline."""
    lines = text.removesuffix("\n").split("\n") if text else []
    return "".join(f"{change(line)}\n" for line in lines)


def _cut_field(line: str, separator: str, field: int) -> str:
    """Return a field as ``cut`` does: the whole line where it has no separator."""
    fields = line.split(separator)
    return line if len(fields) == 1 else (fields[field - 1 : field] or [""])[0]


def _awk_field(line: str, separator: str, expression: str) -> str:
    """Return the output of ``awk`` for a line: the number of fields, or one of them."""
    fields = (line.split(separator) if line else []) if separator else _AWK_WORD.findall(line)
    if expression == "NF":
        return str(len(fields))
    number = len(fields) if expression == "$NF" else int(expression[1:])
    return line if number == 0 else (fields[number - 1 : number] or [""])[0]


MAX_COMMAND_CHARS = 1 << 16
CHARS_PER_COMMAND = 100
"""Each command that prints counts as so many characters more."""
_FIRST = re.compile(r"\s*(?:echo|printf|cat|basename|dirname|seq|expr)\b")
_OPTION = re.compile(r"-[neE]+")
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,8})")
_EXPR = re.compile(r"-?(?:0|[1-9][0-9]{0,8})(?: [-+*/%] -?(?:0|[1-9][0-9]{0,8})){1,16}")
"""Expressions with the same value in ``expr`` and the shell."""
MAX_COUNTED = 256


def compute_output(expander: Expander, segment: Output) -> Text | None:
    """Return the output of the command, without the newlines at its end; ``None`` where that is not known."""
    if len(segment.text) > MAX_COMMAND_CHARS or not _FIRST.match(segment.text):
        return None
    expander.source.spend(len(segment.text) + CHARS_PER_COMMAND)
    source = _make_source(expander.source, segment)
    inner = type(expander)(expander.scope.copy(), source, expander.depth + 1)
    try:
        text = _compute_pipeline_output(inner, Parser(source))
    except ShellLimitError:
        return None
    return _strip_last_newlines(text) if text is not None else None


def _compute_pipeline_output(expander: Expander, parser: Parser) -> Text | None:
    """Return the output of the single pipeline."""
    commands = parser.script()
    if len(commands) != 1 or parser.problems:
        return None
    first, *rest = commands[0].commands if isinstance(commands[0], Pipeline) else commands
    text = _compute_first_output(expander, first)
    for command in rest:
        text = apply_filter(expander, command, text) if text is not None else None
    return text


def _make_source(outer: Source, segment: Output) -> Source:
    """Return the source of the command, whose lines go on in the script as they do in it."""
    starts = [0, *(match.end() for match in re.finditer("\n", segment.text))]
    goes_on = outer.lines[-1] - outer.lines[0] + 1 == len(outer.lines)
    lines = [segment.line + (index if goes_on else 0) for index in range(len(starts))]
    source = Source(segment.text, starts, lines, outer.unknown)
    source.work = outer.work
    return source


def _compute_first_output(expander: Expander, command: Command) -> Text | None:
    """Return the output of the first command."""
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
        return _compute_echo_output(words)
    if name.known == "printf" and len(words) == 2 and words[0].known in ("%s", "%s\\n", "%s\n"):
        return words[1] if words[0].known == "%s" else join((words[1], literal("\n", words[1].line)))
    if name.known in ("basename", "dirname") and len(words) == 1 and words[0].known:
        return literal(_compute_path_part(name.known, words[0].known), words[0].line)
    return _compute_arithmetic_output(expander, name, words)


def _compute_arithmetic_output(expander: Expander, name: Text, words: list[Text]) -> Text | None:
    """Return the output of ``expr`` and ``seq``."""
    known = [word.known or "" for word in words]
    if name.known == "expr" and _EXPR.fullmatch(" ".join(known)):
        return expander.calculate(" ".join(known), name.line)
    counted = _compute_seq_output(known) if name.known == "seq" else None
    return literal(counted, name.line) if counted is not None else None


def _compute_seq_output(words: list[str]) -> str | None:
    """Return the output of ``seq``; the separator is a newline, or the value of ``-s``."""
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


def _compute_echo_output(words: list[Text]) -> Text | None:
    """Return the output of ``echo``: its words with blanks between; escapes are not followed."""
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


def _compute_path_part(name: str, path: str) -> str:
    """Return the output of ``basename`` and ``dirname``."""
    head, slash, last = (path.rstrip("/") or "/").rpartition("/")
    if name == "basename":
        return last or "/"
    return head.rstrip("/") or (slash or ".")


def _strip_last_newlines(text: Text) -> Text:
    """Return a text without the newlines at its end, which ``$(...)`` drops."""
    parts = list(text.parts)
    while parts and not parts[-1].why:
        stripped = parts[-1].text.rstrip("\n")
        if stripped:
            parts[-1] = parts[-1]._replace(text=stripped)
            break
        parts.pop()
    return Text(tuple(parts))
