"""Runs shell functions and sourced files with their arguments, ``local`` variables and prefix assignments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from opsk_jobcheck.scripts.bash.assignments import assign, find_names_set_by_word
from opsk_jobcheck.scripts.bash.other_shells import export
from opsk_jobcheck.scripts.bash.scope import EXPORTED, Scope, merge_scopes
from opsk_jobcheck.scripts.bash.syntax import Assignment, Function, Simple
from opsk_jobcheck.scripts.bash.values import Scalar, Text, Variable, unknown

if TYPE_CHECKING:
    from opsk_jobcheck.scripts.bash.evaluate import Evaluator

MAX_DEPTH = 24


@dataclass(slots=True)
class Frame:
    """A function or sourced file being walked: the variables that ``local`` hid, and the scopes at each ``return``."""

    hidden: list[tuple[str, Variable | None]] = field(default_factory=list)
    scopes: list[Scope] = field(default_factory=list)
    returned: bool = False


def define(evaluator: Evaluator, function: Function) -> None:
    """Record a definition; if a test precedes it, the name may still mean its earlier definitions."""
    name = function.name
    if evaluator.certain:
        evaluator.functions[name] = function
        evaluator.doubtful.pop(name, None)
        return
    others = [evaluator.functions[name]] if name in evaluator.functions and name not in evaluator.doubtful else []
    for other in (*others, function):
        known = evaluator.doubtful.setdefault(name, [])
        known.append(replace(other, name=f"{name}\0{len(known)}"))
        evaluator.functions[known[-1].name] = known[-1]
    evaluator.functions[name] = function


def undefine(evaluator: Evaluator, name: str) -> None:
    """Forget a function that is unset; if a test precedes that, it may still exist."""
    if name not in evaluator.functions:
        return
    if evaluator.certain:
        evaluator.doubtful.pop(name, None)
        del evaluator.functions[name]
    elif name not in evaluator.doubtful:
        define(evaluator, evaluator.functions[name])


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


def call(evaluator: Evaluator, function: Function, words: list[Text]) -> bool | None:
    """Walk a function's body with its own positional parameters and its own ``local`` variables."""
    if evaluator.depth > MAX_DEPTH:
        for name in evaluator.find_changed_names(function.body):
            evaluator.scope.set(name, Scalar(unknown(f"{function.name} calls itself too deeply", function.line)))
        return None
    arguments = evaluator.scope.arguments
    evaluator.scope.arguments = tuple(words[1:])
    evaluator.depth += 4
    status = run_in_frame(evaluator, lambda: evaluator.walk(function.body), function.line)
    evaluator.depth -= 4
    evaluator.scope.arguments = arguments
    return status


def run_in_frame(evaluator: Evaluator, body: Callable[[], bool | None], line: int) -> bool | None:
    """Run a function or a sourced file, which ``return`` ends; then forget its ``local`` variables."""
    frame, was_ended, evaluator.ended = Frame(), evaluator.ended, False
    fixed = evaluator.scope.fixed
    evaluator.frames.append(frame)
    status = body()
    evaluator.frames.pop()
    if frame.scopes:
        possible = frame.scopes if evaluator.ended else [*frame.scopes, evaluator.scope]
        evaluator.scope.adopt(merge_scopes(possible, line) if len(possible) > 1 else possible[0].copy())
        status = None
    evaluator.ended = was_ended or (evaluator.ended and not frame.scopes)
    local = {name for name, _ in frame.hidden} - fixed.keys()
    evaluator.scope.fixed = {name: why for name, why in evaluator.scope.fixed.items() if name not in local}
    for name, variable in reversed(frame.hidden):
        if variable is None:
            evaluator.scope.forget(name)
        else:
            evaluator.scope.set(name, variable)
    return status
