"""Walks shell functions and sourced files, with their arguments and the assignments before them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from opsk_jobcheck.scripts.bash.assignments import assign, find_names_set_by_word
from opsk_jobcheck.scripts.bash.branches import walk_either
from opsk_jobcheck.scripts.bash.loops import MAX_ALL_TURNS
from opsk_jobcheck.scripts.bash.other_shells import export
from opsk_jobcheck.scripts.bash.scope import EXPORTED, Scope, find_differing_names, merge_scopes
from opsk_jobcheck.scripts.bash.syntax import Assignment, Function, Simple
from opsk_jobcheck.scripts.bash.values import Text

if TYPE_CHECKING:
    from opsk_jobcheck.scripts.bash.evaluate import Evaluator

MAX_DEPTH = 24


@dataclass(slots=True)
class Frame:
    """A sourced file being walked: the scopes at each ``return``."""

    scopes: list[Scope] = field(default_factory=list)
    returned: bool = False


def define(evaluator: Evaluator, function: Function) -> None:
    """Record a definition; if a test precedes it, the name may still mean its earlier definitions."""
    before = () if evaluator.certain else evaluator.functions.get(function.name, ())
    evaluator.functions[function.name] = (*before, function)


def undefine(evaluator: Evaluator, name: str) -> None:
    """Forget a function that is unset; if a test precedes that, it may still exist."""
    if evaluator.certain:
        evaluator.functions.pop(name, None)


def keep_side_effects(outer: Scope, inner: Scope, assignments: Iterable[Assignment]) -> None:
    """Keep the side effects of the values before a command: ``X=$((I+=1)) command``."""
    words = [word for entry in assignments for word in (*(entry.words or ()), *((entry.value,) if entry.value else ()))]
    for name in {name for word in words for name in find_names_set_by_word(word)}:
        if (held := inner.find(name)) is not None:
            outer.set(name, held)


def run_with_prefix(evaluator: Evaluator, command: Simple, run: Callable[[], bool | None]) -> bool | None:
    """Run something with the assignments before it in force only for that time."""
    names = [name for entry in command.assignments for name in (entry.name, EXPORTED + entry.name)]
    before = {name: evaluator.scope.variables.get(name) for name in names}
    for assignment in command.assignments:
        assign(evaluator.expander(), assignment)
        export(evaluator.scope, assignment.name)
    status = run()
    for name, variable in before.items():
        if variable is None:
            evaluator.scope.forget(name)
        else:
            evaluator.scope.set(name, variable)
    return status


def find_functions_like(evaluator: Evaluator, name: Text) -> list[Function]:
    """Return the functions that a command may call whose name is known in part (``setup_$SIZE``).

    A wholly unknown name counts as that of a program, as in ``$LAUNCHER python train.py``.
    """
    start, end = name.parts[0].text, name.parts[-1].text
    if not start and not end:
        return []
    possible = (name for name in evaluator.functions if name.startswith(start) and name.endswith(end))
    return [function for name in possible for function in evaluator.functions[name]]


def call(evaluator: Evaluator, functions: Sequence[Function], arguments: list[Text], line: int) -> None:
    """Walk the functions that a command may call; all that they change is unknown afterwards."""
    scope, why = evaluator.scope, f"the function that line {line} calls may change it"
    changed = evaluator.find_changed_names(inner for function in functions for inner in function.body)
    scope.lose(changed, why, line)
    evaluator.turns += len(functions)
    if evaluator.depth > MAX_DEPTH or evaluator.turns > MAX_ALL_TURNS:
        return
    before, own_arguments = scope.copy(), scope.arguments
    scope.arguments = tuple(arguments)
    evaluator.depth += 4
    evaluator.frames.append(None)
    walk_either(evaluator, [function.body for function in functions], line, may_skip=True)
    evaluator.frames.pop()
    evaluator.depth -= 4
    scope.arguments = own_arguments
    scope.lose(changed | find_differing_names(before, scope), why, line)


def run_in_frame(evaluator: Evaluator, body: Callable[[], bool | None], line: int) -> bool | None:
    """Run a sourced file, which ``return`` ends."""
    frame, was_ended, evaluator.ended = Frame(), evaluator.ended, False
    evaluator.frames.append(frame)
    status = body()
    evaluator.frames.pop()
    if frame.scopes:
        possible = frame.scopes if evaluator.ended else [*frame.scopes, evaluator.scope]
        evaluator.scope.adopt(merge_scopes(possible, line) if len(possible) > 1 else possible[0].copy())
        status = None
    evaluator.ended = was_ended or (evaluator.ended and not frame.scopes)
    return status
