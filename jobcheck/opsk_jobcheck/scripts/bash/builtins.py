"""Implements the shell's builtin commands; each handler returns the command's status."""

from __future__ import annotations

import re
from collections.abc import Callable

from opsk_jobcheck.scripts.bash.assignments import assign, expand_value
from opsk_jobcheck.scripts.bash.conditions import evaluate_test
from opsk_jobcheck.scripts.bash.control_flow import run_sourced, undefine
from opsk_jobcheck.scripts.bash.lexer import MARK_OPEN, build_expanded_source
from opsk_jobcheck.scripts.bash.other_shells import find_source, record_invocation
from opsk_jobcheck.scripts.bash.scope import (
    ALL_EXPORTED,
    LOST,
    PUSHED,
    change_directory,
    forget_directory,
    get_directory,
    set_directory,
)
from opsk_jobcheck.scripts.bash.splitting import DEFAULT_IFS, read_fields, split_fields
from opsk_jobcheck.scripts.bash.state import ShellState
from opsk_jobcheck.scripts.bash.syntax import Assignment, Simple
from opsk_jobcheck.scripts.bash.values import Array, Scalar, Text, get_known_words, is_countable, literal, unknown
from opsk_jobcheck.scripts.bash.written_files import record_written_files

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ATTRIBUTES = {
    "i": "its values are calculated",
    "u": "its letters become upper case",
    "l": "its letters become lower case",
    "c": "its first letter becomes upper case",
}
MAX_EVAL_DEPTH = 24
RUN_TEXT = frozenset({"eval", "source", "."})
"""Builtins that see the assignments before them."""


def leave_shell(state: ShellState, command: Simple, words: list[Text]) -> bool | None:
    """``exit`` and ``return`` end the current branch."""
    if words[0].known == "return":
        frame = state.flow.frames[-1] if state.flow.frames else None
        if frame is None:  # all that a function changes is unknown, where it returns or not
            return None
        frame.scopes.append(state.scope.copy())
        frame.returned = state.flow.certain
        state.flow.ended = True
    else:
        end_shell(state)
    return bool(command and words)


def end_shell(state: ShellState) -> None:
    """End the current shell: certainly, where no test and no possible ``return`` precedes."""
    state.flow.ended = True
    is_left = any(frame.scopes for frame in state.flow.frames if frame is not None)
    state.flow.is_over = state.flow.is_over or (state.flow.certain and not state.flow.guards and not is_left)


def leave_loop(state: ShellState, command: Simple, words: list[Text]) -> bool | None:
    """``break`` and ``continue`` end the current branch, in a loop that is walked one iteration at a time."""
    turn = state.flow.open_turns[-1] if state.flow.open_turns else None
    if turn is not None:
        (turn.broken if words[0].known == "break" else turn.continued).append(state.scope.copy())
        state.flow.ended = True
    return bool(command)


def declare(state: ShellState, command: Simple, words: list[Text]) -> bool | None:
    """``declare``, ``export``, ``local``, ``readonly``, ``typeset``."""
    state.budget.steps += len(command.arrays)
    before = [expand_value(state.expander(), entry) for entry in command.arrays]  # bash expands all words first
    if None in state.flow.frames and words[0].known not in ("export", "readonly"):
        why = "it may be local to a function"
        state.scope.lose(_list_declared_names(command, words), why, command.line)
    flags = "".join(known for word in words[1:] if (known := word.known or "").startswith("-"))
    is_other_name = words[0].known != "export" and "n" in flags
    for assignment, values in zip(command.arrays, before, strict=True):
        if is_other_name:
            _mark_nameref(state, assignment)
        elif "A" in flags:
            state.scope.set(assignment.name, Array((), f"{assignment.name} is an associative array, not followed"))
        else:
            assign(state.expander(), assignment, values)
    for word in words[1:]:
        _set_by_word(state, word, command.line)
    _update_exports(state, command, words)
    _mark_fixed(state, command, words, flags)
    return True


def _set_by_word(state: ShellState, word: Text, line: int) -> None:
    """``export $PAIR``: a word that expands to ``name=value``; a partly known name makes all matching names unknown."""
    shown = word.parts[0].text if word.parts and not word.parts[0].why else ""
    name, sign, _ = shown.partition("=")
    if sign and _NAME.fullmatch(name):
        value = _drop_prefix(word, len(name) + 1)
        state.scope.set(name, Scalar(value))
    elif word.known is None and not sign and "=" in "".join(part.text for part in word.parts):
        state.scope.lose_like(shown, f"a name that is not known is set in line {line}", line)


