"""Shows how a cost grows with size: curves that benchmarks measure, and a power law through each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.results import Result
from opsk.cli.render.chart import Curve, Lines, arrange_chart, render_chart_svg

Points = Sequence[tuple[float, float]]
LEAST_FITTED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One picture: the curves of a benchmark by their keys, each with its name where there are several."""

    benchmark: str
    title: str
    x_label: str
    y_label: str = "CPU time [s]"
    curves: Mapping[str, str]


PANELS = (
    Panel(benchmark="costmodel_rows", title="Predicting a table of plans", x_label="plans", curves={"rows": ""}),
    Panel(benchmark="search", title="Searching the best plan of 175B", x_label="GPUs", curves={"gpus": ""}),
    Panel(benchmark="fabric_read", title="Reading a fabric and its rails", x_label="nodes of 8 HCAs",
          curves={"nodes": ""}),
    Panel(benchmark="placement", title="Placing a job on 10,000 nodes", x_label="ranks", curves={"ranks": ""}),
    Panel(benchmark="remap", title="Options after a node failed", x_label="ranks", curves={"ranks": ""}),
    Panel(benchmark="interference", title="A candidate beside running jobs", x_label="running jobs",
          curves={"jobs": ""}),
    Panel(benchmark="live_advice", title="Full advice", x_label="nodes of the fabric", curves={"nodes": ""}),
    Panel(benchmark="slurm_poll", title="Asking Slurm for its jobs", x_label="jobs",
          curves={"opsk": "opsk", "squeue_json": "squeue --json"}),
    Panel(benchmark="exporter_scrape", title="A scrape", x_label="HCAs of the node, 8 GPUs", curves={"hcas": ""}),
    Panel(benchmark="tui_data", title="Data of all screens anew", x_label="nodes of 8 GPUs", curves={"nodes": ""}),
    Panel(benchmark="postmortem", title="Reading the logs of 512 ranks", x_label="bytes", y_label="wall time [s]",
          curves={"bytes": ""}),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw:
    """``cost = factor * size ** slope``, the best in the sense of least squares of logarithms."""

    factor: float
    slope: float

    def at(self, size: float) -> float:
        """Return the cost of a size."""
        return self.factor * math.pow(size, self.slope)


def upper_half(points: Points) -> Points:
    """Return the larger sizes, three at least: with the smaller ones what is fixed counts, not what grows."""
    return points[-max(LEAST_FITTED, (len(points) + 1) // 2) :]


def power_law(points: Points) -> PowerLaw | None:
    """Return the law through some points; ``None`` where they are fewer than two sizes, or one costs nothing."""
    if len({size for size, _ in points}) < 2 or any(cost <= 0 for _, cost in points):
        return None
    slope, height = np.polyfit([math.log(size) for size, _ in points], [math.log(cost) for _, cost in points], 1)
    return PowerLaw(factor=math.exp(height), slope=float(slope))


def fit_curves(results: Mapping[str, Result]) -> list[tuple[Panel, str, Points, PowerLaw]]:
    """Return the curves that were measured, each with its law."""
    found = list[tuple[Panel, str, Points, PowerLaw]]()
    for panel in PANELS:
        curves = results[panel.benchmark].found.curves if panel.benchmark in results else {}
        for key, name in panel.curves.items():
            points = curves.get(key, [])
            if (law := power_law(upper_half(points))) is not None:
                found.append((panel, name, points, law))
    return found


def picture(results: Mapping[str, Result]) -> str:
    """Return all panels as one SVG, logarithmic both ways."""
    lines: dict[str, list[Curve]] = {}
    for panel, name, points, law in fit_curves(results):
        fitted = [(size, _short(law.at(size))) for size, _ in upper_half(points)]
        lines.setdefault(panel.benchmark, []).extend(
            [
                Curve(name=name or "measured", points=[(size, _short(cost)) for size, cost in points]),
                Curve(name=f"∝ n^{law.slope:.2f}", points=fitted, dashed=True),
            ]
        )
    panels = [
        Lines(
            title=panel.title, x_label=panel.x_label, y_label=panel.y_label, lines=lines[panel.benchmark], log_x=True,
            log_y=True,
        )
        for panel in PANELS
        if panel.benchmark in lines
    ]  # fmt: skip
    return render_chart_svg(arrange_chart(panels))


def _short(cost: float) -> float:
    """Return a cost with the digits that an axis can show."""
    return float(f"{cost:.3g}")
