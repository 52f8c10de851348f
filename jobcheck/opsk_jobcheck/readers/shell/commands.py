"""What do the shell's own commands do to variables? Each handler returns the command's status."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from opsk_jobcheck.readers.shell.conditions import holds
from opsk_jobcheck.readers.shell.source import script_source
from opsk_jobcheck.readers.shell.syntax import Lit, Simple
from opsk_jobcheck.readers.shell.values import Array, Scalar, Text, literal, unknown

if TYPE_CHECKING:
    from opsk_jobcheck.readers.shell.evaluate import Evaluator

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_READERS = frozenset({"read", "mapfile", "readarray", "getopts", "printf"})


def _declare(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``declare``, ``export``, ``local``, ``readonly``, ``typeset``."""
    is_associative = any((word.known or "").startswith("-") and "A" in (word.known or "") for word in words[1:])
    for assignment in command.arrays:
        if is_associative:
            evaluator.scope.set(assignment.name, Array((), f"{assignment.name} is an associative array, not followed"))
        else:
            evaluator.assign(assignment)
    for word in words[1:]:
        known = word.known or ""
        name, sign, _ = known.partition("=")
        if sign and _NAME.fullmatch(name):
            text = _after(word, len(name) + 1)
            evaluator.scope.set(name, Scalar(text))
    return True


def _after(text: Text, count: int) -> Text:
    """Return a text without its first ``count`` characters."""
    parts = []
    for part in text.parts:
        cut = min(count, len(part.text))
        count -= cut
        if part.why or part.text[cut:]:
            parts.append(part if not cut else type(part)(part.text[cut:], part.line))
    return Text(tuple(parts))


def _read(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``read``: only a here-string is certain."""
    source = next((entry for entry in command.redirects if entry.op == "<<<"), None)
    names = [known for word in words[1:] if _NAME.fullmatch(known := word.known or "")]
    separators = " \t\n"
    for assignment in command.assignments:
        if assignment.name == "IFS":
            separators = evaluator.expander().text(assignment.value).known or separators
    text = evaluator.expander().text(source.target) if source else unknown("it is read when the job runs", command.line)
    is_array = any("a" in (word.known or "") for word in words[1:] if (word.known or "").startswith("-"))
    if text.known is None:
        for name in names:
            evaluator.scope.set(name, Array((), text.why) if is_array else Scalar(unknown(text.why, command.line)))
        return None
    fields = [
        field for field in re.split(f"[{re.escape(separators)}]", text.known.strip()) if field or separators.strip()
    ]
    line = text.line or command.line
    if is_array and names:
        evaluator.scope.set(names[0], Array(tuple(literal(field, line) for field in fields)))
        return True
    for index, name in enumerate(names):
        is_last = index == len(names) - 1
        rest = separators[0].join(fields[index:]) if is_last else "".join(fields[index : index + 1])
        evaluator.scope.set(name, Scalar(literal(rest, line)))
    return True


def _unset(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``unset``."""
    for word in words[1:]:
        if word.known and not word.known.startswith("-"):
            evaluator.scope.remove(word.known)
    return bool(command)


def _set(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``set -- a b c`` sets the positional parameters; options change nothing here."""
    for index, word in enumerate(words[1:], start=1):
        if word.known == "--":
            evaluator.scope.arguments = tuple(words[index + 1 :])
    return bool(command)


def _shift(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``shift``."""
    count = words[1].known if len(words) > 1 else "1"
    if evaluator.scope.arguments is not None:
        known = count is not None and count.isdigit()
        evaluator.scope.arguments = evaluator.scope.arguments[int(count or 1) :] if known else None
    return bool(command)


def _source(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``source``: a file that was given is read in place; a certain path is asked for."""
    if len(words) < 2:
        return None
    evaluator.record(words, command.line)
    path = words[1].known
    if path is None:
        return None
    text = evaluator.files.get(path)
    if text is None:
        evaluator.sourced.append(path)
        return None
    if evaluator.depth <= 8:
        evaluator.depth += 4
        evaluator.read(script_source(text))
        evaluator.depth -= 4
    return bool(command)


def _eval(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``eval`` and ``exec``: the words are one more command."""
    if words[0].known == "exec":
        evaluator.record(words[1:], command.line)
        return None
    blank = literal(" ", command.line)
    parts = [part for word in words[1:] for part in (*word.parts, *blank.parts)]
    evaluator.inner(Text(tuple(parts)))
    return None


def _exit(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``exit`` and ``return`` end the branch at hand."""
    evaluator.ended = True
    return bool(command and words)


def _test(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``[ ... ]`` and ``test ...``; an unquoted empty expansion has already vanished, as in bash."""
    inside = words[1:]
    if words[0].known == "[" and inside and inside[-1].known == "]":
        inside = inside[:-1]
    del evaluator, command
    return holds(inside, extended=False)


def _let(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``let name=expression``."""
    for word in words[1:]:
        name, _, expression = (word.known or "").partition("=")
        if _NAME.fullmatch(name):
            evaluator.scope.set(name, Scalar(evaluator.expander().calculated(expression, command.line)))
    return None


def _lines_read(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``mapfile`` and ``readarray``."""
    for word in words[1:]:
        if _NAME.fullmatch(word.known or ""):
            evaluator.scope.set(word.known or "", Array((), "it is read when the job runs"))
    del command
    return None


def _getopts(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``getopts`` sets a name and OPTARG, never certain."""
    for name in ("OPTARG", "OPTIND", *((words[2].known or "",) if len(words) > 2 else ())):
        if name:
            evaluator.scope.set(name, Scalar(unknown("it is an option of the script", command.line)))
    return None


def _true(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``true`` and ``:``."""
    del evaluator, command, words
    return True


def _false(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``false``."""
    del evaluator, command, words
    return False


HANDLERS: dict[str, Callable[[Evaluator, Simple, list[Text]], bool | None]] = {
    **dict.fromkeys(("declare", "export", "local", "readonly", "typeset"), _declare),
    **dict.fromkeys(("exit", "return"), _exit),
    **dict.fromkeys(("[", "test"), _test),
    **dict.fromkeys(("source", "."), _source),
    **dict.fromkeys(("eval", "exec"), _eval),
    **dict.fromkeys(("true", ":"), _true),
    **dict.fromkeys(("mapfile", "readarray"), _lines_read),
    "false": _false,
    "getopts": _getopts,
    "let": _let,
    "read": _read,
    "set": _set,
    "shift": _shift,
    "unset": _unset,
}


def names_set_by(command: Simple) -> set[str]:
    """Return the names that a builtin command may set, from its words before expansion."""
    if not command.words:
        return set()
    first = command.words[0].bare or ""
    if first not in _READERS and first not in ("declare", "export", "local", "readonly", "typeset", "let", "unset"):
        return set()
    names = {"OPTARG", "OPTIND"} if first == "getopts" else set()
    for word in command.words[1:]:
        text = "".join(piece.text for piece in word.segments[:1] if isinstance(piece, Lit))
        if match := _NAME.match(text):
            names.add(match.group())
    return names
