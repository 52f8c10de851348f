"""Compares a published recipe with the best plan of a search, choice by choice.

A recipe is a run of a table of measured runs that states its plan. Its model, machine, number of GPUs, batch, number
format, states, optimizer and software stay; what is searched are the axes of `opsk.planning.search.request`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

import numpy as np

from opsk.calibration.runs.conventions import measured_step_s
from opsk.calibration.runs.runs import Run
from opsk.costmodel.predict import predict
from opsk.costmodel.rules import find_cluster_violations
from opsk.costmodel.table import PlanTable
from opsk.costmodel.uncertainty.verdict import FITS_FROM
from opsk.frameworks.limits import ANYTHING, Limits, SequenceParallel
from opsk.planning.search.request import AXES, PlanRequest
from opsk.planning.search.result import Candidate, SearchResult
from opsk.planning.search.search import best_plans
from opsk.workload.plan import Plan, Recompute, Schedule, Sharding, Software

SIZES = frozenset(f"plan.{name}" for name in ("gpus", "tp", "pp", "cp", "dp", "ep", "micro_batch", "global_batch"))
"""Inputs that a recipe must state to be one."""
CHOICES = frozenset(f"plan.{name}" for name in ("recompute", "sharding", "precision"))
"""Inputs that a full recipe states as well."""
UNEVEN = ("first_stage_layers", "last_stage_layers")
"""Axes that no published recipe states: where layers do not divide, frameworks balance stages by themselves."""
GROUPS: Mapping[str, tuple[str, ...]] = {
    "layout": ("tp", "pp", "cp", "dp", "ep", "etp"),
    "micro-batch": ("micro_batch",),
    "schedule": ("schedule", "vpp"),
    "recompute": ("recompute", "recompute_layers"),
    "sequence parallelism": ("sequence_parallel",),
    "sharding": ("sharding", "shard_gpus"),
}
"""Choices that are undone one at a time."""
FASTER = 0.1
"""A best plan faster than the recipe by more than this is explained [ratio]."""
_ONE_BY_ONE = frozenset({Schedule.ONE_F_ONE_B})
_PLAIN = frozenset({Recompute.NONE, Recompute.FULL})
OF_ITS_TIME: Mapping[Software, Limits] = {
    Software.MEGATRON: Limits(
        name="Megatron-LM of 2021 and 2022",
        shardings=frozenset({Sharding.NONE, Sharding.ZERO1}),
        pipelined_shardings=frozenset({Sharding.NONE, Sharding.ZERO1}),
        partial_sharding=False,
        schedules=_ONE_BY_ONE,
        uneven_stages=False,
        largest_cp=1,
    ),
    Software.MEGATRON_CORE: Limits(
        name="Megatron Core",
        pipelined_shardings=frozenset({Sharding.NONE, Sharding.ZERO1}),
        schedules=_ONE_BY_ONE,
    ),
    Software.DEEPSPEED: Limits(
        name="DeepSpeed and InternEvo, with Megatron-LM of 2021 and 2022",
        pipelined_shardings=frozenset({Sharding.NONE, Sharding.ZERO1}),
        partial_shardings=frozenset({Sharding.ZERO1}),
        sequence_parallel=SequenceParallel.NEVER,
        recomputes=_PLAIN,
        recompute_layers=False,
        schedules=_ONE_BY_ONE,
        interleaved=False,
        largest_cp=1,
    ),
    Software.PYTORCH: Limits(
        name="FSDP and DDP",
        recomputes=_PLAIN,
        recompute_layers=False,
        schedules=_ONE_BY_ONE,
        sequence_parallel=SequenceParallel.NEVER,
        largest_tp=1,
        largest_pp=1,
        largest_cp=1,
    ),
}
"""What the software of the recipes could be asked for when they were run.

DeepSpeed balances stages that layers do not divide over by itself; InternEvo, which counts as DeepSpeed here, shards
the optimizer within a node.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A published run whose plan is known; ``is_full`` where recomputation, sharding and precision are stated too."""

    run: Run
    is_full: bool
    measured_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Better:
    """The best plan of a space, and how it came about.

    ``hb_domain_gpus`` is the size of the machine's HB domains. ``undone`` has for each group of choices the share of
    the gain that is lost when it stays as in the recipe; ``shifted_s`` the seconds that each part of the step gains
    (negative: loses).
    """

    candidate: Candidate
    hb_domain_gpus: int
    faster: float
    undone: Mapping[str, float]
    shifted_s: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What the search says beside a recipe.

    ``own`` is the best of what the recipe's software had then, ``whole`` of all plans that no rule forbids; both are as
    sure to fit as the recipe is. ``broken`` are the rules that the recipe breaks in every form that opsk can write it.
    """

    recipe: Recipe
    broken: tuple[str, ...] = ()
    candidate: Candidate | None = None
    own: Better | None = None
    whole: Better | None = None

    @property
    def is_legal(self) -> bool:
        """Whether the recipe is one of our plans."""
        return self.candidate is not None


