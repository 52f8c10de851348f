"""Shows the fabric: every port by node and rail, the tiers of switches, congested leaves, and cabling faults."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from opsk_tui.data.view import FabricView, Health, PortTable
from opsk_tui.screens.view_screen import ViewScreen
from opsk_tui.text import HEALTH_WORDS, NOT_KNOWN, percent, safe
from opsk_tui.widgets.canvas import Cell
from opsk_tui.widgets.document import Document, Line, Section, section
from opsk_tui.widgets.grid_map import SCALES, Grid, GridMap, compute_codes
from opsk_tui.widgets.lines import Lines

_TIER_NAMES = ("leaf", "spine", "core")
_MOST_LEAVES = 12


class PortMetric(StrEnum):
    """The metrics of the port map."""

    CONGESTION = "time that packets wait"
    RATE = "rate of the best"
    TRAFFIC = "traffic"
    ERRORS = "errors"


def port_values(ports: PortTable, metric: PortMetric) -> NDArray[np.float32]:
    """Return the numbers of one metric."""
    return {
        PortMetric.CONGESTION: ports.congestion, PortMetric.RATE: ports.rate_ratio,
        PortMetric.TRAFFIC: ports.bytes_per_s, PortMetric.ERRORS: ports.errors,
    }[metric]  # fmt: skip


def port_text(metric: PortMetric, value: float) -> str:
    """Return one number in at most five cells; traffic in GB/s."""
    if not np.isfinite(value):
        return NOT_KNOWN
    if metric in (PortMetric.CONGESTION, PortMetric.RATE):
        return f"{value * 100:.0f}%"
    return f"{value / 1e9:.1f}" if metric is PortMetric.TRAFFIC else f"{value:.0f}"


class FabricScreen(ViewScreen):
    """The matrix of rails and nodes, above the tiers, leaves and faults."""

    NAME = "fabric"
    ABOUT: ClassVar[tuple[str, ...]] = (
        "One symbol per port: a row per node, a column per rail. Next to it: faults, tiers, congested leaves.",
        "Tab goes to the text and back.",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "metric(1)", "Metric"),
        Binding("M", "metric(-1)", "Previous metric", show=False),
        Binding("plus,equals_sign", "zoom(1)", "Zoom in", key_display="+"),
        Binding("minus", "zoom(-1)", "Zoom out", key_display="-"),
        Binding("s", "sort", "Sort"),
        Binding("x", "unhealthy", "Unhealthy"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._metric = PortMetric.CONGESTION
        self._only_unhealthy = False
        self._is_sorted = False
        self._shown_fabric: FabricView | None = None

    def compose_body(self) -> ComposeResult:
        """Put the matrix and the text into one split."""
        with Container(id="split"):
            yield GridMap(empty="No source reports the fabric.", id="ports")
            yield Document(empty="No faults are known.", id="text")

    @property
    def map(self) -> GridMap:
        """The matrix."""
        return self.query_one(GridMap)

    @property
    def body(self) -> Lines:
        """The matrix, or the text where it has the focus."""
        return self.text if self.is_mounted and self.focused is self.text else self.map

    @property
    def text(self) -> Document:
        """Faults, leaves and tiers."""
        return self.query_one("#text", Document)

    @property
    def fabric(self) -> FabricView | None:
        """The fabric of the view."""
        return self.known.view.fabric

    def _fit(self) -> None:
        self.query_one("#split").set_class(self.app.size.width >= 120, "wide")

    def fill(self) -> None:
        """Show the selected ports."""
        fabric = self.fabric
        if fabric is None:
            return
        ports, metric = fabric.ports, self._metric
        values = port_values(ports, metric)
        nodes = self.known.view.nodes
        names = [safe(node.name) for node in nodes]

        def text(row: int, column: int) -> str:
            return port_text(metric, float(values[row, column]))

        def rest(row: int) -> list[Cell]:
            leaves = {safe(ports.leaves[key]) for column in range(len(ports.rails))
                      if (key := (nodes[row].name, column)) in ports.leaves}  # fmt: skip
            return [(" ".join(sorted(leaves)[:4]) + (" …" if len(leaves) > 4 else ""), "dim")]

        grid = Grid(
            names=names, name_keys=["text"] * len(names),
            codes=compute_codes(values, ports.health, None, self._limits(ports)),
            columns=[safe(rail)[:5] for rail in ports.rails], text=text, rest=rest,
        )  # fmt: skip
        self.map.show(grid, self._rows(ports, values))
        if self._shown_fabric is not fabric:
            self._shown_fabric = fabric
            self.text.show(self._sections(fabric))

    def _limits(self, ports: PortTable) -> tuple[float, float]:
        if self._metric is PortMetric.RATE:
            return 0.0, 1.0
        values = port_values(ports, self._metric)
        high = float(np.nanmax(values)) if not np.isnan(values).all() else 0.0
        if self._metric is PortMetric.CONGESTION:
            return 0.0, max(0.1, min(1.0, high))
        return 0.0, max(high, 8.0)

    def _rows(self, ports: PortTable, values: NDArray[np.float32]) -> NDArray[np.intp]:
        """Return the rows that are shown, in order."""
        nodes = self.known.view.nodes
        keep = np.ones(len(nodes), dtype=bool)
        if self._only_unhealthy:
            keep &= (ports.health >= Health.WATCH).any(axis=1)
        terms = self.words.casefold().split()
        if terms:
            for row in np.flatnonzero(keep).tolist():
                name = nodes[row].name
                leaves = [ports.leaves.get((name, column), "") for column in range(len(ports.rails))]
                words = [name, *leaves, *(HEALTH_WORDS[Health(int(code))] for code in ports.health[row])]
                text = " ".join(words).casefold()
                keep[row] = all(word in text for word in terms)
        rows = np.flatnonzero(keep)
        if self._is_sorted:
            direction = 1.0 if self._metric is PortMetric.RATE else -1.0
            worst = np.nan_to_num(direction * values[rows], nan=np.inf).min(axis=1, initial=np.inf)
            worst = np.where((ports.health[rows] == Health.UNHEALTHY).any(axis=1), -np.inf, worst)
            rows = rows[np.argsort(worst, kind="stable")]
        return rows

    def _sections(self, fabric: FabricView) -> list[Section]:
        """Return faults, congested leaves, tiers and HB domains."""
        faults: list[Line] = [
            [(f"{self.top.glyphs.unhealthy} ", "sick"), (safe(fault), "text")] for fault in fabric.faults
        ]
        leaves: list[Line] = [
            [(f"{safe(name):<20}", "text"), (f"{percent(mean):>6}", "watch" if mean > 0.1 else "text"),
             (f"  worst port {percent(worst)}", "dim")]
            for name, mean, worst in self._leaves(fabric.ports)
        ]  # fmt: skip
        tiers: list[Line] = [
            [(f"{_TIER_NAMES[tier] if tier < len(_TIER_NAMES) else f'tier {tier + 1}':<8}", "dim"),
             (f"{len(names):>4} switches  ", "text"), (safe(" ".join(names[:6])) + (" …" if len(names) > 6 else ""),
              "dim")]
            for tier, names in enumerate(fabric.tiers)
        ]  # fmt: skip
        sizes: dict[int, int] = {}
        for members in fabric.hb_domains.values():
            sizes[len(members)] = sizes.get(len(members), 0) + 1
        domains: list[Line] = [
            [(f"{count} domains of {size} node{'s' * (size != 1)}", "text")] for size, count in sorted(sizes.items())
        ]
        return [
            section(f"Faults ({len(faults)})" if faults else "", faults), section("Leaves where packets wait", leaves),
            section("Tiers", tiers), section("HB domains", domains),
        ]  # fmt: skip

    def _leaves(self, ports: PortTable) -> list[tuple[str, float, float]]:
        """Return the leaves whose ports wait longest: mean and worst."""
        rows = self.known.rows_by_node
        by_leaf: dict[str, list[float]] = {}
        for (node, rail), leaf in ports.leaves.items():
            if node in rows and not np.isnan(value := float(ports.congestion[rows[node], rail])):
                by_leaf.setdefault(leaf, []).append(value)
        leaf_rates = [(leaf, sum(values) / len(values), max(values)) for leaf, values in by_leaf.items()]
        leaf_rates = [entry for entry in leaf_rates if entry[1] >= 0.01]
        return sorted(leaf_rates, key=lambda entry: -entry[1])[:_MOST_LEAVES]

    def summary(self) -> Sequence[Cell]:
        """Return the metric and the filters."""
        fabric = self.fabric
        if fabric is None:
            return [("nothing is known of the fabric", "watch")]
        low, high = self._limits(fabric.ports)
        unhealthy_count = int((fabric.ports.health == Health.UNHEALTHY).sum())
        glyph_set = self.top.glyphs
        unit = " GB/s" if self._metric is PortMetric.TRAFFIC else ""
        cells: list[Cell] = [
            (self._metric.value, "strong"), (f" {port_text(self._metric, low)} ", "dim"),
            *((glyph, f"heat{level}") for level, glyph in enumerate(glyph_set.levels)),
            (f" {port_text(self._metric, high)}{unit}  ", "dim"),
            (f"{glyph_set.unhealthy}{unhealthy_count}", "sick" if unhealthy_count else "dim"),
            (f"  {len(fabric.faults)} faults", "text"),
            (f"  {len(fabric.ports.rails)} rails", "text"), ("  only sick" if self._only_unhealthy else "", "watch"),
            ("  worst first" if self._is_sorted else "", "accent"), (f"  by {SCALES[self.map.scale]}", "dim"),
        ]  # fmt: skip
        return cells

    def detail(self) -> Sequence[Sequence[Cell]]:
        """Return the details of the port under the cursor."""
        fabric, row = self.fabric, self.map.row
        if fabric is None or row is None or row >= len(self.known.view.nodes):
            return ()
        ports, column = fabric.ports, self.map.column
        node = self.known.view.nodes[row]
        health = Health(int(ports.health[row, column]))
        numbers = [
            (f"  {metric.value} ", port_text(metric, float(port_values(ports, metric)[row, column])))
            for metric in PortMetric
        ]
        key = {Health.UNHEALTHY: "sick", Health.WATCH: "watch", Health.OK: "ok"}.get(health, "dim")
        first: list[Cell] = [
            (safe(node.name), "strong"), (f" {safe(ports.rails[column])} ", "text"), (HEALTH_WORDS[health], key),
            (f"  {safe(ports.leaves.get((node.name, column), ''))}", "accent"),
        ]  # fmt: skip
        return first, [(text, style) for name, value in numbers for text, style in ((name, "dim"), (value, "text"))]

    def apply_filter(self, words: str) -> None:
        """Show only ports or lines with these words."""
        if self.body is self.text:
            self.text.words = words
            self.text.rearrange()
        else:
            self.text.words = ""
            self.fill()

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        """Open the job that uses the port, else one on its node."""
        row = self.map.row
        if event.lines is not self.map or row is None:
            return
        jobs = self.known.gpus.job[row]
        here = int(jobs[self.map.column]) if self.map.column < len(jobs) else -1
        on_node = self.known.jobs_of_node.get(self.known.view.nodes[row].name, [])
        if here in self.known.jobs or on_node:
            self.top.open_job(here if here in self.known.jobs else on_node[0])
        else:
            self.notify("no job on this node", timeout=2)

    def clear_filters(self) -> bool:
        """Show every node again."""
        was_filtered, self._only_unhealthy = self._only_unhealthy, False
        if was_filtered:
            self.show()
        return was_filtered

    def action_metric(self, step: int) -> None:
        """Colour by the next metric."""
        metrics = list(PortMetric)
        self._metric = metrics[(metrics.index(self._metric) + step) % len(metrics)]
        self.show()

    def action_zoom(self, step: int) -> None:
        """Show more or fewer nodes at once."""
        self.map.zoom(step)
        self.show_lines()

    def action_sort(self) -> None:
        """Show the worst first, or all in Slurm's order."""
        self._is_sorted = not self._is_sorted
        self.show()

    def action_unhealthy(self) -> None:
        """Show only nodes with an unhealthy port, or all."""
        self._only_unhealthy = not self._only_unhealthy
        self.show()
