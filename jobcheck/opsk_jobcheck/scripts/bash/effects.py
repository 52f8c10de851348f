"""Collects the names that commands may assign, and finds multi-level ``break``, from the syntax tree alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import takewhile

from opsk_jobcheck.scripts.bash.arithmetic import find_assigned_names
from opsk_jobcheck.scripts.bash.assignments import find_names_set_by_word
from opsk_jobcheck.scripts.bash.directories import DIRECTORY
from opsk_jobcheck.scripts.bash.syntax import (
    ArithTest,
    Case,
    Chain,
    Command,
    Function,
    Group,
    If,
    Lit,
    Loop,
    Pipeline,
    Simple,
    Test,
    Word,
)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PREFIXES = frozenset({"command", "builtin"})
"""What starts a builtin as if it stood alone."""
_SET_IN_TEXT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[[^\]\n]{0,80}\])?\+?=")
_MOVERS = frozenset({"cd", "pushd", "popd"})
_READERS = frozenset({"read", "mapfile", "readarray", "getopts", "printf"})
_DECLARERS = frozenset({"declare", "export", "local", "readonly", "typeset"})


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
            called |= {word.bare for word in command.words[:1] if word.bare}
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
    if first not in _READERS and first not in _DECLARERS and first not in ("let", "unset"):
        return set()
    names = {"OPTARG", "OPTIND"} if first == "getopts" else set()
    for word in words[1:]:
        literals = takewhile(lambda piece: isinstance(piece, Lit), word.segments)
        if match := _NAME.match("".join(piece.text for piece in literals if isinstance(piece, Lit))):
            names.add(match.group())
    return names
