"""Walks the branches of ``if``, ``case`` and calls whose test or name may be undecided.

A branch that is certainly taken is walked alone. Branches that may be taken are each walked separately, and the
values that differ between them are unknown afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opsk_jobcheck.scripts.bash.conditions import evaluate_test
from opsk_jobcheck.scripts.bash.loops import walk_once
from opsk_jobcheck.scripts.bash.scope import Scope, merge_scopes
from opsk_jobcheck.scripts.bash.syntax import Case, Command, If, Loop, Word
from opsk_jobcheck.scripts.bash.values import Text, literal

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
        bodies = [inner for _, body in command.branches for inner in body]
        return walk_once(evaluator, Loop("", [], bodies, command.line))  # which of them run is not followed
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
