"""Renders a chart as SVG, shape by shape; white, ink and dim follow the reader's theme."""

from __future__ import annotations

from opsk.cli.render.chart import DIM, GROUND, INK, RULE, Box, Chart, Dot, Path, Shape, Word
from opsk.cli.render.style import build_style_sheet
from opsk.cli.render.svg import element, escape_xml

_THEMED = {INK: "var(--ink)", DIM: "var(--dim)", RULE: "var(--rule)", GROUND: "var(--ground)"}


def render_chart_svg(chart: Chart) -> str:
    """Return the chart as one SVG document."""
    ground = element("rect", x=0, y=0, width=chart.width, height=chart.height, class_="ground")
    return (
        element(
            "svg",
            build_style_sheet(),
            ground,
            *(_render_shape(shape) for shape in chart.shapes),
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {chart.width:g} {chart.height:g}",
            width=chart.width,
            height=chart.height,
            class_="f",
        )
        + "\n"
    )


def _render_shape(shape: Shape) -> str:
    """Return one shape."""
    if isinstance(shape, Box):
        return element(
            "rect", x=shape.x, y=shape.y, width=shape.width, height=shape.height, fill=_resolve_colour(shape.fill)
        )
    if isinstance(shape, Dot):
        return element("circle", cx=shape.x, cy=shape.y, r=shape.radius, fill=_resolve_colour(shape.fill))
    if isinstance(shape, Path):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in shape.points)
        dashes = "6 4" if shape.dashed else ""
        return element(
            "polyline", points=points, fill="none", stroke=_resolve_colour(shape.colour), stroke_width=shape.width,
            stroke_dasharray=dashes,
        )  # fmt: skip
    return _render_word(shape)


def _render_word(word: Word) -> str:
    """Return a line of text; its style overrides size and colour of the style sheet."""
    weight = ";font-weight:600" if word.is_bold else ""
    look = f"font-size:{word.size:g}px;fill:{_resolve_colour(word.colour)}{weight}"
    turn = f"rotate(-90 {word.x:.1f} {word.y:.1f})" if word.turned else ""
    return element(
        "text", escape_xml(word.text), x=word.x, y=word.y, text_anchor=word.anchor, style=look, transform=turn
    )  # fmt: skip


def _resolve_colour(colour: str) -> str:
    """Return the theme's variable for a colour, else the colour itself."""
    return _THEMED.get(colour, colour)
