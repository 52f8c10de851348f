"""Finds the values of a program's expressions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from itertools import pairwise, product
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.machine import GO_ON, PLACES, Flow
from opsk_jobcheck.scripts.frameworks.own_models.names import Names
from opsk_jobcheck.scripts.frameworks.own_models.operators import combine_values, compare_values
from opsk_jobcheck.scripts.frameworks.own_models.public_parts import cut_head
from opsk_jobcheck.scripts.frameworks.own_models.statements import compute_truth, iterate
from opsk_jobcheck.scripts.frameworks.own_models.values import (
    ABSENT,
    CALLABLE,
    DATA,
    MAX_OPTIONS,
    OPEN,
    Children,
    Choice,
    File,
    Frame,
    FunctionValue,
    Module,
    Settings,
    choose,
    list_options,
    merge,
)

MAX_TEXT = 256


class Expressions(Names):
    """Finds the values of expressions."""

    def evaluate(self, node: ast.expr, frame: Frame) -> Any:
        """Return the value of an expression; ``DATA`` for what only the running program knows."""
        self.take_step()
        kind = type(node)
        if kind is ast.Constant:
            value = node.value  # type: ignore[attr-defined]
            return value if value is None or isinstance(value, str | int | float) else DATA
        if kind is ast.Name:
            return self.look_up(node.id, frame)  # type: ignore[attr-defined]
        handler = _HANDLERS.get(kind)
        return handler(self, node, frame) if handler is not None else DATA

    def combine(self, operator: ast.operator, left: Any, right: Any) -> Any:
        """Return the result of an operator."""
        if isinstance(left, Choice) or isinstance(right, Choice):
            pairs = list(product(list_options(left), list_options(right)))
            return choose(combine_values(operator, *pair) for pair in pairs) if len(pairs) <= MAX_OPTIONS else DATA
        return combine_values(operator, left, right)

    def _evaluate_attribute(self, node: ast.Attribute, frame: Frame) -> Any:
        return self.get(self.evaluate(node.value, frame), node.attr, frame)

    def _evaluate_subscript(self, node: ast.Subscript, frame: Frame) -> Any:
        return self.take_part(self.evaluate(node.value, frame), node.slice, frame)

    def take_part(self, owner: Any, part: ast.expr, frame: Frame) -> Any:
        """Return a part of a value."""
        if isinstance(part, ast.Slice):
            return self._slice(owner, part, frame)
        return get_item(self, owner, self.evaluate(part, frame), frame)

    def _slice(self, owner: Any, part: ast.Slice, frame: Frame) -> Any:
        ends = [self.evaluate(end, frame) if end is not None else None for end in (part.lower, part.upper, part.step)]
        if isinstance(owner, Children):
            return cut_head(owner, ends)
        row = owner.parts if isinstance(owner, Module) else owner
        is_known = all(end is None or (isinstance(end, int) and not isinstance(end, bool)) for end in ends)
        if not isinstance(row, list | tuple | range | str) or not is_known or ends[2] == 0:
            return OPEN if isinstance(owner, Module) or owner is OPEN else DATA
        if isinstance(row, list | tuple) and any(isinstance(x, Choice) and ABSENT in x.options for x in row):
            return DATA
        result = row[slice(*ends)]
        return Module(owner.name, parts=list(result)) if isinstance(owner, Module) else result

    def _evaluate_binary(self, node: ast.BinOp, frame: Frame) -> Any:
        return self.combine(node.op, self.evaluate(node.left, frame), self.evaluate(node.right, frame))

    def _evaluate_unary(self, node: ast.UnaryOp, frame: Frame) -> Any:
        return self.apply_sign(node.op, self.evaluate(node.operand, frame))

    def apply_sign(self, operator: ast.unaryop, value: Any) -> Any:
        """Return the result of an operator on one value."""
        if isinstance(operator, ast.Not):
            known = compute_truth(value)
            return DATA if known is DATA else not known
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return -value if isinstance(operator, ast.USub) and is_number else DATA

    def _evaluate_boolean(self, node: ast.BoolOp, frame: Frame) -> Any:
        is_and = isinstance(node.op, ast.And)
        open_values: list[Any] = []
        for index, part in enumerate(node.values):
            value = self.evaluate(part, frame)
            known = compute_truth(value)
            if known is not DATA and (known is not is_and or index == len(node.values) - 1):
                if open_values and known is not is_and and (is_and or value is True):
                    return not is_and  # whatever the others are
                return choose([*open_values, value]) if open_values else value
            if known is DATA:
                open_values.append(value)
        return choose(open_values)

    def _evaluate_compare(self, node: ast.Compare, frame: Frame) -> Any:
        if len(node.ops) != 1:
            return self._compare_chain(node, frame)
        return self.compare(node.ops[0], self.evaluate(node.left, frame), self.evaluate(node.comparators[0], frame))

    def compare(self, operator: ast.cmpop, left: Any, right: Any) -> Any:
        """Return the result of a comparison."""
        pairs = list(product(list_options(left), list_options(right)))
        results = [compare_values(operator, *pair) for pair in pairs[: MAX_OPTIONS + 1]]
        return results[0] if len(pairs) <= MAX_OPTIONS and all(x is results[0] for x in results) else DATA

    def _compare_chain(self, node: ast.Compare, frame: Frame) -> Any:
        values = [self.evaluate(part, frame) for part in (node.left, *node.comparators)]
        results = [compare_values(op, *pair) for op, pair in zip(node.ops, pairwise(values), strict=True)]
        return False if False in results else DATA if DATA in results else True

    def _evaluate_choice(self, node: ast.IfExp, frame: Frame) -> Any:
        test = self.test(node.test, frame)
        if test is not DATA:
            return self.evaluate(node.body if test else node.orelse, frame)
        values: list[Any] = []

        def take(part: ast.expr) -> Flow:
            values.append(self.evaluate(part, frame))
            return GO_ON

        self.branch(lambda: take(node.body), lambda: take(node.orelse))
        return merge(*values)

    def _evaluate_list(self, node: ast.List | ast.Tuple | ast.Set, frame: Frame) -> Any:
        result: list[Any] = []
        for part in node.elts:
            if isinstance(part, ast.Starred):
                value = self.evaluate(part.value, frame)
                items = iterate(value)
                result += items if items is not None else [OPEN]
            else:
                result.append(self.evaluate(part, frame))
        return tuple(result) if isinstance(node, ast.Tuple) else self.bear(result)

    def _evaluate_dict(self, node: ast.Dict, frame: Frame) -> Any:
        result: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            content = self.evaluate(value, frame)
            name = self.evaluate(key, frame) if key is not None else ABSENT
            if isinstance(name, str | int):
                result[name] = content
            elif key is None and isinstance(content, dict):
                result |= content
            else:
                result["?"] = OPEN if content is OPEN or isinstance(content, Module) else DATA
        return self.bear(result)

    def _evaluate_comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, frame: Frame) -> Any:
        result: list[Any] = []
        inner = Frame(frame.file, {}, frame.owner, frame.kind, frame)
        is_known = self._comprehend(node.generators, 0, inner, lambda: result.append(self.evaluate(node.elt, inner)))
        if is_known:
            return self.bear(result)
        return [OPEN] if any(isinstance(value, Module) or value is OPEN for value in result) else DATA

    def _evaluate_table(self, node: ast.DictComp, frame: Frame) -> Any:
        result: dict[Any, Any] = {}
        inner = Frame(frame.file, {}, frame.owner, frame.kind, frame)

        def add() -> None:
            key, value = self.evaluate(node.key, inner), self.evaluate(node.value, inner)
            result[key if isinstance(key, str | int) else "?"] = value

        is_known = self._comprehend(node.generators, 0, inner, add)
        is_of_modules = any(isinstance(value, Module) or value is OPEN for value in result.values())
        if not is_known or "?" in result:
            return {"?": OPEN} if is_of_modules else DATA
        return result

    def _comprehend(self, parts: list[ast.comprehension], index: int, frame: Frame, add: Callable[[], None]) -> bool:
        """Follow a comprehension; return whether it is known what it runs over."""
        if index == len(parts):
            add()
            return True
        part = parts[index]
        items = iterate(self.evaluate(part.iter, frame))
        is_known = items is not None and not any(isinstance(x, Choice) and ABSENT in x.options for x in items)
        for item in items if items is not None and is_known else [DATA]:
            self.assign(part.target, item, frame)
            tests = [self.test(test, frame) for test in part.ifs]
            is_known = is_known and DATA not in tests
            if False not in tests:
                is_known = self._comprehend(parts, index + 1, frame, add) and is_known
        return is_known

    def _evaluate_lambda(self, node: ast.Lambda, frame: Frame) -> Any:
        return FunctionValue(node, frame.file, frame)

    def _evaluate_named(self, node: ast.NamedExpr, frame: Frame) -> Any:
        value = self.evaluate(node.value, frame)
        self.assign(node.target, value, frame)
        return value

    def _evaluate_text(self, node: ast.JoinedStr, frame: Frame) -> Any:
        """Return a text with values in it."""
        words: list[str] = []
        for part in node.values:
            value = self.evaluate(part.value if isinstance(part, ast.FormattedValue) else part, frame)
            if not isinstance(value, str | int) or (isinstance(part, ast.FormattedValue) and part.format_spec):
                return DATA
            words.append(str(value)[:MAX_TEXT])
        return "".join(words)[:MAX_TEXT]

    def _evaluate_call(self, node: ast.Call, frame: Frame) -> Any:
        function = node.func
        name = getattr(function, "attr", getattr(function, "id", ""))
        if PLACES.fullmatch(name):
            self.places.add((frame.file.path, node.lineno))
        if not isinstance(function, ast.Attribute):
            target = self.evaluate(function, frame)
            return self.call(target, *self._evaluate_arguments(node, frame), node, frame)
        owner = self.evaluate(function.value, frame)
        target = self.get(owner, function.attr, frame)
        positional, keywords = self._evaluate_arguments(node, frame)
        if any(isinstance(option, (*CALLABLE, Module)) for option in list_options(target)):
            return self.call(target, positional, keywords, node, frame)
        return self.call_method(owner, function.attr, positional, keywords, node, frame)

    def _evaluate_arguments(self, node: ast.Call, frame: Frame) -> tuple[list[Any], dict[str, Any]]:
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        for part in node.args:
            value = self.evaluate(part.value if isinstance(part, ast.Starred) else part, frame)
            if not isinstance(part, ast.Starred):
                positional.append(value)
                continue
            items = iterate(value)
            positional += items if items is not None else [OPEN]
        for word in node.keywords:
            value = self.evaluate(word.value, frame)
            if word.arg:
                keywords[word.arg] = value
            elif isinstance(value, dict):
                keywords |= {str(key): item for key, item in value.items()}
            elif isinstance(value, Settings) and (rows := self.list_rows(value)):
                keywords |= {str(key): item for key, item in rows.items()}
            else:
                keywords["?"] = value
        return positional, keywords

    def call_method(
        self, owner: Any, name: str, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame
    ) -> Any:
        """Return the result of a method that is not the program's."""
        raise NotImplementedError


