"""Writes ``docs/recipes.md``: published recipes next to the best plan of a search.

    python docs/programs/recipes.py RUNS.csv

``recipe_search.py`` defines what a recipe is and how it is compared; ``recipes-why.toml`` comments on the figures.
Takes a few minutes on two cores; the page depends on these files and the code alone.
"""

from __future__ import annotations

import argparse
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any

from page_table import NOTHING, seconds, table
from recipe_search import FASTER, GROUPS, Better, Compared, Recipe, compare, recipes_of

from opsk.calibration.runs.runs import read_runs
from opsk.workload.plan import Plan, Schedule, Sharding

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "recipes.md"
TEXTS = ROOT / "docs" / "programs" / "recipes-why.toml"
SHOWN = 0.2
"""A group of choices is named where putting it back loses at least this share of the gain."""
PARTS_SHOWN = 2
TELLING = 0.05
"""A measurement tells a plan from another only as far as runs repeat, about 1 to 5 % [ratio]."""
MICRO_BATCHES = ((1, "1"), (2, "2"), (4, "3 and 4"), (10**9, "more"))
_SAME = 1e-9
Texts = Mapping[str, Any]


def page(compared: Sequence[Compared], texts: Texts) -> str:
    """Return the page."""
    full = [entry for entry in compared if entry.recipe.is_full]
    partly = [entry for entry in compared if not entry.recipe.is_full]
    return "".join(
        (
            "# Published recipes beside our best plans\n\n"
            "<!-- Written by docs/programs/recipes.py from a table of measured "
            "runs and from docs/programs/recipes-why.toml: change those, not this page. -->\n",
            texts["parts"]["how_to_read"],
            "\n## In short\n\n",
            in_short(full),
            "\n### By source\n\n",
            by_source(full),
            "\n## What makes ours faster\n\n",
            by_group(full),
            "".join(reasons(full, texts["why"])),
            "\n## Does the ranking hold?\n\n",
            *ranking(full),
            texts["parts"]["ranking"],
            "\n",
            by_micro_batch(full),
            "\n## Full recipes, one by one\n\n",
            each(full),
            "\n## Recipes that leave recomputation, sharding or precision open\n\n",
            "What is open is filled in as `opsk validate` does it.\n\n",
            in_short(partly),
            "\n",
            each(partly),
        )
    )


def in_short(compared: Sequence[Compared]) -> str:
    """Return how many are legal, and how many of ours are as fast."""
    legal = [entry for entry in compared if entry.whole]
    lines = [
        f"- {len(compared)} recipes; {sum(entry.is_legal for entry in compared)} are plans of ours",
        f"- our best is at least as fast for {sum(_is_as_fast(entry) for entry in legal)} of {len(legal)}",
        f"- faster by more than 10 %: {_count(legal, _own)} within the recipe's own software, "
        f"{_count(legal, _whole)} of all plans",
    ]
    astride = sum(_is_astride(better) for entry in legal for better in (entry.own, entry.whole) if better)
    if astride:
        lines.append(
            f"- {astride} of these best plans have tensor-parallel groups that lie astride of two HB domains (a size "
            "that neither divides a domain nor is a multiple of it), and are priced as such"
        )
    broken = Counter((entry.recipe.run.model.name, entry.broken) for entry in compared if not entry.is_legal)
    lines += [f"- no plan of ours, {count} × {name}: {'; '.join(why)}" for (name, why), count in broken.items()]
    return "\n".join(lines) + "\n"


def _is_astride(better: Better) -> bool:
    """Return whether a group of the best plan's tensor parallelism has members in one more domain than it must."""
    tp, domain = better.candidate.plan.tp, better.hb_domain_gpus
    return bool(domain % tp and tp % domain)


def _own(entry: Compared) -> Better | None:
    return entry.own


def _whole(entry: Compared) -> Better | None:
    return entry.whole


def _is_as_fast(entry: Compared) -> bool:
    """Return whether our best is at least as fast as the recipe."""
    return bool(entry.whole and entry.whole.faster >= -_SAME)


def _count(compared: Sequence[Compared], side: Callable[[Compared], Better | None]) -> int:
    return sum(bool((better := side(entry)) and better.faster > FASTER) for entry in compared)


def by_source(compared: Sequence[Compared]) -> str:
    """Return the same for every source of runs."""
    head = ("source", "recipes", "ours", "as fast", "own software: median", "> 10 %", "all plans: median", "> 10 %")
    groups: dict[str, list[Compared]] = {}
    for entry in compared:
        groups.setdefault(entry.recipe.run.source, []).append(entry)
    return table(
        head,
        (
            (
                name,
                str(len(members)),
                str(sum(entry.is_legal for entry in members)),
                str(sum(_is_as_fast(entry) for entry in members)),
                _median(members, _own),
                str(_count(members, _own)),
                _median(members, _whole),
                str(_count(members, _whole)),
            )
            for name, members in groups.items()
        ),
    )


