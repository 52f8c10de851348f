"""Charts: the same shapes as SVG and as PNG, whatever numbers and names come in."""

from __future__ import annotations

import struct
import xml.etree.ElementTree as ElementTree
import zlib

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from opsk.cli.render.chart import Bars, Box, Dot, Line, Lines, Path, Picture, Word, laid_out
from opsk.cli.render.chart_png import chart_png
from opsk.cli.render.chart_svg import chart_svg
from opsk.cli.render.strokes import strokes_of
from opsk.errors import InputError

NUMBERS = st.floats(1e-6, 1e9)
NAMES = st.text(max_size=20)


def pixels_of(png: bytes) -> np.ndarray:
    """Read back what `chart_png` writes: unfiltered rows of RGB."""
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    assert (depth, kind) == (8, 2)
    start = png.index(b"IDAT")
    (length,) = struct.unpack(">I", png[start - 4 : start])
    content = png[start + 4 : start + 4 + length]
    assert struct.unpack(">I", png[start + 4 + length : start + 8 + length])[0] == zlib.crc32(b"IDAT" + content)
    rows = np.frombuffer(zlib.decompress(content), dtype=np.uint8).reshape(height, 1 + 3 * width)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)


def test_shapes_are_where_they_were_put():
    picture = Picture(
        width=40,
        height=20,
        shapes=[
            Box(x=0, y=0, width=10, height=10, fill="#ff0000"),
            Dot(x=30, y=10, radius=4, fill="#0000ff"),
            Path(points=((0, 15), (40, 15)), colour="#00ff00", width=2),
        ],
    )
    pixels = pixels_of(chart_png(picture, scale=1.0))
    assert pixels.shape == (20, 40, 3)
    assert pixels[5, 5].tolist() == [255, 0, 0]
    assert pixels[10, 29].tolist() == [0, 0, 255]
    assert pixels[15, 10].tolist() == [0, 255, 0]
    assert pixels[2, 25].tolist() == [255, 255, 255]


def test_dashes_leave_gaps():
    picture = Picture(
        width=40, height=10, shapes=[Path(points=((0, 5), (40, 5)), colour="#000000", width=3, dashed=True)]
    )
    line = pixels_of(chart_png(picture, scale=1.0))[5, :, 0]
    assert (line < 128).any()
    assert (line > 250).any()


def test_words_end_where_they_should():
    _, width = strokes_of("rail-only", 12)
    words = [Word(x=60, y=20, text="rail-only", anchor=anchor) for anchor in ("start", "middle", "end")]
    inked = []
    for word in words:
        dark = pixels_of(chart_png(Picture(width=120, height=40, shapes=[word]), scale=1.0))[..., 0] < 200
        columns = np.flatnonzero(dark.any(axis=0))
        inked.append((columns[0], columns[-1]))
    assert inked[0][0] == pytest.approx(60, abs=2)
    assert inked[1][0] == pytest.approx(60 - width / 2, abs=2)
    assert inked[2][1] == pytest.approx(60, abs=2)


@given(
    lines=st.lists(st.tuples(NAMES, st.lists(st.tuples(NUMBERS, NUMBERS), max_size=6)), max_size=15),
    bars=st.lists(st.tuples(NAMES, NUMBERS, NAMES), max_size=6),
    log_x=st.booleans(),
)
@example(  # more values than fit as ticks, on an axis that has no zero
    lines=[("", [(float(x), 1.0) for x in range(1, 9)]), ("", [(x, 1.0) for x in (9.0, 10.0, 11.0, 12.0, 5e8, 0.125)])],
    bars=[],
    log_x=True,
)
@settings(max_examples=40, deadline=None)
def test_any_numbers_and_names_make_whole_pictures(
    lines: list[tuple[str, list[tuple[float, float]]]], bars: list[tuple[str, float, str]], log_x: bool
):
    panels = [
        Lines(title="a", x_label="b", y_label="c", log_x=log_x, lines=[Line(name=n, points=p) for n, p in lines]),
        Bars(title="d", bars=bars),
    ]
    picture = laid_out(panels)
    for shape in picture.shapes:
        if isinstance(shape, Dot):
            assert -1 <= shape.x <= picture.width + 1
            assert -1 <= shape.y <= picture.height + 1
    ElementTree.fromstring(chart_svg(picture))  # no text can break it
    assert pixels_of(chart_png(picture, scale=0.5)).shape[2] == 3


def test_a_picture_larger_than_any_screen_is_refused():
    with pytest.raises(InputError, match="pixels"):
        chart_png(Picture(width=50_000, height=50_000))


def test_on_a_logarithmic_axis_a_tenfold_rise_is_as_high_everywhere():
    points = [(1.0, 0.02), (10.0, 0.2), (100.0, 2.0)]
    panel = Lines(title="t", x_label="x", y_label="y", lines=[Line(name="l", points=points)], log_x=True, log_y=True)
    shapes = laid_out([panel]).shapes
    (first, second, third) = (shape.y for shape in shapes if isinstance(shape, Dot))
    assert first - second == pytest.approx(second - third)
    said = [shape.text for shape in shapes if isinstance(shape, Word)]
    assert {"0.01", "0.1", "1", "10"} <= set(said), "its ends are powers of ten"


@pytest.mark.parametrize("lowest", [0.0, -1.0])
def test_what_is_not_above_zero_is_drawn_on_a_plain_axis(lowest: float):
    points = [(1.0, lowest), (2.0, 5.0)]
    panel = Lines(title="t", x_label="x", y_label="y", lines=[Line(name="l", points=points)], log_y=True)
    assert sum(isinstance(shape, Dot) for shape in laid_out([panel]).shapes) == 2
