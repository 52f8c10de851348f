"""Evaluates ``[ ... ]``, ``test`` and ``[[ ... ]]`` over expanded words in three-valued logic."""

from __future__ import annotations

import re
from collections.abc import Sequence

from opsk_jobcheck.scripts.bash.patterns import matches
from opsk_jobcheck.scripts.bash.values import Text

MAX_WORDS = 256
_NUMERIC = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}
_BINARY = frozenset({"=", "==", "!=", "<", ">", "=~", *_NUMERIC, "-nt", "-ot", "-ef"})
_INTEGER = re.compile(r"[ \t]*[+-]?[0-9]{1,18}[ \t]*")
_OCTAL = re.compile(r"[ \t]*[+-]?0[0-9]+[ \t]*")


def evaluate_test(words: Sequence[Text], *, extended: bool) -> bool | None:
    """Return whether a test holds, ``None`` when that is not certain.

    Parameters
    ----------
    words
        The words between the brackets; in ``[[ ]]`` what follows ``==`` and ``!=`` is a pattern. What follows ``=~``, a
        regular expression, is not tried.
    extended
        True for ``[[ ]]``, whose ``==`` compares with a pattern and which joins by ``&&`` and ``||``.
    """
    if len(words) > MAX_WORDS:
        return None
    return _Test(list(words), extended=extended).value()


class _Test:
    """A recursive-descent evaluator in three-valued logic."""

    def __init__(self, words: list[Text], *, extended: bool) -> None:
        self.words = words
        self.extended = extended
        self.position = 0
        self.depth = 0

    def value(self) -> bool | None:
        """Evaluate the whole test; what is left over makes it uncertain."""
        if not self.words:
            return False
        result = self._any()
        return result if self.position == len(self.words) else None

    def _peek(self, ahead: int = 0) -> str | None:
        index = self.position + ahead
        return self.words[index].known if index < len(self.words) else None

    def _any(self) -> bool | None:
        result = self._all()
        while self._peek() == ("||" if self.extended else "-o"):
            self.position += 1
            other = self._all()
            result = True if result or other else None if result is None or other is None else False
        return result

    def _all(self) -> bool | None:
        result = self._not()
        while self._peek() == ("&&" if self.extended else "-a"):
            self.position += 1
            other = self._not()
            result = False if result is False or other is False else None if result is None or other is None else True
        return result

    def _not(self) -> bool | None:
        self.depth += 1
        if self.depth > MAX_WORDS:
            return None
        if self._peek() == "!" and self.position + 1 < len(self.words):
            self.position += 1
            inner = self._not()
            return None if inner is None else not inner
        return self._primary()

    def _primary(self) -> bool | None:
        if self._peek(1) in _BINARY and self.position + 2 < len(self.words):
            return self._binary()
        sign = self._peek()
        if sign == "(":
            self.position += 1
            inner = self._any()
            if self._peek() == ")":
                self.position += 1
                return inner
            return None
        if sign is not None and len(sign) == 2 and sign[0] == "-" and self.position + 1 < len(self.words):
            return self._unary(sign)
        if self.position >= len(self.words):
            return None
        self.position += 1
        return self.words[self.position - 1].is_filled

    def _unary(self, sign: str) -> bool | None:
        operand = self.words[self.position + 1]
        self.position += 2
        if sign == "-n":
            return operand.is_filled
        if sign == "-z":
            filled = operand.is_filled
            return None if filled is None else not filled
        return None

    def _binary(self) -> bool | None:
        left, sign = self.words[self.position], self.words[self.position + 1].known or ""
        right = self.words[self.position + 2]
        self.position += 3
        if left.known is None or right.known is None:
            return _compare_with_empty(left, sign, right)
        if sign in _NUMERIC:
            if not _INTEGER.fullmatch(left.known) or not _INTEGER.fullmatch(right.known):
                return None
            if self.extended and (_OCTAL.fullmatch(left.known) or _OCTAL.fullmatch(right.known)):
                return None  # [[ ]] calculates: 010 is eight
            return bool(_NUMERIC[sign](int(left.known), int(right.known)))
        if sign in ("=", "==", "!="):
            equal = matches(left.known, right.known) if self.extended else left.known == right.known
            return equal if sign != "!=" or equal is None else not equal
        return None


def _compare_with_empty(left: Text, sign: str, right: Text) -> bool | None:
    """Compare an unknown text with the empty string, which may be certain all the same."""
    for operand, other in ((left, right), (right, left)):
        if other.known == "" and operand.is_filled and sign in ("=", "==", "!="):
            return sign == "!="
    return None