def _median(compared: Sequence[Compared], side: Callable[[Compared], Better | None]) -> str:
    gains = [better.faster for entry in compared if (better := side(entry))]
    return f"{median(gains):+.1%}" if gains else NOTHING


def by_group(compared: Sequence[Compared]) -> str:
    """Return how often each group of choices is what the gain hangs on."""
    sides: tuple[tuple[str, Callable[[Compared], Better | None]], ...] = (("own", _own), ("all", _whole))
    counts = {
        name: Counter(
            main_choice(better) for entry in compared if (better := side(entry)) is not None and better.faster > FASTER
        )
        for name, side in sides
    }
    rows = [(group, *(str(counts[name][group]) for name, _ in sides)) for group in (*GROUPS, SEVERAL)]
    note = "Recipes of which this choice, put back, loses the most of a gain of more than 10 %.\n"
    return table(("choice", "own software", "all plans"), rows) + f"\n{note}"


SEVERAL = "any of several"


def main_choice(better: Better) -> str:
    """Return the group of choices whose undoing loses the most; none loses much where they replace each other."""
    group, share = max(better.undone.items(), key=lambda item: item[1], default=(SEVERAL, 0.0))
    return group if share >= SHOWN else SEVERAL


def reasons(compared: Sequence[Compared], why: Mapping[str, str]) -> Iterator[str]:
    """Yield what people say of the sources whose recipes are beaten by more than 10 %."""
    beaten = dict.fromkeys(entry.recipe.run.source for entry in compared if entry.whole and entry.whole.faster > FASTER)
    for source in beaten:
        yield f"\n**`{source}`** {' '.join(why.get(source, 'not looked into.').split())}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Recipes for one model, machine, number of GPUs and batch that were all measured: one a plan."""

    members: tuple[Compared, ...]

    @property
    def chosen(self) -> Compared:
        """The one that opsk predicts to be the fastest."""
        return min(self.members, key=_predicted)

    @property
    def fastest(self) -> Compared:
        """The one that was measured to be the fastest."""
        return min(self.members, key=_measured)

    @property
    def lost(self) -> float:
        """How much slower the chosen one was than the fastest [ratio]."""
        return _measured(self.chosen) / _measured(self.fastest) - 1


def tasks_of(compared: Sequence[Compared]) -> list[Task]:
    """Return the tasks with at least two measured plans."""
    groups: dict[str, dict[Plan, Compared]] = {}
    for entry in compared:
        if entry.candidate and isfinite(_measured(entry)):
            groups.setdefault(_task(entry), {})[entry.candidate.plan] = entry
    return [Task(members=tuple(members.values())) for members in groups.values() if len(members) > 1]


def ranking(compared: Sequence[Compared]) -> Iterator[str]:
    """Yield how good the plan is that opsk ranks first among plans that were all measured for one task."""
    tasks = tasks_of(compared)
    if not tasks:
        yield "No task of this table was measured with more than one plan.\n"
        return
    wrong = sorted((task for task in tasks if task.lost > 0), key=lambda task: -task.lost)
    yield (
        f"{len(tasks)} tasks (one model, machine, number of GPUs and batch) were measured with two or more of these "
        f"plans. The one that opsk predicts to be the fastest was the fastest in {len(tasks) - len(wrong)} of them; in "
        f"the others it was slower than the fastest measured one by {_spread([task.lost for task in wrong])}. Those "
        "that lose more than 5 %, predicted / measured seconds:\n\n"
    )
    head = ("model", "GPUs", "ranked first", "s", "the fastest", "s", "lost")
    yield table(head, (_task_row(task) for task in wrong if task.lost > TELLING))


def _task_row(task: Task) -> tuple[str, ...]:
    run = task.chosen.recipe.run
    return (
        run.model.name,
        f"{run.plan.gpus} {run.gpu}",
        *_told(task.chosen),
        *_told(task.fastest),
        f"{task.lost:.1%}",
    )


def _told(entry: Compared) -> tuple[str, str]:
    plan = entry.candidate.plan if entry.candidate else entry.recipe.run.plan
    return f"{entry.recipe.run.id}: {in_words(plan)}", f"{seconds(_predicted(entry))} / {seconds(_measured(entry))}"


