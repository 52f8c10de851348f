"""Evaluates rank placements: the step time, and the traffic that stays on a rail or leaf."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from opsk.costmodel.table import FloatColumn
from opsk.planning.placement.step_model import StepModel
from opsk.planning.ranks import RankGrid
from opsk.planning.routing.hca_ports import Index, Ports
from opsk.planning.routing.hca_traffic import Flows, RankPlacement, step_flows
from opsk.planning.routing.loads import LinkSeconds, link_seconds, port_rates
from opsk.planning.routing.rank_traffic import AXES, StepBytes
from opsk.planning.routing.routes import Routes

CLEARLY, HARDLY, SAME = 0.1, 0.01, 1e-6
"""Differences below these shares do not separate two orders: the one that needs no rank file is preferred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The inputs for evaluating placements; ``nodes`` are all usable nodes, as ``ports`` and ``domains`` number them.

    ``domains`` has a number for the HB domain of each node, ``usable_gpus`` are those that the job takes of a node.
    """

    grid: RankGrid
    sent: StepBytes
    nodes: tuple[str, ...]
    ports: Ports
    domains: Index
    usable_gpus: int
    routes: Routes
    step: StepModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """The evaluation of each placement, one entry a row; bytes are those of one step between HB domains.

    ``axis_s`` is how long the busiest link of each axis is busy, shape (rows, axes); ``max_link_load`` [s] and ``link``
    are of the busiest link between switches by all axes together.
    """

    step_s: FloatColumn
    axis_s: FloatColumn
    tp_bytes: FloatColumn
    all_bytes: FloatColumn
    off_rail_bytes: FloatColumn
    off_leaf_bytes: FloatColumn
    max_link_load: FloatColumn
    link: Index

    def row(self, number: int) -> Verdicts:
        """Return one of them."""
        index = slice(number, number + 1)
        return Verdicts(**{name: getattr(self, name)[index] for name in self.__dataclass_fields__})


def estimate_messages(job: Job) -> int:
    """Return an estimate of the messages of one placement; time and memory of its evaluation are proportional to it."""
    tokens = job.grid.ep - 1 if job.sent.ep.any() else 0
    return int(job.grid.ranks.size) * (_MESSAGES_A_RANK + tokens)


_MESSAGES_A_RANK = 4
"""Of a rank without experts: rings of two axes, and a stage before and after."""


def judge(job: Job, rank_placement: RankPlacement) -> Verdicts:
    """Return the verdict on every row of ``rank_placement``."""
    return judge_with_links(job, rank_placement)[0]


def judge_with_links(job: Job, rank_placement: RankPlacement) -> tuple[Verdicts, LinkSeconds]:
    """Return the verdicts, and the link seconds that they are based on."""
    flows, loads = route_placement(job, rank_placement)
    return compute_verdicts(job, flows, loads), loads


def route_placement(job: Job, rank_placement: RankPlacement) -> tuple[dict[str, Flows], LinkSeconds]:
    """Return the messages of every placement, and the seconds that links are busy with them."""
    flows = step_flows(job.grid, job.sent, rank_placement, job.ports)
    return flows, link_seconds(flows, rank_placement.rows, job.ports, job.routes)


def compute_verdicts(job: Job, flows: Mapping[str, Flows], loads: LinkSeconds) -> Verdicts:
    """Return the verdict on every placement from its messages and link seconds."""
    axis_s = loads.axis_s()
    rows = axis_s.shape[0]
    load_s, link = loads.busiest_switch_link()
    by_axis = {axis: _sum_bytes(flow, rows) for axis, flow in flows.items()}
    all_flows = Flows.joined(iter(flows.values()))
    same_leaf = _same(job.ports.leaf, all_flows)
    same_rail = same_leaf | _same(job.ports.rail, all_flows)
    return Verdicts(
        step_s=job.step.step_s(axis_s),
        axis_s=axis_s,
        tp_bytes=by_axis["tp"],
        all_bytes=np.sum([by_axis[axis] for axis in AXES], axis=0),
        off_rail_bytes=_sum_bytes(all_flows, rows, ~same_rail),
        off_leaf_bytes=_sum_bytes(all_flows, rows, ~same_leaf),
        max_link_load=load_s,
        link=link,
    )


def _same(keys: Index, flow: Flows) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which messages have the same known key at both ends."""
    is_same: np.ndarray[tuple[int], np.dtype[np.bool_]] = (keys[flow.source] == keys[flow.target]) & (
        keys[flow.source] >= 0
    )
    return is_same