def _mark_fixed(state: ShellState, command: Simple, words: list[Text], flags: str) -> None:
    """Record names that are read-only or whose values change: ``readonly``, ``declare -r``, ``-u``, ``-l``."""
    why = (
        next((reason for letter, reason in _ATTRIBUTES.items() if letter in flags), "")
        if words[0].known != "export"
        else ""
    )
    if why:
        for name in _list_declared_names(command, words):
            state.scope.fix(name, why, command.line, is_lost=True)
    if words[0].known == "readonly" or ("r" in flags and words[0].known != "export"):
        for name in _list_declared_names(command, words):
            state.scope.fix(name, "it is readonly, and set once more", command.line)


def _mark_nameref(state: ShellState, assignment: Assignment) -> None:
    """``declare -n name=other``: a value set under either name holds for both, which is not followed."""
    other = state.expander().text(assignment.value).known
    for name in (assignment.name, other):
        if name is not None and _NAME.fullmatch(name):
            why = f"{assignment.name} is another name of {other}, which is not followed"
            state.scope.fix(name, why, assignment.line, is_lost=True)


def _list_declared_names(command: Simple, words: list[Text]) -> list[str]:
    """Return the names that a declaration is about, with and without a value."""
    named = [(word.known or "").partition("=")[0] for word in words[1:]]
    return [name for name in named if _NAME.fullmatch(name)] + [entry.name for entry in command.arrays]


def _update_exports(state: ShellState, command: Simple, words: list[Text]) -> None:
    """Record the variables that ``export`` and ``declare -x`` export or stop exporting."""
    flags = [word.known or "" for word in words[1:] if (word.known or "").startswith(("-", "+"))]
    exports = words[0].known == "export" or any(flag.startswith("-") and "x" in flag for flag in flags)
    unexports = any((flag.startswith("+") and "x" in flag) or (flag == "-n" and exports) for flag in flags)
    if not (exports or unexports) or any("f" in flag or "p" in flag for flag in flags):
        return
    for name in _list_declared_names(command, words):
        if unexports:
            state.scope.unexport(name)
        else:
            state.scope.export(name)


def _drop_prefix(text: Text, count: int) -> Text:
    """Return a text without its first ``count`` characters."""
    parts = []
    for part in text.parts:
        cut = min(count, len(part.text))
        count -= cut
        if part.why or part.text[cut:]:
            parts.append(part if not cut else type(part)(part.text[cut:], part.line))
    return Text(tuple(parts))


def _read(state: ShellState, command: Simple, words: list[Text]) -> bool | None:
    """``read``: only a here-string, or the whole of a here-document (``-d ''``), is certain."""
    names, flags = _read_options([word.known or "" for word in words[1:]])
    separators = state.scope.ifs()
    for assignment in command.assignments:
        if assignment.name == "IFS":
            separators = state.expander().text(assignment.value).known
    for word in words[1:]:
        if word.known is None:
            state.scope.lose_like("", f"a name that is not known is read in line {command.line}", command.line)
    body = next((entry.body for entry in command.redirects if entry.body is not None), None)
    if body is not None and len(names) == 1 and sorted(flags) == ["d", "r"] and Text() in words:
        text = state.expander().text(body)
        state.scope.set(names[0], Scalar(_strip_blanks(text) if separators == DEFAULT_IFS else text))
        return False  # it looks for a NUL character, in vain
    source = next((entry for entry in command.redirects if entry.op == "<<<"), None)
    text = state.expander().text(source.target) if source else unknown("it is read when the job runs", command.line)
    first = (text.known or "").partition("\n")[0]
    is_followed = not set(flags) - set("rs") - set("a") and ("r" in flags or "\\" not in first)
    if text.known is None or separators is None or not is_followed:
        why = text.why or "the way it is read is not followed"
        for name in names:
            state.scope.set(name, Array((), why) if "a" in flags else Scalar(unknown(why, command.line)))
        return None
    line = text.line or command.line
    if "a" in flags:
        fields = split_fields(first, separators)
        state.scope.set(names[0], Array(tuple(literal(field, line) for _, field in fields)))
    else:
        for name, (_, field) in zip(names, read_fields(first, separators, len(names)), strict=False):
            state.scope.set(name, Scalar(literal(field, line)))
    return True


def _strip_blanks(text: Text) -> Text:
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


