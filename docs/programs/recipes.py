"""Writes ``docs/recipes.md``: published configurations next to the planner's choice for the same framework.

    python docs/programs/recipes.py [--runs RUNS.csv]

``published-configurations.toml`` has the configurations with their sources, ``recipes-why.toml`` the page's texts;
``recipe_search.py`` defines how they are compared. With a table of measured runs the page also says how often the plan
that is ranked first was measured to be the fastest. Takes about two minutes on two cores.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import isfinite, isnan
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from page_table import NOTHING, seconds, table
from recipe_search import FASTER, Compared, Configuration, compare, read_configurations, write_once

from opsk.calibration.runs.conventions import measured_step_s
from opsk.calibration.runs.runs import Run, read_runs
from opsk.costmodel.predict import predict
from opsk.costmodel.table import PlanTable
from opsk.planning.search.result import Candidate
from opsk.workload.plan import Plan, Schedule, Sharding

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "recipes.md"
CONFIGURATIONS = ROOT / "docs" / "programs" / "published-configurations.toml"
TEXTS = ROOT / "docs" / "programs" / "recipes-why.toml"
NEAR = 0.05
"""Two plans are as fast as far as can be told where their predicted times differ by less [ratio]."""
LIKELY = 0.5
"""A plan with at least this chance is predicted to fit."""
SHOWN = 0.2
"""A group of choices is named where putting it back loses at least this share of the gain."""
PARTS_SHOWN = 2
SIZES = frozenset(f"plan.{name}" for name in ("gpus", "tp", "pp", "cp", "dp", "ep", "micro_batch", "global_batch"))
CHOICES = frozenset(f"plan.{name}" for name in ("recompute", "sharding", "precision"))
"""Inputs that a measured run must state to be compared with others of its task."""
REPEATS = 0.05
"""Runs repeat about as well as this, so a measurement tells two plans apart only beyond it [ratio]."""


def page(compared: Sequence[Compared], texts: Mapping[str, Any], runs: Sequence[Run] = ()) -> str:
    """Return the page."""
    parts = texts["parts"]
    sections = [
        "# Published configurations next to the planner's choice\n\n"
        "<!-- Written by docs/programs/recipes.py from published-configurations.toml and recipes-why.toml: change "
        "those, not this page. -->\n",
        parts["how_to_read"],
        "\n",
        write_table(compared),
        "\n## In short\n\n",
        *summarise(compared),
        parts["meaning"],
        "\n## One by one\n",
        *(write_entry(number, entry) for number, entry in enumerate(compared, 1)),
    ]
    if runs:
        sections += ["\n## Does the ranking hold?\n\n", *rank(runs), parts["ranking"]]
    return "".join(sections)


def write_table(compared: Sequence[Compared]) -> str:
    """Return one row for each configuration."""
    published = ("#", "model and machine", "published plan", "s measured", "s predicted", "fits")
    head = (*published, "opsk's choice", "s predicted", "fits", "is faster by")
    return table(head, (_write_row(number, entry) for number, entry in enumerate(compared, 1)))


def _write_row(number: int, entry: Compared) -> tuple[str, ...]:
    run, published, choice = entry.configuration.run, entry.published, entry.choice
    name = f"{run.model.name}, {run.plan.gpus:,} {run.gpu}"
    measured = entry.configuration.measured_s
    plan = write_plan(published.plan if published else write_once(run.plan))
    return (
        str(number),
        name,
        plan,
        NOTHING if isnan(measured) else seconds(measured),
        seconds(published.step_s) if published else NOTHING,
        _write_chance(published),
        "the same" if entry.is_same else write_plan(choice.plan) if choice else NOTHING,
        seconds(choice.step_s) if choice else NOTHING,
        _write_chance(choice),
        f"**{judge(entry)}**" if is_claim(entry) else judge(entry),
    )


def _write_chance(candidate: Candidate | None) -> str:
    return NOTHING if candidate is None else f"{candidate.fit_probability:.0%}"


def judge(entry: Compared) -> str:
    """Return in a few words what a difference is worth."""
    if entry.published is None:
        return "not a plan of opsk's: " + "; ".join(entry.broken)
    if entry.choice is None:
        return "no choice"
    gain = entry.gain
    if entry.is_same:
        return "the same plan"
    if abs(gain) <= NEAR:
        return f"{gain:+.0%}: as fast as can be told"
    if gain < 0:
        return f"{gain:+.0%}: slower, for it is surer to fit"
    if entry.configuration.why:
        return f"{gain:+.0%}: has a measured reason"
    if gain > FASTER and (error := find_error(entry)) > FASTER:
        return f"{gain:+.0%}: no claim, the published plan is predicted {error:.0%} too slow"
    return f"{gain:+.0%}: a claim to be tried" if gain > FASTER else f"{gain:+.0%}: less than predictions miss by"


def find_error(entry: Compared) -> float:
    """Return by how much longer a published plan is predicted to take than was measured [ratio]; 0 if unmeasured."""
    measured_s = entry.configuration.measured_s
    return entry.published.step_s / measured_s - 1.0 if entry.published and isfinite(measured_s) else 0.0


def is_claim(entry: Compared) -> bool:
    """Return whether the choice is said to be faster by more than a tenth, with nothing measured to show it."""
    return entry.gain > FASTER and not entry.configuration.why and find_error(entry) <= FASTER


def summarise(compared: Sequence[Compared]) -> Iterator[str]:
    """Yield how many published plans are predicted to fit, and how the choices compare with them."""
    legal = [entry for entry in compared if entry.published and entry.choice]
    teams = {entry.configuration.team.split(",")[0] for entry in compared}
    gpus = [entry.configuration.run.plan.gpus for entry in compared]
    yield (
        f"- {len(compared)} configurations of {len(teams)} teams, on {min(gpus):,} to {max(gpus):,} GPUs; "
        f"{len(legal)} are plans that opsk can search\n"
    )
    fitting = [entry for entry in legal if entry.published and entry.published.fit_probability >= LIKELY]
    others = [str(number) for number, entry in enumerate(compared, 1) if entry in legal and entry not in fitting]
    yield f"- all of them ran; {len(fitting)} are predicted to fit with a chance of half or more"
    yield f"; less for {', '.join(others)}\n" if others else "\n"
    near = sum(abs(entry.gain) <= NEAR for entry in legal)
    slower = sum(entry.gain < -NEAR for entry in legal)
    reasons = sum(entry.gain > NEAR and bool(entry.configuration.why) for entry in legal)
    claims = sum(is_claim(entry) for entry in legal)
    wrong = sum(entry.gain > FASTER and not entry.configuration.why for entry in legal) - claims
    between = len(legal) - near - slower - reasons - claims - wrong
    yield f"- the choice is within {NEAR:.0%} of the published plan for {near}; slower, but surer to fit, for "
    yield f"{slower}\n"
    yield f"- it is predicted to be faster by more for a measured reason for {reasons}, by 5 to 10 % for {between}\n"
    yield f"- it is faster by more than {FASTER:.0%}, which nobody has measured, for {claims}: claims to be tried\n"
    if wrong:
        yield f"- for {wrong} more it seems so only because the published plan is predicted too slow\n"
    errors = [
        entry.published.step_s / entry.configuration.measured_s - 1
        for entry in legal
        if entry.published and isfinite(entry.configuration.measured_s)
    ]
    if errors:
        size = median(abs(error) for error in errors)
        yield f"- predicted over measured time of the published plans: {size:.0%} off in the median\n"


def write_entry(number: int, entry: Compared) -> str:
    """Return the source of a configuration, and what makes the choice differ."""
    configuration, run = entry.configuration, entry.configuration.run
    lines = [f"\n**{number}. {run.model.name} on {run.plan.gpus:,} {run.gpu}** ({configuration.team}). "]
    lines.append(f"Source: {configuration.source}; {configuration.where}.")
    if configuration.settings:
        lines.append(f" Settings that it leaves open: {configuration.settings}.")
    if entry.choice and entry.published and not entry.is_same:
        lines.append(f" {_explain(entry)}")
    if configuration.why:
        lines.append(f" {' '.join(configuration.why.split())}")
    if configuration.note:
        lines.append(f" {' '.join(configuration.note.split())}")
    return "".join(lines) + "\n"


def _explain(entry: Compared) -> str:
    """Return why the choice differs: the parts of the step that shrink and grow, and on what a gain rests."""
    shifts = sorted(entry.shifted_s.items(), key=lambda item: -abs(item[1]))[:PARTS_SHOWN]
    parts = " and ".join(f"{name} {'−' if shift > 0 else '+'}{seconds(abs(shift))} s" for name, shift in shifts)
    text = f"Choice against published plan: {parts}."
    if entry.undone:
        shares = sorted(entry.undone.items(), key=lambda item: -item[1])
        named = [f"{group} ({share:.0%})" for group, share in shares if share >= SHOWN]
        text += f" The gain rests on {', '.join(named) or 'several choices that replace each other'}."
    count = f"{entry.runs} measured runs" if entry.runs else "no measured run"
    return f"{text} {count[0].upper()}{count[1:]} of the choice's kind."


def write_plan(plan: Plan) -> str:
    """Return a plan in a few words; what is usual is left out."""
    chunks = f"×{plan.vpp}" if plan.vpp > 1 else ""
    sizes = (("TP", plan.tp), ("PP", plan.pp), ("CP", plan.cp), ("EP", plan.ep), ("DP", plan.dp))
    axes = [f"{name}{size}{chunks if name == 'PP' else ''}" for name, size in sizes if size > 1 or name == "DP"]
    some = f" {plan.recompute_layers}" if plan.recompute_layers else ""
    uneven = plan.first_stage_layers or plan.last_stage_layers
    shared = f" of {plan.shard_gpus}" if plan.shard_gpus else ""
    recompute = f"{plan.recompute_modules or plan.recompute.value}{some}"
    words = [f"{' '.join(axes)} mbs {plan.micro_batch}"]
    words += [f"recompute {recompute}"] if plan.recompute.value != "none" else []
    words += [f"{plan.sharding.value}{shared}"] if plan.sharding is not Sharding.NONE else []
    words += [plan.schedule.value] if plan.schedule is not Schedule.ONE_F_ONE_B else []
    words += [f"stages {plan.first_stage_layers or '…'}…{plan.last_stage_layers or '…'}"] if uneven else []
    return ", ".join(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A measured run with the seconds of a step that are predicted and that were measured."""

    run: Run
    predicted_s: float
    measured_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Runs of one model, machine, number of GPUs and batch that were all measured: one a plan."""

    members: tuple[Measured, ...]

    @property
    def chosen(self) -> Measured:
        """The one that opsk predicts to be the fastest."""
        return min(self.members, key=lambda member: member.predicted_s)

    @property
    def fastest(self) -> Measured:
        """The one that was measured to be the fastest."""
        return min(self.members, key=lambda member: member.measured_s)

    @property
    def lost(self) -> float:
        """How much slower the chosen one was than the fastest [ratio]."""
        return self.chosen.measured_s / self.fastest.measured_s - 1


def list_tasks(runs: Sequence[Run]) -> list[Task]:
    """Return the tasks of which at least two plans were measured, all their choices being stated."""
    stated = [run for run in runs if not (run.count_assumed(SIZES | CHOICES) or run.is_toy or run.measured.is_oom)]
    groups: dict[str, dict[Plan, Measured]] = {}
    for run, time in zip(stated, measured_step_s(stated), strict=True):
        if isfinite(time):
            predicted = predict(run.model, PlanTable.of([run.plan]), run.cluster)
            task = (run.source, run.model, run.cluster, run.plan.gpus, run.plan.global_batch, run.plan.precision)
            groups.setdefault(repr((*task, run.plan.software)), {})[run.plan] = Measured(
                run=run, predicted_s=float(np.atleast_1d(predicted.time.step_s.expected)[0]), measured_s=float(time)
            )
    return [Task(members=tuple(members.values())) for members in groups.values() if len(members) > 1]


def rank(runs: Sequence[Run]) -> Iterator[str]:
    """Yield how good the plan is that opsk ranks first among plans that were all measured for one task."""
    tasks = list_tasks(runs)
    if not tasks:
        yield "No task of this table was measured with more than one plan.\n"
        return
    wrong = sorted((task for task in tasks if task.lost > REPEATS), key=lambda task: -task.lost)
    yield (
        f"{len(tasks)} tasks (one model, machine, number of GPUs and batch) of the table of measured runs were "
        "measured with two or more plans. The plan that opsk ranks first was the fastest, or within "
        f"{REPEATS:.0%} of it, in {len(tasks) - len(wrong)}."
    )
    if wrong:
        yield f" The {min(10, len(wrong))} in which it lost the most, predicted / measured seconds:\n\n"
        head = ("model and machine", "ranked first", "s", "the fastest", "s", "lost")
        yield table(head, (_write_task(task) for task in wrong[:10]))


def _write_task(task: Task) -> tuple[str, ...]:
    run = task.chosen.run
    cells = [f"{run.model.name}, {run.plan.gpus:,} {run.gpu}"]
    for member in (task.chosen, task.fastest):
        cells += [
            f"{member.run.id}: {write_plan(member.run.plan)}",
            f"{seconds(member.predicted_s)} / {seconds(member.measured_s)}",
        ]
    return (*cells, f"{task.lost:.0%}")


def compare_all(configurations: Sequence[Configuration], processes: int) -> list[Compared]:
    """Return all comparisons, in order."""
    if processes == 1:
        return [compare(configuration) for configuration in configurations]
    with ProcessPoolExecutor(processes) as pool:
        return list(pool.map(compare, configurations, chunksize=1))


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, help="table of measured runs, for the last section")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    texts = tomllib.loads(TEXTS.read_text(encoding="utf-8"))
    compared = compare_all(read_configurations(CONFIGURATIONS), given.processes)
    runs = read_runs(given.runs).runs if given.runs else ()
    PAGE.write_text(page(compared, texts, runs), encoding="utf-8")


if __name__ == "__main__":
    main()
