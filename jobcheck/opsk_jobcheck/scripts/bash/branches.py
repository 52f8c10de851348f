"""Walks the branches of ``if``, ``case`` and calls whose test or name may be undecided.

A branch that is certainly taken is walked alone. Branches that may be taken are each walked separately, and the
values that differ between them are unknown afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from opsk_jobcheck.scripts.bash.conditions import evaluate_test
from opsk_jobcheck.scripts.bash.loops import MAX_ALL_TURNS, walk_once
from opsk_jobcheck.scripts.bash.scope import Scope, merge_scopes
from opsk_jobcheck.scripts.bash.syntax import Case, Command, Function, If, Lit, Loop, Simple, Word
from opsk_jobcheck.scripts.bash.values import Scalar, Text, literal, unknown

if TYPE_CHECKING:
    from opsk_jobcheck.scripts.bash.evaluate import Evaluator

STEPS_PER_PATTERN = 4
"""What a pattern counts for, in commands walked: each is made a regular expression."""


def walk_if(evaluator: Evaluator, command: If) -> bool | None:
    """Walk the branches of an ``if`` that may be taken."""
    possible: list[list[Command]] = []
    for condition, body in command.branches:
        status = _walk_condition(evaluator, condition, command.line, is_certain=not possible)
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


def _walk_condition(
    evaluator: Evaluator, condition: list[Command] | None, line: int, *, is_certain: bool
) -> bool | None:
    """Walk the condition of a branch; after a branch that may be taken it may not run."""
    if condition is None or is_certain:
        return True if condition is None else evaluator.walk(condition)
    before, was_certain = evaluator.scope.copy(), evaluator.certain
    evaluator.certain = False
    status = evaluator.walk(condition)
    evaluator.certain = was_certain
    evaluator.scope.adopt(merge_scopes([before, evaluator.scope], line))
    return status


def walk_case(evaluator: Evaluator, command: Case) -> bool | None:
    """Walk the branches of a ``case`` that may be taken."""
    word = evaluator.expander().text(command.word)
    evaluator.steps += STEPS_PER_PATTERN * sum(len(patterns) for patterns, _ in command.branches)
    if any(end != ";;" for end in command.ends):
        return _walk_fall_through(evaluator, command, word)
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


def _walk_fall_through(evaluator: Evaluator, command: Case, word: Text) -> bool | None:
    """Walk a ``case`` some of whose branches go on to the next (``;&``) or test on (``;;&``)."""
    falls = False
    for index, (patterns, body) in enumerate(command.branches):
        verdicts = [True] if falls else [_pattern_matches(evaluator, word, pattern) for pattern in patterns]
        falls = False
        if True not in verdicts and None in verdicts:
            rest = [inner for _, later in command.branches[index:] for inner in later]
            return walk_once(evaluator, Loop("", [], rest, command.line))
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
    return evaluate_test([word, literal("==", 0), text], extended=True)


def walk_either(evaluator: Evaluator, bodies: list[list[Command]], line: int, *, may_skip: bool) -> bool | None:
    """Walk each body as if it were taken; values that differ between them are unknown afterwards."""
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
    outer.adopt(merge_scopes(results, line) if len(results) > 1 else results[0])
    return None


def find_functions_like(name: Text, functions: Iterable[Function]) -> list[Function]:
    """Return the functions that a command may call whose name is known in part (``setup_$SIZE``).

    A wholly unknown name counts as that of a program, as in ``$LAUNCHER python train.py``.
    """
    start, end = name.parts[0].text, name.parts[-1].text
    if not start and not end:
        return []
    return [function for function in functions if function.name.startswith(start) and function.name.endswith(end)]


def walk_possible_calls(evaluator: Evaluator, functions: list[Function], command: Simple) -> bool | None:
    """Walk the calls that a command may be, or something else."""
    line, rest = command.line, command.words[1:]
    evaluator.turns += len(functions)
    if evaluator.turns > MAX_ALL_TURNS:
        for name in evaluator.find_changed_names(inner for function in functions for inner in function.body):
            evaluator.scope.set(name, Scalar(unknown(f"the command in line {line} may set it", line)))
        return None
    calls = [Word([Lit(function.name, line, quoted=True)], line) for function in functions]
    return walk_either(evaluator, [[replace(command, words=[call, *rest])] for call in calls], line, may_skip=True)
