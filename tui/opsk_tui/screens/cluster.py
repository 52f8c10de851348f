"""Shows every GPU of the cluster as one glyph, coloured by any metric, with unhealthy parts marked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from opsk.slurm.commands import remap_commands
from opsk.slurm.records import NodeRecord
from opsk.text import format_count
from opsk_tui.data.view import DRAINED_BY_HAND, Health, JobView, Metric, ViewIndex
from opsk_tui.screens.job_sections import format_loss, format_plan, measured_mfu, speed_key
from opsk_tui.screens.view_screen import ViewScreen
from opsk_tui.text import (
    HEALTH_WORDS,
    METRIC_TITLES,
    compute_run_time_s,
    fit_text,
    metric_number,
    metric_range,
    metric_text,
    percent,
    run_time,
    safe,
)
from opsk_tui.widgets.canvas import Cell
from opsk_tui.widgets.document import Document, Line, Section, section
from opsk_tui.widgets.grid_map import SCALES, Grid, GridMap, compute_codes
from opsk_tui.widgets.lines import Lines

_HEALTH_STEPS = (None, Health.WATCH, Health.UNHEALTHY)
_HEALTH_KEYS = {Health.UNKNOWN: "dim", Health.OK: "ok", Health.WATCH: "watch", Health.UNHEALTHY: "sick"}
_SHOWN_BY_UNIT = frozenset({Metric.POWER, Metric.TEMPERATURE})
_SHORT = {Metric.UTILISATION: "util", Metric.TENSOR: "tens", Metric.MEMORY: "mem", Metric.POWER: "pow",
          Metric.TEMPERATURE: "temp", Metric.CLOCK: "clk", Metric.THROTTLE: "held", Metric.ERRORS: "err"}  # fmt: skip


class Sort(StrEnum):
    """The sort orders of nodes."""

    GIVEN = "as in Slurm"
    HEALTH = "worst first"
    HIGHEST = "highest first"
    LOWEST = "lowest first"
    JOB = "by job"
    STATE = "by state"


class StateFilter(StrEnum):
    """Filters of nodes by Slurm state."""

    ALL = "all"
    BUSY = "with jobs"
    FREE = "free"
    OUT = "down or drained"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The user's selection."""

    metric: Metric = Metric.UTILISATION
    sort: Sort = Sort.GIVEN
    partition: str = ""
    state: StateFilter = StateFilter.ALL
    health: Health | None = None
    words: str = ""

    def without_filters(self) -> Selection:
        """Return the same with every node."""
        return replace(self, partition="", state=StateFilter.ALL, health=None)

    @property
    def is_filtered(self) -> bool:
        """Whether any node can be left out, apart from words."""
        return bool(self.partition) or self.state is not StateFilter.ALL or self.health is not None


def partitions(known: ViewIndex) -> list[str]:
    """Return every partition, sorted."""
    return sorted({name for node in known.view.nodes for name in node.partitions})


def state_words(node: NodeRecord) -> str:
    """Return a node's state as Slurm writes it."""
    return safe("+".join((node.state, *node.state_flags)))


def node_text(known: ViewIndex, row: int) -> str:
    """Return all text of a node that a filter searches."""
    node = known.view.nodes[row]
    words = [node.name, state_words(node), *node.partitions, *node.features, node.reason or "", node.gpu_type or "",
             HEALTH_WORDS[Health(int(known.worst[row]))]]  # fmt: skip
    for number in known.jobs_of_node.get(node.name, ()):
        record = known.jobs[number].record
        words += [record.label, record.name, record.user]
    return safe(" ".join(words)).casefold()


