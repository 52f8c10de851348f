"""Builds the charts of ``opsk design``: bars of cost and steps, lines along a sweep, and the figures of a paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opsk.cli.render.chart import Bars, Curve, Lines
from opsk.text import escape, format_duration, to_json_values
from opsk.units import as_gbit_per_s

_MAX_BARS = 24


def build_charts(document: Mapping[str, Any]) -> list[Lines | Bars]:
    """Return the panels of a document: its figures, else a sweep, else bars."""
    shown = to_json_values(document)
    if shown["points"]:
        return list(_build_figures(shown["points"]))
    rows = shown["rows"]
    swept = [name for name in dict.fromkeys(key for row in rows for key in row["sweep"]) if _varies(rows, name)]
    if len(swept) == 1:
        return [*_build_sweep_panels(rows, swept[0])]
    return [*_build_bars(rows)]


def _varies(rows: Sequence[Mapping[str, Any]], key: str) -> bool:
    return len({row["sweep"].get(key) for row in rows if key in row["sweep"]}) > 1


def _build_bars(rows: Sequence[Mapping[str, Any]]) -> Iterator[Bars]:
    """Yield cost, power, and the step of each model, a bar a network."""
    rows = rows[:_MAX_BARS]
    names = [_format_network(row) for row in rows]
    money = [(row["cost_usd"], f"{row['cost_usd'] / 1e6:,.2f}") for row in rows]
    watts = [(row["power_w"], f"{row['power_w'] / 1e3:,.1f}") for row in rows]
    for title, values in (("Cost [M USD]", money), ("Power [kW]", watts)):
        yield Bars(title=title, bars=[(name, *value) for name, value in zip(names, values, strict=True)])
    for index, first in enumerate(rows[0]["models"] if rows else ()):
        steps = [row["models"][index]["step_s"] for row in rows]
        bars = [
            (name, step or 0.0, format_duration(step) if step else "no plan")
            for name, step in zip(names, steps, strict=True)
        ]
        yield Bars(title=f"Step of {escape(first['model'])}, batch {first['global_batch']:,}", bars=bars)


def _format_network(row: Mapping[str, Any]) -> str:
    settings = [f"{key} {value:g}" for key, value in row["sweep"].items() if key != "oversubscription"]
    return " ".join([row["network"], *settings])


def _build_sweep_panels(rows: Sequence[Mapping[str, Any]], key: str) -> Iterator[Lines]:
    """Yield steps and cost along the swept value, a line a network."""
    for index, first in enumerate(rows[0]["models"]):
        yield Lines(
            title=f"Step of {escape(first['model'])} [s]",
            x_label=key,
            y_label="step [s]",
            log_x=True,
            lines=list(_build_lines(rows, key, lambda row, index=index: row["models"][index]["step_s"])),
        )
    yield Lines(
        title="Cost of the network [M USD]",
        x_label=key,
        y_label="M USD",
        log_x=True,
        lines=list(_build_lines(rows, key, lambda row: row["cost_usd"] / 1e6)),
    )


def _build_lines(rows: Sequence[Mapping[str, Any]], key: str, value_of: Any) -> Iterator[Curve]:
    """Yield one line for each network."""
    points_by_name: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        name = row["wiring"] if key == "oversubscription" else row["network"]
        if key == "oversubscription" and row["option"]:
            name = f"{name} + {row['option']}"
        value = value_of(row)
        if key in row["sweep"] and value is not None:
            points_by_name.setdefault(name, []).append((row["sweep"][key], value))
    for name, points in points_by_name.items():
        yield Curve(name=name, points=sorted(points))


def _build_figures(points: Sequence[Mapping[str, Any]]) -> Iterator[Lines]:
    """Yield figures 8 to 10 of the rail-only paper as computed."""
    for model in dict.fromkeys(point["model"] for point in points if point["figure"] == "8"):
        matching = [point for point in points if point["figure"] == "8" and point["model"] == model]
        yield Lines(
            title=f"Figure 8: {model}, batch {matching[0]['global_batch']:,}",
            x_label="GPUs of an HB domain (K)",
            y_label="step [s]",
            log_x=True,
            lines=list(_build_figure_8(matching)),
        )
    for domain in dict.fromkeys(point["hb_domain"] for point in points if point["figure"] == "9"):
        matching = [point for point in points if point["figure"] == "9" and point["hb_domain"] == domain]
        yield Lines(
            title=f"Figure 9: {matching[0]['model']}, K = {domain}",
            x_label="NIC [Gbit/s]",
            y_label="step [s]",
            lines=[
                Curve(
                    name=f"HB {as_gbit_per_s(rate) / 1e3:g} Tbit/s",
                    points=[
                        (as_gbit_per_s(point["nic_bytes_per_s"]), point["step_s"])
                        for point in matching
                        if point["hb_bytes_per_s"] == rate
                    ],
                )
                for rate in dict.fromkeys(point["hb_bytes_per_s"] for point in matching)
            ],
        )
    ten = [point for point in points if point["figure"] == "10"]
    if ten:
        yield Lines(
            title=f"Figure 10a: {ten[0]['model']}, {ten[0]['gpus']:,} GPUs",
            x_label="batch",
            y_label="step [s]",
            log_x=True,
            lines=list(_build_domain_lines(ten, {})),
        )
        ideal = {point["global_batch"]: point["step_s"] for point in ten if point["is_ideal"]}
        yield Lines(
            title="Figure 10b: all-NVLink step over each step",
            x_label="batch",
            y_label="ratio",
            log_x=True,
            lines=list(_build_domain_lines([point for point in ten if point["global_batch"] in ideal], ideal)),
        )


def _build_figure_8(points: Sequence[Mapping[str, Any]]) -> Iterator[Curve]:
    """Yield rail-only and the ideal of each number of GPUs."""
    for gpus in dict.fromkeys(point["gpus"] for point in points):
        line = [(point["hb_domain"], point["step_s"]) for point in points
                if point["gpus"] == gpus and not point["is_ideal"]]  # fmt: skip
        yield Curve(name=f"rail-only, N = {gpus:,}", points=line)
        ideal = [point["step_s"] for point in points if point["gpus"] == gpus and point["is_ideal"]]
        if ideal and line:
            ends = [(line[0][0], ideal[0]), (line[-1][0], ideal[0])]
            yield Curve(name=f"all NVLink, N = {gpus:,}", points=ends, dashed=True)


def _build_domain_lines(points: Sequence[Mapping[str, Any]], over: Mapping[int, float]) -> Iterator[Curve]:
    """Yield a line for each HB domain along the batch: its step, or another step over it."""
    for domain in dict.fromkeys(point["hb_domain"] for point in points):
        yield Curve(
            name="all NVLink" if any(p["is_ideal"] for p in points if p["hb_domain"] == domain) else f"K = {domain}",
            points=[
                (point["global_batch"], over[point["global_batch"]] / point["step_s"] if over else point["step_s"])
                for point in points
                if point["hb_domain"] == domain
            ],
        )
