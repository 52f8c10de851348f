"""Lays out lines and bars as shapes with colours and coordinates, and renders them as SVG.

Colours are Okabe and Ito's, and never the only distinction: every line ends with its name, and bars are labelled. In
SVG, white, ink and dim follow the reader's theme.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from opsk.cli.render.svg import build_style_sheet, element, escape_xml, fit, measure_width

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8b8f96", "#8a5a00")
INK, DIM, RULE, GROUND = "#1c2430", "#5a6675", "#d5dbe3", "#ffffff"
PANEL_WIDTH, PANEL_HEIGHT = 560.0, 330.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 66.0, 150.0, 40.0, 46.0
_SIZE, _SMALL, _HEADING = 12.0, 10.5, 14.0
_BAR, _GAP = 16.0, 10.0
_MAX_LINES = 12
_THEMED = {INK: "var(--ink)", DIM: "var(--dim)", RULE: "var(--rule)", GROUND: "var(--ground)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A named line through points; ``dashed`` for a reference."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """A panel of lines; ``log_x`` and ``log_y`` space doublings evenly (values that are not above zero forbid it)."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Curve]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """A panel of bars, each with a name, a value, and the value as text."""

    title: str
    bars: Sequence[tuple[str, float, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A filled rectangle."""

    x: float
    y: float
    width: float
    height: float
    fill: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """A line through corners."""

    points: tuple[tuple[float, float], ...]
    colour: str
    width: float = 1.0
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A filled circle."""

    x: float
    y: float
    radius: float
    fill: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A line of text at a place; ``anchor`` is start, middle or end; ``turned`` reads upwards."""

    x: float
    y: float
    text: str
    size: float = _SIZE
    anchor: str = "start"
    colour: str = INK
    is_bold: bool = False
    turned: bool = False


