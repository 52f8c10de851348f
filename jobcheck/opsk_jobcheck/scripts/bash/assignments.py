"""Evaluates assignments, and lists the names that a command may assign."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import NamedTuple

from opsk_jobcheck.scripts.bash.arithmetic import find_assigned_names
from opsk_jobcheck.scripts.bash.expansion import Expander
from opsk_jobcheck.scripts.bash.scope import ALL_EXPORTED, DIRECTORY, EXPORTED, Scope
from opsk_jobcheck.scripts.bash.syntax import (
    Arith,
    ArithTest,
    Assignment,
    Case,
    Chain,
    Command,
    Function,
    Group,
    If,
    Lit,
    Loop,
    Output,
    Param,
    Pipeline,
    Segment,
    Simple,
    Test,
    Word,
)
from opsk_jobcheck.scripts.bash.values import NOTHING, Array, Scalar, Text, Variable, is_countable, join

_DEFAULTED = re.compile(r"\$\{([A-Za-z_]\w*):?=")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ANY_COMMAND = ""
"""Stands for the name of a command that only its expansion gives."""
PREFIXES = frozenset({"command", "builtin"})
"""What starts a builtin as if it stood alone."""
_SET_IN_TEXT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[[^\]\n]{0,80}\])?\+?=")
_MOVERS = frozenset({"cd", "pushd", "popd"})
_READERS = frozenset({"read", "mapfile", "readarray", "getopts", "printf"})
_DECLARERS = frozenset({"declare", "export", "local", "readonly", "typeset"})


def find_names_set_by_word(word: Word) -> set[str]:
    """Return the names that expanding a word may assign: ``$((x++))``, ``${x:=v}``."""
    names: set[str] = set()
    for segment in word.segments:
        if isinstance(segment, Arith):
            names |= find_assigned_names(segment.text)
        elif isinstance(segment, Param):
            if segment.op in ("=", ":="):
                names.add(segment.name)
            names |= set(_DEFAULTED.findall(segment.arg)) | find_assigned_names(segment.index)
    return names


class ExpandedValue(NamedTuple):
    """The right side of an assignment: one text, or the words of an array."""

    text: Text
    words: tuple[Text, ...] | None = None


def expand_value(expander: Expander, assignment: Assignment) -> ExpandedValue:
    """Return the right side of an assignment."""
    if assignment.words is not None:
        return ExpandedValue(NOTHING, tuple(expander.words(assignment.words)))
    return ExpandedValue(expander.text(assignment.value))


def assign(expander: Expander, assignment: Assignment, values: ExpandedValue | None = None) -> None:
    """Carry out one assignment in the expander's scope; ``values`` are its right side where that is expanded."""
    scope, name = expander.scope, assignment.name
    held = scope.find(name)
    if isinstance(held, Array):
        expander.source.spend(len(held.words))  # which are copied
    # first: it may set the variable, as ${X=...} does
    text, words = expand_value(expander, assignment) if values is None else values
    before = scope.find(name)
    if words is not None:
        scope.set(name, _build_array(scope, name, words, append=assignment.append))
    elif assignment.index:
        scope.set(name, _set_member(expander, assignment, before, text))
    elif isinstance(before, Array):
        scope.set(name, _set_first_member(before, text, append=assignment.append))
    elif assignment.append:
        known = scope.text(name, assignment.line)
        scope.set(name, Scalar(join((known, text))))
        expander.source.spend(len(known.parts))  # which are copied
    else:
        scope.set(name, Scalar(text))


def _set_first_member(before: Array, text: Text, *, append: bool) -> Variable:
    """Return an array whose first member is set, or is added to, by its bare name."""
    if not before.words:
        return Array((), before.why) if append and before.why else Scalar(text)
    return Array((join((before.words[0], text)) if append else text, *before.words[1:]), before.why)


def runs_commands(assignment: Assignment) -> bool:
    """Return whether a value is the output of commands: if one fails, the assignment does."""
    words = [*(assignment.words or ()), *([assignment.value] if assignment.value is not None else [])]
    segments = [segment for word in words for segment in word.segments if type(segment) is not Lit]
    return any(map(_runs_commands, segments))


def _runs_commands(segment: Segment) -> bool:
    if isinstance(segment, Output):
        return True
    text = segment.arg if isinstance(segment, Param) else segment.text if isinstance(segment, Arith) else ""
    return "$(" in text or "`" in text


def _set_member(expander: Expander, assignment: Assignment, before: Variable | None, text: Text) -> Array:
    """Return the array after ``name[index]=value``; only members in a row are followed."""
    index = expander.calculate(assignment.index, assignment.line).known
    words = before.words if isinstance(before, Array) else (before.text,) if isinstance(before, Scalar) else ()
    is_known = not (isinstance(before, Array) and before.why) and is_countable(words) and not assignment.append
    if index is None or not is_known or not 0 <= int(index) <= len(words):
        return Array((), f"single members of {assignment.name} are set, which is not followed")
    return Array((*words[: int(index)], text, *words[int(index) + 1 :]))