def by_micro_batch(compared: Sequence[Compared]) -> str:
    """Return by how much measured steps are longer than predicted ones, by software, tp and micro-batch."""
    groups: dict[tuple[str, str, str], list[float]] = {}
    for entry in compared:
        if entry.candidate and isfinite(_measured(entry)):
            plan = entry.candidate.plan
            size = next(name for most, name in MICRO_BATCHES if plan.micro_batch <= most)
            key = (plan.software.value, "1" if plan.tp == 1 else "more", size)
            groups.setdefault(key, []).append(_measured(entry) / _predicted(entry) - 1)
    head = ("software", "TP", "micro-batch", "recipes", "measured over predicted: median", "least", "most")
    return table(
        head,
        (
            (*key, str(len(errors)), *(f"{value:+.1%}" for value in (median(errors), min(errors), max(errors))))
            for key, errors in sorted(groups.items())
        ),
    )


def _spread(values: Sequence[float]) -> str:
    return f"{median(values):.1%} in the median, {max(values):.1%} at most" if values else "nothing"


def _predicted(entry: Compared) -> float:
    return entry.candidate.step_s if entry.candidate else float("inf")


def _measured(entry: Compared) -> float:
    return entry.recipe.measured_s


def _task(entry: Compared) -> str:
    """Return what a recipe trains on what, for comparing plans of the same task."""
    run = entry.recipe.run
    same = (run.plan.gpus, run.plan.global_batch, run.plan.precision, run.plan.software)
    return repr((run.source, run.model, run.cluster, same))


def each(compared: Sequence[Compared]) -> str:
    """Return one row for each recipe that is a plan of ours."""
    head = ("recipe", "model", "GPUs", "its plan", "s", "best of its software", "faster", "hangs on", "step")
    return table(
        (*head, "best of all plans", "faster", "hangs on"),
        (_row(entry, entry.candidate.plan, entry.candidate.step_s) for entry in compared if entry.candidate),
    )


def _row(entry: Compared, plan: Plan, step_s: float) -> tuple[str, ...]:
    run = entry.recipe.run
    what = (run.id, run.model.name, f"{plan.gpus} {run.gpu}", in_words(plan), seconds(step_s))
    return (*what, *_better(entry.own, plan), *_better(entry.whole, plan)[:3])


def _better(better: Better | None, recipe: Plan) -> tuple[str, str, str, str]:
    """Return a best plan, how much faster it is, on what that hangs and which parts of the step shrink."""
    if better is None:
        return (NOTHING,) * 4
    plan = "the recipe" if better.candidate.plan == recipe else in_words(better.candidate.plan)
    if better.faster <= FASTER:
        return plan, f"{better.faster:+.1%}", "", ""
    shares = sorted(better.undone.items(), key=lambda item: -item[1])
    named = ", ".join(f"{group} {share:.0%}" for group, share in shares if share >= SHOWN) or SEVERAL
    gains = sorted(better.shifted_s.items(), key=lambda item: -item[1])[:PARTS_SHOWN]
    return plan, f"{better.faster:+.1%}", named, ", ".join(f"{name} −{seconds(gain)}" for name, gain in gains)


def in_words(plan: Plan) -> str:
    """Return a plan in a few words; what is usual is left out."""
    chunks = f"×{plan.vpp}" if plan.vpp > 1 else ""
    sizes = (("TP", plan.tp), ("PP", plan.pp), ("CP", plan.cp), ("EP", plan.ep), ("DP", plan.dp))
    axes = [f"{name}{size}{chunks if name == 'PP' else ''}" for name, size in sizes if size > 1 or name == "DP"]
    some = f" {plan.recompute_layers}" if plan.recompute_layers else ""
    uneven = plan.first_stage_layers or plan.last_stage_layers
    shared = f" of {plan.shard_gpus}" if plan.shard_gpus else ""
    words = [f"{' '.join(axes)} mbs {plan.micro_batch}", f"{plan.recompute.value}{some}"]
    words += [f"{plan.sharding.value}{shared}"] if plan.sharding is not Sharding.NONE else []
    words += ["SP"] if plan.sequence_parallel else []
    words += [plan.schedule.value] if plan.schedule is not Schedule.ONE_F_ONE_B else []
    words += [f"stages {plan.first_stage_layers or '…'}…{plan.last_stage_layers or '…'}"] if uneven else []
    return ", ".join(words)


def compared_all(recipes: Sequence[Recipe], processes: int) -> list[Compared]:
    """Return all comparisons, in order; those of one task are done by one process, which searches like spaces once."""
    if processes == 1:
        return [compare(recipe) for recipe in recipes]
    with ProcessPoolExecutor(processes) as pool:
        return list(pool.map(compare, recipes, chunksize=8))


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, help="table of measured runs")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    recipes = recipes_of(read_runs(asked.runs).runs)
    texts = tomllib.loads(TEXTS.read_text(encoding="utf-8"))
    PAGE.write_text(page(compared_all(recipes, asked.processes), texts), encoding="utf-8")


if __name__ == "__main__":
    main()