def _unset(state: ShellState, command: Simple, words: list[Text]) -> bool | None:
    """``unset``."""
    for word in words[1:]:
        name, bracket, _ = (word.known or "").partition("[")
        if word.known is None:
            shown = word.parts[0].text if word.parts and not word.parts[0].why else ""
            why = f"a name that is not known is unset in line {command.line}"
            state.scope.lose_like(shown, why, command.line, is_slurms=True)
        elif bracket:
            state.scope.set(name, Array((), f"a member of {name} is unset, which is not followed"))
        elif name and not name.startswith("-"):
            if words[1].known == "-f" or state.scope.find(name) is None:
                undefine(state, name)
            if words[1].known != "-f":
                state.scope.remove(name)
                state.scope.unexport(name)
                if None in state.flow.frames:  # which variable that uncovers is not followed
                    state.scope.lose({name}, f"{name} is unset in a function", command.line)
    return bool(command)


def _set(state: ShellState, command: Simple, words: list[Text]) -> bool | None:
    """``set -- a b c`` sets the positional parameters; of the options only ``-a`` matters: it exports all."""
    options = [word.known or "" for word in words[1:]]
    options = options[: options.index("--")] if "--" in options else options
    for before, option in zip(["", *options], options, strict=False):
        is_all = option == "allexport" and before[1:].endswith("o")
        if is_all or ("a" in option and option[:1] in ("-", "+") and option[1:].isalpha()):
            if (before if is_all else option).startswith("-"):
                state.scope.set(ALL_EXPORTED, Scalar(Text()))
            else:
                state.scope.remove(ALL_EXPORTED)
    for index, word in enumerate(words[1:], start=1):
        if word.known == "--":
            state.scope.arguments = tuple(words[index + 1 :])
            break
        if word.known is None or not word.known.startswith(("-", "+")):
            option = words[index - 1].known or ""
            is_value = index > 1 and option[:1] in ("-", "+") and option.endswith("o")
            state.scope.arguments = state.scope.arguments if is_value else tuple(words[index:])
            if not is_value:
                break
    return bool(command)


def _shift(state: ShellState, command: Simple, words: list[Text]) -> bool | None:
    """``shift``; by more than there are it moves nothing, and fails."""
    count = words[1].known if len(words) > 1 else "1"
    held = state.scope.arguments
    if held is not None:
        is_number = count is not None and count.isascii() and count.isdigit() and len(count) < 7
        if not is_number or not is_countable(held[: int(count or 1)]):
            state.scope.arguments = LOST
            return None
        if int(count or 1) > len(held):
            return False
        state.scope.arguments = held[int(count or 1) :]
    return bool(command)


def _source(state: ShellState, command: Simple, words: list[Text]) -> bool | None:
    """``source``: reads a given file in place; requests a file whose path is certain."""
    if len(words) < 2:
        return None
    record_invocation(state, words, get_known_words(words), command.line)
    source = find_source(state, words[1])
    if source is None or state.budget.depth > 8:
        state.scope.maybe_set_by = words[1].shown
        return None
    if source.text[:1] == MARK_OPEN:  # the script has written it, with unknown content
        state.scope.lose_like("", f"it may be set by {words[1].shown[:80]}", command.line)
        state.scope.maybe_set_by = words[1].shown
        return None
    state.budget.depth += 4
    arguments = state.scope.arguments
    if len(words) > 2:
        state.scope.arguments = tuple(words[2:])
    run_sourced(state, lambda: state.read(source), command.line)
    if len(words) > 2:
        state.scope.arguments = arguments
    state.budget.depth -= 4
    return None  # the status of its last command is not followed


def _cd(state: ShellState, command: Simple, words: list[Text]) -> bool | None:
    """``cd``: its success is unknown, its target is followed."""
    record_invocation(state, words, get_known_words(words), command.line)
    targets = [word for word in words[1:] if word.known not in ("-P", "-L", "-e", "--")]
    if not targets:
        forget_directory(state.scope, "cd without a directory goes home", command.line)
    elif targets[0].known == "-":
        forget_directory(state.scope, "cd - goes back", command.line)
    else:
        change_directory(state.scope, targets[0], command.line)
    return None


