"""Holds what is known while a program's text is followed, and joins what follows from tests that are not known.

Nothing of the program runs. Where a test is not known, both branches are followed from the same state, and each name
then stands for a choice of what either branch gave it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Protocol

from opsk_jobcheck.scripts.frameworks.own_models.files import Files
from opsk_jobcheck.scripts.frameworks.own_models.noted_calls import SETS_TRAINING, NotedCall
from opsk_jobcheck.scripts.frameworks.own_models.tensors.step_memory import StepMemory
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tape import Tape, join_tapes
from opsk_jobcheck.scripts.frameworks.own_models.values import (
    ABSENT,
    CannotCountError,
    ClassValue,
    File,
    Frame,
    Module,
    is_unknown,
    list_modules,
    list_options,
    merge,
)

PLACES = re.compile(r"from_pretrained|(\w+_)?tokeni[sz]er|(batch_)?encode_plus")
"""Functions that load a model, or make tokens: it is noted where a program comes to one."""
MAX_STEPS = 12_000
MAX_DEPTH = 24
MAX_BRANCHES = 40


class End(Enum):
    """How statements end: they go on, return, may have returned (or left a loop), leave a loop, or raise."""

    NEXT = "next"
    RETURN = "return"
    MAYBE = "maybe"
    LEAVE = "leave"
    CONTINUE = "continue"
    RAISE = "raise"


Flow = tuple[End, Any]
GO_ON: Flow = (End.NEXT, ABSENT)


class LookUp(Protocol):
    """Finds settings with which the program is started."""

    def find(self, path: tuple[str, ...], *, of_file: bool) -> Any:
        """Return the value of a setting by its dotted name; ``DATA`` where it is not known, ``ABSENT`` for none."""

    def find_given(self, name: str) -> Any:
        """Return a value of the command line; ``ABSENT`` where none is given, ``DATA`` where it is not known."""

    def list_names(self, path: tuple[str, ...]) -> list[str]:
        """Return the names of the settings of files below a dotted name."""

    def find_words(self) -> list[Any] | None:
        """Return the words of the command after the program, ``DATA`` for each that is not known; ``None`` for none."""

    def find_variable(self, name: str) -> Any:
        """Return a variable of the environment; ``ABSENT`` where the script does not set it."""

    def find_file(self, path: str) -> Any:
        """Return the settings of a file as a table; ``DATA`` where it is not at hand."""


class Machine:
    """Follows statements; what it knows of expressions and calls is added by its subclasses."""

    def __init__(self, files: Files, settings: LookUp, max_steps: int = MAX_STEPS) -> None:
        self.files = files
        self.max_steps = max_steps
        self.settings = settings
        self.steps = 0
        self.depth = 0
        self.branches = 0
        self.guards = 0
        self.bases: dict[int, list[ClassValue]] = {}
        self.makers: dict[int, bool] = {}
        self.trainers: dict[int, bool] = {}
        self.made_before: dict[Hashable, Module | None] = {}
        self.stand_ins: dict[str, File | None] = {}
        self.features: dict[int, tuple[Module, Module | None]] = {}
        self.used: dict[int, Any] = {}
        self.trained: dict[int, Any] = {}
        self.unknown: list[ast.expr] = []
        self.logs: list[dict[tuple[int, Any], tuple[Any, Any, Any]]] = []
        self.born: list[set[int]] = []
        self.active: dict[int, int] = {}
        self.noted: dict[int, NotedCall] = {}
        self.places: set[tuple[str, int]] = set()
        self.tape: Tape | None = None

    def start_step(self, *, autocast: str = "") -> None:
        """Begin to note what a training step saves; ``autocast`` is the type that autocast computes in."""
        self.tape = Tape(autocast=autocast)

    def end_step(self) -> StepMemory:
        """Return the memory of the training step that was followed."""
        tape, self.tape = self.tape or Tape(), None
        return tape.read()

    def evaluate(self, node: ast.expr, frame: Frame) -> Any:
        """Return the value of an expression."""
        raise NotImplementedError

    def run(self, body: Sequence[ast.stmt], frame: Frame) -> Flow:
        """Follow statements."""
        raise NotImplementedError

    def call(self, target: Any, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame) -> Any:
        """Return the result of a call."""
        raise NotImplementedError

    def take_step(self) -> None:
        """Count a step.

        Raises
        ------
        CannotCountError
            When there were too many.
        """
        self.steps += 1
        if self.steps > self.max_steps:
            raise CannotCountError("the program takes more steps than opsk follows")

    def write(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Set a name."""
        if self.logs and id(table) not in self.born[-1]:
            self.logs[-1].setdefault((id(table), key), (table, key, table.get(key, ABSENT)))
        table[key] = value

    def write_row(self, row: list[Any], content: Iterable[Any]) -> None:
        """Set the content of a list."""
        if self.logs and id(row) not in self.born[-1]:
            self.logs[-1].setdefault((id(row), None), (row, None, list(row)))
        row[:] = content

    def use_unknown(self, node: ast.expr, value: Any) -> None:
        """Note that a model is used, by its name or by what is asked of it, where that is one that is not known."""
        if any(map(is_unknown, list_options(value))):
            self.unknown.append(node)

    def note_call(
        self, name: str, positional: Sequence[Any], keywords: Mapping[str, Any], node: ast.Call, frame: Frame
    ) -> None:
        """Note what a function of a package is called with, where that says what is trained."""
        if not SETS_TRAINING.fullmatch(name.rpartition(".")[2]):
            return
        call = NotedCall(
            file=frame.file.path,
            line=node.lineno,
            name=name,
            positional=tuple(positional),
            keywords=dict(keywords),
            is_sure=len(self.logs) == self.guards,  # a program that trains did not end before
        )
        before = self.noted.get(id(node))
        self.noted[id(node)] = call if before is None else before.join(call)

    def bear(self, value: Any) -> Any:
        """Note that a value is new, and return it: what is set in it need not be undone with the branch."""
        if self.born:
            self.born[-1].add(id(value))
            if isinstance(value, Module):
                self.born[-1] |= {id(value.attributes), id(value.parts)}
                for part in (*value.attributes.values(), *value.parts):
                    if isinstance(part, Module) and id(part) not in self.born[-1]:
                        self.bear(part)
        return value

    def use(self, node: ast.AST, values: Iterable[Any], *, trains: bool = False) -> None:
        """Note that modules are used at a place of the program: what it makes in vain does not count.

        Where it is not known whether the program comes to the place, it may use nothing there.
        """
        key = id(node)
        for value in values:
            for module in list_modules(value):
                used = merge(module, ABSENT) if self.logs else module
                self.used[key] = merge(self.used[key], used) if key in self.used else used
                if trains:
                    self.trained[key] = self.used[key]

    def branch(self, first: Callable[[], Flow], second: Callable[[], Flow]) -> Flow:
        """Follow two branches of which one is taken, and join what they set."""
        self.branches += 1
        if self.branches > MAX_BRANCHES:
            raise CannotCountError("more tests than opsk follows are not known")
        before, tapes = self.tape, []
        outcomes = []
        try:
            for action in (first, second):
                self.tape = before.copy() if before is not None else None
                outcomes.append(self._try_branch(action))
                if self.tape is not None and outcomes[-1][0][0] is not End.RAISE:
                    tapes.append(self.tape)
        finally:
            self.branches -= 1
            self.tape = before
        if before is not None and tapes:
            self.tape = join_tapes(before, tapes)
        live = [outcome for outcome in outcomes if outcome[0][0] is not End.RAISE]
        if not live:
            return outcomes[0][0]
        changes: dict[tuple[int, Any], tuple[Any, Any]] = {}
        for _, made in live:
            changes |= {place: (table, key) for place, (table, key, _) in made.items()}
        for place, (table, key) in changes.items():
            values = [made[place][2] if place in made else _read(table, key) for _, made in live]
            value = values[0] if len(values) == 1 else merge(*values)
            if key is None:
                self.write_row(table, value if isinstance(value, list) else [value])
            else:
                self.write(table, key, value)
        return live[0][0] if len(live) == 1 else _join_flows(live[0][0], live[1][0])

    def _try_branch(self, action: Callable[[], Flow]) -> tuple[Flow, dict[tuple[int, Any], tuple[Any, Any, Any]]]:
        """Follow a branch; return how it ends and what it sets, and undo that."""
        self.logs.append({})
        self.born.append(set())
        try:
            flow = action()
        finally:
            log, born = self.logs.pop(), self.born.pop()
            if self.born:
                self.born[-1] |= born
        made = {place: (table, key, _read(table, key)) for place, (table, key, _) in log.items()}
        for table, key, before in log.values():
            if key is None:
                table[:] = before
            elif before is ABSENT:
                table.pop(key, None)
            else:
                table[key] = before
        return flow, made


def _read(table: Any, key: Any) -> Any:
    """Return what a place holds."""
    return list(table) if key is None else table.get(key, ABSENT)


def _join_flows(first: Flow, second: Flow) -> Flow:
    """Return how statements end that end one way or the other."""
    kinds = {first[0], second[0]}
    if kinds == {End.RETURN}:
        return End.RETURN, merge(first[1], second[1])
    if len(kinds) == 1 and End.MAYBE not in kinds:
        return first
    values = [flow[1] for flow in (first, second) if flow[0] in (End.RETURN, End.MAYBE) and flow[1] is not ABSENT]
    return End.MAYBE, values[0] if len(values) == 1 else merge(*values) if values else ABSENT
