"""Reads expressions of a Python program: literals, names of settings, and tests as conditions."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

from opsk_jobcheck.scripts.frameworks.python.source import HAS_BF16, MAX_TEXT_CHARS, OR, Name, Value

MAX_CHOICES = 4
MAX_WORDS = 64
MAX_PATH = 8
_TESTS = frozenset({ast.Call, ast.BoolOp, ast.UnaryOp})
_ASKS_FOR_BF16 = frozenset({HAS_BF16, "is_bfloat16_supported", "is_torch_bf16_gpu_available"})
_SEQUENCES = (ast.List, ast.Tuple, ast.Set)


def get_name(node: Any) -> str:
    """Return the last part of a name, an attribute or a key; empty for anything else."""
    kind = node.__class__
    if kind is ast.Name:
        return str(node.id)
    if kind is ast.Attribute:
        return str(node.attr)
    if kind is ast.Subscript and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        return node.slice.value
    return ""


def get_path(node: ast.expr) -> str:
    """Return the names below an object, with dots between them; empty for what is no attribute, or one of ``self``."""
    names: list[str] = []
    while isinstance(node, ast.Attribute) and len(names) < MAX_PATH:
        names.append(node.attr)
        node = node.value
    is_object = isinstance(node, ast.Name) and node.id not in ("self", "cls", "args")
    return ".".join(reversed(names)) if is_object else ""


def parse_value(node: Any, depth: int = 0) -> Value:
    """Return a literal, the name that a value is taken from, or one of two that a test decides between."""
    line, kind = node.lineno, node.__class__
    if kind is ast.Name:
        return Value(name=node.id, line=line)
    if kind is ast.Constant:
        is_scalar = node.value is None or isinstance(node.value, str | int | float)
        return Value(literal=node.value, line=line, is_known=True) if is_scalar else Value(line=line)
    if kind is ast.Attribute:
        return _parse_attribute(node)
    if kind in _TESTS and (answer := _parse_test(node)) is not None:
        return answer
    if kind is ast.Call and _names_format(node) and depth < MAX_CHOICES:
        return parse_value(node.args[1], depth + 1)
    if kind is ast.Call:
        variable = _parse_variable(node, depth) if depth < MAX_CHOICES else None
        return Value(line=line) if variable is None else variable
    if kind is ast.UnaryOp and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        number = node.operand.value
        return Value(literal=-number, line=line, is_known=True) if isinstance(number, int | float) else Value(line=line)
    if kind is ast.BinOp and (product := _multiply(node)) is not None:
        return Value(literal=product, line=line, is_known=True)
    if kind in _SEQUENCES and 0 < len(node.elts) <= MAX_WORDS:
        words = [part.value for part in node.elts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        return Value(line=line, words=tuple(words) if len(words) == len(node.elts) else ())
    if kind is ast.IfExp and depth < MAX_CHOICES:
        choice = (parse_value(node.body, depth + 1), parse_value(node.orelse, depth + 1))
        return Value(line=line, test=parse_condition(node.test), choice=choice)
    return Value(name=get_name(node), line=line)


def _parse_test(node: ast.Call | ast.BoolOp | ast.UnaryOp) -> Value | None:
    """Return whether the GPU computes in bf16, or the opposite of a setting (``not args.full``); else ``None``."""
    opposite = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) else None
    test, is_on = parse_condition(opposite or node), opposite is None
    if "?" in test or (is_on and HAS_BF16 not in test):
        return None
    choice = tuple(Value(literal=which, line=node.lineno, is_known=True) for which in (is_on, not is_on))
    return Value(line=node.lineno, test=test, choice=choice)


def _parse_attribute(node: ast.Attribute) -> Value:
    """Return a number format or a strategy of sharding, which are literals, else the name of the attribute."""
    owner = node.value
    if isinstance(owner, ast.Name) and owner.id == "torch":
        return Value(literal=f"torch.{node.attr}", line=node.lineno, is_known=True)
    if get_name(owner) == "ShardingStrategy":
        return Value(literal=node.attr, line=node.lineno, is_known=True)
    return Value(name=node.attr, line=node.lineno)


def _names_format(call: ast.Call) -> bool:
    """Return whether a call makes a number format of its name: ``getattr(torch, args.dtype)``."""
    is_named = get_name(call.func) == "getattr" and len(call.args) > 1
    return is_named and isinstance(call.args[0], ast.Name) and call.args[0].id == "torch"


def _parse_variable(call: ast.Call, depth: int) -> Value | None:
    """Return a variable of the environment with its default, as text or as a number; ``None`` for any other call."""
    name = get_name(call.func)
    if name in ("int", "float", "str") and len(call.args) == 1 and isinstance(call.args[0], ast.Call):
        inner = _parse_variable(call.args[0], depth + 1) if depth < MAX_CHOICES else None
        return None if inner is None else replace(inner, line=call.lineno)
    is_get = name == "getenv" or (isinstance(call.func, ast.Attribute) and get_name(call.func.value) == "environ")
    words = [word.value for word in call.args if isinstance(word, ast.Constant)]
    if not is_get or name not in ("getenv", "get") or len(words) != 2 or not isinstance(words[0], str):
        return None
    default = words[1] if isinstance(words[1], str | int | float) else None
    return Value(literal=default, line=call.lineno, is_known=default is not None, variable=words[0])


def _multiply(node: ast.expr, depth: int = 0) -> int | None:
    """Return a product of whole numbers (``8 * 1024``)."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int and 0 <= node.value < 1 << 40 else None
    if depth > 4 or not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return None
    left, right = _multiply(node.left, depth + 1), _multiply(node.right, depth + 1)
    return left * right if left is not None and right is not None and left * right < 1 << 40 else None


