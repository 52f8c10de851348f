"""Compares the job's plan with other plans that are predicted faster by more than the prediction's error."""

from __future__ import annotations

from opsk.diagnosis.losses.causes.recompute import SURE_TO_FIT, find_leaner_plan
from opsk.diagnosis.losses.situation import Situation, Suspicion
from opsk.diagnosis.losses.values import Cause


def find_wrong_plan(situation: Situation) -> Suspicion | None:
    """Return the time lost to the plan against the best other one, beyond the gain of less recomputation alone."""
    predicted = situation.seen.prediction
    if predicted is None:
        return None
    lean = find_leaner_plan(predicted)
    own_s = predicted.step_s if lean is None else lean.step_s
    error = predicted.step_s / predicted.low_s if 0 < predicted.low_s < predicted.step_s else 1.0
    better = [
        other
        for other in predicted.others
        if other is not lean and other.fit_probability >= SURE_TO_FIT and 0 < other.step_s * error < own_s
    ]
    if not better:
        return None
    best = min(better, key=lambda other: (other.step_s, other.what))
    return Suspicion(
        cause=Cause.WRONG_PLAN,
        seconds=own_s - best.step_s,
        confidence=0.75,
        text=f"{best.what}: predicted {1 - best.step_s / own_s:.0%} faster, more than the prediction's error",
        numbers={"predicted_step_s": best.step_s, "fit_probability": best.fit_probability, "error_ratio": error - 1.0},
        is_predicted=True,
    )