def _pushd(state: ShellState, command: Simple, words: list[Text]) -> bool | None:
    """``pushd`` and ``popd``: the change is followed, and the return only to where it began."""
    scope, stack = state.scope, state.scope.find(PUSHED)
    pushed = stack.words if isinstance(stack, Array) and not stack.why and is_countable(stack.words) else ()
    if words[0].known == "pushd" and len(words) > 1 and not (words[1].known or "").startswith(("+", "-")):
        scope.set(PUSHED, Array((*pushed, get_directory(scope))))
        change_directory(scope, words[1], command.line)
    elif words[0].known == "popd" and len(words) == 1 and pushed:
        scope.set(PUSHED, Array(pushed[:-1]))
        set_directory(scope, pushed[-1])
    else:
        forget_directory(scope, f"{words[0].known} is not followed", command.line)
    return None


def _eval(state: ShellState, command: Simple, words: list[Text]) -> bool | None:
    """``eval`` and ``exec``: the words are one more command."""
    if words[0].known == "exec":
        if len(words) > 1:
            record_invocation(state, words[1:], get_known_words(words[1:]), command.line)
            end_shell(state)
        return None
    blank = literal(" ", command.line)
    parts = [part for word in words[1:] for part in (*word.parts, *blank.parts)]
    text = Text(tuple(parts))
    if state.budget.depth <= MAX_EVAL_DEPTH and text.parts:
        state.budget.depth += 4
        state.read(build_expanded_source(text))
        state.budget.depth -= 4
    return None


def _test(state: ShellState, command: Simple, words: list[Text]) -> bool | None:
    """``[ ... ]`` and ``test ...``; an unquoted empty expansion has already vanished, as in bash."""
    inside = words[1:]
    if words[0].known == "[" and inside and inside[-1].known == "]":
        inside = inside[:-1]
    del state, command
    return evaluate_test(inside, extended=False)


def _let(state: ShellState, command: Simple, words: list[Text]) -> bool | None:
    """``let name=expression``; the names that a partly unknown expression assigns become unknown."""
    value: str | None = None
    expander = state.expander()
    for word in words[1:]:
        if word.known is not None:
            value = expander.calculate(word.known, command.line).known
        else:
            visible = "".join(part.text or "0" for part in word.parts)
            value = expander.mark_uncalculated(visible, word.why, command.line).known
    return None if value is None else value != "0"


def _printf(state: ShellState, command: Simple, words: list[Text]) -> bool | None:
    """``printf -v name`` sets a variable; any other call is an ordinary command."""
    if len(words) > 2 and words[1].known == "-v" and words[2].known is None:
        state.scope.lose_like("", f"a name that is not known is set in line {command.line}", command.line)
        return True
    if len(words) > 2 and words[1].known == "-v" and words[2].known:
        name = words[2].known.partition("[")[0]
        state.scope.set(name, Scalar(unknown("its value is built by printf", command.line)))
        return True
    record_written_files(state, words, get_known_words(words), command)
    return True


def _mapfile(state: ShellState, command: Simple, words: list[Text]) -> bool | None:
    """``mapfile`` and ``readarray``."""
    for name in [word.known for word in words[1:] if _NAME.fullmatch(word.known or "")] or ["MAPFILE"]:
        state.scope.set(name or "", Array((), "it is read when the job runs"))
    del command
    return None


def _getopts(state: ShellState, command: Simple, words: list[Text]) -> bool | None:
    """``getopts`` sets a name and OPTARG, to values that are not followed."""
    for name in ("OPTARG", "OPTIND", *((words[2].known or "",) if len(words) > 2 else ())):
        if name:
            state.scope.set(name, Scalar(unknown("it is an option of the script", command.line)))
    return None


def _true(state: ShellState, command: Simple, words: list[Text]) -> bool | None:
    """``true`` and ``:``."""
    del state, command, words
    return True


def _false(state: ShellState, command: Simple, words: list[Text]) -> bool | None:
    """``false``."""
    del state, command, words
    return False


HANDLERS: dict[str, Callable[[ShellState, Simple, list[Text]], bool | None]] = {
    **dict.fromkeys(("declare", "export", "local", "readonly", "typeset"), declare),
    **dict.fromkeys(("exit", "return"), leave_shell),
    **dict.fromkeys(("break", "continue"), leave_loop),
    **dict.fromkeys(("[", "test"), _test),
    **dict.fromkeys(("source", "."), _source),
    **dict.fromkeys(("eval", "exec"), _eval),
    **dict.fromkeys(("pushd", "popd"), _pushd),
    **dict.fromkeys(("true", ":"), _true),
    **dict.fromkeys(("mapfile", "readarray"), _mapfile),
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
