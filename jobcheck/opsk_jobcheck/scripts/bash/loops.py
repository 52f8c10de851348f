"""What holds after a loop? It is walked turn by turn as long as it is certain whether another turn follows.

Where that is not certain, what is left of the loop is walked once, with everything that it changes unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from opsk_jobcheck.scripts.bash.effects import leaves_several, names_counted
from opsk_jobcheck.scripts.bash.expansion import Expander
from opsk_jobcheck.scripts.bash.scope import LOST, Scope, differing, merged
from opsk_jobcheck.scripts.bash.syntax import ArithTest, Chain, Command, Loop, Pipeline, Simple, Test
from opsk_jobcheck.scripts.bash.values import Array, Scalar, Text, may_be_files, unknown

if TYPE_CHECKING:
    from opsk_jobcheck.scripts.bash.evaluate import Evaluator

MAX_TURNS, MAX_OPEN_TURNS, MAX_ALL_TURNS = 64, 24, 512
"""Turns that are walked of one loop over words, of one that tests or counts, and of all loops of a script."""
MAX_STEPS = 20_000
"""Commands, and words of tests, of a script that are walked before no turn of a loop is walked by itself any more."""
_MOVES_ARGUMENTS = frozenset({"set", "shift"})
_TESTS = frozenset({"[", "test", "true", ":", "false", "getopts"})
"""Commands that only tell whether another turn follows; what a program or ``read`` does is not done twice."""
_Another = Callable[[], bool | None]
"""Makes a loop ready for its next turn, and tells whether there is one; ``None`` where that is not certain."""


@dataclass(slots=True)
class Turn:
    """One turn of a loop: the scopes at each ``continue`` and at each ``break`` so far."""

    continued: list[Scope] = field(default_factory=list)
    broken: list[Scope] = field(default_factory=list)

    @property
    def is_left(self) -> bool:
        """Whether a way through the turn leaves it before its end."""
        return bool(self.continued or self.broken)


def walk_loop(evaluator: Evaluator, loop: Loop) -> bool | None:
    """Walk a loop: turn by turn where that is certain, else once with everything that it changes unknown."""
    if any(leaves_several(command) for command in loop.body):
        words = evaluator.expander().words(loop.words) if loop.words is not None else []
        return some_turns(evaluator, loop, _files_in(words))
    if loop.words is not None:
        return _for_words(evaluator, loop)
    if loop.counting:
        return _for_numbers(evaluator, loop)
    if loop.condition and all(map(_only_tests, loop.condition)):
        return _turns(evaluator, loop, _as_long_as(evaluator, loop), is_bounded=False)
    return some_turns(evaluator, loop)


def _for_words(evaluator: Evaluator, loop: Loop) -> bool | None:
    """Walk a ``for name in words``."""
    words = evaluator.expander().words(loop.words or [])
    if len(words) > MAX_TURNS or any(word.known is None for word in words) or may_be_files(words):
        return some_turns(evaluator, loop, _files_in(words))
    waiting = iter(words)

    def another() -> bool:
        word = next(waiting, None)
        if word is not None:
            evaluator.scope.set(loop.variable, Scalar(word))
        return word is not None

    return _turns(evaluator, loop, another, is_bounded=True)


def _files_in(words: list[Text]) -> Text | None:
    """Return the pattern of the files that a loop goes over, where that is all that it goes over."""
    return words[0] if len(words) == 1 and words[0].known is not None and may_be_files(words) else None


def _for_numbers(evaluator: Evaluator, loop: Loop) -> bool | None:
    """Walk a ``for ((first; test; step))``; of one that counts far nothing would be known in the end."""
    apart = Expander(evaluator.scope.copy(), evaluator.source)
    moved = _counting(lambda: apart, loop)
    if all(moved() for _ in range(MAX_OPEN_TURNS + 1)):
        return some_turns(evaluator, loop)
    return _turns(evaluator, loop, _counting(evaluator.expander, loop), is_bounded=False)


def _counting(expander: Callable[[], Expander], loop: Loop) -> _Another:
    """Return what moves a ``for ((first; test; step))`` on."""
    first, test, step = (*map(str.strip, loop.counting.split(";")), "", "", "")[:3]
    pending = [first]

    def another() -> bool | None:
        expression = pending.pop() if pending else step
        if expression and expander().calculated(expression, loop.line).known is None:
            return None
        known = expander().calculated(test, loop.line).known if test else "1"
        return None if known is None else known != "0"

    return another


def _as_long_as(evaluator: Evaluator, loop: Loop) -> _Another:
    """Return what asks the condition of a ``while`` or an ``until``."""

    def another() -> bool | None:
        status = evaluator.walk(loop.condition)
        return None if status is None else status is not loop.is_until

    return another


def _only_tests(command: Command) -> bool:
    """Tell whether a command of a condition does nothing but test."""
    if isinstance(command, Simple):
        return bool(command.words) and command.words[0].bare in _TESTS and not command.redirects
    if isinstance(command, Chain):
        return all(_only_tests(inner) for _, inner in command.links)
    if isinstance(command, Pipeline):
        return len(command.commands) == 1 and _only_tests(command.commands[0])
    return isinstance(command, Test | ArithTest)


def _turns(evaluator: Evaluator, loop: Loop, another: _Another, *, is_bounded: bool) -> bool | None:
    """Walk a loop turn by turn; one that is not bounded only as far as is certain."""
    was_certain, was_ended = evaluator.certain, evaluator.ended
    broken: list[Scope] = []
    goes_on, exits, count = True, False, 0
    before = evaluator.scope.copy()
    while (follows := another()) is not False:
        evaluator.turns += 1
        count += 1
        is_open = not is_bounded and (broken or count > MAX_OPEN_TURNS)
        if follows is None or is_open or _is_spent(evaluator):
            some_turns(evaluator, loop)
            break
        turn = Turn()
        goes_on = _turn(evaluator, loop, turn)
        broken += turn.broken
        exits = exits or (evaluator.ended and goes_on and not turn.is_left)
        is_first_count = bool(loop.counting) and count == 1
        if not goes_on or (not is_bounded and not is_first_count and _is_same(before, evaluator.scope)):
            break
        evaluator.certain = evaluator.certain and not turn.broken
        before = before if is_bounded else evaluator.scope.copy()
    ends = [*broken, evaluator.scope] if goes_on else broken
    evaluator.certain, evaluator.ended = was_certain, was_ended or exits or not ends
    if broken:
        evaluator.scope.adopt(merged(ends, loop.line) if len(ends) > 1 else ends[0].copy())
    return None


def _is_spent(evaluator: Evaluator) -> bool:
    """Tell whether too much has been walked to walk another turn by itself."""
    return evaluator.turns > MAX_ALL_TURNS or evaluator.steps > MAX_STEPS


def _is_same(before: Scope, after: Scope) -> bool:
    """Tell whether a turn has changed nothing: all that follow are like it."""
    is_moved = before.arguments != after.arguments or before.unset != after.unset
    return not is_moved and not differing(before, after)


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


def some_turns(evaluator: Evaluator, loop: Loop, pattern: Text | None = None) -> bool | None:
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
