"""Computes what a panel shows: runs its queries and transformations, and formats numbers as Grafana does."""

from __future__ import annotations

import json
import time
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Any

_SI = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_IEC = ((2.0**50, "PiB"), (2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
_ENDS = {
    "watt": "W",
    "joule": "J",
    "Bps": "B/s",
    "hertz": "Hz",
    "cps": " c/s",
    "pps": " p/s",
    "watth": "Wh",
    "short": "",
}
_SPANS = ((86400.0, "day"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


@dataclass(frozen=True)
class Series:
    """One curve: its labels, its name in the legend, and its points (seconds since 1970, value)."""

    labels: dict[str, str]
    name: str
    points: list[tuple[float, float]]

    @property
    def last(self) -> float:
        """The newest value."""
        return self.points[-1][1]


@dataclass(frozen=True)
class Source:
    """A Prometheus, the time that is looked at, and what the variables stand for."""

    url: str
    start_unix_s: float
    end_unix_s: float
    step_s: float = 30.0
    variables: dict[str, str] = field(default_factory=dict)

    def fill_variables(self, expr: str) -> str:
        """Put values in the place of variables."""
        span_s = self.end_unix_s - self.start_unix_s
        known = {
            "$__rate_interval": f"{4 * self.step_s:.0f}s",
            "$__range_s": f"{span_s:.0f}",
            "$__range": f"{span_s:.0f}s",
            "$__interval": f"{self.step_s:.0f}s",
            **self.variables,
        }
        for name in sorted(known, key=len, reverse=True):
            expr = expr.replace(name, known[name])
        return expr

    def series(self, target: dict[str, Any]) -> list[Series]:
        """Ask one query of a panel."""
        parameters: dict[str, str | float] = {"query": self.fill_variables(target["expr"])}
        if target.get("instant"):
            path, parameters["time"] = "query", self.end_unix_s
        else:
            path = "query_range"
            parameters |= {"start": self.start_unix_s, "end": self.end_unix_s, "step": self.step_s}
        with urllib.request.urlopen(
            f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=60
        ) as got:
            result = json.loads(got.read())["data"]["result"]
        return [_series(found, target.get("legendFormat", "")) for found in result]


def _series(found: dict[str, Any], legend: str) -> Series:
    """Read one series of an answer."""
    labels = found["metric"]
    points = [(float(at), float(value)) for at, value in found.get("values") or [found["value"]]]
    name = legend
    for label, value in labels.items():
        name = name.replace(f"{{{{{label}}}}}", value)
    if legend in ("", "__auto"):
        name = ", ".join(f"{key}={value}" for key, value in labels.items() if key != "__name__") or "value"
    return Series(labels, name, points)


def format_value(value: float | None, unit: str, decimals: int | None = None) -> str:
    """Write a number with its unit."""
    if value is None or value != value:
        return ""
    if unit == "percentunit":
        return f"{value * 100:.{1 if decimals is None else decimals}f} %"
    if unit == "celsius":
        return f"{value:.{1 if decimals is None else decimals}f} °C"
    if unit == "bytes":
        size, word = next(((size, word) for size, word in _IEC if abs(value) >= size), _IEC[-1])
        return f"{value / size:.3g} {word}"
    if unit in ("s", "h", "dateTimeFromNow"):
        return _span(value, unit)
    size, prefix = next(((size, prefix) for size, prefix in _SI if abs(value) >= size), _SI[-1])
    if unit == "none":
        return f"{value:g}"
    number = f"{value / size:.{decimals}f}" if decimals is not None and size > 1 else f"{value / size:.4g}"
    return f"{number} {prefix}{_ENDS.get(unit, unit)}".rstrip()


def _span(value: float, unit: str) -> str:
    """Write a time."""
    if unit == "dateTimeFromNow":
        return f"{_span(max(0.0, time.time() - value / 1000), 's')} ago"
    seconds = value * 3600 if unit == "h" else value
    if 0 < abs(seconds) < 1:
        return f"{seconds * 1000:.3g} ms"
    size, word = next(((size, word) for size, word in _SPANS if abs(seconds) >= size), _SPANS[-1])
    return f"{seconds / size:.3g} {word}"


@dataclass(frozen=True)
class Table:
    """Rows of a table, each cell as it is shown, with the number behind it for its colour."""

    columns: list[str]
    rows: list[list[tuple[str, float | None]]]


def table(panel: dict[str, Any], source: Source) -> Table:
    """Ask the queries of a table and do what its transformations say."""
    defaults = panel["fieldConfig"]["defaults"]
    steps = {step["id"]: step["options"] for step in panel["transformations"]}
    asked = [(target["refId"], source.series(target)) for target in panel["targets"]]
    if "groupingToMatrix" in steps:
        return _matrix(asked[0][1], steps["groupingToMatrix"], defaults)
    several = len(asked) > 1
    rows = _merge([(f"Value #{ref}" if several else "Value", found) for ref, found in asked])
    names: dict[str, str] = steps["organize"]["renameByName"]
    units = {
        override["matcher"]["options"]: prop["value"]
        for override in panel["fieldConfig"]["overrides"]
        for prop in override["properties"]
        if prop["id"] == "unit"
    }
    words = {
        override["matcher"]["options"]: prop["value"]
        for override in panel["fieldConfig"]["overrides"]
        for prop in override["properties"]
        if prop["id"] == "mappings"
    }
    places: dict[str, int] = steps["organize"]["indexByName"]
    order = sorted(names, key=lambda name: places.get(name, len(places)))
    columns = [name for name in order if any(name in row for row in rows)] or order
    for wanted in panel["options"].get("sortBy") or ():
        key = next(name for name, said in names.items() if said == wanted["displayName"])
        rows.sort(key=lambda row: -_number(row.get(key)))
    looks = {name: {**defaults, "mappings": words.get(names[name], defaults.get("mappings"))} for name in columns}
    cells = [[_cell(row.get(name), names[name], units, looks[name]) for name in columns] for row in rows]
    return Table([names[name] for name in columns], cells)


def _number(value: str | float | None) -> float:
    return value if isinstance(value, float) else 0.0


def _cell(
    value: str | float | None, column: str, units: dict[str, str], defaults: dict[str, Any]
) -> tuple[str, float | None]:
    """Return a cell as it is shown."""
    if not isinstance(value, float):
        return value or "", None
    return in_words(value, defaults) or format_value(
        value, units.get(column, defaults["unit"]), defaults.get("decimals")
    ), value


def in_words(value: float, defaults: dict[str, Any]) -> str | None:
    """Return the word that a panel has for a value."""
    for mapping in defaults.get("mappings") or ():
        found = mapping["options"].get(f"{value:g}")
        if found:
            return str(found["text"])
    return None


def _merge(asked: list[tuple[str, list[Series]]]) -> list[dict[str, str | float]]:
    """Do Grafana's merge: rows that agree in all labels that both have become one."""
    rows: list[dict[str, str | float]] = []
    for column, found in asked:
        for series in found:
            labels = {key: value for key, value in series.labels.items() if key != "__name__"}
            for row in rows:
                common = labels.keys() & row.keys()
                if column not in row and common and all(row[key] == labels[key] for key in common):
                    row |= {**labels, column: series.last}
                    break
            else:
                rows.append({**labels, column: series.last})
    return rows


def _matrix(found: list[Series], options: dict[str, str], defaults: dict[str, Any]) -> Table:
    """Lay values out by two labels."""
    across = sorted({series.labels.get(options["columnField"], "") for series in found})
    down = sorted({series.labels.get(options["rowField"], "") for series in found})
    values = {
        (series.labels.get(options["rowField"], ""), series.labels.get(options["columnField"], "")): series.last
        for series in found
    }
    rows: list[list[tuple[str, float | None]]] = []
    for name in down:
        cells = [_cell(values.get((name, other)), "", {}, defaults) for other in across]
        rows.append([(name, None), *cells])
    return Table([f"{options['rowField']}\\{options['columnField']}", *across], rows)