def recipes_of(runs: Iterable[Run]) -> list[Recipe]:
    """Return the runs that are recipes: sizes stated, no toy, and not one that ran out of memory."""
    stated = [run for run in runs if not (run.assumed_of(SIZES) or run.is_toy or run.measured.is_oom)]
    times = measured_step_s(stated)
    return [
        Recipe(run=run, is_full=not run.assumed_of(CHOICES), measured_s=float(time))
        for run, time in zip(stated, times, strict=True)
    ]


def written_once(plan: Plan) -> Plan:
    """Return a plan as the space lists it: choices that make no difference at their default.

    These are sequence parallelism with tp 1, sharding over one replica, a shard group of all replicas or of one.
    """
    replicas = plan.dp * plan.cp
    alone = replicas == 1
    whole = plan.shard_gpus in (replicas, 0) or alone
    return replace(
        plan,
        sequence_parallel=plan.sequence_parallel and plan.tp > 1,
        sharding=Sharding.NONE if alone else plan.sharding,
        shard_gpus=0 if whole else plan.shard_gpus,
    )


def compare(recipe: Recipe) -> Compared:
    """Return what the search says beside a recipe."""
    plan = written_once(recipe.run.plan)
    pinned = pin_plan(recipe.run, ANYTHING, plan)
    found = (*pinned.best, *pinned.refused)
    if not found:
        return Compared(recipe=recipe, broken=find_cluster_violations(recipe.run.model, plan, recipe.run.cluster))
    candidate = found[0]
    limits = OF_ITS_TIME[plan.software]
    return Compared(
        recipe=recipe,
        candidate=candidate,
        own=_better(recipe.run, limits, candidate) if pin_plan(recipe.run, limits, candidate.plan).space else None,
        whole=_better(recipe.run, ANYTHING, candidate),
    )


def pin_plan(run: Run, limits: Limits, plan: Plan) -> SearchResult:
    """Return what a search finds that may take this plan alone, in the ways to balance its stages."""
    return _found(run, limits, {axis: getattr(plan, axis) for axis in AXES if axis not in UNEVEN})


def _better(run: Run, limits: Limits, recipe: Candidate) -> Better | None:
    """Return the best plan of a space that is as sure to fit as the recipe."""
    best = _as_sure(_found(run, limits, {}), recipe)
    if best is None:
        return None
    faster = recipe.step_s / best.step_s - 1
    undone = dict[str, float]()
    if faster > FASTER:
        for group, axes in GROUPS.items():
            if any(getattr(best.plan, axis) != getattr(recipe.plan, axis) for axis in axes):
                kept = _as_sure(_found(run, limits, {axis: getattr(recipe.plan, axis) for axis in axes}), recipe)
                step_s = kept.step_s if kept else recipe.step_s
                undone[group] = min((step_s - best.step_s) / (recipe.step_s - best.step_s), 1.0)
    return Better(
        candidate=best,
        hb_domain_gpus=run.cluster.node.hb_domain_gpus,
        faster=faster,
        undone=undone,
        shifted_s=_shifted(run, recipe.plan, best.plan),
    )


def _as_sure(found: SearchResult, recipe: Candidate) -> Candidate | None:
    """Return the fastest plan that is as sure to fit as the recipe: surely, or not expected to run out of memory."""
    some = found.best_fitting if recipe.fit_probability >= FITS_FROM else found.best
    return some[0] if some else None


def _shifted(run: Run, before: Plan, after: Plan) -> dict[str, float]:
    """Return the seconds that each part of the step gains."""
    parts = predict(run.model, PlanTable.of([before, after]), run.cluster).time.components
    columns = {name: np.broadcast_to(column, 2) for name, column in parts.items()}
    return {name: float(column[0] - column[1]) for name, column in columns.items()}


def _found(run: Run, limits: Limits, fixed: Mapping[str, Any]) -> SearchResult:
    """Return what a search finds; like searches are done once."""
    return _search(_Asked(run=run, limits=limits, fixed=tuple(sorted(fixed.items()))))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A search, equal to another where nothing that it depends on differs."""

    run: Run
    limits: Limits
    fixed: tuple[tuple[str, Any], ...]

    @property
    def key(self) -> tuple[Any, ...]:
        """What it depends on; the axes of the run's own plan are none of it."""
        plan = self.run.plan
        kept = tuple(getattr(plan, item.name) for item in fields(Plan) if item.name not in AXES)
        return (*kept, plan.gpus, self.run.model, repr(self.run.cluster), self.limits.name, self.fixed)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Asked) and self.key == other.key


@cache
def _search(asked: _Asked) -> SearchResult:
    run = asked.run
    return best_plans(
        PlanRequest(
            model=run.model,
            cluster=run.cluster,
            template=run.plan,
            gpus=run.plan.gpus,
            global_batch=run.plan.global_batch,
            fixed={axis: (value,) for axis, value in asked.fixed},
            limits=asked.limits,
            most=1,
        )
    )
