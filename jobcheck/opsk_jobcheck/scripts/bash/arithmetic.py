"""Evaluates shell arithmetic expressions in 64-bit integers by bash's rules, assignments included."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from types import MappingProxyType

MAX_TOKENS = 512
MAX_NESTING = 40
MAX_CACHED_CHARS = 256
_TOKEN = re.compile(
    r"\s*(0[xX][0-9a-fA-F]+|[0-9]+#[0-9a-zA-Z@_]+|[0-9][0-9a-zA-Z_]*|[A-Za-z_][A-Za-z0-9_]*"
    r"|\*\*|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\+\+|--|[-+*/%<>&|^!~?:(),=])"
)
_DECIMAL = re.compile(r"[1-9][0-9]{0,17}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNING = re.compile(
    r"(?<!\w)([A-Za-z_]\w*+)(?:\[[^\]]{0,256}\])?\s*+(?:\+\+|--|(?:<<|>>|[-+*/%&|^])?=(?!=))"
    r"|(?:\+\+|--)\s*+([A-Za-z_]\w*+)"
)
_ASSIGNMENTS = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="})
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_LEVEL_OF: Mapping[str, int] = MappingProxyType(
    {sign: level for level, operators in enumerate(_LEVELS) for sign in operators}
)
_PLAIN: Mapping[str, Callable[[int, int], int]] = MappingProxyType(
    {
        "+": operator.add,
        "-": operator.sub,
        "*": operator.mul,
        "<": lambda left, right: int(left < right),
        ">": lambda left, right: int(left > right),
        "<=": lambda left, right: int(left <= right),
        ">=": lambda left, right: int(left >= right),
        "==": lambda left, right: int(left == right),
        "!=": lambda left, right: int(left != right),
        "&": operator.and_,
        "|": operator.or_,
        "^": operator.xor,
        "&&": lambda left, right: int(bool(left) and bool(right)),
        "||": lambda left, right: int(bool(left) or bool(right)),
    }
)
_SIGN_BIT = 1 << 63
_MODULUS = 1 << 64


class ArithmeticUnknownError(Exception):
    """The expression has no certain value; the message says why."""


def evaluate_arithmetic(
    expression: str, lookup: Callable[[str], str], *, assign: Callable[[str, int], None] | None = None, depth: int = 0
) -> int:
    """Return the value of ``expression``.

    Parameters
    ----------
    lookup
        Gives the text of a variable.
    assign
        Receives what the expression assigns; without it an assignment has no certain value.

    Source: bash manual, "Shell Arithmetic".

    Raises
    ------
    ArithmeticUnknownError
        The value is not certain, or bash would refuse the expression; `find_assigned_names` lists what to forget then.
    """
    if _DECIMAL.fullmatch(expression):
        return int(expression)  # what most variables hold
    return _Expression(_tokenize(expression), lookup, assign, depth).value()


def find_assigned_names(expression: str) -> set[str]:
    """Return the names that an expression may assign."""
    return {first or second for first, second in _ASSIGNING.findall(expression)}


def _tokenize(expression: str) -> tuple[str, ...]:
    """Cut an expression into tokens; short ones are cached, as scripts repeat them."""
    return _split_tokens_cached(expression) if len(expression) <= MAX_CACHED_CHARS else _split_tokens(expression)


def _split_tokens(expression: str) -> tuple[str, ...]:
    tokens: list[str] = []
    position, text = 0, expression.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if not match or len(tokens) >= MAX_TOKENS:
            raise ArithmeticUnknownError(f"cannot evaluate {text[:40]!r}")
        token, position = match.group(1), match.end()
        if token in ("++", "--") and not _is_step(tokens, text[position:].lstrip()[:1]):
            token, position = token[0], position - 1
        tokens.append(token)
    return tuple(tokens)


_split_tokens_cached = lru_cache(maxsize=1024)(_split_tokens)


def _is_step(before: list[str], following: str) -> bool:
    """Return whether ``++`` or ``--`` steps a variable; else it is two signs."""
    return bool(before and _NAME.fullmatch(before[-1])) or following.isalpha() or following == "_"


def _wrap_int64(number: int) -> int:
    """Return ``number`` in 64-bit two's complement, as bash computes."""
    return (number + _SIGN_BIT) % _MODULUS - _SIGN_BIT


