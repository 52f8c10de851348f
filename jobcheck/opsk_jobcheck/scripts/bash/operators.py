"""Applies the operators of ``${name op argument}``: defaults, substrings, removal and replacement."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from opsk_jobcheck.scripts.bash.patterns import remove_match, replace_match
from opsk_jobcheck.scripts.bash.syntax import Param
from opsk_jobcheck.scripts.bash.values import Scalar, Text, literal, unknown

CHARS_PER_TRY = 256
"""Cutting tries a pattern at each end of a text; so many characters are worth looking at all of it once more."""

if TYPE_CHECKING:
    from opsk_jobcheck.scripts.bash.expansion import Expander

_PATTERN_END = re.compile(r"""(?:\\.|'[^']*+'|"(?:[^"\\]|\\.)*+"|\$\{[^{}]*+\}|[^/])*+""", re.DOTALL)
_BY_PATTERN = frozenset({"#", "##", "%", "%%", "/", "//", "/#", "/%"})


def apply_operator(expander: Expander, segment: Param, value: Text | None) -> Text:
    """Apply the operator of ``${name op arg}``."""
    op = segment.op
    plain = op.lstrip(":")
    if plain in ("-", "=", "+", "?"):
        return _apply_default(expander, segment, value, plain, counts_empty=op.startswith(":"))
    if value is None:
        if not expander.is_unset(segment):
            return expander.unset_text(segment)
        value = Text()
    return apply_text_operator(expander, segment, value)


def _apply_default(expander: Expander, segment: Param, value: Text | None, op: str, *, counts_empty: bool) -> Text:
    """Apply ``:-``, ``:=``, ``:+`` and ``:?``; a name that the script never set counts as unset."""
    is_there = is_set(value, counts_empty=counts_empty)
    if is_there is None and value is not None:
        if "((" in segment.arg:
            expander.mark_uncalculated(segment.arg, value.why, segment.line)
        return unknown(value.why, segment.line)
    if op == "+":
        if value is None and not expander.is_unset(segment):
            return expander.unset_text(segment)
        return expander.argument(segment.arg, segment) if is_there else Text()
    if is_there and value is not None:
        return value
    if op == "?":
        return value if value is not None else expander.unset_text(segment)
    default = expander.argument(segment.arg, segment)
    if op == "=" and not segment.index and not segment.name.isdigit():
        expander.scope.set(segment.name, Scalar(default))
    return default


def apply_text_operator(expander: Expander, segment: Param, value: Text) -> Text:
    """Apply the operators that cut and replace."""
    known = value.known
    if known is None:
        return unknown(value.why, segment.line, filled=False)
    line = value.line or segment.line
    if segment.op == ":":
        return _take_substring(expander, segment, known, line)
    if segment.op in ("^", "^^", ",", ",,") and not segment.arg:
        return literal(_change_case(segment.op, known), line)
    if segment.op not in _BY_PATTERN:
        return unknown(f"${{{segment.name}{segment.op}{segment.arg[:20]}}} is not followed", segment.line)
    new, why = _apply_pattern(expander, segment, known)
    if why:
        return unknown(why, segment.line)
    return unknown(f"${{{segment.name}{segment.op}…}} is not followed", line) if new is None else literal(new, line)


def _apply_pattern(expander: Expander, segment: Param, known: str) -> tuple[str | None, str]:
    """Return a text after ``#``, ``%`` or ``/``, ``None`` when not followed; and why its pattern is unknown."""
    tries = 1 if segment.op[0] == "/" else 1 + len(known) // CHARS_PER_TRY
    expander.source.spend(len(known) * tries)
    if segment.op[0] != "/":
        pattern = expander.pattern(expander.parsed(segment.arg, segment, quoted=False))
        return (None, pattern.why) if pattern.known is None else (remove_match(segment.op, known, pattern.known), "")
    cut = _PATTERN_END.match(segment.arg)
    split = cut.end() if cut else 0
    new_text = segment.arg[split + 1 :]
    if segment.op in ("/#", "/%") or segment.arg.startswith("/") or "'" in new_text or '"' in new_text:
        return None, ""
    pattern = expander.pattern(expander.parsed(segment.arg[:split], segment, quoted=False))
    new = expander.argument(new_text, segment)
    if pattern.known is None or new.known is None or "&" in new.known:
        return None, pattern.why or new.why
    return replace_match(known, pattern.known, new.known, everywhere=segment.op == "//"), ""


def _take_substring(expander: Expander, segment: Param, known: str, line: int) -> Text:
    """Return ``${name:offset:length}``."""
    first, colon, second = segment.arg.partition(":")
    offset = expander.number(first, line)
    length = expander.number(second or "0", line) if colon else len(known)
    if offset is None or length is None:
        return unknown(f"the substring of {segment.name} is not known", line)
    start = len(known) + offset if offset < 0 else offset
    if start < 0:
        return Text()
    if length < 0 and len(known) + length < start:
        return unknown(f"the substring of {segment.name} has a negative length", line)
    return literal(known[start : start + length] if length >= 0 else known[start:length], line)


def is_set(value: Text | None, *, counts_empty: bool) -> bool | None:
    """Return whether a parameter is set (and not empty); what is unknown may also be unset."""
    if value is None:
        return False
    if value.known is None:
        return value.is_filled
    return bool(value.known) or not counts_empty


def _change_case(op: str, text: str) -> str:
    """Apply ``^``, ``^^``, ``,`` and ``,,``."""
    change = str.upper if op[0] == "^" else str.lower
    return change(text) if len(op) == 2 else change(text[:1]) + text[1:]
