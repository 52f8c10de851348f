"""Writes SVG elements in which no text of a dump can break the document, run as code, or overflow its box."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len

from opsk.fabric.fabric import Fault
from opsk.text import escape

MAX_CHARS = 300
"""Longer texts are cut, also in tooltips: a description may have a megabyte."""

_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
_NARROW = frozenset("iljtfrI.,:;'|!()[]{}- ·")
_WIDE = frozenset("mwMW@%")
_CUT = "…"
_BOLD = 1.13
_MAX_FAULTS = 6


def escape_xml(text: str) -> str:
    """Return untrusted text as XML: characters that XML forbids or that are invisible are written as escapes."""
    cut = text if len(text) <= MAX_CHARS else text[:MAX_CHARS] + _CUT
    return escape(cut).translate(_ENTITIES)


def format_number(value: float) -> str:
    """Return a coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def _format_attribute(value: str | float) -> str:
    return escape_xml(value) if isinstance(value, str) else format_number(value)


def element(name: str, *inside: str, **attributes: str | float) -> str:
    """Return an element; an attribute ``class_`` is ``class``, and ``_`` in a name is ``-``. ``inside`` is XML."""
    attribute_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_format_attribute(value)}"'
        for key, value in attributes.items()
        if value != ""
    )
    content = "".join(inside)
    return f"<{name}{attribute_text}>{content}</{name}>" if content else f"<{name}{attribute_text}/>"


def text(x: float, y: float, content: str, class_: str = "", **attributes: str | float) -> str:
    """Return a line of text; its content is escaped here."""
    return element("text", escape_xml(content), x=x, y=y, class_=class_, **attributes)


def tooltip(lines: Iterable[str]) -> str:
    """Return a ``title`` element, one line each."""
    return element("title", "\n".join(escape_xml(line) for line in lines if line))


def format_faults(faults: Sequence[Fault]) -> list[str]:
    """Return faults as lines of a tooltip."""
    lines = [f"⚠ {fault.evidence}" + (f" → {fault.cost}" if fault.cost else "") for fault in faults[:_MAX_FAULTS]]
    more = len(faults) - _MAX_FAULTS
    return [*lines, f"and {more} more"] if more > 0 else lines


def measure_width(content: str, size: float) -> float:
    """Return the approximate width of a text [px], an upper estimate: fonts differ."""
    return size * sum(_measure_char(char) for char in escape(content))


def _measure_char(char: str) -> float:
    if char in _NARROW:
        return 0.36
    if char in _WIDE:
        return 0.95
    if char.isupper():
        return 0.72
    if char.isascii():
        return 0.61
    return 0.7 * max(cell_len(char), 1)


def fit(content: str, width: float, size: float, *, keep_end: bool = False) -> str:
    """Return a text cut to a width [px]; ``keep_end`` for names that differ at the end."""
    content = escape(content[-MAX_CHARS:] if keep_end else content[:MAX_CHARS])
    if measure_width(content, size) <= width:
        return content
    while content and measure_width(content + _CUT, size) > width:
        content = content[1:] if keep_end else content[:-1]
    return _CUT + content if keep_end else content + _CUT


def measure_bold_width(content: str, size: float) -> float:
    """Return the approximate width of a bold text [px]."""
    return _BOLD * measure_width(content, size)


def fit_bold(content: str, width: float, size: float, *, keep_end: bool = False) -> str:
    """Return a bold text cut to a width [px]."""
    return fit(content, width / _BOLD, size, keep_end=keep_end)
