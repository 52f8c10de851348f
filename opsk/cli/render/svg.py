"""Writes SVG elements in which no text of a dump can break the document, run as code, or overflow its box.

Colours suit light and dark backgrounds and are never the only distinction: a fault has a symbol and a word, a load has
a number and a line width. The loads are five steps of viridis, whose lightness rises or falls monotonically, so that
they can be read without seeing hue; faults are vermillion and slow links orange from Okabe and Ito's palette.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from opsk.fabric.fabric import Fault
from opsk.fabric.views.marks import STEPS
from opsk.text import escape

MAX_CHARS = 300
"""Longer texts are cut, also in tooltips: a description may have a megabyte."""

_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
_NARROW = frozenset("iljtfrI.,:;'|!()[]{}- ·")
_WIDE = frozenset("mwMW@%")
_CUT = "…"
_BOLD = 1.13
_MAX_FAULTS = 6
LEFT = 24.0
WIDTH = 1200.0
FONT = 12.0
SMALL = 10.5
_FONTS = 'system-ui,-apple-system,"Segoe UI","Noto Sans","DejaVu Sans",sans-serif'
_LIGHT = {
    "ground": "#ffffff", "ink": "#1c2430", "dim": "#5a6675", "rule": "#d5dbe3", "box": "#eef2f6", "edge": "#9aa7b5",
    "fault": "#b84300", "fault-ground": "#fdeee5", "slow": "#8a5a00", "slow-ground": "#fff4d6", "good": "#e6f1fb",
    "compute": "#0072b2", "storage": "#e69f00", "management": "#009e73", "unnamed": "#8b8f96",
    "load0": "#b9c2cc", "load1": "#5ec962", "load2": "#21918c", "load3": "#3b528b", "load4": "#440154",
    "load5": "#000000",
}  # fmt: skip
_DARK = {
    "ground": "#11161d", "ink": "#e6ebf1", "dim": "#9aa7b5", "rule": "#2c3642", "box": "#1c242e", "edge": "#647282",
    "fault": "#ff9a5c", "fault-ground": "#3d1f10", "slow": "#ffcf66", "slow-ground": "#3a2d0c", "good": "#17293a",
    "compute": "#56b4e9", "storage": "#e69f00", "management": "#2fc79a", "unnamed": "#7d858f",
    "load0": "#3d4753", "load1": "#46548f", "load2": "#2c8f8b", "load3": "#5ec962", "load4": "#fde725",
    "load5": "#ffffff",
}  # fmt: skip
_RULES = """
.f text{font-size:12px;fill:var(--ink)}
.f .ground{fill:var(--ground)}
.f .h{font-size:15px;font-weight:600}
.f .b{font-weight:600}
.f .s{font-size:10.5px}
.f .d{fill:var(--dim)}
.f .m{text-anchor:middle}
.f .e{text-anchor:end}
.f .bad{fill:var(--fault);font-weight:600}
.f .late{fill:var(--slow);font-weight:600}
.f .rule{stroke:var(--rule);stroke-width:1}
.f .box{fill:var(--box);stroke:var(--edge);stroke-width:1}
.f .cell{fill:var(--good)}
.f .void{fill:none;stroke:var(--rule);stroke-width:1}
.f .wrong{fill:var(--fault-ground);stroke:var(--fault);stroke-width:2}
.f .missing{fill:none;stroke:var(--fault);stroke-width:1.5;stroke-dasharray:4 3}
.f .slow{fill:var(--slow-ground);stroke:var(--slow);stroke-width:1.5}
.f .line{fill:none;stroke:var(--edge)}
.f .odd{fill:none;stroke:var(--fault);stroke-dasharray:6 3}
.f .none{fill:none;stroke:var(--fault);stroke-dasharray:2 4}
.f .slowline{fill:none;stroke:var(--slow);stroke-dasharray:8 3 2 3}
.f .halo{paint-order:stroke;stroke:var(--ground);stroke-width:3px;stroke-linejoin:round}
.f .compute{fill:var(--compute)}.f .storage{fill:var(--storage)}
.f .management{fill:var(--management)}.f .unnamed{fill:var(--unnamed)}
"""
LOAD_WORDS = ("idle", "up to 25%", "up to 50%", "up to 75%", "up to 100%", "over 100%")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """SVG parts that extend to ``right`` and ``bottom`` [px]."""

    parts: list[str]
    right: float
    bottom: float


def build_style_sheet() -> str:
    """Return the style sheet; its variables are set on the drawing, so that pages can contain several."""
    steps = "".join(
        f".f .l{index}{{fill:none;stroke:var(--load{index})}}.f .k{index}{{fill:var(--load{index})}}\n"
        for index in range(len(STEPS) + 1)
    )
    dark = f"@media (prefers-color-scheme:dark){{.f{{{_format_variables(_DARK)}}}}}"
    return element("style", f"\n.f{{font-family:{_FONTS};{_format_variables(_LIGHT)}}}\n{dark}{_RULES}{steps}")


def _format_variables(colours: dict[str, str]) -> str:
    return ";".join(f"--{name}:{colour}" for name, colour in colours.items())


def draw_legend(entries: list[tuple[str, str, str]], y: float, left: float, right: float) -> tuple[list[str], float]:
    """Return the entries (shape ``box`` or ``line``, class, words) in lines that fit, and their lower end."""
    drawn: list[str] = []
    x = left
    for shape, class_, label in entries:
        wide = 30 + measure_width(label, SMALL) + 16
        if x > left and x + wide > right:
            x, y = left, y + 20
        if shape == "line":
            drawn.append(element("path", d=f"M{x:g} {y - 4:g}h22", class_=class_, stroke_width=3))
        else:
            drawn.append(element("rect", x=x, y=y - 10, width=22, height=12, rx=3, class_=class_))
        drawn.append(text(x + 28, y, label, "s d"))
        x += wide
    return drawn, y + 10


def build_load_entries(shape: str) -> list[tuple[str, str, str]]:
    """Return the entries of the scale of loads."""
    kind = "l" if shape == "line" else "k"
    return [(shape, f"{kind}{index}", label) for index, label in enumerate(LOAD_WORDS)]
