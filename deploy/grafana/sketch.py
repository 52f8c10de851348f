"""Draws a dashboard from its JSON, with data from a Prometheus, as one SVG file.

Grafana draws far better; this shows the layout, the titles and whether there is data, where no Grafana is at hand:
``python -m deploy.grafana.sketch http://127.0.0.1:9090 opsk-job 'job=4711' > job.svg``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from deploy.grafana.sketch_data import Series, Source, format_value, in_words, table

HERE = Path(__file__).resolve().parent
COLUMN, ROW, GAP = 60, 34, 8
DARK = {"page": "#111217", "panel": "#181b1f", "line": "#2c3235", "text": "#ccccdc", "faint": "#8e8e9c"}
LIGHT = {"page": "#f4f5f5", "panel": "#ffffff", "line": "#d8d9da", "text": "#24292e", "faint": "#6c7079"}
NAMED = {"green": "#73bf69", "yellow": "#f2cc0c", "red": "#f2495c", "blue": "#5794f2"}
PALETTE = ("#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#8ab8ff", "#96d98d", "#ffb357", "#ca95e5")
Box = tuple[float, float, float, float]
SCALES = {
    "continuous-BlYlRd": ((0.0, (36, 70, 160)), (0.5, (242, 204, 12)), (1.0, (224, 47, 68))),
    "continuous-blues": ((0.0, (30, 34, 45)), (0.5, (46, 98, 190)), (1.0, (150, 200, 255))),
}


def draw(dashboard: dict[str, Any], source: Source, theme: dict[str, str] = DARK) -> str:
    """Return a dashboard as SVG."""
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard["panels"]) * ROW + 48
    width = 24 * COLUMN + 2 * GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
        f'<rect width="100%" height="100%" fill="{theme["page"]}"/>',
        _text(GAP * 2, 27, dashboard["title"], theme["text"], 18, bold=True),
        _text(width - GAP * 2, 27, _variables(dashboard, source), theme["faint"], 12, anchor="end"),
    ]
    for panel in dashboard["panels"]:
        parts += _panel(panel, source, theme)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _variables(dashboard: dict[str, Any], source: Source) -> str:
    """Say what is chosen."""
    names = [variable["name"] for variable in dashboard["templating"]["list"] if variable["name"] != "datasource"]
    chosen = {name: source.variables.get(f"${name}", "") for name in names}
    return "   ".join(f"{name}: {'All' if value == '.*' else value}" for name, value in chosen.items())


def _text(
    x: float, y: float, text: str, fill: str, size: int = 12, *, anchor: str = "start", bold: bool = False
) -> str:
    weight = ' font-weight="600"' if bold else ""
    where = f'x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"'
    return f'<text {where} fill="{fill}" font-size="{size}"{weight}>{escape(text)}</text>'


def _rect(box: Box, fill: str, more: str = "") -> str:
    x, y, width, height = box
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"{more}/>'


def _polyline(points: str, stroke: str, opacity: float = 1.0) -> str:
    return f'<polyline points="{points}" fill="none" stroke="{stroke}" stroke-width="1.4" opacity="{opacity}"/>'


def _cut(text: str, width: float, size: int = 12) -> str:
    """Cut a text to a width."""
    most = max(3, int(width / (size * 0.56)))
    return text if len(text) <= most else text[: most - 1] + "…"


def _panel(panel: dict[str, Any], source: Source, theme: dict[str, str]) -> Iterator[str]:
    """Draw one panel, or the title of a row."""
    at = panel["gridPos"]
    x, y = at["x"] * COLUMN + GAP, at["y"] * ROW + 42
    width, height = at["w"] * COLUMN - GAP, at["h"] * ROW - GAP
    if panel["type"] == "row":
        yield _text(x + 4, y + 18, f"⌄ {panel['title']}", theme["text"], 15, bold=True)
        return
    yield _rect((x, y, width, height), theme["panel"], f' rx="3" stroke="{theme["line"]}"')
    yield _text(x + 10, y + 19, _cut(panel["title"], width - 20, 13), theme["text"], 13, bold=True)
    box = (x + 10.0, y + 28.0, width - 20.0, height - 36.0)
    draw = {"table": _table, "stat": _stat, "bargauge": _bars, "status-history": _heat, "timeseries": _lines}
    yield from draw[panel["type"]](panel, source, theme, box)


def colour(value: float | None, defaults: dict[str, Any]) -> str:
    """Return the colour of a value: by thresholds or by scale."""
    if value is None:
        return "none"
    if str(defaults["color"]["mode"]).startswith("continuous"):
        low, high = defaults.get("min", 0.0), defaults.get("max", 1.0)
        part = min(1.0, max(0.0, (value - low) / ((high - low) or 1.0)))
        low_end, middle, high_end = SCALES[defaults["color"]["mode"]]
        (start, first), (end, last) = (low_end, middle) if part <= middle[0] else (middle, high_end)
        mix = (part - start) / (end - start)
        return "#" + "".join(f"{round(a + (b - a) * mix):02x}" for a, b in zip(first, last, strict=True))
    found = "blue"
    for step in defaults["thresholds"]["steps"]:
        if step.get("value") is None or value >= step["value"]:
            found = step["color"]
    return NAMED.get(found, found)


def _all(panel: dict[str, Any], source: Source) -> list[Series]:
    return [series for target in panel["targets"] for series in source.series(target)]


def _empty(panel: dict[str, Any], theme: dict[str, str], box: Box) -> str:
    x, y, width, height = box
    words = panel["fieldConfig"]["defaults"].get("noValue", "no data")
    return _text(x + width / 2, y + height / 2, words, theme["faint"], 13, anchor="middle")


def _curve(points: Sequence[tuple[float, float]], source: Source, box: Box, low: float, high: float) -> str:
    """Return the points of a curve."""
    x, y, width, height = box
    span_s, range_ = (source.end_unix_s - source.start_unix_s) or 1.0, (high - low) or 1.0
    return " ".join(
        f"{x + (at - source.start_unix_s) / span_s * width:.1f},{y + height - (value - low) / range_ * height:.1f}"
        for at, value in points
    )


def _stat(panel: dict[str, Any], source: Source, theme: dict[str, str], box: Box) -> Iterator[str]:
    found, defaults = _all(panel, source), panel["fieldConfig"]["defaults"]
    x, y, width, height = box
    if not found:
        yield _empty(panel, theme, box)
    for index, series in enumerate(found):
        part = width / len(found)
        fill = colour(series.last, defaults)
        if panel["options"]["graphMode"] == "area" and len(series.points) > 1:
            low, high = min(value for _at, value in series.points), max(value for _at, value in series.points)
            low = low if high > low else low - 1
            under = (x + index * part, y + height * 0.6, part - 4, height * 0.4)
            yield _polyline(_curve(series.points, source, under, low, high), fill, 0.5)
        text = in_words(series.last, defaults) or format_value(series.last, defaults["unit"], defaults.get("decimals"))
        size = 30 if len(text) * 17 < part else 20
        yield _text(x + index * part + part / 2, y + height * 0.5, text, fill, size, anchor="middle", bold=True)
        if len(found) > 1:
            yield _text(
                x + index * part + part / 2, y + height * 0.5 + 18, series.name, theme["faint"], 11, anchor="middle"
            )


def _lines(panel: dict[str, Any], source: Source, theme: dict[str, str], box: Box) -> Iterator[str]:
    found, defaults = _all(panel, source), panel["fieldConfig"]["defaults"]
    if not found:
        yield _empty(panel, theme, box)
        return
    stacked = defaults["custom"].get("stacking", {}).get("mode") == "normal"
    curves = _stack(found) if stacked else [series.points for series in found]
    values = [value for points in curves for _at, value in points]
    low = defaults.get("min", min(values))
    high = max(defaults.get("max", max(values)), max(values))
    high = high if high > low else low + 1
    x, y, width, height = box
    rows = min(len(found), 3)
    plot = (x + 58, y + 6, width - 62, height - 24 - rows * 15)
    for part in (0.0, 0.5, 1.0):
        at_y = plot[1] + plot[3] * (1 - part)
        yield _rect((plot[0], at_y, plot[2], 1), theme["line"])
        label = format_value(low + (high - low) * part, defaults["unit"])
        yield _text(plot[0] - 5, at_y + 4, label, theme["faint"], 10, anchor="end")
    for step in defaults["thresholds"]["steps"][1:] if "thresholdsStyle" in defaults["custom"] else ():
        if low <= step["value"] <= high:
            at_y = plot[1] + plot[3] * (1 - (step["value"] - low) / (high - low))
            stroke = NAMED.get(step["color"], step["color"])
            yield f'<path d="M{plot[0]} {at_y:.1f}h{plot[2]}" stroke="{stroke}" stroke-dasharray="6 4"/>'
    for index, points in enumerate(curves):
        stroke = PALETTE[index % len(PALETTE)]
        yield _polyline(_curve(points, source, plot, low, high), stroke)
    highest_first = sorted(enumerate(found), key=lambda each: -max(value for _at, value in each[1].points))
    for place, (index, series) in enumerate(highest_first[:3]):
        at_y = y + height - 4 - (rows - 1 - place) * 15
        yield _rect((x, at_y - 7, 12, 4), PALETTE[index % len(PALETTE)])
        more = f"   (and {len(found) - 3} more)" if place == 2 and len(found) > 3 else ""
        yield _text(x + 18, at_y, _cut(series.name + more, width - 180, 11), theme["text"], 11)
        highest = format_value(max(value for _at, value in series.points), defaults["unit"])
        yield _text(
            x + width,
            at_y,
            f"last {format_value(series.last, defaults['unit'])}  max {highest}",
            theme["faint"],
            11,
            anchor="end",
        )


def _stack(found: list[Series]) -> list[list[tuple[float, float]]]:
    """Add curves up."""
    below: dict[float, float] = {}
    curves = []
    for series in found:
        for at, value in series.points:
            below[at] = below.get(at, 0.0) + value
        curves.append([(at, below[at]) for at, _value in series.points])
    return curves


def _heat(panel: dict[str, Any], source: Source, theme: dict[str, str], box: Box) -> Iterator[str]:
    found, defaults = _all(panel, source), panel["fieldConfig"]["defaults"]
    if not found:
        yield _empty(panel, theme, box)
        return
    x, y, width, height = box
    names = 110.0
    tall = min(26.0, (height - 22) / len(found))
    cell = (width - names) / max(len(series.points) for series in found)
    span_s = (source.end_unix_s - source.start_unix_s) or 1.0
    for index, series in enumerate(sorted(found, key=lambda each: each.name)):
        top = y + index * tall
        yield _text(x + names - 6, top + tall / 2 + 4, _cut(series.name, names, 11), theme["text"], 11, anchor="end")
        for at, value in series.points:
            left = x + names + (at - source.start_unix_s) / span_s * (width - names - cell)
            fill = colour(value, defaults)
            yield _rect((left, top, cell * 0.94, tall * 0.92), fill)
    yield from _legend(defaults, theme, (x + names, y + height - 8, width - names, 8))


def _legend(defaults: dict[str, Any], theme: dict[str, str], box: Box) -> Iterator[str]:
    """Draw a scale of colours."""
    x, y, _width, height = box
    low, high = defaults.get("min", 0.0), defaults.get("max", 1.0)
    yield _text(x, y + height, format_value(low, defaults["unit"]), theme["faint"], 10)
    for part in range(20):
        fill = colour(low + (high - low) * part / 19, defaults)
        yield _rect((x + 50 + part * 8, y, 8, height), fill)
    yield _text(x + 220, y + height, format_value(high, defaults["unit"]), theme["faint"], 10)


def _bars(panel: dict[str, Any], source: Source, theme: dict[str, str], box: Box) -> Iterator[str]:
    found, defaults = _all(panel, source), panel["fieldConfig"]["defaults"]
    if not found:
        yield _empty(panel, theme, box)
        return
    x, y, width, height = box
    low = defaults.get("min", 0.0)
    high = max(defaults.get("max", 0.0), max(series.last for series in found))
    tall = min(30.0, height / len(found))
    for index, series in enumerate(found):
        top = y + index * tall
        part = (series.last - low) / ((high - low) or 1.0)
        fill = colour(series.last, defaults)
        yield _text(x, top + tall / 2 + 4, _cut(series.name, 150, 11), theme["text"], 11)
        yield _rect((x + 155, top + 3, max(2.0, part * (width - 235)), tall - 6), fill)
        text = format_value(series.last, defaults["unit"], defaults.get("decimals"))
        yield _text(x + width, top + tall / 2 + 4, text, fill, 12, anchor="end")


def _table(panel: dict[str, Any], source: Source, theme: dict[str, str], box: Box) -> Iterator[str]:
    found, defaults = table(panel, source), panel["fieldConfig"]["defaults"]
    x, y, width, height = box
    if not found.rows:
        yield _empty(panel, theme, box)
        return
    wide = width / len(found.columns)
    coloured = defaults["custom"].get("cellOptions", {}).get("type") == "color-background"
    for index, name in enumerate(found.columns):
        yield _text(x + index * wide + 4, y + 10, _cut(name, wide, 11), NAMED["blue"], 11, bold=True)
    room = int((height - 18) // 22)
    for down, cells in enumerate(found.rows[:room]):
        top = y + 16 + down * 22
        yield _rect((x, top, width, 1), theme["line"])
        for index, (text, value) in enumerate(cells):
            fill = theme["text"]
            if coloured and value is not None:
                ground = colour(value, defaults)
                yield _rect((x + index * wide + 1, top + 1, wide - 2, 20), ground)
                fill = "#111217" if ground[1:2] in "789abcdef" else "#ffffff"
            yield _text(x + index * wide + 4, top + 16, _cut(text, wide - 6, 12), fill, 12)
    if len(found.rows) > room:
        yield _text(x + width, y + height + 4, f"{len(found.rows) - room} more rows", theme["faint"], 10, anchor="end")


def main(arguments: Sequence[str]) -> int:
    """Draw one dashboard of the last half hour."""
    if len(arguments) < 2:
        print("usage: python -m deploy.grafana.sketch URL UID [variable=value] [light]", file=sys.stderr)
        return 2
    url, uid, *rest = arguments
    chosen = {"cluster": ".*", "node": ".*", **dict(word.split("=", 1) for word in rest if "=" in word)}
    end = time.time() // 30 * 30
    source = Source(url, end - 1800, end, variables={f"${name}": value for name, value in chosen.items()})
    dashboard = json.loads((HERE / f"{uid}.json").read_text(encoding="utf-8"))
    sys.stdout.write(draw(dashboard, source, LIGHT if "light" in rest else DARK))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
