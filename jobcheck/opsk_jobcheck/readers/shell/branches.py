"""What holds after an ``if``, a ``case``, a loop or a call, when not every test or name in it can be decided?

A branch that is certainly taken is walked alone; branches that may be taken are each walked apart, and what they
disagree on is unknown afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from opsk_jobcheck.readers.shell.conditions import holds
from opsk_jobcheck.readers.shell.effects import leaves_several, names_counted
from opsk_jobcheck.readers.shell.scope import LOST, Scope, differing, merged
from opsk_jobcheck.readers.shell.syntax import Case, Command, Function, If, Lit, Loop, Simple, Word
from opsk_jobcheck.readers.shell.values import Array, Scalar, Text, literal, may_be_files, unknown

if TYPE_CHECKING:
    from opsk_jobcheck.readers.shell.evaluate import Evaluator

MAX_TURNS, MAX_ALL_TURNS = 64, 512
"""Turns that are walked of one loop over known words, and of all loops of a script."""
_MOVES_ARGUMENTS = frozenset({"set", "shift"})


@dataclass(slots=True)
class Turn:
    """One turn of a loop: the scopes at each ``continue`` and at each ``break`` so far."""

    continued: list[Scope] = field(default_factory=list)
    broken: list[Scope] = field(default_factory=list)

    @property
    def is_left(self) -> bool:
        """Whether a way through the turn leaves it before its end."""
        return bool(self.continued or self.broken)


def walk_if(evaluator: Evaluator, command: If) -> bool | None:
    """Walk the branches of an ``if`` that may be taken."""
    possible: list[list[Command]] = []
    for condition, body in command.branches:
        status = _tested(evaluator, condition, command.line, is_certain=not possible)
        if status is False:
            continue
        if status and not possible:
            return evaluator.walk(body)
        possible.append(body)
        if status:
            return walk_either(evaluator, possible, command.line, may_skip=False)
    if not possible:
        return True
    return walk_either(evaluator, possible, command.line, may_skip=True)


def _tested(evaluator: Evaluator, condition: list[Command] | None, line: int, *, is_certain: bool) -> bool | None:
    """Walk the condition of a branch; behind one that may be taken nobody knows whether it is walked at all."""
    if condition is None or is_certain:
        return True if condition is None else evaluator.walk(condition)
    before, was_certain = evaluator.scope.copy(), evaluator.certain
    evaluator.certain = False
    status = evaluator.walk(condition)
    evaluator.certain = was_certain
    evaluator.scope.adopt(merged([before, evaluator.scope], line))
    return status


def walk_case(evaluator: Evaluator, command: Case) -> bool | None:
    """Walk the branches of a ``case`` that may be taken."""
    word = evaluator.expander().text(command.word)
    if any(end != ";;" for end in command.ends):
        return _falling_case(evaluator, command, word)
    possible: list[list[Command]] = []
    for patterns, body in command.branches:
        verdicts = [_pattern_matches(evaluator, word, pattern) for pattern in patterns]
        if all(verdict is False for verdict in verdicts):
            continue
        if True in verdicts and not possible:
            return evaluator.walk(body)
        possible.append(body)
        if True in verdicts:
            return walk_either(evaluator, possible, command.line, may_skip=False)
    return walk_either(evaluator, possible, command.line, may_skip=True) if possible else True


def _falling_case(evaluator: Evaluator, command: Case, word: Text) -> bool | None:
    """Walk a ``case`` some of whose branches go on to the next (``;&``) or test on (``;;&``)."""
    falls = False
    for index, (patterns, body) in enumerate(command.branches):
        verdicts = [True] if falls else [_pattern_matches(evaluator, word, pattern) for pattern in patterns]
        falls = False
        if True not in verdicts and None in verdicts:
            rest = [inner for _, later in command.branches[index:] for inner in later]
            return _some_turns(evaluator, Loop("", [], rest, command.line))
        if True in verdicts:
            evaluator.walk(body)
            if command.ends[index] == ";;":
                return None
            falls = command.ends[index] == ";&"
    return None


def _pattern_matches(evaluator: Evaluator, word: Text, pattern: Word) -> bool | None:
    text = evaluator.expander().pattern(pattern)
    if text.known == "*":
        return True
    return holds([word, literal("==", 0), text], extended=True)


def walk_loop(evaluator: Evaluator, loop: Loop) -> bool | None:
    """Walk a loop: over known words one by one, else once with everything that it changes unknown."""
    words = evaluator.expander().words(loop.words) if loop.words is not None else None
    if words is not None and len(words) <= MAX_TURNS and all(word.known is not None for word in words):
        if not may_be_files(words):
            return _each(evaluator, loop, words)
        return _some_turns(evaluator, loop, pattern=words[0] if len(words) == 1 else None)
    return _some_turns(evaluator, loop)


def _each(evaluator: Evaluator, loop: Loop, words: list[Text]) -> bool | None:
    """Walk a ``for`` whose words are all known, turn by turn."""
    if any(leaves_several(command) for command in loop.body):
        return _some_turns(evaluator, loop)
    was_certain, was_ended = evaluator.certain, evaluator.ended
    broken: list[Scope] = []
    goes_on, exits = True, False
    for word in words:
        evaluator.turns += 1
        if evaluator.turns > MAX_ALL_TURNS:
            _some_turns(evaluator, loop)
            break
        evaluator.scope.set(loop.variable, Scalar(word))
        turn = Turn()
        goes_on = _turn(evaluator, loop, turn)
        broken += turn.broken
        exits = exits or (evaluator.ended and goes_on and not turn.is_left)
        if not goes_on:
            break
        evaluator.certain = evaluator.certain and not turn.broken
    ends = [*broken, evaluator.scope] if goes_on else broken
    evaluator.certain, evaluator.ended = was_certain, was_ended or exits or not ends
    if broken:
        evaluator.scope.adopt(merged(ends, loop.line) if len(ends) > 1 else ends[0].copy())
    return None


def _turn(evaluator: Evaluator, loop: Loop, turn: Turn) -> bool:
    """Walk one turn of a loop, and return whether another one may follow."""
    evaluator.ended, was_certain = False, evaluator.certain
    evaluator.open_turns.append(turn)
    evaluator.walk(loop.body)
    evaluator.open_turns.pop()
    evaluator.certain = was_certain
    if evaluator.frames and evaluator.frames[-1].returned:
        return False
    is_through = not evaluator.ended or (evaluator.certain and not turn.is_left)
    possible = [*turn.continued, evaluator.scope] if is_through else turn.continued
    if turn.continued:
        evaluator.scope.adopt(merged(possible, loop.line) if len(possible) > 1 else possible[0].copy())
    return bool(possible)


def _some_turns(evaluator: Evaluator, loop: Loop, pattern: Text | None = None) -> bool | None:
    """Walk a loop's body once, with everything that it changes unknown before and after.

    ``pattern`` is what its variable stands for, where that is the files that match it.
    """
    why = f"it changes in the loop of line {loop.line}"
    turn = [*loop.condition, *loop.body]
    changed = {name for name in evaluator.changed_by(turn) | {loop.variable} | names_counted(loop) if name}
    if evaluator.calls(turn, _MOVES_ARGUMENTS):
        evaluator.scope.arguments = LOST
    before = evaluator.scope.copy()
    evaluator.scope.lose(changed, why, loop.line)
    if pattern is not None:
        evaluator.scope.set(loop.variable, Scalar(pattern))
    was_certain, evaluator.certain = evaluator.certain, False
    was_ended, evaluator.ended = evaluator.ended, False
    evaluator.open_turns.append(None)
    evaluator.walk(turn)
    evaluator.open_turns.pop()
    evaluator.certain, evaluator.ended = was_certain, was_ended
    if evaluator.scope.arguments != before.arguments:
        evaluator.scope.arguments = LOST
    changed |= differing(before, evaluator.scope)
    for name in changed:
        is_array = isinstance(before.find(name), Array) or isinstance(evaluator.scope.find(name), Array)
        evaluator.scope.set(name, Array((), why) if is_array else Scalar(unknown(why, loop.line)))
    return None


def walk_either(evaluator: Evaluator, bodies: list[list[Command]], line: int, *, may_skip: bool) -> bool | None:
    """Walk each body as if it were the one; what they disagree on is unknown afterwards."""
    outer, was_certain, was_ended = evaluator.scope, evaluator.certain, evaluator.ended
    evaluator.certain = False
    results: list[Scope] = [outer.copy()] if may_skip else []
    for body in bodies:
        evaluator.scope, evaluator.ended = outer.copy(), False
        evaluator.walk(body)
        if not evaluator.ended:
            results.append(evaluator.scope)
    evaluator.scope, evaluator.certain, evaluator.ended = outer, was_certain, was_ended
    if not results:
        evaluator.ended = True
        return None
    outer.adopt(merged(results, line) if len(results) > 1 else results[0])
    return None


def named_like(name: Text, functions: Iterable[Function]) -> list[Function]:
    """Return the functions that a command may call whose name is known in part (``setup_$SIZE``).

    A name of which nothing is known is taken for that of a program, as in ``$LAUNCHER python train.py``.
    """
    start, end = name.parts[0].text, name.parts[-1].text
    if not start and not end:
        return []
    return [function for function in functions if function.name.startswith(start) and function.name.endswith(end)]


def walk_one_of(evaluator: Evaluator, functions: list[Function], command: Simple) -> bool | None:
    """Walk the calls that a command may be, or something else."""
    line, rest = command.line, command.words[1:]
    evaluator.turns += len(functions)
    if evaluator.turns > MAX_ALL_TURNS:
        for name in evaluator.changed_by(inner for function in functions for inner in function.body):
            evaluator.scope.set(name, Scalar(unknown(f"the command in line {line} may set it", line)))
        return None
    calls = [Word([Lit(function.name, line, quoted=True)], line) for function in functions]
    return walk_either(evaluator, [[replace(command, words=[call, *rest])] for call in calls], line, may_skip=True)
