"""Which names may commands assign, and may they leave several loops? Told from the tree alone, without walking it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from opsk_jobcheck.scripts.bash.arithmetic import assigned_names
from opsk_jobcheck.scripts.bash.assignments import names_in
from opsk_jobcheck.scripts.bash.commands import names_set_by
from opsk_jobcheck.scripts.bash.syntax import (
    ArithTest,
    Case,
    Chain,
    Command,
    Function,
    Group,
    If,
    Loop,
    Pipeline,
    Simple,
    Test,
    Word,
)


def leaves_several(command: Command) -> bool:
    """Return whether a command is, or holds, a ``break`` or ``continue`` that may leave more than one loop."""
    if isinstance(command, Simple):
        return len(command.words) > 1 and command.words[0].bare in ("break", "continue")
    return any(leaves_several(inner) for inner in _inside(command))


def names_assigned(tree: Iterable[Command]) -> tuple[set[str], set[str]]:
    """Return the names that a tree of commands may assign, and the names of the commands in it."""
    names: set[str] = set()
    called: set[str] = set()
    waiting = list(tree)
    while waiting:
        command = waiting.pop()
        if isinstance(command, Simple):
            for entry in (*command.assignments, *command.arrays):
                names.add(entry.name)
                names |= assigned_names(entry.index)
            names |= names_set_by(command)
            called |= {word.bare for word in command.words[:1] if word.bare}
        elif isinstance(command, Loop):
            names.add(command.variable)
            names |= names_counted(command)
        elif isinstance(command, ArithTest):
            names |= assigned_names(command.text)
        for word in _words(command):
            names |= names_in(word)
        waiting += _inside(command)
    return names, called


def names_counted(loop: Loop) -> set[str]:
    """Return the names that the head of ``for ((...))`` assigns."""
    return {name for expression in loop.counting.split(";") for name in assigned_names(expression)}


def _words(command: Command) -> Iterator[Word]:
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


def _inside(command: Command) -> list[Command]:
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