def parse_condition(test: ast.expr) -> Name:
    """Return a test as conditions: names of settings, or a question mark."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return tuple(part for value in test.values[:8] for part in parse_condition(value))
    if isinstance(test, ast.BoolOp):
        return _join([parse_condition(value) for value in test.values])
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = parse_condition(test.operand)
        return negate(inner) or ("?",)
    if isinstance(test, ast.Call):
        name = get_name(test.func)
        return () if name == "is_available" else (HAS_BF16,) if name in _ASKS_FOR_BF16 else ("?",)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _parse_comparison(test.left, test.ops[0], test.comparators[0])
    return (get_name(test) or "?",)


def _parse_comparison(left: ast.expr, operator: ast.cmpop, right: ast.expr) -> Name:
    """Return a comparison with a constant as a condition."""
    name = get_name(left)
    if isinstance(left, ast.Name) and name == "__name__":
        return ()
    if name and isinstance(right, _SEQUENCES) and isinstance(operator, ast.In | ast.NotIn):
        tests = [_parse_comparison(left, ast.Eq(), part) for part in right.elts]
        return _join(tests) if isinstance(operator, ast.In) else negate(_join(tests))
    if not name or not isinstance(right, ast.Constant):
        return ("?",)
    if right.value is None and isinstance(operator, ast.Is | ast.IsNot | ast.Eq | ast.NotEq):
        return (name if isinstance(operator, ast.IsNot | ast.NotEq) else f"-{name}",)
    if isinstance(right.value, str | int) and isinstance(operator, ast.Eq | ast.NotEq):
        return (f"{'' if isinstance(operator, ast.Eq) else '-'}{name}={right.value}"[:MAX_TEXT_CHARS],)
    return ("?",)


def negate(test: Name) -> Name:
    """Return the conditions of the other branch."""
    if len(test) == 1:
        return tuple(map(_negate_one, test[0].split(OR)))
    if not test:
        return ()
    return _join([(_negate_one(part) if OR not in part else "?",) for part in test])


def _negate_one(condition: str) -> str:
    """Return the opposite of a condition without alternatives."""
    if condition == "?":
        return "?"
    return condition[1:] if condition.startswith("-") else f"-{condition}"


def _join(tests: list[Name]) -> Name:
    """Return one condition of which one alternative has to hold; a question mark where that is not told."""
    if len(tests) > MAX_CHOICES or not all(len(test) == 1 for test in tests):
        return ("?",)
    return (OR.join(test[0] for test in tests) or "?",)