_HANDLERS: Mapping[type[ast.expr], Callable[[Any, Any, Frame], Any]] = {
    ast.Attribute: lambda machine, node, frame: machine._evaluate_attribute(node, frame),
    ast.Subscript: lambda machine, node, frame: machine._evaluate_subscript(node, frame),
    ast.BinOp: lambda machine, node, frame: machine._evaluate_binary(node, frame),
    ast.UnaryOp: lambda machine, node, frame: machine._evaluate_unary(node, frame),
    ast.BoolOp: lambda machine, node, frame: machine._evaluate_boolean(node, frame),
    ast.Compare: lambda machine, node, frame: machine._evaluate_compare(node, frame),
    ast.IfExp: lambda machine, node, frame: machine._evaluate_choice(node, frame),
    ast.List: lambda machine, node, frame: machine._evaluate_list(node, frame),
    ast.Tuple: lambda machine, node, frame: machine._evaluate_list(node, frame),
    ast.Set: lambda machine, node, frame: machine._evaluate_list(node, frame),
    ast.Dict: lambda machine, node, frame: machine._evaluate_dict(node, frame),
    ast.ListComp: lambda machine, node, frame: machine._evaluate_comprehension(node, frame),
    ast.GeneratorExp: lambda machine, node, frame: machine._evaluate_comprehension(node, frame),
    ast.SetComp: lambda machine, node, frame: machine._evaluate_comprehension(node, frame),
    ast.DictComp: lambda machine, node, frame: machine._evaluate_table(node, frame),
    ast.Lambda: lambda machine, node, frame: machine._evaluate_lambda(node, frame),
    ast.NamedExpr: lambda machine, node, frame: machine._evaluate_named(node, frame),
    ast.JoinedStr: lambda machine, node, frame: machine._evaluate_text(node, frame),
    ast.Call: lambda machine, node, frame: machine._evaluate_call(node, frame),
}
"""Methods by the expressions that they evaluate; a subclass has others of the same name."""


