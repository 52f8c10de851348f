"""Renders a chart as PNG with Pillow, on white."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING

from opsk.cli.render.chart import GROUND, Box, Chart, Dot, Path, Shape, Word
from opsk.errors import InputError, UnavailableError
from opsk.text import escape

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

SCALE = 2.0
"""Pixels of the image over those of the layout: sharp on high-resolution screens."""
_OVERSAMPLING = 2
"""Shapes are drawn this much larger and then reduced, so that edges are smooth."""
_DASH, _SPACE = 6.0, 4.0
_MAX_PIXELS = 60_000_000
_MARGIN = 2
"""Pixels around turned text, for what reaches over its nominal width."""

Point = tuple[float, float]


def chart_png(chart: Chart, *, scale: float = SCALE) -> bytes:
    """Return the chart as a PNG file.

    Raises
    ------
    InputError
        It would have more than 60 million pixels.
    UnavailableError
        Pillow is not installed.
    """
    width, height = max(round(chart.width * scale), 1), max(round(chart.height * scale), 1)
    if width * height > _MAX_PIXELS:
        raise InputError(f"a PNG of {width} x {height} pixels", hint="fewer rows, or --svg")
    try:
        from PIL import Image, ImageDraw
    except ModuleNotFoundError as error:
        raise UnavailableError("PNG needs Pillow", hint="pip install 'opsk[png]', or use --svg") from error
    image = Image.new("RGB", (width * _OVERSAMPLING, height * _OVERSAMPLING), GROUND)
    draw = ImageDraw.Draw(image)
    for shape in chart.shapes:
        _draw_shape(image, draw, shape, scale * _OVERSAMPLING)
    content = io.BytesIO()
    image.resize((width, height), Image.Resampling.BOX).save(content, "PNG", optimize=True)
    return content.getvalue()


def _draw_shape(image: Image, draw: ImageDraw, shape: Shape, scale: float) -> None:
    """Draw one shape, ``scale`` pixels to one of the layout."""
    if isinstance(shape, Box):
        left, top = shape.x * scale, shape.y * scale
        right, bottom = left + shape.width * scale - 1, top + shape.height * scale - 1
        if right >= left and bottom >= top:
            draw.rectangle((left, top, right, bottom), fill=shape.fill)
    elif isinstance(shape, Dot):
        draw.circle((shape.x * scale, shape.y * scale), shape.radius * scale, fill=shape.fill)
    elif isinstance(shape, Path):
        width = max(round(shape.width * scale), 1)
        for start, end in zip(shape.points, shape.points[1:], strict=False):
            for ends in _split_into_dashes(start, end) if shape.dashed else [(start, end)]:
                draw.line([(x * scale, y * scale) for x, y in ends], fill=shape.colour, width=width)
    else:
        _draw_text(image, draw, shape, scale)


def _draw_text(image: Image, draw: ImageDraw, word: Word, scale: float) -> None:
    """Draw one line of text; text that is turned reads upwards."""
    from PIL import Image, ImageDraw, ImageFont

    # The size makes Pillow return its built-in outline font: a bare machine has no other.
    font = ImageFont.load_default(word.size * scale)
    text, stroke = escape(word.text), word.size * scale / 40 if word.is_bold else 0.0
    anchor = {"middle": "ms", "end": "rs"}.get(word.anchor, "ls")
    if not word.turned:
        draw.text((word.x * scale, word.y * scale), text, word.colour, font, anchor, stroke_width=stroke)
        return
    length, size = math.ceil(draw.textlength(text, font)), math.ceil(word.size * scale)
    mask = Image.new("L", (length + 2 * _MARGIN, 2 * size), 0)
    ImageDraw.Draw(mask).text((_MARGIN, size), text, 255, font, "ls", stroke_width=stroke)
    mask = mask.rotate(90, expand=True)
    below = {"middle": length / 2, "end": 0.0}.get(word.anchor, float(length))
    place = (round(word.x * scale) - size, round(word.y * scale - below) - _MARGIN)
    image.paste(word.colour, (place[0], place[1], place[0] + mask.width, place[1] + mask.height), mask)


def _split_into_dashes(start: Point, end: Point) -> list[tuple[Point, Point]]:
    """Return the dashes of a line."""
    length = math.dist(start, end)
    count = math.ceil(length / (_DASH + _SPACE))

    def at(distance: float) -> Point:
        share = min(distance, length) / length
        return start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1])

    return [(at(i * (_DASH + _SPACE)), at(i * (_DASH + _SPACE) + _DASH)) for i in range(count)]
