"""Follows the statements of a program."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.files import list_imported
from opsk_jobcheck.scripts.frameworks.own_models.machine import GO_ON, End, Flow, Machine
from opsk_jobcheck.scripts.frameworks.own_models.values import (
    ABSENT,
    DATA,
    OPEN,
    CannotCountError,
    Choice,
    ClassValue,
    File,
    FinishedError,
    Frame,
    FunctionValue,
    Module,
    Partial,
    Settings,
    Tensor,
    merge,
)

MAX_ITEMS = 512
MAX_TRAININGS = 4
"""Trainings of one program that are followed each."""
MAX_ROUNDS = 24
"""Rounds of a loop that are followed where it makes no modules."""


def iterate(value: Any) -> list[Any] | None:
    """Return what a loop runs over; ``None`` where that is not known.

    Raises
    ------
    CannotCountError
        Where there is too much.
    """
    if isinstance(value, Module):
        value = [*value.attributes.values(), *value.parts] if value.name == "ModuleDict" else value.parts
    if not isinstance(value, list | tuple | range | dict | str):
        return None
    if len(value) > MAX_ITEMS:
        raise CannotCountError("a loop repeats more often than opsk follows")
    return list(value)


class Statements(Machine):
    """Follows statements."""

    def run(self, body: Sequence[ast.stmt], frame: Frame) -> Flow:
        """Follow statements; after one that may have ended them, the others may run."""
        for index, statement in enumerate(body):
            self.take_step()
            flow = self._follow(statement, frame)
            if flow[0] is End.MAYBE:
                return self._run_maybe(body[index + 1 :], flow, frame)
            if flow[0] is not End.NEXT:
                return flow
        return GO_ON

    def _run_maybe(self, rest: Sequence[ast.stmt], before: Flow, frame: Frame) -> Flow:
        """Follow statements that run unless those before them returned."""
        ends: list[Flow] = []

        def run_rest() -> Flow:
            ends.append(self.run(rest, frame))
            return ends[-1]

        self.guards += 1
        try:
            self.branch(run_rest, lambda: GO_ON)
        finally:
            self.guards -= 1
        kind, value = ends[-1]
        if kind not in (End.RETURN, End.MAYBE) or value is ABSENT:
            return before
        if before[1] is ABSENT:
            return End.MAYBE, value
        return kind, merge(before[1], value)

    def _follow(self, statement: ast.stmt, frame: Frame) -> Flow:
        """Follow one statement."""
        if isinstance(statement, ast.Assign):
            value = self.evaluate(statement.value, frame)
            for target in statement.targets:
                self.assign(target, value, frame)
        elif isinstance(statement, ast.Expr):
            self.evaluate(statement.value, frame)
        elif isinstance(statement, ast.AnnAssign):
            if statement.value is not None:
                self.assign(statement.target, self.evaluate(statement.value, frame), frame)
        elif isinstance(statement, ast.AugAssign):
            self._assign_again(statement, frame)
        elif isinstance(statement, ast.Return):
            return End.RETURN, self.evaluate(statement.value, frame) if statement.value is not None else None
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            self._define(statement, frame)
        elif isinstance(statement, ast.ClassDef):
            self.write(frame.names, statement.name, ClassValue(statement, frame.file))
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            frame.file.imports.update(list_imported(statement))
        elif isinstance(statement, ast.Delete):
            self._delete(statement, frame)
        else:
            return self._follow_block(statement, frame)
        return GO_ON

    def _follow_block(self, statement: ast.stmt, frame: Frame) -> Flow:
        """Follow a statement that holds others, or ends a block."""
        if isinstance(statement, ast.If):
            test = self.test(statement.test, frame)
            if test is not DATA:
                return self.run(statement.body if test else statement.orelse, frame)
            return self.branch(lambda: self.run(statement.body, frame), lambda: self.run(statement.orelse, frame))
        if isinstance(statement, ast.For | ast.AsyncFor):
            return self._repeat(statement, frame)
        if isinstance(statement, ast.While):
            self._repeat_unknown(statement, frame, ABSENT)
        elif isinstance(statement, ast.With | ast.AsyncWith):
            for item in statement.items:
                value = self.evaluate(item.context_expr, frame)
                if item.optional_vars is not None:
                    self.assign(item.optional_vars, value, frame)
            return self.run(statement.body, frame)
        elif isinstance(statement, ast.Try):
            return self._try(statement, frame)
        elif isinstance(statement, ast.Raise):
            return End.RAISE, ABSENT
        elif isinstance(statement, ast.Break):
            return End.LEAVE, ABSENT
        elif isinstance(statement, ast.Continue):
            return End.CONTINUE, ABSENT
        elif isinstance(statement, ast.Match):
            return self._match(self.evaluate(statement.subject, frame), statement.cases, frame)
        return GO_ON

    def _match(self, subject: Any, cases: Sequence[ast.match_case], frame: Frame) -> Flow:
        """Follow the case of a ``match`` statement that a value has, or each that it may have."""
        if not cases:
            return GO_ON
        first, *rest = cases
        holds = self._holds(subject, first.pattern, frame) if first.guard is None else DATA
        if holds is DATA:
            return self.branch(lambda: self.run(first.body, frame), lambda: self._match(subject, rest, frame))
        return self.run(first.body, frame) if holds else self._match(subject, rest, frame)

    def _holds(self, subject: Any, pattern: ast.pattern, frame: Frame) -> Any:
        """Return whether a value has a pattern; ``DATA`` where that is not known."""
        if isinstance(pattern, ast.MatchAs) and pattern.pattern is None:
            return True
        if isinstance(pattern, ast.MatchOr):
            parts = [self._holds(subject, part, frame) for part in pattern.patterns]
            return True if True in parts else DATA if DATA in parts else False
        value = self.evaluate(pattern.value, frame) if isinstance(pattern, ast.MatchValue) else DATA
        is_known = all(isinstance(row, str | int | float) for row in (subject, value))
        return bool(subject == value) if is_known else DATA

    def test(self, node: ast.expr, frame: Frame) -> Any:
        """Return whether a test holds; ``DATA`` where that is not known."""
        return compute_truth(self.evaluate(node, frame))

    def _try(self, statement: ast.Try, frame: Frame) -> Flow:
        """Follow what is tried; where it may fail, its handlers may have run instead."""
        is_import = all(isinstance(part, ast.Import | ast.ImportFrom) for part in statement.body)
        handlers = [] if is_import else statement.handlers
        flow = self.run(statement.body, frame)
        for handler in handlers:
            body = handler.body
            if any(isinstance(part, ast.Raise) for part in body) or flow[0] is not End.NEXT:
                continue
            flow = self.branch(lambda: GO_ON, lambda body=body: self.run(body, frame))  # type: ignore[misc]
        if flow[0] is End.NEXT:
            flow = self.run(statement.orelse, frame)
        return flow if flow[0] is not End.NEXT else self.run(statement.finalbody, frame)

    def _repeat(self, statement: ast.For | ast.AsyncFor, frame: Frame) -> Flow:
        """Follow a loop."""
        if id(statement) in frame.file.digest.trains or self.may_train(statement, frame.file):
            return self.train(statement, frame)
        value = self.evaluate(statement.iter, frame)
        is_long = isinstance(value, range) and len(value) > MAX_ITEMS
        items = None if is_long and not self.makes_modules(statement, frame) else iterate(value)
        if items is not None and len(items) > MAX_ROUNDS and not self.makes_modules(statement, frame):
            items = None
        if items is None:
            self._repeat_unknown(statement, frame, DATA if value is DATA else OPEN)
            return GO_ON
        for index, item in enumerate(items):
            if isinstance(item, Choice) and ABSENT in item.options:
                rest = items[index:]
                self.branch(lambda rest=rest: self._repeat_rest(rest, statement, frame), lambda: GO_ON)  # type: ignore[misc]
                return GO_ON
            self.assign(statement.target, item, frame)
            flow = self.run(statement.body, frame)
            if flow[0] is End.LEAVE:
                return GO_ON
            if flow[0] is End.MAYBE:
                rest = items[index + 1 :]
                self.branch(lambda rest=rest: self._repeat_rest(rest, statement, frame), lambda: GO_ON)  # type: ignore[misc]
                return flow if flow[1] is not ABSENT else GO_ON
            if flow[0] in (End.RETURN, End.RAISE):
                return flow
        return self.run(statement.orelse, frame)

    def _repeat_rest(self, items: Sequence[Any], statement: ast.For | ast.AsyncFor, frame: Frame) -> Flow:
        """Follow the other rounds of a loop, each of which may be left out."""
        for item in items:
            options = item.options if isinstance(item, Choice) else (item,)
            known = [option for option in options if option is not ABSENT]
            self.assign(statement.target, known[0] if len(known) == 1 else DATA, frame)
            self.branch(lambda: self.run(statement.body, frame), lambda: GO_ON)
        return GO_ON

    def _repeat_unknown(self, statement: ast.For | ast.AsyncFor | ast.While, frame: Frame, item: Any) -> None:
        """Follow a loop once that may run any number of times; what it sets may then be anything."""
        if id(statement) in frame.file.digest.trains or self.may_train(statement, frame.file):
            self.train(statement, frame)
            return
        if isinstance(statement, ast.For | ast.AsyncFor):
            self.assign(statement.target, item, frame)
        self.logs.append({})
        self.born.append(set())
        try:
            self.branch(lambda: self.run(statement.body, frame), lambda: GO_ON)
        finally:
            log, born = self.logs.pop(), self.born.pop()
            if self.born:
                self.born[-1] |= born
        for table, key, before in log.values():
            if self.logs:
                self.logs[-1].setdefault((id(table), key), (table, key, before))
            if key is None:
                table[:] = [*table, OPEN] if len(table) != len(before) or table != before else before
            elif isinstance(table.get(key), Module | Choice) or table.get(key) is OPEN:
                table[key] = OPEN
            elif table.get(key) is not before:
                table[key] = DATA

    def train(self, statement: ast.For | ast.AsyncFor | ast.While, frame: Frame) -> Flow:
        """Leave out a loop that trains; follow it once where it makes the models first, for each part of the data."""
        if not self.may_make(statement, frame.file):
            self.finish()
            self._forget(statement, frame)
            return GO_ON
        flow, ended = GO_ON, None
        for item in self.list_rounds(statement, frame):
            if isinstance(statement, ast.For | ast.AsyncFor):
                self.assign(statement.target, item, frame)
            try:
                flow = self.run(statement.body, frame)
            except FinishedError as error:
                ended = error
        if ended is not None:
            raise ended
        return flow if flow[0] is End.RETURN else GO_ON

    def list_rounds(self, statement: ast.For | ast.AsyncFor | ast.While, frame: Frame) -> list[Any]:
        """Return what the rounds of a loop that trains differ by: several trainings, or one for numbers (of epochs)."""
        value = None if isinstance(statement, ast.While) else self.evaluate(statement.iter, frame)
        items = value[:1] if isinstance(value, range) else value if isinstance(value, list | tuple) else []
        return list(items) if 0 < len(items) <= MAX_TRAININGS else [DATA]

    def finish(self) -> None:
        """End where the training begins, and the optimizer has the parameters of the models.

        Raises
        ------
        FinishedError
            When it does, for sure.
        """
        if self.trained and not self.logs:
            raise FinishedError

    def may_make(self, code: ast.AST, file: File) -> bool:
        """Return whether a part of a program may make models."""
        raise NotImplementedError

    def may_train(self, code: ast.AST, file: File) -> bool:
        """Return whether a loop calls a function that trains."""
        raise NotImplementedError

    def makes_modules(self, statement: ast.For | ast.AsyncFor, frame: Frame) -> bool:
        """Return whether a loop makes modules itself, or is part of what a step of a model computes."""
        if self.tape is not None if frame.owner is None else frame.owner.is_model:
            return True
        return any(name[:1].isupper() for name, _ in frame.file.digest.calls.get(id(statement), ()))

    def _forget(self, statement: ast.stmt, frame: Frame) -> None:
        """Give names that a block sets values that are not known."""
        for part in ast.walk(statement):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                before = frame.names.get(part.id, ABSENT)
                if not isinstance(before, Module):
                    self.write(frame.names, part.id, DATA)

    def assign(self, target: ast.expr, value: Any, frame: Frame) -> None:
        """Set what a target names."""
        if isinstance(target, ast.Name):
            self.write(frame.names, target.id, value)
        elif isinstance(target, ast.Tuple | ast.List):
            self._assign_several(target.elts, value, frame)
        elif isinstance(target, ast.Attribute):
            self.assign_attribute(self.evaluate(target.value, frame), target.attr, value)
        elif isinstance(target, ast.Subscript):
            self._assign_item(self.evaluate(target.value, frame), self.evaluate(target.slice, frame), value)

    def _assign_several(self, targets: Sequence[ast.expr], value: Any, frame: Frame) -> None:
        """Set the targets of an assignment of several values."""
        is_row = isinstance(value, list | tuple) and len(value) == len(targets)
        parts = list(value) if is_row else [OPEN if value is OPEN else DATA] * len(targets)
        if any(isinstance(target, ast.Starred) for target in targets):
            parts = [DATA] * len(targets)
        for target, part in zip(targets, parts, strict=True):
            self.assign(target.value if isinstance(target, ast.Starred) else target, part, frame)

    def assign_attribute(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute of an object."""
        if isinstance(owner, Module):
            self.write(owner.attributes, name, value)
        elif isinstance(owner, Settings):
            self.write(owner.changed, (*owner.path, name), value)
        elif isinstance(owner, Choice):
            for option in owner.options:
                if isinstance(option, Module):
                    self.write(option.attributes, name, merge(option.attributes.get(name, ABSENT), value))

    def _assign_item(self, owner: Any, key: Any, value: Any) -> None:
        """Set an item of a table or list."""
        if isinstance(owner, dict):
            if isinstance(key, str | int):
                self.write(owner, key, value)
            else:
                self.write(owner, "?", OPEN if isinstance(value, Module) else DATA)
        elif isinstance(owner, list):
            row = list(owner)
            if isinstance(key, int) and -len(row) <= key < len(row):
                row[key] = value
                self.write_row(owner, row)
            else:
                self.write_row(owner, [OPEN])
        elif isinstance(owner, Module):
            if isinstance(key, int) and -len(owner.parts) <= key < len(owner.parts):
                row = list(owner.parts)
                row[key] = value
                self.write_row(owner.parts, row)
            elif isinstance(key, str):
                self.write(owner.attributes, key, value)
            else:
                self.write(owner.attributes, "?", OPEN)
        elif isinstance(owner, Settings) and isinstance(key, str):
            self.write(owner.changed, (*owner.path, key), value)

    def _assign_again(self, statement: ast.AugAssign, frame: Frame) -> None:
        """Follow ``+=`` and its like."""
        left = self.evaluate(statement.target, frame)
        right = self.evaluate(statement.value, frame)
        if isinstance(left, list) and isinstance(statement.op, ast.Add):
            added = iterate(right)
            self.write_row(left, [*left, *(added if added is not None else [OPEN])])
            return
        if isinstance(left, Module) and isinstance(statement.op, ast.Add):
            added = iterate(right)
            self.write_row(left.parts, [*left.parts, *(added if added is not None else [OPEN])])
            return
        combined = ast.BinOp(left=statement.target, op=statement.op, right=statement.value)
        self.assign(statement.target, self.combine(combined.op, left, right), frame)

    def combine(self, operator: ast.operator, left: Any, right: Any) -> Any:
        """Return the result of an operator."""
        raise NotImplementedError

    def _define(self, statement: ast.FunctionDef | ast.AsyncFunctionDef, frame: Frame) -> None:
        """Set the name of a function."""
        function = FunctionValue(statement, frame.file, frame)
        self.write(frame.names, statement.name, function)

    def _delete(self, statement: ast.Delete, frame: Frame) -> None:
        """Follow ``del``."""
        for target in statement.targets:
            if isinstance(target, ast.Name):
                self.write(frame.names, target.id, ABSENT)
            elif isinstance(target, ast.Attribute):
                self.assign_attribute(self.evaluate(target.value, frame), target.attr, None)


def compute_truth(value: Any) -> Any:
    """Return whether Python takes a value as true; ``DATA`` where that is not known."""
    if isinstance(value, Choice):
        truths = {compute_truth(option) for option in value.options}
        return truths.pop() if len(truths) == 1 else DATA
    if value is DATA or value is OPEN or isinstance(value, Tensor | Settings):
        return DATA
    if value is ABSENT:
        return DATA
    if isinstance(value, Module | Partial | FunctionValue | ClassValue):
        return True
    return bool(value) if isinstance(value, str | int | float | list | tuple | dict | range) or value is None else DATA
