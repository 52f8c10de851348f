"""How is SVG written so that no text of a dump can break it, run in it, or overflow its box?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len

from opsk.fabric.fabric import Fault
from opsk.text import escape

MOST_SIGNS = 300
"""Longer texts are cut, also in tooltips: a description of a megabyte is no name."""

_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
_NARROW = frozenset("iljtfrI.,:;'|!()[]{}- ·")
_WIDE = frozenset("mwMW@%")
_CUT = "…"
_BOLD = 1.13
_MOST_TOLD = 6


def escaped(text: str) -> str:
    """Return hostile text as XML: signs that XML forbids, or nobody sees, are written out (``harmless``)."""
    cut = text if len(text) <= MOST_SIGNS else text[:MOST_SIGNS] + _CUT
    return escape(cut).translate(_ENTITIES)


def number(value: float) -> str:
    """Return a coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def element(name: str, *inside: str, **attributes: str | float) -> str:
    """Return an element; an attribute ``class_`` is ``class``, and ``_`` in a name is ``-``. ``inside`` is XML."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value) if isinstance(value, str) else number(value)}"'
        for key, value in attributes.items()
        if value != ""
    )
    content = "".join(inside)
    return f"<{name}{said}>{content}</{name}>" if content else f"<{name}{said}/>"


def text(x: float, y: float, content: str, class_: str = "", **attributes: str | float) -> str:
    """Return a line of text; its content is escaped here."""
    return element("text", escaped(content), x=x, y=y, class_=class_, **attributes)


def tooltip(lines: Iterable[str]) -> str:
    """Return the title of the element that it stands in, one line each."""
    return element("title", "\n".join(escaped(line) for line in lines if line))


def told(faults: Sequence[Fault]) -> list[str]:
    """Return faults as lines of a tooltip."""
    lines = [f"⚠ {fault.evidence}" + (f" → {fault.cost}" if fault.cost else "") for fault in faults[:_MOST_TOLD]]
    more = len(faults) - _MOST_TOLD
    return [*lines, f"and {more} more"] if more > 0 else lines


def width_of(content: str, size: float) -> float:
    """Return about how wide a text is [px], on the wide side: fonts differ from machine to machine."""
    return size * sum(_em(sign) for sign in escape(content))


def _em(sign: str) -> float:
    if sign in _NARROW:
        return 0.36
    if sign in _WIDE:
        return 0.95
    if sign.isupper():
        return 0.72
    if sign.isascii():
        return 0.61
    return 0.7 * max(cell_len(sign), 1)


def fitted(content: str, width: float, size: float, *, keep_end: bool = False) -> str:
    """Return a text cut to a width [px]; ``keep_end`` for names whose last part tells more than their first."""
    content = escape(content[-MOST_SIGNS:] if keep_end else content[:MOST_SIGNS])
    if width_of(content, size) <= width:
        return content
    while content and width_of(content + _CUT, size) > width:
        content = content[1:] if keep_end else content[:-1]
    return _CUT + content if keep_end else content + _CUT


def bold_width(content: str, size: float) -> float:
    """Return about how wide a text in bold letters is [px]."""
    return _BOLD * width_of(content, size)


def fitted_bold(content: str, width: float, size: float, *, keep_end: bool = False) -> str:
    """Return a text in bold letters cut to a width [px]."""
    return fitted(content, width / _BOLD, size, keep_end=keep_end)
