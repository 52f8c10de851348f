"""How does a laid out chart become SVG? Shape by shape; what is white, ink or dim follows the reader's theme."""

from __future__ import annotations

from opsk.cli.render.chart import DIM, GROUND, INK, RULE, Box, Dot, Path, Picture, Shape, Word
from opsk.cli.render.style import style
from opsk.cli.render.svg import element, escaped

_THEMED = {INK: "var(--ink)", DIM: "var(--dim)", RULE: "var(--rule)", GROUND: "var(--ground)"}


def chart_svg(picture: Picture) -> str:
    """Return the picture as one SVG document."""
    ground = element("rect", x=0, y=0, width=picture.width, height=picture.height, class_="ground")
    return (
        element(
            "svg",
            style(),
            ground,
            *(_drawn(shape) for shape in picture.shapes),
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {picture.width:g} {picture.height:g}",
            width=picture.width,
            height=picture.height,
            class_="f",
        )
        + "\n"
    )


def _drawn(shape: Shape) -> str:
    """Return one shape."""
    if isinstance(shape, Box):
        return element("rect", x=shape.x, y=shape.y, width=shape.width, height=shape.height, fill=_colour(shape.fill))
    if isinstance(shape, Dot):
        return element("circle", cx=shape.x, cy=shape.y, r=shape.radius, fill=_colour(shape.fill))
    if isinstance(shape, Path):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in shape.points)
        dashes = "6 4" if shape.dashed else ""
        return element(
            "polyline", points=points, fill="none", stroke=_colour(shape.colour), stroke_width=shape.width,
            stroke_dasharray=dashes,
        )  # fmt: skip
    return _word(shape)


def _word(word: Word) -> str:
    """Return a line of text; its style beats the sheet's, which has another size and colour."""
    weight = ";font-weight:600" if word.is_bold else ""
    look = f"font-size:{word.size:g}px;fill:{_colour(word.colour)}{weight}"
    turn = f"rotate(-90 {word.x:.1f} {word.y:.1f})" if word.turned else ""
    return element(
        "text", escaped(word.text), x=word.x, y=word.y, text_anchor=word.anchor, style=look, transform=turn
    )  # fmt: skip


def _colour(colour: str) -> str:
    """Return a colour, or the theme's in its place."""
    return _THEMED.get(colour, colour)
