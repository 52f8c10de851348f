"""What do ``declare``, ``export``, ``local``, ``readonly`` and ``typeset`` do to variables?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from opsk_jobcheck.readers.shell.assignments import assign, expanded
from opsk_jobcheck.readers.shell.scope import INTEGER
from opsk_jobcheck.readers.shell.second_scripts import export, keep_to_itself
from opsk_jobcheck.readers.shell.syntax import Assignment, Simple
from opsk_jobcheck.readers.shell.values import Array, Scalar, Text, unknown

if TYPE_CHECKING:
    from opsk_jobcheck.readers.shell.evaluate import Evaluator

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ODD = {"u": "its letters are made large", "l": "its letters are made small", "c": "its first letter is made large"}


def declare(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``declare``, ``export``, ``local``, ``readonly``, ``typeset``."""
    evaluator.steps += len(command.arrays)
    before = [expanded(evaluator.expander(), entry) for entry in command.arrays]  # bash expands all words first
    _hide_locals(evaluator, command, words)
    flags = "".join(known for word in words[1:] if (known := word.known or "").startswith("-"))
    ends = [known for word in words[1:] if (known := word.known or "").startswith("+")]
    if "i" in flags or any("i" in flag for flag in ends):
        for name in _declared(command, words):
            evaluator.scope.make_integer(name, is_integer="i" in flags)
    is_other_name = words[0].known != "export" and "n" in flags
    for assignment, values in zip(command.arrays, before, strict=True):
        if is_other_name:
            _another_name(evaluator, assignment)
        elif "A" in flags:
            evaluator.scope.set(assignment.name, Array((), f"{assignment.name} is an associative array, not followed"))
        else:
            assign(evaluator.expander(), assignment, values)
    for word in words[1:]:
        _set_by_word(evaluator, word, command.line)
    _exported(evaluator, command, words)
    _fixed(evaluator, command, words, flags)
    return True


def _set_by_word(evaluator: Evaluator, word: Text, line: int) -> None:
    """``export $PAIR``: a word that turns out to be ``name=value``; of a name known in part all that fit are lost."""
    shown = word.parts[0].text if word.parts and not word.parts[0].why else ""
    name, sign, _ = shown.partition("=")
    if sign and _NAME.fullmatch(name):
        value = _after(word, len(name) + 1)
        if evaluator.scope.is_integer(name) and value.known is not None:
            value = evaluator.expander().calculated(value.known, line)
        evaluator.scope.set(name, Scalar(value))
    elif word.known is None and not sign and "=" in "".join(part.text for part in word.parts):
        evaluator.scope.lose_like(shown, f"a name that is not known is set in line {line}", line)


def _fixed(evaluator: Evaluator, command: Simple, words: list[Text], flags: str) -> None:
    """Note what cannot be set any more, or not to what it is given: ``readonly``, ``declare -r``, ``-u`` and ``-l``."""
    why = next((reason for letter, reason in _ODD.items() if letter in flags), "") if words[0].known != "export" else ""
    if why:
        for name in _declared(command, words):
            evaluator.scope.fix(name, why, command.line, is_lost=True)
    if words[0].known == "readonly" or ("r" in flags and words[0].known != "export"):
        for name in _declared(command, words):
            evaluator.scope.fix(name, "it is readonly, and set once more", command.line)


def _another_name(evaluator: Evaluator, assignment: Assignment) -> None:
    """``declare -n name=other``: what either is set to, the other is too, which is not followed."""
    other = evaluator.expander().text(assignment.value).known
    for name in (assignment.name, other):
        if name is not None and _NAME.fullmatch(name):
            why = f"{assignment.name} is another name of {other}, which is not followed"
            evaluator.scope.fix(name, why, assignment.line, is_lost=True)


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
            if evaluator.certain:
                evaluator.scope.remove(name)
            else:
                evaluator.scope.set(name, Scalar(unknown(f"{name} may have been local before", command.line)))


def _after(text: Text, count: int) -> Text:
    """Return a text without its first ``count`` characters."""
    parts = []
    for part in text.parts:
        cut = min(count, len(part.text))
        count -= cut
        if part.why or part.text[cut:]:
            parts.append(part if not cut else type(part)(part.text[cut:], part.line))
    return Text(tuple(parts))