def _sum_bytes(
    flow: Flows, rows: int, is_counted: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None
) -> FloatColumn:
    """Return the bytes of each row, of all messages or of some."""
    sizes = flow.size_bytes if is_counted is None else flow.size_bytes * is_counted
    return np.bincount(flow.row, weights=sizes, minlength=rows).astype(np.float64)


def find_best_row(verdicts: Verdicts, step: StepModel) -> int:
    """Return the best row by the criteria of `is_better`; the first of equals."""
    left = np.arange(verdicts.step_s.size)
    for column, tolerance in _criteria(verdicts, step):
        values = column[left]
        least = values.min()
        if np.isinf(least):
            continue
        left = left[values <= least + tolerance]
    return int(left[0])


def is_better(ours: Verdicts, default: Verdicts, step: StepModel) -> bool:
    """Return whether the one row of ``ours`` is better than that of ``default``.

    The predicted step decides first. Among equals tensor-parallel bytes between HB domains do, since every layer waits
    for them; then a tenth fewer bytes in all, then bytes across rails, then the busiest cable, then bytes across
    leaves. Where the step is communication alone, the part that computation hides is unknown, and tensor-parallel
    bytes come first.
    """
    both = Verdicts(
        **{name: np.concatenate([getattr(ours, name), getattr(default, name)]) for name in ours.__dataclass_fields__}
    )
    for column, tolerance in _criteria(both, step):
        our_value, theirs = column
        if our_value != theirs and not abs(our_value - theirs) <= tolerance:
            return bool(our_value < theirs)
    return False


def _criteria(verdicts: Verdicts, step: StepModel) -> Sequence[tuple[FloatColumn, float]]:
    """Return the criteria, the most important first, each with the difference below which two values are equal."""
    scale = float(verdicts.all_bytes.max())
    finite = verdicts.max_link_load[np.isfinite(verdicts.max_link_load)]
    steps = verdicts.step_s[np.isfinite(verdicts.step_s)]
    by_step = (verdicts.step_s, SAME * float(steps.min()) if steps.size else 0.0)
    by_tensor = (verdicts.tp_bytes, SAME * scale)
    return (
        *((by_step, by_tensor) if step.is_whole else (by_tensor, by_step)),
        (verdicts.all_bytes, CLEARLY * scale),
        (verdicts.off_rail_bytes, SAME * scale),
        (verdicts.max_link_load, HARDLY * float(finite.max(initial=0.0))),
        (verdicts.off_leaf_bytes, SAME * scale),
    )


def compute_min_axis_s(job: Job, loads: LinkSeconds) -> FloatColumn:
    """Return a bound below which no order of the nodes can bring the busiest link of each axis [s].

    What leaves a node, or comes in, is the same in every order of nodes and local ranks; it cannot leave faster than by
    all HCAs of the best connected node at once. Zero where HB domains join several nodes: there it does depend.
    ``loads`` are those of any one placement.
    """
    ports = job.ports
    nodes, gpus = ports.port.shape
    rates = port_rates(ports)
    rates[ports.nowhere] = 0.0
    home = np.zeros(rates.size, dtype=np.int64)
    home[ports.port.ravel()] = np.repeat(np.arange(nodes), gpus)
    best_rate = np.bincount(home, weights=rates, minlength=nodes).max()
    if np.unique(job.domains).size < job.domains.size or not best_rate:
        return np.zeros(len(AXES))
    bounds = []
    for axis in AXES:
        sizes = loads.ports[axis][0].reshape(2, -1) * rates
        bounds.append(
            max(np.bincount(home, weights=direction, minlength=nodes).max() for direction in sizes) / best_rate
        )
    return np.array(bounds)
