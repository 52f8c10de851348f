"""How does a laid out chart become PNG, without a library for pictures? Smooth lines in numpy, and zlib.

What lies on a pixel is how far its centre is inside a shape, from 0 to 1: edges are smooth at any size.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt

from opsk.cli.render.chart import GROUND, Box, Dot, Path, Picture, Shape, Word
from opsk.cli.render.strokes import strokes_of
from opsk.errors import InputError
from opsk.text import escape

SCALE = 2.0
"""Pixels of the picture over those of the layout: sharp on today's screens."""
_DASH, _SPACE = 6.0, 4.0
_MOST_PIXELS = 60_000_000
_STROKE, _BOLD = 0.085, 0.13
"""Width of a letter's strokes over its size."""

Pixels = npt.NDArray[np.float32]


def chart_png(picture: Picture, *, scale: float = SCALE) -> bytes:
    """Return the picture as PNG, on white.

    Raises
    ------
    InputError
        It would have more pixels than anybody can look at.
    """
    width, height = round(picture.width * scale), round(picture.height * scale)
    if width * height > _MOST_PIXELS:
        raise InputError(f"a PNG of {width} x {height} pixels", hint="fewer rows, or --svg")
    pixels = np.empty((height, width, 3), dtype=np.float32)
    pixels[:] = _rgb(GROUND)
    for shape in picture.shapes:
        _draw(pixels, shape, scale)
    return _png(np.clip(np.rint(pixels), 0, 255).astype(np.uint8))


def _draw(pixels: Pixels, shape: Shape, scale: float) -> None:
    """Draw one shape."""
    if isinstance(shape, Box):
        left, right = round(shape.x * scale), round((shape.x + shape.width) * scale)
        top, bottom = round(shape.y * scale), round((shape.y + shape.height) * scale)
        pixels[max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)] = _rgb(shape.fill)
    elif isinstance(shape, Dot):
        place = (shape.x * scale, shape.y * scale)
        _segment(pixels, place, place, shape.radius * scale, shape.fill)
    elif isinstance(shape, Path):
        for start, end in zip(shape.points, shape.points[1:], strict=False):
            for one, other in _dashes(start, end) if shape.dashed else [(start, end)]:
                _segment(pixels, _times(one, scale), _times(other, scale), shape.width * scale / 2, shape.colour)
    else:
        _write(pixels, shape, scale)


def _write(pixels: Pixels, word: Word, scale: float) -> None:
    """Draw a line of text."""
    strokes, width = strokes_of(escape(word.text), word.size)
    back = {"middle": width / 2, "end": width}.get(word.anchor, 0.0)
    half = word.size * (_BOLD if word.is_bold else _STROKE) / 2 * scale
    for stroke in strokes:
        turned = [(y, back - x) if word.turned else (x - back, y) for x, y in stroke]
        placed = [((word.x + x) * scale, (word.y + y) * scale) for x, y in turned]
        for start, end in zip(placed, [*placed[1:], placed[-1]][: max(len(placed) - 1, 1)], strict=False):
            _segment(pixels, start, end, half, word.colour)


def _segment(
    pixels: Pixels, start: tuple[float, float], end: tuple[float, float], half: float, colour: str
) -> None:  # fmt: skip
    """Draw a line with round ends, ``half`` as wide to each side [px]."""
    reach = half + 1.0
    left, right = (int(edge) for edge in (min(start[0], end[0]) - reach, max(start[0], end[0]) + reach + 1))
    top, bottom = (int(edge) for edge in (min(start[1], end[1]) - reach, max(start[1], end[1]) + reach + 1))
    left, top = max(left, 0), max(top, 0)
    part = pixels[top : max(bottom, 0), left : max(right, 0)]
    if not part.size:
        return
    y, x = np.ogrid[top : top + part.shape[0], left : left + part.shape[1]]
    along_x, along_y = end[0] - start[0], end[1] - start[1]
    length = along_x**2 + along_y**2
    across_x, across_y = x + 0.5 - start[0], y + 0.5 - start[1]
    share = np.clip((across_x * along_x + across_y * along_y) / length, 0.0, 1.0) if length else 0.0
    away = np.hypot(across_x - share * along_x, across_y - share * along_y)
    cover = np.clip(half + 0.5 - away, 0.0, 1.0)[..., np.newaxis]
    part += cover * (_rgb(colour) - part)


def _dashes(
    start: tuple[float, float], end: tuple[float, float]
) -> list[tuple[tuple[float, float], tuple[float, float]]]:  # fmt: skip
    """Return the dashes of a line."""
    length = float(np.hypot(end[0] - start[0], end[1] - start[1]))
    found = []
    at = 0.0
    while at < length:
        ends = (at / length, min(at + _DASH, length) / length)
        one, other = (
            (start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1])) for share in ends
        )
        found.append((one, other))
        at += _DASH + _SPACE
    return found


def _times(point: tuple[float, float], scale: float) -> tuple[float, float]:
    return point[0] * scale, point[1] * scale


def _rgb(colour: str) -> Pixels:
    """Return red, green and blue of ``#rrggbb``."""
    return np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)], dtype=np.float32)


def _png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Return rows of pixels as a PNG file (ISO/IEC 15948): a header, one stream of unfiltered rows, an end."""
    height, width, _ = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), dtype=np.uint8), pixels.reshape(height, width * 3)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    """Return one chunk: length, kind, content, checksum."""
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
