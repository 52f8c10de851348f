"""Compares a published configuration with the planner's own choice for the same framework, choice by choice.

A configuration is an entry of ``published-configurations.toml``. Its model, machine, number of GPUs, batch, number
format, states, optimizer and software stay; what is searched are the axes of `opsk.planning.search.request`.
"""

from __future__ import annotations

import csv
import io
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np

from opsk.calibration.runs.conventions import measured_step_s
from opsk.calibration.runs.runs import Run, parse_runs
from opsk.costmodel.predict import predict
from opsk.costmodel.rules import find_cluster_violations
from opsk.costmodel.table import PlanTable
from opsk.frameworks.catalog import FRAMEWORKS
from opsk.frameworks.limits import ANYTHING, Limits, SequenceParallel
from opsk.planning.search.choices import list_choices
from opsk.planning.search.request import AXES, PlanRequest
from opsk.planning.search.result import Candidate, SearchResult
from opsk.planning.search.search import best_plans
from opsk.workload.plan import Plan, Recompute, Schedule, Sharding, Software

UNEVEN = ("first_stage_layers", "last_stage_layers")
"""Axes that a publication rarely states: where layers do not divide, frameworks balance stages by themselves."""
GROUPS: Mapping[str, tuple[str, ...]] = {
    "layout": ("tp", "pp", "cp", "dp", "ep", "etp"),
    "micro-batch": ("micro_batch",),
    "schedule": ("schedule", "vpp"),
    "recomputation": ("recompute", "recompute_layers"),
    "sequence parallelism": ("sequence_parallel",),
    "sharding": ("sharding", "shard_gpus"),
}
"""Choices that are undone one at a time."""
FASTER = 0.1
"""A choice that is predicted to be faster than the published plan by more than this is a claim [ratio]."""
_ONE_BY_ONE = frozenset({Schedule.ONE_F_ONE_B})
_PLAIN = frozenset({Recompute.NONE, Recompute.FULL})
_STATES = frozenset({Sharding.NONE, Sharding.ZERO1})
OF_ITS_TIME: Mapping[Software, Limits] = {
    Software.MEGATRON: Limits(
        name="Megatron-LM of 2021 and 2022",
        shardings=_STATES,
        pipelined_shardings=_STATES,
        partial_sharding=False,
        schedules=_ONE_BY_ONE,
        uneven_stages=False,
        largest_cp=1,
    ),
    Software.DEEPSPEED: Limits(
        name="DeepSpeed and InternEvo, with Megatron-LM of 2021 and 2022",
        pipelined_shardings=_STATES,
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
"""What the software of older configurations could be asked for when they were run.

DeepSpeed balances stages that layers do not divide over by itself; InternEvo, which counts as DeepSpeed here, shards
the optimizer within a node.
"""
NANOTRON = Limits(
    name="nanotron",
    shardings=_STATES,
    pipelined_shardings=_STATES,
    partial_sharding=False,
    recomputes=_PLAIN,
    recompute_layers=False,
    schedules=_ONE_BY_ONE,
    interleaved=False,
    largest_cp=1,
    largest_ep=1,
)
"""``src/nanotron/config/parallelism_config.py`` of nanotron 0.5, and ``zero_stage`` of its optimizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A published configuration: who ran it, where it stands, and the run with its speed (NaN: not published)."""

    team: str
    source: str
    where: str
    settings: str
    why: str
    note: str
    software: str
    layout: str
    run: Run
    measured_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The prediction of a published plan and the planner's choice.

    ``published`` is ``None`` where the plan breaks a rule, ``broken``. ``undone`` has for each group of choices the
    share of the gain that is lost when it stays as published; ``shifted_s`` what each part of the step gains [s]
    (negative: loses). ``runs`` counts the measured runs of the kind of the choice.
    """

    configuration: Configuration
    broken: tuple[str, ...] = ()
    published: Candidate | None = None
    choice: Candidate | None = None
    undone: Mapping[str, float]
    shifted_s: Mapping[str, float]
    runs: int = 0

    @property
    def gain(self) -> float:
        """By how much the choice is predicted to be faster [ratio]."""
        if self.published is None or self.choice is None:
            return nan
        return self.published.step_s / self.choice.step_s - 1.0

    @property
    def is_same(self) -> bool:
        """Whether the planner chooses the published plan."""
        return bool(self.published and self.choice and self.published.plan == self.choice.plan)


def read_configurations(path: Path) -> list[Configuration]:
    """Return the configurations of a file, in its order.

    Raises
    ------
    ValueError
        A run cannot be predicted; the message says why.
    """
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["configuration"]
    runs = parse_runs(_write_table([entry["run"] for entry in entries]), origin=path.name)
    if runs.unpredictable:
        raise ValueError(f"{path.name}: {runs.unpredictable[0]}")
    times = measured_step_s(list(runs.runs))
    return [
        Configuration(
            team=entry["team"],
            source=entry["source"],
            where=entry["where"],
            settings=entry.get("settings", ""),
            why=entry.get("why", ""),
            note=entry.get("note", ""),
            software=str(entry["run"].get("software", "")),
            layout=str(entry["run"].get("pp_layout", "")),
            run=run,
            measured_s=float(time),
        )
        for entry, run, time in zip(entries, runs.runs, times, strict=True)
    ]


def _write_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as a table of runs (CSV)."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write_once(plan: Plan) -> Plan:
    """Return a plan as the space lists it: choices that make no difference at their default.

    These are sequence parallelism with tp 1, sharding over one replica, a shard group of all replicas or of one.
    """
    replicas = plan.dp * plan.cp
    is_alone = replicas == 1
    is_whole = plan.shard_gpus in (replicas, 0) or is_alone
    return replace(
        plan,
        sequence_parallel=plan.sequence_parallel and plan.tp > 1,
        sharding=Sharding.NONE if is_alone else plan.sharding,
        shard_gpus=0 if is_whole else plan.shard_gpus,
    )


def select_limits(configuration: Configuration) -> tuple[Limits, Any]:
    """Return what the framework of a configuration supports, and its own checks: those of today where opsk has them."""
    software = configuration.run.plan.software
    if "nanotron" in configuration.software:
        return NANOTRON, None
    if software is Software.MEGATRON_CORE:
        megatron = FRAMEWORKS["megatron"]
        return megatron.limits_for(configuration.run.model), megatron.own_refusals
    return OF_ITS_TIME[software], None


def compare(configuration: Configuration) -> Compared:
    """Return the prediction of the published plan, the planner's choice, and on what their difference rests."""
    run = configuration.run
    plan = write_once(run.plan)
    axes = {axis: getattr(plan, axis) for axis in AXES if axis not in UNEVEN}
    found = search(run, ANYTHING, None, axes | count_ends(configuration))
    pinned = (*found.best, *found.refused)
    if not pinned:
        broken = find_cluster_violations(run.model, plan, run.cluster)
        return Compared(configuration=configuration, broken=broken, undone={}, shifted_s={})
    published = pinned[0]
    limits, refuses = select_limits(configuration)
    request = build_request(run, limits, refuses, {})
    choices = list_choices([request], best_plans(request), 1)
    if not choices:
        return Compared(configuration=configuration, published=published, undone={}, shifted_s={})
    choice = choices[0].candidate
    compared = Compared(
        configuration=configuration,
        published=published,
        choice=choice,
        undone={},
        shifted_s=_shift(run, published.plan, choice.plan),
        runs=choices[0].evidence.runs,
    )
    return replace(compared, undone=_undo(compared, limits, refuses)) if compared.gain > FASTER else compared


def count_ends(configuration: Configuration) -> dict[str, int]:
    """Return the layers of first and last stage where embedding and loss are stated to count as layers."""
    run, pp = configuration.run, configuration.run.plan.pp
    counted = run.model.layers + 2
    if not configuration.layout.startswith("embedding") or pp == 1 or counted % pp:
        return {}
    return dict.fromkeys(UNEVEN, counted // pp - 1)


def _undo(compared: Compared, limits: Limits, refuses: Any) -> dict[str, float]:
    """Return the share of the gain that is lost where a group of choices stays as published."""
    published, choice = compared.published, compared.choice
    undone = dict[str, float]()
    if published is None or choice is None:
        return undone
    for group, axes in GROUPS.items():
        if any(getattr(choice.plan, axis) != getattr(published.plan, axis) for axis in axes):
            held = search(
                compared.configuration.run, limits, refuses, {axis: getattr(published.plan, axis) for axis in axes}
            ).likely
            step_s = held[0].step_s if held else published.step_s
            undone[group] = min(max((step_s - choice.step_s) / (published.step_s - choice.step_s), 0.0), 1.0)
    return undone


def _shift(run: Run, before: Plan, after: Plan) -> dict[str, float]:
    """Return the seconds that each part of the step gains."""
    parts = predict(run.model, PlanTable.of([before, after]), run.cluster).time.components
    columns = {name: np.broadcast_to(column, 2) for name, column in parts.items()}
    return {name: float(column[0] - column[1]) for name, column in columns.items()}


def search(run: Run, limits: Limits, refuses: Any, fixed: Mapping[str, Any]) -> SearchResult:
    """Return what a search finds for a run's model, machine and batch, with some axes held."""
    return best_plans(build_request(run, limits, refuses, fixed))


def build_request(run: Run, limits: Limits, refuses: Any, fixed: Mapping[str, Any]) -> PlanRequest:
    """Return the request for plans of a run's model, machine and batch, with some axes held."""
    return PlanRequest(
        model=run.model,
        cluster=run.cluster,
        template=run.plan,
        gpus=run.plan.gpus,
        global_batch=run.plan.global_batch,
        fixed={axis: (value,) for axis, value in fixed.items()},
        limits=limits,
        refuses=refuses,
        most=1,
    )
