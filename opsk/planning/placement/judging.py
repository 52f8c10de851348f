"""How good is each way to seat a job's ranks: how long is its step, and how does its traffic travel?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from opsk.costmodel.table import FloatColumn
from opsk.planning.placement.step_model import StepModel
from opsk.planning.ranks import RankGrid
from opsk.planning.routing.hca_seats import Index, Ports
from opsk.planning.routing.hca_traffic import Flows, Seating, step_flows
from opsk.planning.routing.loads import LinkSeconds, link_seconds, port_rates
from opsk.planning.routing.rank_traffic import AXES, StepBytes
from opsk.planning.routing.routes import Routes

CLEARLY, HARDLY, SAME = 0.1, 0.01, 1e-6
"""Differences below these shares do not decide between two orders: the one that needs no rank file is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What seatings are judged by; ``nodes`` are all that may be used, as ``ports`` and ``domains`` number them.

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
    """What was found of each seating, one entry a row; bytes are those of one step between HB domains.

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
        at = slice(number, number + 1)
        return Verdicts(**{name: getattr(self, name)[at] for name in self.__dataclass_fields__})


def messages_of(job: Job) -> int:
    """Return about how many messages one seating has: what judging it takes in time and memory goes with that."""
    tokens = job.grid.ep - 1 if job.sent.ep.any() else 0
    return int(job.grid.ranks.size) * (_MESSAGES_A_RANK + tokens)


_MESSAGES_A_RANK = 4
"""Of a rank without experts: rings of two axes, and a stage before and after."""


def judge(job: Job, seating: Seating) -> Verdicts:
    """Return the verdict on every row of ``seating``."""
    return judge_with_links(job, seating)[0]


def judge_with_links(job: Job, seating: Seating) -> tuple[Verdicts, LinkSeconds]:
    """Return the same with the seconds of each link that they were judged by."""
    flows, loads = laid(job, seating)
    return verdicts_of(job, flows, loads), loads


def laid(job: Job, seating: Seating) -> tuple[dict[str, Flows], LinkSeconds]:
    """Return the messages of every seating, and the seconds that links are busy with them."""
    flows = step_flows(job.grid, job.sent, seating, job.ports)
    return flows, link_seconds(flows, seating.rows, job.ports, job.routes)


def verdicts_of(job: Job, flows: Mapping[str, Flows], loads: LinkSeconds) -> Verdicts:
    """Return the verdict on every seating by what was laid."""
    axis_s = loads.axis_s()
    rows = axis_s.shape[0]
    load_s, link = loads.busiest_switch_link()
    by_axis = {axis: _bytes_of(flow, rows) for axis, flow in flows.items()}
    every = Flows.joined(iter(flows.values()))
    same_leaf = _same(job.ports.leaf, every)
    same_rail = same_leaf | _same(job.ports.rail, every)
    return Verdicts(
        step_s=job.step.step_s(axis_s),
        axis_s=axis_s,
        tp_bytes=by_axis["tp"],
        all_bytes=np.sum([by_axis[axis] for axis in AXES], axis=0),
        off_rail_bytes=_bytes_of(every, rows, ~same_rail),
        off_leaf_bytes=_bytes_of(every, rows, ~same_leaf),
        max_link_load=load_s,
        link=link,
    )


def _same(keys: Index, flow: Flows) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which messages have the same known key at both ends."""
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = (keys[flow.source] == keys[flow.target]) & (
        keys[flow.source] >= 0
    )
    return found


def _bytes_of(flow: Flows, rows: int, which: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None) -> FloatColumn:
    """Return the bytes of each row, of all messages or of some."""
    sizes = flow.size_bytes if which is None else flow.size_bytes * which
    return np.bincount(flow.row, weights=sizes, minlength=rows).astype(np.float64)


def best_row(found: Verdicts, step: StepModel) -> int:
    """Return the best row by what `is_better` goes by; the first of equals."""
    left = np.arange(found.step_s.size)
    for column, tolerance in _criteria(found, step):
        values = column[left]
        least = values.min()
        if np.isinf(least):
            continue
        left = left[values <= least + tolerance]
    return int(left[0])


def is_better(ours: Verdicts, default: Verdicts, step: StepModel) -> bool:
    """Tell whether the one row of ``ours`` beats that of ``default``.

    The predicted step decides first. Among equals tensor-parallel bytes between HB domains do, since every layer waits
    for them; then a tenth fewer bytes in all, then bytes across rails, then the busiest cable, then bytes across
    leaves. Where the step is communication alone, nothing says how much of it computation hides, and tensor-parallel
    bytes come first.
    """
    both = Verdicts(
        **{name: np.concatenate([getattr(ours, name), getattr(default, name)]) for name in ours.__dataclass_fields__}
    )
    for column, tolerance in _criteria(both, step):
        mine, its = column
        if mine != its and not abs(mine - its) <= tolerance:
            return bool(mine < its)
    return False


def _criteria(found: Verdicts, step: StepModel) -> Sequence[tuple[FloatColumn, float]]:
    """Return what counts, the most important first, with the difference below which two are the same."""
    scale = float(found.all_bytes.max())
    finite = found.max_link_load[np.isfinite(found.max_link_load)]
    steps = found.step_s[np.isfinite(found.step_s)]
    by_step = (found.step_s, SAME * float(steps.min()) if steps.size else 0.0)
    by_tensor = (found.tp_bytes, SAME * scale)
    return (
        *((by_step, by_tensor) if step.is_whole else (by_tensor, by_step)),
        (found.all_bytes, CLEARLY * scale),
        (found.off_rail_bytes, SAME * scale),
        (found.max_link_load, HARDLY * float(finite.max(initial=0.0))),
        (found.off_leaf_bytes, SAME * scale),
    )


def least_axis_s(job: Job, loads: LinkSeconds) -> FloatColumn:
    """Return a bound below which no order of the nodes can bring the busiest link of each axis [s].

    What leaves a node, or comes in, is the same in every order of nodes and local ranks; it cannot leave faster than by
    all HCAs of the best connected node at once. Zero where HB domains join several nodes: there it does depend.
    ``loads`` are those of any one seating.
    """
    ports = job.ports
    nodes, gpus = ports.port.shape
    rates = port_rates(ports)
    rates[ports.nowhere] = 0.0
    home = np.zeros(rates.size, dtype=np.int64)
    home[ports.port.ravel()] = np.repeat(np.arange(nodes), gpus)
    most = np.bincount(home, weights=rates, minlength=nodes).max()
    if np.unique(job.domains).size < job.domains.size or not most:
        return np.zeros(len(AXES))
    bounds = []
    for axis in AXES:
        sizes = loads.ports[axis][0].reshape(2, -1) * rates
        bounds.append(max(np.bincount(home, weights=way, minlength=nodes).max() for way in sizes) / most)
    return np.array(bounds)
