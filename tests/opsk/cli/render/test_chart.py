"""Charts: the same shapes as SVG and as PNG, whatever numbers and names come in."""

from __future__ import annotations

import io
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from opsk.cli.render.chart import Bars, Box, Chart, Curve, Dot, Lines, Path, Word, arrange_chart, render_chart_svg
from opsk.cli.render.chart_png import chart_png
from opsk.errors import InputError, UnavailableError

NUMBERS = st.floats(1e-6, 1e9)
NAMES = st.text(max_size=20)


def pixels_of(png: bytes) -> np.ndarray:
    """The pixels of a PNG file, rows of RGB."""
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def test_shapes_are_where_they_were_put():
    picture = Chart(
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
    picture = Chart(
        width=40, height=10, shapes=[Path(points=((0, 5), (40, 5)), colour="#000000", width=3, dashed=True)]
    )
    line = pixels_of(chart_png(picture, scale=1.0))[5, :, 0]
    assert (line < 128).any()
    assert (line > 250).any()


@pytest.mark.parametrize("turned", [False, True])
def test_words_begin_and_end_where_they_should(turned: bool):
    inked = {}
    for anchor in ("start", "middle", "end"):
        word = Word(x=60, y=60, text="rail-only", anchor=anchor, turned=turned)
        dark = pixels_of(chart_png(Chart(width=120, height=120, shapes=[word]), scale=1.0))[..., 0] < 200
        places = np.flatnonzero(dark.any(axis=1 if turned else 0))
        inked[anchor] = (places[0], places[-1])
    if turned:  # it reads upwards
        inked = {anchor: (119 - last, 119 - first) for anchor, (first, last) in inked.items()}
    start = 59 if turned else 60
    assert inked["start"][0] == pytest.approx(start, abs=2)
    assert sum(inked["middle"]) / 2 == pytest.approx(start, abs=2)
    assert inked["end"][1] == pytest.approx(start, abs=2)


def test_without_pillow_the_hint_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UnavailableError) as caught:
        chart_png(Chart(width=10, height=10))
    assert "opsk[png]" in str(caught.value.hint)


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
        Lines(title="a", x_label="b", y_label="c", log_x=log_x, lines=[Curve(name=n, points=p) for n, p in lines]),
        Bars(title="d", bars=bars),
    ]
    picture = arrange_chart(panels)
    for shape in picture.shapes:
        if isinstance(shape, Dot):
            assert -1 <= shape.x <= picture.width + 1
            assert -1 <= shape.y <= picture.height + 1
    ElementTree.fromstring(render_chart_svg(picture))  # no text can break it
    assert pixels_of(chart_png(picture, scale=0.5)).shape[2] == 3


def test_a_picture_larger_than_any_screen_is_refused():
    with pytest.raises(InputError, match="pixels"):
        chart_png(Chart(width=50_000, height=50_000))


def test_on_a_logarithmic_axis_a_tenfold_rise_is_as_high_everywhere():
    points = [(1.0, 0.02), (10.0, 0.2), (100.0, 2.0)]
    panel = Lines(title="t", x_label="x", y_label="y", lines=[Curve(name="l", points=points)], log_x=True, log_y=True)
    shapes = arrange_chart([panel]).shapes
    (first, second, third) = (shape.y for shape in shapes if isinstance(shape, Dot))
    assert first - second == pytest.approx(second - third)
    said = [shape.text for shape in shapes if isinstance(shape, Word)]
    assert {"0.01", "0.1", "1", "10"} <= set(said), "its ends are powers of ten"


@pytest.mark.parametrize("lowest", [0.0, -1.0])
def test_what_is_not_above_zero_is_drawn_on_a_plain_axis(lowest: float):
    points = [(1.0, lowest), (2.0, 5.0)]
    panel = Lines(title="t", x_label="x", y_label="y", lines=[Curve(name="l", points=points)], log_y=True)
    assert sum(isinstance(shape, Dot) for shape in arrange_chart([panel]).shapes) == 2
