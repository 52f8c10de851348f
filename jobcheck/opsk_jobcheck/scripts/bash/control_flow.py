"""Walks branches, loops, functions and sourced files.

Branches that may be taken are each walked separately, and the values that differ between them are unknown afterwards.
Loops are walked one iteration at a time as long as it is certain whether another follows; then the rest is walked once,
with everything that it changes unknown. So are functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from opsk_jobcheck.scripts.bash.assignments import (
    assign,
    find_loop_counters,
    find_names_set_by_word,
    may_leave_several_loops,
)
from opsk_jobcheck.scripts.bash.conditions import evaluate_test
from opsk_jobcheck.scripts.bash.defaults import gives_default
from opsk_jobcheck.scripts.bash.expansion import COMPUTED_COMMANDS, Expander
from opsk_jobcheck.scripts.bash.scope import EXPORTED, LOST, REPLACED, Scope, find_differing_names, merge_scopes
from opsk_jobcheck.scripts.bash.state import MAX_ALL_TURNS, MAX_DEPTH, Frame, ShellState, Turn
from opsk_jobcheck.scripts.bash.syntax import (
    ArithTest,
    Assignment,
    Case,
    Chain,
    Command,
    Function,
    If,
    Loop,
    Pipeline,
    Simple,
    Test,
    Word,
)
from opsk_jobcheck.scripts.bash.values import Array, Scalar, Text, literal, may_be_files, unknown

STEPS_PER_PATTERN = 4
"""What a pattern counts for, in commands walked: each is made a regular expression."""
MAX_TURNS, MAX_OPEN_TURNS = 64, 24
"""Iterations that are walked of one loop over words, and of one that tests or counts."""
_TESTS = frozenset({"[", "test", "true", ":", "false", "getopts"})
"""Commands that only tell whether another iteration follows; programs and ``read`` are not run twice."""
_Another = Callable[[], bool | None]
"""Prepares the next iteration of a loop, and returns whether there is one; ``None`` where that is not certain."""


def walk_if(state: ShellState, command: If) -> bool | None:
    """Walk the branches of an ``if`` that may be taken."""
    possible: list[list[Command]] = []
    for condition, body in command.branches:
        if not possible and gives_default(state.scope, condition, body):
            return state.walk(body)
        status = _walk_condition(state, condition, command.line, is_certain=not possible)
        if status is False:
            continue
        if status and not possible:
            return state.walk(body)
        possible.append(body)
        if status:
            return walk_either(state, possible, command.line, may_skip=False)
    if not possible:
        return True
    return walk_either(state, possible, command.line, may_skip=True)


def _walk_condition(state: ShellState, condition: list[Command] | None, line: int, *, is_certain: bool) -> bool | None:
    """Walk the condition of a branch; after a branch that may be taken it may not run."""
    if condition is None or is_certain:
        return True if condition is None else state.walk(condition)
    before = state.scope.copy()
    with state.flow.uncertain():
        status = state.walk(condition)
    state.scope.adopt(merge_scopes([before, state.scope], line))
    return status


def walk_case(state: ShellState, command: Case) -> bool | None:
    """Walk the branches of a ``case`` that may be taken."""
    word = state.expander().text(command.word)
    state.budget.steps += STEPS_PER_PATTERN * sum(len(patterns) for patterns, _ in command.branches)
    if any(end != ";;" for end in command.ends):
        _walk_fall_through(state, command)
        return None
    possible: list[list[Command]] = []
    for patterns, body in command.branches:
        verdicts = [_pattern_matches(state, word, pattern) for pattern in patterns]
        if all(verdict is False for verdict in verdicts):
            continue
        if True in verdicts and not possible:
            return state.walk(body)
        possible.append(body)
        if True in verdicts:
            return walk_either(state, possible, command.line, may_skip=False)
    return walk_either(state, possible, command.line, may_skip=True) if possible else True


def _walk_fall_through(state: ShellState, command: Case) -> None:
    """Walk a ``case`` some of whose branches go on to the next; which of them run is not followed."""
    bodies = [body for _, body in command.branches]
    if state.moves_arguments(bodies):
        state.scope.arguments = LOST
    _walk_some(state, bodies, f"it depends on the test in line {command.line}", command.line)


def _walk_some(state: ShellState, bodies: list[list[Command]], why: str, line: int) -> None:
    """Walk bodies of which any may run, in any order; all that they change is unknown before and after."""
    changed = state.find_changed_names(inner for body in bodies for inner in body)
    state.scope.lose(changed, why, line)
    before = state.scope.copy()
    walk_either(state, bodies, line, may_skip=True)
    state.scope.lose(changed | find_differing_names(before, state.scope), why, line)


def _pattern_matches(state: ShellState, word: Text, pattern: Word) -> bool | None:
    text = state.expander().pattern(pattern)
    if text.known == "*":
        return True
    return evaluate_test([word, literal("==", 0), text], extended=True)


def walk_either(state: ShellState, bodies: list[list[Command]], line: int, *, may_skip: bool) -> bool | None:
    """Walk each body as if it were taken; values that differ between them are unknown afterwards."""
    outer = state.scope
    results: list[Scope] = [outer.copy()] if may_skip else []
    for body in bodies:
        state.scope = outer.copy()
        with state.flow.uncertain():
            state.walk(body)
            if not state.flow.ended:
                results.append(state.scope)
    state.scope = outer
    if not results:
        state.flow.ended = True
        return None
    outer.adopt(merge_scopes(results, line) if len(results) > 1 else results[0])
    return None


def walk_loop(state: ShellState, loop: Loop) -> bool | None:
    """Walk a loop: one iteration at a time where that is certain, else once with everything that it changes unknown."""
    if any(may_leave_several_loops(command) for command in loop.body):
        words = state.expander().words(loop.words) if loop.words is not None else []
        return walk_once(state, loop, _find_file_pattern(words))
    if loop.words is not None:
        return _walk_for_words(state, loop)
    if loop.counting:
        return _walk_for_numbers(state, loop)
    if loop.condition and all(map(_only_tests, loop.condition)):
        return _walk_turns(state, loop, _make_condition(state, loop), is_bounded=False)
    return walk_once(state, loop)


def _walk_for_words(state: ShellState, loop: Loop) -> bool | None:
    """Walk a ``for name in words``."""
    words = state.expander().words(loop.words or [])
    if len(words) > MAX_TURNS or any(word.known is None for word in words) or may_be_files(words):
        return walk_once(state, loop, _find_file_pattern(words))
    waiting = iter(words)

    def another() -> bool:
        word = next(waiting, None)
        if word is not None:
            state.scope.set(loop.variable, Scalar(word))
        return word is not None

    return _walk_turns(state, loop, another, is_bounded=True)


def _find_file_pattern(words: list[Text]) -> Text | None:
    """Return the pattern of the files that a loop goes over, where that is all that it goes over."""
    return words[0] if len(words) == 1 and words[0].known is not None and may_be_files(words) else None


def _walk_for_numbers(state: ShellState, loop: Loop) -> bool | None:
    """Walk a ``for ((first; test; step))``; one with many iterations is walked once."""
    apart = Expander(state.scope.copy(), state.source)
    moved = _make_counter(lambda: apart, loop)
    if all(moved() for _ in range(MAX_OPEN_TURNS + 1)):
        return walk_once(state, loop)
    return _walk_turns(state, loop, _make_counter(state.expander, loop), is_bounded=False)


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


def _make_condition(state: ShellState, loop: Loop) -> _Another:
    """Return a function that evaluates the condition of a ``while`` or an ``until``."""

    def another() -> bool | None:
        status = state.walk(loop.condition)
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


def _walk_turns(state: ShellState, loop: Loop, another: _Another, *, is_bounded: bool) -> bool | None:
    """Walk a loop one iteration at a time; an unbounded one only as far as it is certain."""
    was_certain, was_ended = state.flow.certain, state.flow.ended
    broken: list[Scope] = []
    goes_on, exits, count = True, False, 0
    before = state.scope.copy()
    while (follows := another()) is not False:
        state.budget.turns += 1
        count += 1
        is_open = not is_bounded and (broken or count > MAX_OPEN_TURNS)
        if follows is None or is_open or state.budget.is_spent:
            walk_once(state, loop)
            break
        turn = Turn()
        goes_on = _walk_turn(state, loop, turn)
        broken += turn.broken
        exits = exits or (state.flow.ended and goes_on and not turn.is_left)
        is_first_count = bool(loop.counting) and count == 1
        if not goes_on or (not is_bounded and not is_first_count and _is_same(before, state.scope)):
            break
        state.flow.certain = state.flow.certain and not turn.broken
        before = before if is_bounded else state.scope.copy()
    ends = [*broken, state.scope] if goes_on else broken
    state.flow.certain, state.flow.ended = was_certain, was_ended or exits or not ends
    if broken:
        state.scope.adopt(merge_scopes(ends, loop.line) if len(ends) > 1 else ends[0].copy())
    return None


def _is_same(before: Scope, after: Scope) -> bool:
    """Return whether an iteration has changed nothing: all later ones do the same."""
    is_moved = before.arguments != after.arguments or before.unset != after.unset
    return not is_moved and not find_differing_names(before, after)


def _walk_turn(state: ShellState, loop: Loop, turn: Turn) -> bool:
    """Walk one iteration of a loop, and return whether another one may follow."""
    state.flow.ended, was_certain = False, state.flow.certain
    state.flow.open_turns.append(turn)
    state.walk(loop.body)
    state.flow.open_turns.pop()
    state.flow.certain = was_certain
    frame = state.flow.frames[-1] if state.flow.frames else None
    if frame is not None and frame.returned:
        return False
    is_through = not state.flow.ended or (state.flow.certain and not turn.is_left)
    possible = [*turn.continued, state.scope] if is_through else turn.continued
    if turn.continued:
        state.scope.adopt(merge_scopes(possible, loop.line) if len(possible) > 1 else possible[0].copy())
    return bool(possible)


def walk_once(state: ShellState, loop: Loop, pattern: Text | None = None) -> bool | None:
    """Walk a loop's body once, with everything that it changes unknown before and after.

    ``pattern`` is the value of its variable where that stands for the files that match it.
    """
    why = f"it changes in the loop of line {loop.line}"
    turn = [*loop.condition, *loop.body]
    changed = {name for name in state.find_changed_names(turn) | {loop.variable} | find_loop_counters(loop) if name}
    if state.moves_arguments([turn]):
        state.scope.arguments = LOST
    before = state.scope.copy()
    state.scope.lose(changed, why, loop.line)
    if pattern is not None:
        state.scope.set(loop.variable, Scalar(pattern))
    state.flow.open_turns.append(None)
    with state.flow.uncertain():
        state.walk(turn)
    state.flow.open_turns.pop()
    if state.scope.arguments != before.arguments:
        state.scope.arguments = LOST
    changed |= find_differing_names(before, state.scope)
    for name in changed:
        is_array = isinstance(before.find(name), Array) or isinstance(state.scope.find(name), Array)
        state.scope.set(name, Array((), why) if is_array else Scalar(unknown(why, loop.line)))
    return None


def define(state: ShellState, function: Function) -> None:
    """Record a definition; if a test precedes it, the name may still mean its earlier definitions."""
    before = () if state.flow.certain else state.functions.get(function.name, ())
    state.functions[function.name] = (*before, function)
    if function.name in COMPUTED_COMMANDS:
        state.scope.set(f"{function.name}{REPLACED}", Scalar(Text()))


def undefine(state: ShellState, name: str) -> None:
    """Forget a function that is unset; if a test precedes that, it may still exist."""
    if state.flow.certain:
        state.functions.pop(name, None)


def keep_side_effects(outer: Scope, inner: Scope, assignments: Iterable[Assignment]) -> None:
    """Keep the side effects of the values before a command: ``X=$((I+=1)) command``."""
    words = [word for entry in assignments for word in (*(entry.words or ()), *((entry.value,) if entry.value else ()))]
    for name in {name for word in words for name in find_names_set_by_word(word)}:
        if (held := inner.find(name)) is not None:
            outer.set(name, held)


def run_with_prefix(state: ShellState, command: Simple, run: Callable[[], bool | None]) -> bool | None:
    """Run something with the assignments before it in force only for that time."""
    names = [name for entry in command.assignments for name in (entry.name, EXPORTED + entry.name)]
    before = {name: state.scope.variables.get(name) for name in names}
    for assignment in command.assignments:
        assign(state.expander(), assignment)
        state.scope.export(assignment.name)
    status = run()
    for name, variable in before.items():
        if variable is None:
            state.scope.forget(name)
        else:
            state.scope.set(name, variable)
    return status


def find_functions_like(state: ShellState, name: Text) -> tuple[Function, ...]:
    """Return the functions that a command may call whose name is known in part (``setup_$SIZE``).

    A wholly unknown name counts as that of a program, as in ``$LAUNCHER python train.py``.
    """
    start, end = name.parts[0].text, name.parts[-1].text
    if not start and not end:
        return ()
    possible = (name for name in state.functions if name.startswith(start) and name.endswith(end))
    return tuple(function for name in possible for function in state.functions[name])


def call(state: ShellState, functions: Sequence[Function], arguments: list[Text], line: int) -> None:
    """Walk the functions that a command may call; all that they change is unknown afterwards."""
    scope, why = state.scope, f"the function that line {line} calls may change it"
    state.budget.turns += len(functions)
    if state.budget.depth > MAX_DEPTH or state.budget.turns > MAX_ALL_TURNS:
        scope.lose(state.find_changed_names(functions), why, line)
        scope.lose_like("", why, line)
        return
    own_arguments, scope.arguments = scope.arguments, tuple(arguments)
    state.budget.depth += 4
    state.flow.frames.append(None)
    _walk_some(state, [function.body for function in functions], why, line)
    state.flow.frames.pop()
    state.budget.depth -= 4
    scope.arguments = own_arguments


def run_sourced(state: ShellState, body: Callable[[], bool | None], line: int) -> bool | None:
    """Run a sourced file, which ``return`` ends."""
    frame, was_ended, state.flow.ended = Frame(), state.flow.ended, False
    state.flow.frames.append(frame)
    status = body()
    state.flow.frames.pop()
    if frame.scopes:
        possible = frame.scopes if state.flow.ended else [*frame.scopes, state.scope]
        state.scope.adopt(merge_scopes(possible, line) if len(possible) > 1 else possible[0].copy())
        status = None
    state.flow.ended = was_ended or (state.flow.ended and not frame.scopes)
    return status
