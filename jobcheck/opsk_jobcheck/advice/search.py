"""Searches near a plan and among all plans for helpful changes, the best plan, and the waste of the requested plan."""

from __future__ import annotations

from dataclasses import dataclass

from opsk.workload.advice_record import Verdict
from opsk_jobcheck.advice.suggestions import (
    MIN_GAIN,
    BestPlan,
    Question,
    Suggestion,
    find_best_plan,
    find_near_plans,
    find_plan_on_more_nodes,
    find_useful_changes,
)
from opsk_jobcheck.advice.waste import Waste, find_waste


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The result of a search; ``best`` is ``None`` where no plan certainly fits."""

    suggestions: tuple[Suggestion, ...]
    best: BestPlan | None
    waste: tuple[Waste, ...]


def search_improvements(question: Question) -> SearchResult:
    """Search near the requested plan and among all plans.

    Raises
    ------
    OpskError
        When other plans cannot be predicted.
    """
    near = find_near_plans(question)
    best = find_best_plan(question)
    waste = find_waste(question, near, best)
    changes = {entry.plan: entry for entry in find_useful_changes(question, near)}
    if not changes and question.verdict is not Verdict.FITS and (larger := find_plan_on_more_nodes(question)):
        changes = {larger.plan: larger}
    if question.verdict is Verdict.FITS:
        # changes of findings are suggestions as well; where memory is short, only changes that fix it are listed
        more = (entry.change for entry in waste if entry.change and entry.change.plan.gpus == question.plan.gpus)
        changes = {**{entry.plan: entry for entry in more if entry.step_ratio <= 1 - MIN_GAIN}, **changes}
    return SearchResult(
        suggestions=tuple(sorted(changes.values(), key=lambda entry: (entry.step_ratio, len(entry.changes)))),
        best=best,
        waste=waste,
    )