def chosen_rows(known: ViewIndex, choice: Selection) -> NDArray[np.intp]:
    """Return the rows of the nodes that are shown, in order."""
    nodes = known.view.nodes
    keep = np.ones(len(nodes), dtype=bool)
    if choice.partition:
        keep &= np.array([choice.partition in node.partitions for node in nodes], dtype=bool)
    if choice.state is not StateFilter.ALL:
        test = _STATE_TESTS[choice.state]
        keep &= np.array([test(known, node) for node in nodes], dtype=bool)
    if choice.health is not None:
        keep &= known.worst >= choice.health
    terms = choice.words.casefold().split()
    if terms:
        for row in np.flatnonzero(keep).tolist():
            text = node_text(known, row)
            keep[row] = all(word in text for word in terms)
    rows = np.flatnonzero(keep)
    return rows[np.argsort(_order(known, choice)[rows], kind="stable")] if choice.sort is not Sort.GIVEN else rows


def _has_jobs(known: ViewIndex, node: NodeRecord) -> bool:
    return node.name in known.jobs_of_node or node.state in ("ALLOCATED", "MIXED", "COMPLETING")


_STATE_TESTS: dict[StateFilter, Callable[[ViewIndex, NodeRecord], bool]] = {
    StateFilter.BUSY: _has_jobs,
    StateFilter.FREE: lambda known, node: node.is_usable and not _has_jobs(known, node),
    StateFilter.OUT: lambda known, node: not node.is_usable,
}


def _order(known: ViewIndex, choice: Selection) -> NDArray[np.float64]:
    """Return the number by which rows are sorted, lowest first."""
    if choice.sort is Sort.HEALTH:
        return np.asarray(-1.0 * known.worst, dtype=np.float64)
    if choice.sort is Sort.JOB:
        jobs: NDArray[np.int64] = np.where(known.gpus.job >= 0, known.gpus.job, np.iinfo(np.int64).max)
        first: NDArray[np.float64] = jobs.min(axis=1, initial=2**62).astype(np.float64)
        return first
    if choice.sort is Sort.STATE:
        names = sorted({node.state for node in known.view.nodes})
        return np.array([names.index(node.state) for node in known.view.nodes], dtype=np.float64)
    values = known.gpus.values.get(choice.metric)
    if values is None:
        return np.zeros(len(known.view.nodes))
    is_known = ~np.isnan(values)
    mean = np.where(is_known, values, 0).sum(axis=1) / np.maximum(1, is_known.sum(axis=1))
    mean = np.where(is_known.any(axis=1), mean, np.inf if choice.sort is Sort.LOWEST else -np.inf)
    ordered: NDArray[np.float64] = mean if choice.sort is Sort.LOWEST else -mean
    return ordered


def compute_limits(known: ViewIndex, metric: Metric) -> tuple[float, float]:
    """Return the values of the lowest and the highest glyph."""
    values = known.gpus.values.get(metric)
    return metric_range(metric, float(np.nanmax(values)) if values is not None and not np.isnan(values).all() else 0.0)


def gpu_grid(
    known: ViewIndex, metric: Metric, marked: NDArray[np.bool_] | None = None, before: NDArray[np.uint8] | None = None
) -> Grid:
    """Return the map of all GPUs by one metric."""
    table = known.gpus
    values = table.values.get(metric)
    nodes = known.view.nodes

    def text(row: int, column: int) -> str:
        return metric_number(metric, float(values[row, column])) if values is not None else ""

    def rest(row: int) -> list[Cell]:
        node = nodes[row]
        jobs = [safe(known.jobs[number].record.label) for number in known.jobs_of_node.get(node.name, ())[:3]]
        state = (state_words(node).ljust(18), state_key(node))
        words = [safe(",".join(node.partitions)), " ".join(jobs), safe(node.reason or "")]
        return [state, ("  ".join(word for word in words if word), "dim")]

    return Grid(
        names=_names(nodes), name_keys=[state_key(node) for node in nodes],
        codes=compute_codes(values, table.health, table.present, compute_limits(known, metric), before),
        columns=[f"GPU{slot}" for slot in range(table.present.shape[1])], text=text, rest=rest, marked=marked,
    )  # fmt: skip


