"""Computes a job's expected goodput, its best checkpoint interval and number of spares, and what else would help."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from opsk.costmodel.estimates.checkpoint import Checkpoint, CheckpointOptions, compute_checkpoint, lost_fraction
from opsk.diagnosis.goodput.parts import RADIX, Cause, compute_job_mtbf_s, count_parts, list_causes, scale_mtbf
from opsk.diagnosis.goodput.spares import (
    Placement,
    build_units,
    compute_spare_rows,
    list_placements,
    share_shrunk,
)
from opsk.hardware.failure_rates import FailureRates
from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

INTERVAL_FACTORS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0)
"""Intervals that are shown in addition to the chosen one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """How a job saves its state.

    Parameters
    ----------
    size_bytes, write_s, stall_s
        One checkpoint; until it is safe; for how long it holds up training.
    interval_s, interval_steps
        Training between two checkpoints; infinite, and ``None``, where nothing ever fails and no interval is set.
    best_interval_s
        The interval that loses least, not rounded to steps.
    restart_s
        From an interruption until training continues.
    """

    asynchronous: bool
    size_bytes: float
    write_s: float
    stall_s: float
    interval_s: float
    interval_steps: int | None
    best_interval_s: float
    restart_s: float

    @property
    def pending_s(self) -> float:
        """Time for which a checkpoint is not safe yet while training continues [s]."""
        return self.write_s if self.asynchronous else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeShares:
    """Where the time goes [ratio]; the parts add up to 1.

    Parameters
    ----------
    useful
        New training.
    saving
        Training stands still for a checkpoint that is useful.
    again
        Work, and checkpoints, that an interruption made void.
    restart
        From an interruption until training continues.
    waiting
        Too few nodes are in order, or a leaf is out.
    """

    useful: float
    saving: float = 0.0
    again: float = 0.0
    restart: float = 0.0
    waiting: float = 0.0


def plan_saving(
    model: ModelShape,
    plan: Plan,
    cluster: ClusterSpec,
    options: CheckpointOptions,
    *,
    mtbf_s: float,
    step_s: float,
) -> Saving:
    """Return how the plan saves its state, with the best interval in whole steps unless ``options`` state one.

    An asynchronous checkpoint must be written before the next one begins.
    """
    known = None if math.isinf(mtbf_s) else mtbf_s
    checkpoint = compute_checkpoint(model, plan, cluster, replace(options, mtbf_s=known))
    best_s = checkpoint.best_interval_s if known else math.inf
    interval_s, steps = _round_to_steps(checkpoint, options, best_s, step_s)
    return Saving(
        asynchronous=options.asynchronous,
        size_bytes=checkpoint.size_bytes,
        write_s=checkpoint.write_s,
        stall_s=checkpoint.stall_s,
        interval_s=interval_s,
        interval_steps=steps,
        best_interval_s=best_s,
        restart_s=options.restart_s,
    )


def _round_to_steps(
    checkpoint: Checkpoint, options: CheckpointOptions, best_s: float, step_s: float
) -> tuple[float, int | None]:
    """Return the interval and its steps."""
    if options.interval_s is not None:
        return options.interval_s, max(round(options.interval_s / step_s), 1)
    if math.isinf(best_s):
        return math.inf, None
    min_steps = math.ceil(checkpoint.write_s / step_s) if options.asynchronous else 1
    steps = max(round(best_s / step_s), min_steps, 1)
    return steps * step_s, steps


def compute_running_shares(saving: Saving, mtbf_s: float) -> TimeShares:
    """Return where the time goes while there are enough nodes.

    A moment is in a restart when the last interruption is less than ``restart_s`` ago: 1 - e^(-R/M). Of each interval
    that is not lost, C / (t + C) is saving. The rest is work that was lost.
    """
    if math.isinf(mtbf_s):
        useful = 1.0 if math.isinf(saving.interval_s) else saving.interval_s / (saving.interval_s + saving.stall_s)
        return TimeShares(useful=useful, saving=1.0 - useful)
    useful = compute_useful_share(saving, mtbf_s, saving.interval_s)
    stalls = useful * saving.stall_s / saving.interval_s
    restart = -math.expm1(-saving.restart_s / mtbf_s)
    return TimeShares(useful=useful, saving=stalls, again=max(1.0 - restart - useful - stalls, 0.0), restart=restart)


