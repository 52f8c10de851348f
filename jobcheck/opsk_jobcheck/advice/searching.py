"""What was found near a plan and among all plans? Changes that help, the best plan, and what the asked one wastes."""

from __future__ import annotations

from dataclasses import dataclass

from opsk.workload.advice_record import Verdict
from opsk_jobcheck.advice.suggestions import (
    MIN_GAIN,
    BestPlan,
    Question,
    Suggestion,
    best_plan,
    near_plans,
    on_more_nodes,
    useful_changes,
)
from opsk_jobcheck.advice.waste import Waste, found_waste


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """What a search found; ``best`` is ``None`` where no plan surely fits."""

    suggestions: tuple[Suggestion, ...]
    best: BestPlan | None
    waste: tuple[Waste, ...]


def searched(question: Question) -> Searched:
    """Return what was found near the asked plan and among all plans.

    Raises
    ------
    OpskError
        When other plans cannot be predicted.
    """
    near = near_plans(question)
    best = best_plan(question)
    waste = found_waste(question, near, best)
    changes = {entry.plan: entry for entry in useful_changes(question, near)}
    if not changes and question.verdict is not Verdict.FITS and (larger := on_more_nodes(question)):
        changes = {larger.plan: larger}
    if question.verdict is Verdict.FITS:
        # what a finding suggests is a suggestion as well; where memory is short, those that fix it come alone
        more = (entry.change for entry in waste if entry.change and entry.change.plan.gpus == question.plan.gpus)
        changes = {**{entry.plan: entry for entry in more if entry.step_ratio <= 1 - MIN_GAIN}, **changes}
    return Searched(
        suggestions=tuple(sorted(changes.values(), key=lambda entry: (entry.step_ratio, len(entry.changes)))),
        best=best,
        waste=waste,
    )
