"""Selects and sorts the nodes of the GPU map, and builds its glyphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from opsk.slurm.records import NodeRecord
from opsk_tui.data.state import ViewIndex
from opsk_tui.data.view import Health, Metric
from opsk_tui.text.format import HEALTH_WORDS, metric_number, metric_range
from opsk_tui.text.safe_text import safe
from opsk_tui.widgets.canvas import Cell
from opsk_tui.widgets.grid_map import Grid, compute_codes


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
class Choice:
    """The user's selection."""

    metric: Metric = Metric.UTILISATION
    sort: Sort = Sort.GIVEN
    partition: str = ""
    state: StateFilter = StateFilter.ALL
    health: Health | None = None
    words: str = ""

    def without_filters(self) -> Choice:
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


def chosen_rows(known: ViewIndex, choice: Choice) -> NDArray[np.intp]:
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


def _order(known: ViewIndex, choice: Choice) -> NDArray[np.float64]:
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


def limits_of(known: ViewIndex, metric: Metric) -> tuple[float, float]:
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
        codes=compute_codes(values, table.health, table.present, limits_of(known, metric), before),
        columns=[f"GPU{slot}" for slot in range(table.present.shape[1])], text=text, rest=rest, marked=marked,
    )  # fmt: skip


def state_key(node: NodeRecord) -> str:
    """Return the style of a node's name."""
    if node.is_usable:
        return "dim" if node.state == "IDLE" else "text"
    return "sick" if node.state in ("DOWN", "FAIL", "UNKNOWN") else "watch"


def _names(nodes: Sequence[NodeRecord]) -> list[str]:
    return [safe(node.name) for node in nodes]
