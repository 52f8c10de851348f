"""What do the shell's own commands do to variables? Each handler returns the command's status."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from opsk_jobcheck.readers.shell.assignments import assign
from opsk_jobcheck.readers.shell.conditions import holds
from opsk_jobcheck.readers.shell.directories import directory, lost, moved, stand
from opsk_jobcheck.readers.shell.fields import DEFAULT_IFS, read_fields, split_fields
from opsk_jobcheck.readers.shell.functions import framed
from opsk_jobcheck.readers.shell.keeping import keep_written
from opsk_jobcheck.readers.shell.leaving import end_shell, leave_loop, leave_shell
from opsk_jobcheck.readers.shell.other_shells import named_source
from opsk_jobcheck.readers.shell.scope import ALL_EXPORTED, INTEGER
from opsk_jobcheck.readers.shell.second_scripts import export, keep_to_itself
from opsk_jobcheck.readers.shell.source import expanded_source
from opsk_jobcheck.readers.shell.syntax import Assignment, Lit, Simple
from opsk_jobcheck.readers.shell.values import Array, Scalar, Text, is_countable, known_of, literal, unknown

if TYPE_CHECKING:
    from opsk_jobcheck.readers.shell.evaluate import Evaluator

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_EVAL_DEPTH = 24
_READERS = frozenset({"read", "mapfile", "readarray", "getopts", "printf"})


def _declare(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``declare``, ``export``, ``local``, ``readonly``, ``typeset``."""
    _hide_locals(evaluator, command, words)
    flags = [known for word in words[1:] if (known := word.known or "").startswith(("-", "+"))]
    is_integer = any(flag.startswith("-") and "i" in flag for flag in flags)
    is_associative = any(flag.startswith("-") and "A" in flag for flag in flags)
    if is_integer or any(flag.startswith("+") and "i" in flag for flag in flags):
        for name in _declared(command, words):
            evaluator.scope.make_integer(name, is_integer=is_integer)
    is_other_name = words[0].known != "export" and any(flag.startswith("-") and "n" in flag for flag in flags)
    for assignment in command.arrays:
        if is_other_name:
            _another_name(evaluator, assignment)
        elif is_associative:
            evaluator.scope.set(assignment.name, Array((), f"{assignment.name} is an associative array, not followed"))
        else:
            assign(evaluator.expander(), assignment)
    for word in words[1:]:
        known = word.known or ""
        name, sign, _ = known.partition("=")
        if sign and _NAME.fullmatch(name):
            value = _after(word, len(name) + 1)
            if evaluator.scope.is_integer(name) and value.known is not None:
                value = evaluator.expander().calculated(value.known, command.line)
            evaluator.scope.set(name, Scalar(value))
    _exported(evaluator, command, words)
    return True


def _another_name(evaluator: Evaluator, assignment: Assignment) -> None:
    """``declare -n name=other``: what either is set to, the other is too, which is not followed."""
    other = evaluator.expander().text(assignment.value).known
    for name in (assignment.name, other):
        if name is not None and _NAME.fullmatch(name):
            why = f"{assignment.name} is another name of {other}, which is not followed"
            evaluator.scope.set(name, Scalar(unknown(why, assignment.line)))


def _declared(command: Simple, words: list[Text]) -> list[str]:
    """Return the names that a declaration is about, with and without a value."""
    named = [(word.known or "").partition("=")[0] for word in words[1:]]
    return [name for name in named if _NAME.fullmatch(name)] + [entry.name for entry in command.arrays]


def _exported(evaluator: Evaluator, command: Simple, words: list[Text]) -> None:
    """Note which variables ``export`` and ``declare -x`` hand on, and which they do not any more."""
    flags = [word.known or "" for word in words[1:] if (word.known or "").startswith(("-", "+"))]
    hands_on = words[0].known == "export" or any(flag.startswith("-") and "x" in flag for flag in flags)
    keeps = any((flag.startswith("+") and "x" in flag) or (flag == "-n" and hands_on) for flag in flags)
    if not (hands_on or keeps) or any("f" in flag or "p" in flag for flag in flags):
        return
    for name in _declared(command, words):
        if keeps:
            keep_to_itself(evaluator.scope, name)
        else:
            export(evaluator.scope, name)