class _Expression:
    """A recursive-descent evaluator over tokens."""

    def __init__(
        self,
        tokens: tuple[str, ...],
        lookup: Callable[[str], str],
        assign: Callable[[str, int], None] | None,
        depth: int,
    ) -> None:
        self.tokens = tokens
        self.lookup = lookup
        self.assign = assign
        self.depth = depth
        self.position = 0
        self.active = True
        self.pending: dict[str, int] = {}

    def value(self) -> int:
        """Evaluate the whole expression; an empty one is 0."""
        if not self.tokens:
            return 0
        result = self._assignment(0)
        while self._take(","):
            result = self._assignment(0)
        if self.position != len(self.tokens):
            raise ArithmeticUnknownError(f"cannot evaluate {' '.join(self.tokens)[:40]!r}")
        for name, number in self.pending.items():
            if self.assign is None:
                raise ArithmeticUnknownError("assignments inside arithmetic are not followed")
            self.assign(name, number)
        return result

    def _peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def _take(self, token: str) -> bool:
        if self._peek() != token:
            return False
        self.position += 1
        return True

    def _assignment(self, nesting: int) -> int:
        name = self._peek()
        sign = self.tokens[self.position + 1] if self.position + 1 < len(self.tokens) else ""
        if sign not in _ASSIGNMENTS or not _NAME.fullmatch(name):
            return self._ternary(nesting)
        if nesting > MAX_NESTING:
            raise ArithmeticUnknownError("the expression is nested too deeply")
        self.position += 2
        right = self._assignment(nesting + 1)
        if not self.active:
            return 0
        return self._set(name, right if sign == "=" else _apply(sign[:-1], self._variable(name), right))

    def _set(self, name: str, number: int) -> int:
        if self.active:
            self.pending[name] = number
        return number

    def _ternary(self, nesting: int) -> int:
        if nesting > MAX_NESTING:
            raise ArithmeticUnknownError("the expression is nested too deeply")
        condition = self._binary(0, nesting)
        if not self._take("?"):
            return condition
        first = self._evaluate_unless(not condition, lambda: self._assignment(nesting + 1))
        if not self._take(":"):
            raise ArithmeticUnknownError("a ? without its :")
        second = self._evaluate_unless(bool(condition), lambda: self._ternary(nesting + 1))
        return first if condition else second

    def _evaluate_unless(self, skipped: bool, read: Callable[[], int]) -> int:
        """Read an operand that is not evaluated when ``skipped``."""
        outer, self.active = self.active, self.active and not skipped
        value = read()
        self.active = outer
        return value

    def _binary(self, lowest: int, nesting: int) -> int:
        """Evaluate operators that bind at least as tightly as level ``lowest``."""
        left = self._power(nesting)
        while (level := _LEVEL_OF.get(self._peek(), -1)) >= lowest:
            sign = self._peek()
            self.position += 1
            decided = (sign == "||" and bool(left)) or (sign == "&&" and not left)
            right = self._evaluate_unless(decided, partial(self._binary, level + 1, nesting))
            left = _apply(sign, left, right) if self.active else 0
        return left

    def _power(self, nesting: int) -> int:
        base = self._unary(nesting)
        if not self._take("**"):
            return base
        exponent = self._power(nesting + 1)
        if not self.active:
            return 0
        if not 0 <= exponent <= 64:
            raise ArithmeticUnknownError(f"exponent {exponent} is out of range")
        return _wrap_int64(base**exponent)

    def _unary(self, nesting: int) -> int:
        if nesting > MAX_NESTING:
            raise ArithmeticUnknownError("the expression is nested too deeply")
        sign = self._peek()
        if sign in ("++", "--"):
            self.position += 1
            name = self._peek()
            self.position += 1
            return self._step(name, sign)[1]
        if sign in ("+", "-", "!", "~"):
            self.position += 1
            operand = self._unary(nesting + 1)
            return {"+": operand, "-": _wrap_int64(-operand), "!": int(not operand), "~": ~operand}[sign]
        return self._atom(nesting)

    def _atom(self, nesting: int) -> int:
        token = self._peek()
        self.position += 1
        if token == "(":
            inner = self._assignment(nesting + 1)
            while self._take(","):
                inner = self._assignment(nesting + 1)
            if not self._take(")"):
                raise ArithmeticUnknownError("brackets do not match")
            return inner
        if token[:1].isdigit():
            return _parse_number(token)
        if token[:1].isalpha() or token[:1] == "_":
            if self._peek() in ("++", "--"):
                self.position += 1
                return self._step(token, self.tokens[self.position - 1])[0]
            return self._variable(token)
        raise ArithmeticUnknownError(f"cannot evaluate {' '.join(self.tokens)[:40]!r}")

    def _step(self, name: str, sign: str) -> tuple[int, int]:
        """Step a variable up or down; return its values before and after."""
        if not _NAME.fullmatch(name):
            raise ArithmeticUnknownError(f"{name!r} cannot be stepped")
        before = self._variable(name)
        return before, self._set(name, _wrap_int64(before + (1 if sign == "++" else -1)))

    def _variable(self, name: str) -> int:
        if not self.active:
            return 0
        if name in self.pending:
            return self.pending[name]
        if self.depth > 8:
            raise ArithmeticUnknownError(f"{name} refers to itself")
        return evaluate_arithmetic(self.lookup(name), self.lookup, depth=self.depth + 1)


def _parse_number(token: str) -> int:
    """Return the value of a number as bash reads it."""
    try:
        if "#" in token:
            base, _, digits = token.partition("#")
            if not 2 <= int(base) <= 36:
                raise ArithmeticUnknownError(f"base {base} is not followed")
            return _wrap_int64(int(digits.replace("_", "?"), int(base)))
        if token[:2] in ("0x", "0X"):
            return _wrap_int64(int(token, 16))
        if not token.isdigit():
            raise ArithmeticUnknownError(f"{token!r} is not a number in the shell")
        return _wrap_int64(int(token, 8) if token.startswith("0") and len(token) > 1 else int(token))
    except ValueError as error:
        raise ArithmeticUnknownError(f"{token[:40]!r} is not a number") from error


def _apply(sign: str, left: int, right: int) -> int:
    """Apply one binary operator; division cuts towards zero as in C."""
    if sign in ("/", "%"):
        if right == 0:
            raise ArithmeticUnknownError("division by zero")
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return _wrap_int64(quotient if sign == "/" else left - quotient * right)
    if sign in ("<<", ">>"):
        shift = right % 64
        return _wrap_int64(left << shift if sign == "<<" else left >> shift)
    return _wrap_int64(_PLAIN[sign](left, right))