def _build_array(scope: Scope, name: str, words: tuple[Text, ...], *, append: bool) -> Array:
    """Return the array of ``name=(...)`` or ``name+=(...)``."""
    if any((word.known or "").startswith("[") and "]=" in (word.known or "") for word in words):
        return Array((), f"{name} is set by index, which is not followed")
    if not append:
        return Array(words)
    before = scope.find(name)
    if isinstance(before, Array):
        return Array((*before.words, *words), before.why)
    if isinstance(before, Scalar):
        return Array((before.text, *words)) if before.text.known is not None else Array((), before.text.why)
    if scope.is_certainly_unset(name):
        return Array(words)
    return Array((scope.text(name, 0), *words)) if name in scope.given else Array(words)


def may_leave_several_loops(command: Command) -> bool:
    """Return whether a command is, or holds, a ``break`` or ``continue`` that may leave more than one loop."""
    if isinstance(command, Simple):
        return len(command.words) > 1 and command.words[0].bare in ("break", "continue")
    return any(may_leave_several_loops(inner) for inner in _list_children(command))


def collect_assignments(tree: Iterable[Command]) -> tuple[set[str], set[str]]:
    """Return the names that a tree of commands may assign, and the names of the commands in it."""
    names: set[str] = set()
    called: set[str] = set()
    waiting = list(tree)
    while waiting:
        command = waiting.pop()
        if isinstance(command, Simple):
            for entry in (*command.assignments, *command.arrays):
                names.add(entry.name)
                names |= find_assigned_names(entry.index)
            names |= find_names_set_by(command)
            called |= {word.bare or ANY_COMMAND for word in command.words[:1]}
        elif isinstance(command, Loop):
            names.add(command.variable)
            names |= find_loop_counters(command)
        elif isinstance(command, ArithTest):
            names |= find_assigned_names(command.text)
        for word in _iterate_words(command):
            names |= find_names_set_by_word(word)
        waiting += _list_children(command)
    return names, called


def find_loop_counters(loop: Loop) -> set[str]:
    """Return the names that the head of ``for ((...))`` assigns."""
    return {name for expression in loop.counting.split(";") for name in find_assigned_names(expression)}


def _iterate_words(command: Command) -> Iterator[Word]:
    """Yield the words directly in a command."""
    if isinstance(command, Simple):
        yield from command.words
        for entry in (*command.assignments, *command.arrays):
            yield from entry.words or ()
            if entry.value is not None:
                yield entry.value
    elif isinstance(command, Test):
        yield from command.words
    elif isinstance(command, Case):
        yield command.word
    elif isinstance(command, Loop):
        yield from command.words or ()


def _list_children(command: Command) -> list[Command]:
    """Return the commands directly inside a compound command."""
    if isinstance(command, Chain):
        return [inner for _, inner in command.links]
    if isinstance(command, Pipeline):
        return command.commands
    if isinstance(command, If):
        return [inner for condition, body in command.branches for inner in (*(condition or []), *body)]
    if isinstance(command, Case):
        return [inner for _, body in command.branches for inner in body]
    if isinstance(command, Loop):
        return [*command.condition, *command.body]
    if isinstance(command, Function | Group):
        return command.body
    return []


def find_names_set_by(command: Simple) -> set[str]:
    """Return the names that a builtin command may set, from its words before expansion."""
    words = command.words[1:] if command.words and command.words[0].bare in PREFIXES else command.words
    if not words:
        return set()
    first = words[0].bare or ""
    if first in _MOVERS:
        return {"PWD", DIRECTORY}
    if first == "eval":
        pieces = (piece.text for word in words for piece in word.segments if isinstance(piece, Lit))
        return set(_SET_IN_TEXT.findall(" ".join(pieces)))
    options = "".join(bare for word in words[1:] if (bare := word.bare or "").startswith("-"))
    if first == "set":
        return {ALL_EXPORTED} if "a" in options else set()
    if first not in _READERS and first not in _DECLARERS and first not in ("let", "unset"):
        return set()
    names = {"OPTARG", "OPTIND"} if first == "getopts" else set()
    for word in words[1:]:
        literals = takewhile(lambda piece: isinstance(piece, Lit), word.segments)
        if match := _NAME.match("".join(piece.text for piece in literals if isinstance(piece, Lit))):
            names.add(match.group())
    names |= {entry.name for entry in command.arrays}
    if first in ("export", "unset") or (first in _DECLARERS and "x" in options):
        names |= {EXPORTED + name for name in names}
    return names