def _hide_locals(evaluator: Evaluator, command: Simple, words: list[Text]) -> None:
    """Remember what ``local``, or ``declare`` inside a function, hides until the function ends."""
    flags = "".join(word.known or "" for word in words[1:] if (word.known or "").startswith("-"))
    if not evaluator.frames or words[0].known in ("export", "readonly") or "g" in flags or "p" in flags:
        return
    assigned = {entry.name for entry in command.arrays}
    named = {known.partition("=")[0] for word in words[1:] if (known := word.known) and not known.startswith("-")}
    hidden = evaluator.frames[-1].hidden
    for name in sorted(assigned | {name for name in named if _NAME.fullmatch(name)}):
        if all(name != before for before, _ in hidden):
            before = evaluator.scope.variables.get(name)
            if not evaluator.certain:
                before = Scalar(unknown(f"{name} may be local to a function", command.line))
            hidden.append((name, before))
            hidden.append((INTEGER + name, evaluator.scope.variables.get(INTEGER + name)))
            evaluator.scope.make_integer(name, is_integer=False)
            if name in named and name not in assigned:
                evaluator.scope.remove(name)


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
    """``read``: only a here-string, or the whole of a here-document (``-d ''``), is certain."""
    names, flags = _read_options([word.known or "" for word in words[1:]])
    body = next((entry.body for entry in command.redirects if entry.body is not None), None)
    if body is not None and len(names) == 1 and sorted(flags) == ["d", "r"] and Text() in words:
        text = evaluator.expander().text(body)
        evaluator.scope.set(names[0], Scalar(_trimmed(text) if evaluator.scope.ifs() == DEFAULT_IFS else text))
        return False  # it looks for a NUL character, in vain
    source = next((entry for entry in command.redirects if entry.op == "<<<"), None)
    text = evaluator.expander().text(source.target) if source else unknown("it is read when the job runs", command.line)
    separators = evaluator.scope.ifs()
    for assignment in command.assignments:
        if assignment.name == "IFS":
            separators = evaluator.expander().text(assignment.value).known
    first = (text.known or "").partition("\n")[0]
    is_followed = not set(flags) - set("rs") - set("a") and ("r" in flags or "\\" not in first)
    if text.known is None or separators is None or not is_followed:
        why = text.why or "the way it is read is not followed"
        for name in names:
            evaluator.scope.set(name, Array((), why) if "a" in flags else Scalar(unknown(why, command.line)))
        return None
    line = text.line or command.line
    if "a" in flags:
        fields = split_fields(first, separators)
        evaluator.scope.set(names[0], Array(tuple(literal(field, line) for _, field in fields)))
    else:
        for name, (_, field) in zip(names, read_fields(first, separators, len(names)), strict=False):
            evaluator.scope.set(name, Scalar(literal(field, line)))
    return True


def _trimmed(text: Text) -> Text:
    """Return a text without the blanks and newlines around it, which ``read`` drops."""
    parts = list(text.parts)
    while parts and not parts[0].why and not parts[0].text.strip(DEFAULT_IFS):
        parts.pop(0)
    while parts and not parts[-1].why and not parts[-1].text.strip(DEFAULT_IFS):
        parts.pop()
    if parts and not parts[0].why:
        parts[0] = parts[0]._replace(text=parts[0].text.lstrip(DEFAULT_IFS))
    if parts and not parts[-1].why:
        parts[-1] = parts[-1]._replace(text=parts[-1].text.rstrip(DEFAULT_IFS))
    return Text(tuple(parts))


def _read_options(words: list[str]) -> tuple[list[str], str]:
    """Return the names that ``read`` sets, and the letters of its options."""
    flags = ""
    names: list[str] = []
    waiting = iter(words)
    for word in waiting:
        if not word.startswith("-") or names:
            names += [word] if _NAME.fullmatch(word) else []
            continue
        flags += word[1:]
        if word[-1:] in "dinNptu" and len(word) > 1:
            next(waiting, "")
    return names or ["REPLY"], flags


