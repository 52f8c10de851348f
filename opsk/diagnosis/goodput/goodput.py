"""What goodput can a job expect, how often should it save, how many spares pay, and what else would help?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from opsk.costmodel.estimates.checkpoint import CheckpointOptions
from opsk.diagnosis.goodput.parts import RADIX, Cause, causes_of, job_mtbf_s, parts_of, scaled
from opsk.diagnosis.goodput.running import Saving, TimeShares, running_shares, saving_of, useful_share
from opsk.diagnosis.goodput.spares import (
    Seating,
    rows_of_spares,
    seatings_of,
    shrunk_share,
    units_of,
)
from opsk.hardware.failure_rates import FailureRates
from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

INTERVAL_FACTORS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0)
"""Intervals that are shown beside the chosen one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputRequest:
    """What is asked about.

    Parameters
    ----------
    step_s
        Time of one step while nothing fails [s].
    checkpoint
        How state is saved; its ``mtbf_s``, where it is stated, scales all ``rates`` so that the job is met.
    nodes, gpus_per_node
        Nodes of the job, and GPUs that it uses of each; left out, all of a node's.
    shrinks
        Whether the job goes on with fewer replicas while there are too few nodes, or waits.
    most_spares
        The largest number of spare units to look at; left out, until another one changes nothing.
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
    most_spares: int | None = None
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
        All that is kept for the job, spares included.
    availability
        Share of the time with enough units, and all leaves, in order [ratio].
    waits, shrinks
        Goodput where the job waits, or goes on with fewer replicas, while there are too few [ratio of the ideal].
    goodput
        That of the two which was asked for.
    per_held
        Goodput for each GPU held: the best number of spares has the highest [ratio].
    gain
        What this spare adds to goodput over one less; 0 for the first row of a seating.
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
    """The answer, told for ``best``: the row of the spares that are held, else ``optimum``, which uses GPUs best."""

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


def goodput_of(request: GoodputRequest) -> Goodput:
    """Return the goodput of a job for every number of spares that matters, the best of them, and what would help."""
    factor = _scale(request)
    request = replace(request, rates=scaled(request.rates, factor))
    study = _Study(request)
    rows = tuple(row for seating in study.seatings for row in study.rows(seating))
    optimum = _fullest_used(rows)
    held = [row for row in rows if request.held_spares in (None, row.spares)]
    best = _fullest_used(held) if held else rows[-1]
    seating = next(item for item in study.seatings if item.spare_nodes == best.spare_nodes_inside)
    causes = study.causes(seating)
    mtbf_s = job_mtbf_s(causes)
    saving = study.saving(mtbf_s)
    running = running_shares(saving, mtbf_s)
    other = _Study(_toggled(request)).saving(mtbf_s)
    return Goodput(
        kind="hb_domain" if study.parts.spans_domains else "node",
        rows=rows,
        best=best,
        optimum=optimum,
        shares=_over_all_time(running, best),
        mtbf_s=mtbf_s,
        causes=causes,
        saving=saving,
        other_saving=other,
        useful=running.useful,
        other_useful=running_shares(other, mtbf_s).useful,
        intervals=_intervals(saving, mtbf_s),
        levers=_levers(request, seating, best),
        switches_from=study.parts.switches_from,
        scaled_by=factor,
    )


def _fullest_used(rows: Sequence[SpareRow]) -> SpareRow:
    """Return the row with the highest goodput for each GPU held, the one with fewest GPUs where there are several."""
    return max(rows, key=lambda row: (row.per_held, -row.held_gpus))


class _Study:
    """One request, its parts and its seatings."""

    def __init__(self, request: GoodputRequest) -> None:
        self.request = request
        self.parts = parts_of(
            request.plan,
            request.cluster,
            nodes=request.nodes,
            gpus_per_node=request.gpus_per_node,
            radix=request.radix,
        )
        self.seatings = seatings_of(self.parts, request.plan, request.spares_inside)

    def causes(self, seating: Seating) -> tuple[Cause, ...]:
        """Return what can interrupt the job in this seating."""
        return causes_of(self.parts, self.request.rates, domains=seating.units)

    def saving(self, mtbf_s: float) -> Saving:
        """Return how the job saves its state."""
        asked = self.request
        return saving_of(asked.model, asked.plan, asked.cluster, asked.checkpoint, mtbf_s=mtbf_s, step_s=asked.step_s)

    def rows(self, seating: Seating, only: int | None = None) -> Iterable[SpareRow]:
        """Yield the rows of a seating; ``only`` that with so many spares."""
        asked, units = self.request, units_of(seating, self.parts, self.request.rates)
        mtbf_s = job_mtbf_s(self.causes(seating))
        saving = self.saving(mtbf_s)
        useful = running_shares(saving, mtbf_s).useful
        before: float | None = None
        most = asked.most_spares if only is None else only
        for spares, share in rows_of_spares(units, most, only or asked.held_spares or 0):
            if only is not None and spares != only:
                continue
            waits = share * useful
            going = shrunk_share(units, spares, asked.plan, useful=useful, restart_s=saving.restart_s)
            shrinks = max(going, waits)  # who may shrink may wait as well
            goodput = shrinks if asked.shrinks else waits
            nodes = (seating.units + spares) * seating.held_nodes
            gpus = nodes * self.parts.gpus_per_node
            yield SpareRow(
                spares=spares,
                spare_nodes_inside=seating.spare_nodes,
                used_nodes_inside=seating.used_nodes,
                units=seating.units,
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


def _scale(request: GoodputRequest) -> float:
    """Return by what all times between failures must be multiplied to meet a stated one of the whole job."""
    stated = request.checkpoint.mtbf_s
    if stated is None:
        return 1.0
    study = _Study(request)
    known = job_mtbf_s(study.causes(study.seatings[0]))
    return 1.0 if math.isinf(known) else stated / known


def _toggled(request: GoodputRequest) -> GoodputRequest:
    """Return the request with asynchronous checkpoints if they were synchronous, and the other way round."""
    return replace(request, checkpoint=replace(request.checkpoint, asynchronous=not request.checkpoint.asynchronous))


def _over_all_time(running: TimeShares, row: SpareRow) -> TimeShares:
    """Return where the time goes, waiting included; a job that shrinks waits only for what it lacks of replicas."""
    share = row.goodput / running.useful if running.useful else row.availability
    return TimeShares(
        useful=row.goodput,
        saving=running.saving * share,
        again=running.again * share,
        restart=running.restart * share,
        waiting=max(1.0 - share, 0.0),
    )


def _intervals(saving: Saving, mtbf_s: float) -> tuple[tuple[float, float], ...]:
    """Return intervals around the chosen one, each with the share of useful time while there are enough nodes."""
    if math.isinf(mtbf_s) or math.isinf(saving.interval_s):
        return ()
    times = [factor * saving.interval_s for factor in INTERVAL_FACTORS]
    return tuple((time, useful_share(saving, mtbf_s, time)) for time in times)


def _levers(request: GoodputRequest, seating: Seating, row: SpareRow) -> tuple[Lever, ...]:
    """Return what changing one input would bring with the same spares, the most useful first."""
    found = []
    for name, change in _CHANGES.items():
        study = _Study(change(request))
        changed = next(iter(study.rows(seating, only=row.spares)))
        found.append(Lever(name=name, goodput=changed.goodput, gain=changed.goodput - row.goodput))
    return tuple(sorted(found, key=lambda lever: -lever.gain))


def _half_restart(request: GoodputRequest) -> GoodputRequest:
    options = request.checkpoint
    return replace(request, checkpoint=replace(options, restart_s=options.restart_s / 2))


def _fewer_failures(request: GoodputRequest) -> GoodputRequest:
    return replace(request, rates=scaled(request.rates, 2.0))


def _half_repair(request: GoodputRequest) -> GoodputRequest:
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
    "restart in half the time": _half_restart,
    "half as many failures": _fewer_failures,
    "repair in half the time": _half_repair,
    "the other way to write checkpoints": _toggled,
}