def get_item(machine: Expressions, owner: Any, key: Any, frame: Frame) -> Any:
    """Return an item of a value."""
    if isinstance(key, Choice):
        return choose(option for part in key.options for option in list_options(get_item(machine, owner, part, frame)))
    if isinstance(owner, Choice):
        return choose(option for part in owner.options for option in list_options(get_item(machine, part, key, frame)))
    if isinstance(owner, File):
        return machine.look_up_in_file(key, owner) if isinstance(key, str) else OPEN
    row = owner.parts if isinstance(owner, Module) else owner
    if isinstance(row, list | tuple | range | str) and isinstance(key, int) and -len(row) <= key < len(row):
        is_sure = not any(isinstance(x, Choice) and ABSENT in x.options for x in row[: key + 1 or None])
        return row[key] if is_sure and key >= 0 else DATA if not is_sure else row[key]
    if isinstance(owner, Module):
        return owner.attributes.get(key, OPEN) if isinstance(key, str) else OPEN
    if isinstance(owner, dict):
        if isinstance(key, str | int):
            return owner.get(key, owner.get("?", DATA))
        return choose(option for value in owner.values() for option in list_options(value)) if owner else DATA
    if isinstance(owner, Settings) and isinstance(key, str):
        return machine.find_setting(owner, key)
    return OPEN if owner is OPEN else DATA