def _unset(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``unset``."""
    for word in words[1:]:
        name, bracket, _ = (word.known or "").partition("[")
        if bracket:
            evaluator.scope.set(name, Array((), f"a member of {name} is unset, which is not followed"))
        elif name and not name.startswith("-"):
            evaluator.scope.remove(name)
            keep_to_itself(evaluator.scope, name)
            _uncover(evaluator, name, command.line)
    return bool(command)


def _uncover(evaluator: Evaluator, name: str, line: int) -> None:
    """Forget a name that is ``local`` to a function being walked: which variable ``unset`` uncovers is not followed."""
    lost = Scalar(unknown(f"the local {name} is unset", line))
    for frame in evaluator.frames:
        if any(name == hidden for hidden, _ in frame.hidden):
            frame.hidden = [(hidden, lost if hidden == name else before) for hidden, before in frame.hidden]
            evaluator.scope.set(name, lost)


def _set(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``set -- a b c`` sets the positional parameters; of the options only ``-a`` matters: it exports all."""
    options = [word.known or "" for word in words[1:]]
    for before, option in zip(["", *options], options, strict=False):
        is_all = option == "allexport" and before[1:].endswith("o")
        if is_all or ("a" in option and option[:1] in ("-", "+") and option[1:].isalpha()):
            if (before if is_all else option).startswith("-"):
                evaluator.scope.set(ALL_EXPORTED, Scalar(Text()))
            else:
                evaluator.scope.remove(ALL_EXPORTED)
    for index, word in enumerate(words[1:], start=1):
        if word.known == "--":
            evaluator.scope.arguments = tuple(words[index + 1 :])
            break
        if word.known is None or not word.known.startswith(("-", "+")):
            option = words[index - 1].known or ""
            is_value = index > 1 and option[:1] in ("-", "+") and option.endswith("o")
            evaluator.scope.arguments = evaluator.scope.arguments if is_value else tuple(words[index:])
            if not is_value:
                break
    return bool(command)


def _shift(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``shift``."""
    count = words[1].known if len(words) > 1 else "1"
    if evaluator.scope.arguments is not None:
        is_number = count is not None and count.isascii() and count.isdigit() and len(count) < 7
        known = is_number and is_countable(evaluator.scope.arguments[: int(count or 1)])
        evaluator.scope.arguments = evaluator.scope.arguments[int(count or 1) :] if known else None
    return bool(command)


def _source(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``source``: a file that was given is read in place; a certain path is asked for."""
    if len(words) < 2:
        return None
    evaluator.record(words, known_of(words), command.line)
    source = named_source(evaluator, words[1])
    if source is None or evaluator.depth > 8:
        evaluator.scope.maybe_set_by = words[1].shown
        return None
    evaluator.depth += 4
    framed(evaluator, lambda: evaluator.read(source), command.line)
    evaluator.depth -= 4
    return bool(command)


def _cd(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``cd``: whether it succeeds is not told, where it leads is."""
    evaluator.record(words, known_of(words), command.line)
    targets = [word for word in words[1:] if word.known not in ("-P", "-L", "-e", "--")]
    if not targets:
        lost(evaluator.scope, "cd without a directory goes home", command.line)
    elif targets[0].known == "-":
        lost(evaluator.scope, "cd - goes back", command.line)
    else:
        moved(evaluator.scope, targets[0], command.line)
    return None


def _pushd(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``pushd`` and ``popd``: the way there is followed, the way back only to where it began."""
    if words[0].known == "pushd" and len(words) > 1 and not (words[1].known or "").startswith(("+", "-")):
        evaluator.pushed.append(directory(evaluator.scope))
        moved(evaluator.scope, words[1], command.line)
    elif words[0].known == "popd" and len(words) == 1 and evaluator.pushed:
        stand(evaluator.scope, evaluator.pushed.pop())
    else:
        lost(evaluator.scope, f"{words[0].known} is not followed", command.line)
    return None


def _eval(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``eval`` and ``exec``: the words are one more command."""
    if words[0].known == "exec":
        if len(words) > 1:
            evaluator.record(words[1:], known_of(words[1:]), command.line)
            end_shell(evaluator)
        return None
    blank = literal(" ", command.line)
    parts = [part for word in words[1:] for part in (*word.parts, *blank.parts)]
    text = Text(tuple(parts))
    if evaluator.depth <= MAX_EVAL_DEPTH and text.parts:
        evaluator.depth += 4
        evaluator.read(expanded_source(text))
        evaluator.depth -= 4
    return None


def _test(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``[ ... ]`` and ``test ...``; an unquoted empty expansion has already vanished, as in bash."""
    inside = words[1:]
    if words[0].known == "[" and inside and inside[-1].known == "]":
        inside = inside[:-1]
    del evaluator, command
    return holds(inside, extended=False)


def _let(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``let name=expression``; what an expression assigns that is not known as a whole is not known either."""
    value: str | None = None
    expander = evaluator.expander()
    for word in words[1:]:
        if word.known is not None:
            value = expander.calculated(word.known, command.line).known
        else:
            visible = "".join(part.text or "0" for part in word.parts)
            value = expander.uncalculated(visible, word.why, command.line).known
    return None if value is None else value != "0"


def _printf(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``printf -v name`` sets a variable; any other is a command like others."""
    if len(words) > 2 and words[1].known == "-v" and words[2].known:
        name = words[2].known.partition("[")[0]
        evaluator.scope.set(name, Scalar(unknown("it is put together by printf", command.line)))
        return True
    keep_written(evaluator, words, known_of(words), command)
    return True


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


RUN_TEXT = frozenset({"eval", "source", "."})
"""Builtins that see what is assigned before them."""
HANDLERS: dict[str, Callable[[Evaluator, Simple, list[Text]], bool | None]] = {
    **dict.fromkeys(("declare", "export", "local", "readonly", "typeset"), _declare),
    **dict.fromkeys(("exit", "return"), leave_shell),
    **dict.fromkeys(("break", "continue"), leave_loop),
    **dict.fromkeys(("[", "test"), _test),
    **dict.fromkeys(("source", "."), _source),
    **dict.fromkeys(("eval", "exec"), _eval),
    **dict.fromkeys(("pushd", "popd"), _pushd),
    **dict.fromkeys(("true", ":"), _true),
    **dict.fromkeys(("mapfile", "readarray"), _lines_read),
    "cd": _cd,
    "false": _false,
    "getopts": _getopts,
    "let": _let,
    "printf": _printf,
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