def state_key(node: NodeRecord) -> str:
    """Return the style of a node's name."""
    if node.is_usable:
        return "dim" if node.state == "IDLE" else "text"
    return "sick" if node.state in ("DOWN", "FAIL", "UNKNOWN") else "watch"


def _names(nodes: Sequence[NodeRecord]) -> list[str]:
    return [safe(node.name) for node in nodes]


class ClusterScreen(ViewScreen):
    """The map of nodes and GPUs."""

    NAME = "cluster"
    ABOUT: ClassVar[tuple[str, ...]] = (
        "One symbol per GPU: height and colour show the metric; others are faults.",
        "Below: the GPU under the cursor, its node and job. Enter opens the job.",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "metric(1)", "Metric"),
        Binding("M", "metric(-1)", "Previous metric", show=False),
        Binding("plus,equals_sign", "zoom(1)", "Zoom in", key_display="+"),
        Binding("minus", "zoom(-1)", "Zoom out", key_display="-"),
        Binding("s", "sort", "Sort"),
        Binding("p", "partition", "Partition"),
        Binding("t", "state", "State"),
        Binding("x", "health", "Unhealthy"),
        Binding("o", "mark", "Mark its job", show=False),
        Binding("d", "node('drain')", "Drain the node: shows the command first", show=False),
        Binding("u", "node('resume')", "Resume the node: shows the command first", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.choice = Selection()
        self._marked: int | None = None
        self._last_look: tuple[object, ...] = ()
        self._codes: NDArray[np.uint8] | None = None

    def compose_body(self) -> ComposeResult:
        """Put the map beside the details of the part under the cursor."""
        with Horizontal():
            yield GridMap(empty="No node is known yet.", id="map")
            yield Document(id="side")

    @property
    def body(self) -> Lines:
        """The map."""
        return self.map

    @property
    def map(self) -> GridMap:
        """The map."""
        return self.query_one(GridMap)

    def fill(self) -> None:
        """Show the selected nodes."""
        known = self.known
        self.map.empty = self.why_empty("No node is known yet.")
        marked = None if self._marked is None else known.gpus.job == self._marked
        look = (self.choice.metric, compute_limits(known, self.choice.metric), tuple(known.rows_by_node))
        before = self._codes if look == self._last_look else None
        grid = gpu_grid(known, self.choice.metric, marked, before)
        self._last_look, self._codes = look, grid.codes
        self.map.show(grid, chosen_rows(known, self.choice))

    def summary(self) -> Sequence[Cell]:
        """Return the meaning of the glyphs and the filters."""
        known, choice = self.known, self.choice
        glyph_set = self.top.glyphs
        low, high = compute_limits(known, choice.metric)
        health = known.gpus.health
        unhealthy_count, watch_count = int((health == Health.UNHEALTHY).sum()), int((health == Health.WATCH).sum())
        shown, nodes = len(self.map.order), len(known.view.nodes)
        count = f"{shown} of {nodes} nodes" if shown != nodes else format_count(nodes, "node")
        cells: list[Cell] = [
            (METRIC_TITLES[choice.metric], "strong"), (f" {metric_text(choice.metric, low)} ", "dim"),
            *((glyph, f"heat{level}") for level, glyph in enumerate(glyph_set.levels)),
            (f" {metric_text(choice.metric, high)}  ", "dim"),
            (f"{glyph_set.unhealthy}{unhealthy_count}", "sick" if unhealthy_count else "dim"), (" ", "text"),
            (f"{glyph_set.watch}{watch_count}", "watch" if watch_count else "dim"), (f"  {count}", "text"),
        ]  # fmt: skip
        if choice.metric not in known.gpus.values:
            cells.append(("  no source tells it", "watch"))
        cells += [(f"  {words}", "watch") for words in self._filters()]
        if choice.sort is not Sort.GIVEN:
            cells.append((f"  {choice.sort.value}", "accent"))
        cells.append((f"  by {SCALES[self.map.scale]}", "dim"))
        return cells

    def _filters(self) -> list[str]:
        choice, words = self.choice, []
        if choice.partition:
            words.append(f"partition {safe(choice.partition)}")
        if choice.state is not StateFilter.ALL:
            words.append(choice.state.value)
        if choice.health is not None:
            words.append("sick" if choice.health is Health.UNHEALTHY else "sick or watch")
        return words

    def job_here(self) -> JobView | None:
        """Return the job that holds the GPU under the cursor, else one on its node."""
        row = self.map.row
        if row is None or row >= len(self.known.view.nodes):
            return None
        number = int(self.known.gpus.job[row, min(self.map.column, self.known.gpus.job.shape[1] - 1)])
        if number < 0:
            on_node = self.known.jobs_of_node.get(self.known.view.nodes[row].name, ())
            number = on_node[0] if on_node and (self.known.gpus.job[row] < 0).all() else -1
        return self.known.jobs.get(number)

    def detail(self) -> Sequence[Sequence[Cell]]:
        """Return the details of the GPU, its node and its job."""
        row = self.map.row
        if row is None or row >= len(self.known.view.nodes):
            return ()
        known, table, slot = self.known, self.known.gpus, self.map.column
        node = known.view.nodes[row]
        health = Health(int(table.health[row, slot]))
        first: list[Cell] = [
            (safe(node.name), "strong"), (f" GPU {slot} ", "text"), (HEALTH_WORDS[health], _HEALTH_KEYS[health]),
        ]  # fmt: skip
        for metric, values in table.values.items():
            value = float(values[row, slot])
            key = "accent" if metric is self.choice.metric else "text"
            first += [
                (f" {_SHORT[metric]} " if metric not in _SHOWN_BY_UNIT else " ", "dim"),
                (metric_text(metric, value).replace(" ", ""), key),
            ]
        second: list[Cell] = [(state_words(node), state_key(node)), (f" {safe(','.join(node.partitions))}", "dim")]
        if node.reason:
            second.append((f"  {safe(node.reason)}", "watch"))
        job = self.job_here()
        if job is not None:
            words, key = format_loss(job)
            second += [
                ("  job ", "dim"), (f"{safe(job.record.label)} {safe(job.record.name)}", "accent"),
                (f" {safe(job.record.user)} {job.record.gpus} GPUs MFU ", "dim"),
                (percent(measured_mfu(job)), speed_key(job)), (f" {words}", key),
            ]  # fmt: skip
        else:
            second.append(("  no job", "dim"))
        return first, second

    def side(self) -> Sequence[Section]:
        """Return more details where there is room."""
        row = self.map.row
        if row is None or row >= len(self.known.view.nodes):
            return ()
        known, table = self.known, self.known.gpus
        node = known.view.nodes[row]
        facts: list[Line] = [
            _render_fact("state", state_words(node), state_key(node)),
            _render_fact("partitions", safe(", ".join(node.partitions))),
            _render_fact("GPUs", f"{node.gpus_used} of {node.gpus} in use  {safe(node.gpu_type or '')}"),
            _render_fact("CPUs", f"{node.cpus_used} of {node.cpus} in use"),
        ]
        if node.reason:
            facts.append(_render_fact("reason", safe(node.reason), "watch"))
        gpus: list[Line] = [[("    " + "  ".join(f"{_SHORT[metric]:>5}" for metric in table.values), "dim")]]
        for slot in np.flatnonzero(table.present[row]).tolist():
            health = Health(int(table.health[row, slot]))
            numbers = "  ".join(
                f"{metric_text(metric, float(values[row, slot])).replace(' ', ''):>5}"
                for metric, values in table.values.items()
            )
            here = "+cursor" if slot == self.map.column else ""
            gpus.append([(f"{slot:>2}  {numbers}  ", "text" + here), (HEALTH_WORDS[health], _HEALTH_KEYS[health])])
        events: list[Line] = [
            [(f"{safe(event.failed)} ", "watch"), (safe(event.text), "text")]
            for event in known.view.events
            if node.name in event.nodes and not event.is_over
        ]
        sections = [section(safe(node.name), facts), section("GPUs", gpus), section("Events", events)]
        job = self.job_here()
        if job is not None:
            sections.append(section(f"Job {safe(job.record.label)}", job_facts(job)))
        return sections

    def apply_filter(self, words: str) -> None:
        """Show only nodes with these words."""
        self.choice = replace(self.choice, words=words)
        self.fill()

    def clear_filters(self) -> bool:
        """Show every node again."""
        was_filtered = self.choice.is_filtered or self._marked is not None
        self.choice, self._marked = self.choice.without_filters(), None
        if was_filtered:
            self.show()
        return was_filtered

    def choose(self, **changes: object) -> None:
        """Change the selection."""
        self.choice = replace(self.choice, **changes)  # type: ignore[arg-type]
        self.show()

    def action_metric(self, step: int) -> None:
        """Colour by the next metric."""
        metrics = list(Metric)
        self.choose(metric=metrics[(metrics.index(self.choice.metric) + step) % len(metrics)])

    def action_zoom(self, step: int) -> None:
        """Show more or fewer nodes at once."""
        self.map.zoom(step)
        self.show_lines()

    def action_sort(self) -> None:
        """Sort by the next order."""
        orders = list(Sort)
        self.choose(sort=orders[(orders.index(self.choice.sort) + 1) % len(orders)])

    def action_partition(self) -> None:
        """Show the next partition alone, and after the last one all."""
        names = ["", *partitions(self.known)]
        index = names.index(self.choice.partition) if self.choice.partition in names else 0
        self.choose(partition=names[(index + 1) % len(names)])

    def action_state(self) -> None:
        """Show nodes in other states."""
        states = list(StateFilter)
        self.choose(state=states[(states.index(self.choice.state) + 1) % len(states)])

    def action_health(self) -> None:
        """Show only unhealthy nodes."""
        index = _HEALTH_STEPS.index(self.choice.health)
        self.choose(health=_HEALTH_STEPS[(index + 1) % len(_HEALTH_STEPS)])

    def action_mark(self) -> None:
        """Highlight all GPUs of the job under the cursor, or none."""
        job = self.job_here()
        self._marked = job.record.id if job is not None and job.record.id != self._marked else None
        self.show()

    def action_node(self, what: str) -> None:
        """Ask whether to drain or resume the node under the cursor."""
        row = self.map.row
        if row is None:
            return
        name = self.known.view.nodes[row].name
        command = (
            remap_commands.drain([name], DRAINED_BY_HAND.removeprefix("opsk: "))
            if what == "drain"
            else remap_commands.resume([name])
        )
        self.top.ask_and_run(f"{what} {safe(name)}", [command])

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        """Open the job under the cursor."""
        if event.lines is self.map:
            job = self.job_here()
            if job is None:
                self.notify("no job here", timeout=2)
            else:
                self.top.open_job(job.record.id)


def _render_fact(name: str, value: str, key: str = "text") -> Line:
    return [(f"{name:<12}", "dim"), (value, key)]


def job_facts(job: JobView) -> list[Line]:
    """Return a job in a few lines."""
    record = job.record
    words, key = format_loss(job)
    return [
        _render_fact("name", safe(record.name), "strong"),
        _render_fact("user", f"{safe(record.user)}  {fit_text(safe(record.partition), 12)}"),
        _render_fact(
            "GPUs",
            f"{record.gpus} on {format_count(record.node_count, 'node')}, {run_time(compute_run_time_s(record))}",
        ),
        _render_fact("plan", format_plan(job.advice)),
        _render_fact("MFU", f"{percent(measured_mfu(job))} measured", speed_key(job)),
        _render_fact("loses by", words, key),
    ]
