"""Walks loops, one iteration at a time as long as it is certain whether another iteration follows.

Where that is not certain, the remaining iterations are walked once, with everything that they change unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from opsk_jobcheck.scripts.bash.effects import find_loop_counters, may_leave_several_loops
from opsk_jobcheck.scripts.bash.expansion import Expander
from opsk_jobcheck.scripts.bash.scope import LOST, Scope, find_differing_names, merge_scopes
from opsk_jobcheck.scripts.bash.syntax import ArithTest, Chain, Command, Loop, Pipeline, Simple, Test
from opsk_jobcheck.scripts.bash.values import Array, Scalar, Text, may_be_files, unknown

if TYPE_CHECKING:
    from opsk_jobcheck.scripts.bash.evaluate import Evaluator

MAX_TURNS, MAX_OPEN_TURNS, MAX_ALL_TURNS = 64, 24, 512
"""Iterations that are walked of one loop over words, of one that tests or counts, and of all loops of a script."""
MAX_STEPS = 20_000
"""Commands, and words of tests, of a script after which no iteration of a loop is walked separately."""
_MOVES_ARGUMENTS = frozenset({"set", "shift"})
_TESTS = frozenset({"[", "test", "true", ":", "false", "getopts"})
"""Commands that only tell whether another iteration follows; programs and ``read`` are not run twice."""
_Another = Callable[[], bool | None]
"""Prepares the next iteration of a loop, and returns whether there is one; ``None`` where that is not certain."""


@dataclass(slots=True)
class Turn:
    """One iteration of a loop: the scopes at each ``continue`` and at each ``break`` so far."""

    continued: list[Scope] = field(default_factory=list)
    broken: list[Scope] = field(default_factory=list)

    @property
    def is_left(self) -> bool:
        """Whether a path through the iteration leaves it before its end."""
        return bool(self.continued or self.broken)


def walk_loop(evaluator: Evaluator, loop: Loop) -> bool | None:
    """Walk a loop: one iteration at a time where that is certain, else once with everything that it changes unknown."""
    if any(may_leave_several_loops(command) for command in loop.body):
        words = evaluator.expander().words(loop.words) if loop.words is not None else []
        return walk_once(evaluator, loop, _find_file_pattern(words))
    if loop.words is not None:
        return _walk_for_words(evaluator, loop)
    if loop.counting:
        return _walk_for_numbers(evaluator, loop)
    if loop.condition and all(map(_only_tests, loop.condition)):
        return _walk_turns(evaluator, loop, _make_condition(evaluator, loop), is_bounded=False)
    return walk_once(evaluator, loop)


def _walk_for_words(evaluator: Evaluator, loop: Loop) -> bool | None:
    """Walk a ``for name in words``."""
    words = evaluator.expander().words(loop.words or [])
    if len(words) > MAX_TURNS or any(word.known is None for word in words) or may_be_files(words):
        return walk_once(evaluator, loop, _find_file_pattern(words))
    waiting = iter(words)

    def another() -> bool:
        word = next(waiting, None)
        if word is not None:
            evaluator.scope.set(loop.variable, Scalar(word))
        return word is not None

    return _walk_turns(evaluator, loop, another, is_bounded=True)


def _find_file_pattern(words: list[Text]) -> Text | None:
    """Return the pattern of the files that a loop goes over, where that is all that it goes over."""
    return words[0] if len(words) == 1 and words[0].known is not None and may_be_files(words) else None


def _walk_for_numbers(evaluator: Evaluator, loop: Loop) -> bool | None:
    """Walk a ``for ((first; test; step))``; one with many iterations is walked once."""
    apart = Expander(evaluator.scope.copy(), evaluator.source)
    moved = _make_counter(lambda: apart, loop)
    if all(moved() for _ in range(MAX_OPEN_TURNS + 1)):
        return walk_once(evaluator, loop)
    return _walk_turns(evaluator, loop, _make_counter(evaluator.expander, loop), is_bounded=False)


def _make_counter(expander: Callable[[], Expander], loop: Loop) -> _Another:
    """Return a function that advances a ``for ((first; test; step))``."""
    first, test, step = (*map(str.strip, loop.counting.split(";")), "", "", "")[:3]
    pending = [first]

    def another() -> bool | None:
        expression = pending.pop() if pending else step
        if expression and expander().calculate(expression, loop.line).known is None:
            return None
        known = expander().calculate(test, loop.line).known if test else "1"
        return None if known is None else known != "0"

    return another


def _make_condition(evaluator: Evaluator, loop: Loop) -> _Another:
    """Return a function that evaluates the condition of a ``while`` or an ``until``."""

    def another() -> bool | None:
        status = evaluator.walk(loop.condition)
        return None if status is None else status is not loop.is_until

    return another


def _only_tests(command: Command) -> bool:
    """Return whether a command of a condition does nothing but test."""
    if isinstance(command, Simple):
        return bool(command.words) and command.words[0].bare in _TESTS and not command.redirects
    if isinstance(command, Chain):
        return all(_only_tests(inner) for _, inner in command.links)
    if isinstance(command, Pipeline):
        return len(command.commands) == 1 and _only_tests(command.commands[0])
    return isinstance(command, Test | ArithTest)


def _walk_turns(evaluator: Evaluator, loop: Loop, another: _Another, *, is_bounded: bool) -> bool | None:
    """Walk a loop one iteration at a time; an unbounded one only as far as it is certain."""
    was_certain, was_ended = evaluator.certain, evaluator.ended
    broken: list[Scope] = []
    goes_on, exits, count = True, False, 0
    before = evaluator.scope.copy()
    while (follows := another()) is not False:
        evaluator.turns += 1
        count += 1
        is_open = not is_bounded and (broken or count > MAX_OPEN_TURNS)
        if follows is None or is_open or _is_spent(evaluator):
            walk_once(evaluator, loop)
            break
        turn = Turn()
        goes_on = _walk_turn(evaluator, loop, turn)
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
        evaluator.scope.adopt(merge_scopes(ends, loop.line) if len(ends) > 1 else ends[0].copy())
    return None


def _is_spent(evaluator: Evaluator) -> bool:
    """Return whether the limits on iterations or commands are exceeded."""
    return evaluator.turns > MAX_ALL_TURNS or evaluator.steps > MAX_STEPS


def _is_same(before: Scope, after: Scope) -> bool:
    """Return whether an iteration has changed nothing: all later ones do the same."""
    is_moved = before.arguments != after.arguments or before.unset != after.unset
    return not is_moved and not find_differing_names(before, after)


def _walk_turn(evaluator: Evaluator, loop: Loop, turn: Turn) -> bool:
    """Walk one iteration of a loop, and return whether another one may follow."""
    evaluator.ended, was_certain = False, evaluator.certain
    evaluator.open_turns.append(turn)
    evaluator.walk(loop.body)
    evaluator.open_turns.pop()
    evaluator.certain = was_certain
    frame = evaluator.frames[-1] if evaluator.frames else None
    if frame is not None and frame.returned:
        return False
    is_through = not evaluator.ended or (evaluator.certain and not turn.is_left)
    possible = [*turn.continued, evaluator.scope] if is_through else turn.continued
    if turn.continued:
        evaluator.scope.adopt(merge_scopes(possible, loop.line) if len(possible) > 1 else possible[0].copy())
    return bool(possible)


def walk_once(evaluator: Evaluator, loop: Loop, pattern: Text | None = None) -> bool | None:
    """Walk a loop's body once, with everything that it changes unknown before and after.

    ``pattern`` is the value of its variable where that stands for the files that match it.
    """
    why = f"it changes in the loop of line {loop.line}"
    turn = [*loop.condition, *loop.body]
    changed = {name for name in evaluator.find_changed_names(turn) | {loop.variable} | find_loop_counters(loop) if name}
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
    changed |= find_differing_names(before, evaluator.scope)
    for name in changed:
        is_array = isinstance(before.find(name), Array) or isinstance(evaluator.scope.find(name), Array)
        evaluator.scope.set(name, Array((), why) if is_array else Scalar(unknown(why, loop.line)))
    return None