def compute_useful_share(saving: Saving, mtbf_s: float, interval_s: float) -> float:
    """Return the share of useful time if a checkpoint were written after each ``interval_s`` of training."""
    return 1.0 - lost_fraction(interval_s, saving.stall_s, mtbf_s, saving.restart_s + saving.pending_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputRequest:
    """The input of a goodput estimate.

    Parameters
    ----------
    step_s
        Time of one step while nothing fails [s].
    checkpoint
        How state is saved; its ``mtbf_s``, where it is stated, scales all ``rates`` so that the job is met.
    nodes, gpus_per_node
        Nodes of the job, and GPUs that it uses of each; left out, all of a node's.
    shrinks
        Whether the job continues with fewer replicas while there are too few nodes, or waits.
    max_spares
        The largest number of spare units to try; left out, until another one changes nothing.
    held_spares, spares_inside
        Spare units that are held, and spare nodes inside of each HB domain; left out, as many as are best.
    radix
        Ports of a switch, where the cluster does not count its switches.
    """

    model: ModelShape
    plan: Plan
    cluster: ClusterSpec
    rates: FailureRates
    step_s: float
    checkpoint: CheckpointOptions = field(default_factory=CheckpointOptions)
    nodes: int | None = None
    gpus_per_node: int | None = None
    shrinks: bool = False
    max_spares: int | None = None
    held_spares: int | None = None
    spares_inside: int | None = None
    radix: int = RADIX


@dataclass(frozen=True, slots=True, kw_only=True)
class SpareRow:
    """One number of spares.

    Parameters
    ----------
    spares
        Spare nodes; spare HB domains where these span nodes.
    spare_nodes_inside, used_nodes_inside
        Nodes of each HB domain that are held as spares, and used; 0 and 1 where a domain is no more than a node.
    units
        Nodes, or HB domains, that the job uses.
    held_gpus, held_nodes
        Everything held for the job, spares included.
    availability
        Share of the time with enough units, and all leaves, in order [ratio].
    waits, shrinks
        Goodput where the job waits, or continues with fewer replicas, while there are too few [ratio of the ideal].
    goodput
        The one of the two that was requested.
    per_held
        Goodput for each GPU held: the best number of spares has the highest [ratio].
    gain
        Goodput that this spare adds over one less; 0 for the first row of a placement.
    mtbf_s
        Between interruptions of the job on these units.
    """

    spares: int
    spare_nodes_inside: int
    used_nodes_inside: int
    units: int
    held_gpus: int
    held_nodes: int
    availability: float
    waits: float
    shrinks: float
    goodput: float
    per_held: float
    gain: float
    mtbf_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """A change of one input, the goodput with it at the same spares, and how much that adds [ratio]."""

    name: str
    goodput: float
    gain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """The estimate, for ``best``: the row of the spares that are held, else ``optimum``, which uses GPUs best."""

    kind: str
    rows: tuple[SpareRow, ...]
    best: SpareRow
    optimum: SpareRow
    shares: TimeShares
    mtbf_s: float
    causes: tuple[Cause, ...]
    saving: Saving
    other_saving: Saving
    other_useful: float
    useful: float
    intervals: tuple[tuple[float, float], ...]
    levers: tuple[Lever, ...]
    switches_from: str
    scaled_by: float


def compute_goodput(request: GoodputRequest) -> Goodput:
    """Return the goodput of a job for every number of spares that matters, the best of them, and the levers."""
    factor = _compute_scale(request)
    request = replace(request, rates=scale_mtbf(request.rates, factor))
    study = _Study(request)
    rows = tuple(row for placement in study.placements for row in study.rows(placement))
    optimum = _find_best_row(rows)
    held = [row for row in rows if request.held_spares in (None, row.spares)]
    best = _find_best_row(held) if held else rows[-1]
    placement = next(item for item in study.placements if item.spare_nodes == best.spare_nodes_inside)
    causes = study.causes(placement)
    mtbf_s = compute_job_mtbf_s(causes)
    saving = study.saving(mtbf_s)
    running = compute_running_shares(saving, mtbf_s)
    other = _Study(_toggle_asynchronous(request)).saving(mtbf_s)
    return Goodput(
        kind="hb_domain" if study.parts.spans_domains else "node",
        rows=rows,
        best=best,
        optimum=optimum,
        shares=_scale_shares(running, best),
        mtbf_s=mtbf_s,
        causes=causes,
        saving=saving,
        other_saving=other,
        useful=running.useful,
        other_useful=compute_running_shares(other, mtbf_s).useful,
        intervals=_compute_intervals(saving, mtbf_s),
        levers=_compute_levers(request, placement, best),
        switches_from=study.parts.switches_from,
        scaled_by=factor,
    )


def _find_best_row(rows: Sequence[SpareRow]) -> SpareRow:
    """Return the row with the highest goodput for each GPU held, the one with fewest GPUs where there are several."""
    return max(rows, key=lambda row: (row.per_held, -row.held_gpus))


class _Study:
    """One request, its parts and its placements."""

    def __init__(self, request: GoodputRequest) -> None:
        self.request = request
        self.parts = count_parts(
            request.plan,
            request.cluster,
            nodes=request.nodes,
            gpus_per_node=request.gpus_per_node,
            radix=request.radix,
        )
        self.placements = list_placements(self.parts, request.plan, request.spares_inside)

    def causes(self, placement: Placement) -> tuple[Cause, ...]:
        """Return the causes of interruptions of the job in this placement."""
        return list_causes(self.parts, self.request.rates, domains=placement.units)

    def saving(self, mtbf_s: float) -> Saving:
        """Return how the job saves its state."""
        request = self.request
        return plan_saving(
            request.model, request.plan, request.cluster, request.checkpoint, mtbf_s=mtbf_s, step_s=request.step_s
        )

    def rows(self, placement: Placement, only: int | None = None) -> Iterable[SpareRow]:
        """Yield the rows of a placement; ``only`` the one with this many spares."""
        request, units = self.request, build_units(placement, self.parts, self.request.rates)
        mtbf_s = compute_job_mtbf_s(self.causes(placement))
        saving = self.saving(mtbf_s)
        useful = compute_running_shares(saving, mtbf_s).useful
        before: float | None = None
        max_spares = request.max_spares if only is None else only
        for spares, share in compute_spare_rows(units, max_spares, only or request.held_spares or 0):
            if only is not None and spares != only:
                continue
            waits = share * useful
            going = share_shrunk(units, spares, request.plan, useful=useful, restart_s=saving.restart_s)
            shrinks = max(going, waits)  # a job that may shrink may wait as well
            goodput = shrinks if request.shrinks else waits
            nodes = (placement.units + spares) * placement.held_nodes
            gpus = nodes * self.parts.gpus_per_node
            yield SpareRow(
                spares=spares,
                spare_nodes_inside=placement.spare_nodes,
                used_nodes_inside=placement.used_nodes,
                units=placement.units,
                held_gpus=gpus,
                held_nodes=nodes,
                availability=share,
                waits=waits,
                shrinks=shrinks,
                goodput=goodput,
                per_held=goodput * self.parts.gpus / gpus,
                gain=0.0 if before is None else goodput - before,
                mtbf_s=mtbf_s,
            )
            before = goodput


def _compute_scale(request: GoodputRequest) -> float:
    """Return the factor for all times between failures that meets a stated one of the whole job."""
    stated = request.checkpoint.mtbf_s
    if stated is None:
        return 1.0
    study = _Study(request)
    known = compute_job_mtbf_s(study.causes(study.placements[0]))
    return 1.0 if math.isinf(known) else stated / known


def _toggle_asynchronous(request: GoodputRequest) -> GoodputRequest:
    """Return the request with asynchronous checkpoints if they were synchronous, and the other way round."""
    return replace(request, checkpoint=replace(request.checkpoint, asynchronous=not request.checkpoint.asynchronous))


def _scale_shares(running: TimeShares, row: SpareRow) -> TimeShares:
    """Return the shares of all time, waiting included; a job that shrinks waits only for missing replicas."""
    share = row.goodput / running.useful if running.useful else row.availability
    return TimeShares(
        useful=row.goodput,
        saving=running.saving * share,
        again=running.again * share,
        restart=running.restart * share,
        waiting=max(1.0 - share, 0.0),
    )


def _compute_intervals(saving: Saving, mtbf_s: float) -> tuple[tuple[float, float], ...]:
    """Return intervals around the chosen one, each with the share of useful time while there are enough nodes."""
    if math.isinf(mtbf_s) or math.isinf(saving.interval_s):
        return ()
    times = [factor * saving.interval_s for factor in INTERVAL_FACTORS]
    return tuple((time, compute_useful_share(saving, mtbf_s, time)) for time in times)


def _compute_levers(request: GoodputRequest, placement: Placement, row: SpareRow) -> tuple[Lever, ...]:
    """Return the gain of changing one input with the same spares, the most useful first."""
    levers = []
    for name, change in _CHANGES.items():
        study = _Study(change(request))
        changed = next(iter(study.rows(placement, only=row.spares)))
        levers.append(Lever(name=name, goodput=changed.goodput, gain=changed.goodput - row.goodput))
    return tuple(sorted(levers, key=lambda lever: -lever.gain))


def _halve_restart(request: GoodputRequest) -> GoodputRequest:
    options = request.checkpoint
    return replace(request, checkpoint=replace(options, restart_s=options.restart_s / 2))


def _halve_failures(request: GoodputRequest) -> GoodputRequest:
    return replace(request, rates=scale_mtbf(request.rates, 2.0))


def _halve_repair(request: GoodputRequest) -> GoodputRequest:
    rates = request.rates
    return replace(
        request,
        rates=replace(
            rates,
            node_repair_s=rates.node_repair_s / 2,
            switch_repair_s=rates.switch_repair_s / 2,
            hb_domain_repair_s=rates.hb_domain_repair_s / 2,
        ),
    )


_CHANGES: dict[str, Callable[[GoodputRequest], GoodputRequest]] = {
    "restart in half the time": _halve_restart,
    "half as many failures": _halve_failures,
    "repair in half the time": _halve_repair,
    "the other way to write checkpoints": _toggle_asynchronous,
}