Shape = Box | Path | Dot | Word


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Shapes on a background of this size [px]."""

    width: float
    height: float
    shapes: Sequence[Shape] = field(default_factory=tuple)


def arrange_chart(panels: Sequence[Lines | Bars], *, columns: int = 2) -> Chart:
    """Lay out the panels, ``columns`` in a row."""
    shapes: list[Shape] = []
    y = 0.0
    for start in range(0, len(panels), columns):
        row = panels[start : start + columns]
        for index, panel in enumerate(row):
            shapes += (
                _arrange_lines(panel, index * PANEL_WIDTH, y)
                if isinstance(panel, Lines)
                else _arrange_bars(panel, index * PANEL_WIDTH, y)
            )
        y += max(_compute_height(panel) for panel in row)
    return Chart(width=PANEL_WIDTH * min(columns, max(len(panels), 1)), height=max(y, 1.0), shapes=shapes)


def _compute_height(panel: Lines | Bars) -> float:
    """Return the height of a panel [px]."""
    if isinstance(panel, Lines):
        return PANEL_HEIGHT
    return _TOP + len(panel.bars) * (_BAR + _GAP) + 14.0


def _build_title(text: str, x: float, y: float) -> Word:
    return Word(x=x + 14, y=y + 22, text=fit(text, PANEL_WIDTH - 40, _HEADING * 1.1), size=_HEADING, is_bold=True)


def _arrange_bars(panel: Bars, x: float, y: float) -> Iterator[Shape]:
    """Yield bars from the left, with names before and values after them."""
    yield _build_title(panel.title, x, y)
    names = max((min(measure_width(name, _SIZE), 200.0) for name, _, _ in panel.bars), default=0.0)
    values = max((measure_width(label, _SIZE) for _, _, label in panel.bars), default=0.0)
    room = PANEL_WIDTH - 14 - names - 10 - 8 - values - 14
    largest = max((value for _, value, _ in panel.bars), default=0.0) or 1.0
    for index, (name, value, label) in enumerate(panel.bars):
        top = y + _TOP + index * (_BAR + _GAP)
        left = x + 14 + names + 10
        length = max(value, 0.0) / largest * max(room, 20.0)
        yield Word(x=left - 10, y=top + _BAR - 4, text=fit(name, 200.0, _SIZE), anchor="end")
        yield Box(x=left, y=top, width=max(length, 1.0), height=_BAR, fill=COLOURS[index % len(COLOURS)])
        yield Word(x=left + length + 8, y=top + _BAR - 4, text=label, colour=DIM)


def _arrange_lines(panel: Lines, x: float, y: float) -> Iterator[Shape]:
    """Yield axes, lines, dots, and the names of the lines at their ends."""
    yield _build_title(panel.title, x, y)
    shown = [line for line in panel.lines if line.points][:_MAX_LINES]
    if not shown:
        yield Word(x=x + _LEFT, y=y + PANEL_HEIGHT / 2, text="no points", colour=DIM)
        return
    x_scale = _Scale.of([px for line in shown for px, _ in line.points], log=panel.log_x, from_zero=False)
    heights = [py for line in shown for _, py in line.points]
    is_log = panel.log_y and min(heights) > 0
    y_scale = _Scale.of_powers(heights) if is_log else _Scale.of(heights, log=False, from_zero=True)
    left, right = x + _LEFT, x + PANEL_WIDTH - _RIGHT
    top, bottom = y + _TOP, y + PANEL_HEIGHT - _BOTTOM
    for tick in y_scale.ticks():
        level = bottom - y_scale.place(tick) * (bottom - top)
        yield Path(points=((left, level), (right, level)), colour=RULE)
        yield Word(x=left - 6, y=level + 4, text=f"{tick:g}", size=_SMALL, anchor="end", colour=DIM)
    values = sorted({px for line in shown for px, _ in line.points})
    for tick in values if len(values) <= 12 else x_scale.ticks():
        tick_x = left + x_scale.place(tick) * (right - left)
        yield Path(points=((tick_x, bottom), (tick_x, bottom + 4)), colour=DIM)
        yield Word(x=tick_x, y=bottom + 16, text=f"{tick:g}", size=_SMALL, anchor="middle", colour=DIM)
    yield Path(points=((left, bottom), (right, bottom)), colour=DIM)
    yield Word(x=(left + right) / 2, y=bottom + 34, text=panel.x_label, size=_SMALL, anchor="middle", colour=DIM)
    yield Word(
        x=x + 18, y=(top + bottom) / 2, text=panel.y_label, size=_SMALL, anchor="middle", colour=DIM, turned=True
    )
    ends: list[tuple[float, str, str]] = []
    for number, line in enumerate(shown):
        colour = COLOURS[number % len(COLOURS)]
        corners = tuple(
            (left + x_scale.place(px) * (right - left), bottom - y_scale.place(py) * (bottom - top))
            for px, py in line.points
        )
        yield Path(points=corners, colour=colour, width=2.0, dashed=line.dashed)
        yield from (Dot(x=tick_x, y=level, radius=2.5, fill=colour) for tick_x, level in corners)
        ends.append((corners[-1][1], line.name, colour))
    for level, name, colour in _separate_labels(ends, top, bottom):
        yield Word(x=right + 8, y=level + 4, text=fit(name, _RIGHT - 12, _SMALL), size=_SMALL, colour=colour)


def _separate_labels(
    ends: Sequence[tuple[float, str, str]], top: float, bottom: float
) -> Iterator[tuple[float, str, str]]:
    """Yield the names of lines, moved so that none overlap."""
    step = min(13.0, (bottom - top) / max(len(ends), 1))
    level = top - step
    placed: list[tuple[float, str, str]] = []
    for end, name, colour in sorted(ends):
        level = max(end, level + step)
        placed.append((level, name, colour))
    over = max(placed[-1][0] - bottom, 0.0) if placed else 0.0
    for level, name, colour in placed:
        yield level - over, name, colour


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    """Maps values to positions on an axis, 0 to 1."""

    low: float
    high: float
    log: bool

    @classmethod
    def of(cls, values: Sequence[float], *, log: bool, from_zero: bool) -> _Scale:
        """Return the scale that holds all values."""
        low, high = min(values), max(values)
        if from_zero:
            return cls(low=0.0, high=_round_up(high), log=False)
        return cls(low=low, high=high, log=log and low > 0)

    @classmethod
    def of_powers(cls, values: Sequence[float]) -> _Scale:
        """Return the logarithmic scale between powers of ten that holds all values: a small rise looks small."""
        low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        return cls(low=10.0**low, high=10.0 ** max(high, low + 1), log=True)

    def place(self, value: float) -> float:
        """Return the position of a value."""
        if self.high == self.low:
            return 0.5
        if self.log:
            return (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Return about five round values; on a logarithmic axis powers of ten, or its ends where there are too few."""
        if self.log:
            powers = range(math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1)
            few = powers[:: max(-(-len(powers) // 6), 1)]
            return [10.0**power for power in few] if len(few) > 1 else [self.low, self.high]
        step = _round_up((self.high - self.low) / 5.0)
        if not step:
            return [self.low]
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [float(f"{number * step:.6g}") for number in range(first, last + 1)]


def _round_up(value: float) -> float:
    """Return the next of 1, 2, 2.5, 5 and 10 times a power of ten."""
    if value <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1.0, 2.0, 2.5, 5.0, 10.0) if step * power >= value * (1 - 1e-9))


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
