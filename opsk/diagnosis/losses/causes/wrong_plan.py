"""Is another plan predicted to be faster by more than the error of the prediction?"""

from __future__ import annotations

from opsk.diagnosis.losses.causes.recompute import SURE_TO_FIT, leaner
from opsk.diagnosis.losses.situation import Situation, Suspicion
from opsk.diagnosis.losses.values import Cause


def wrong_plan(situation: Situation) -> Suspicion | None:
    """Return what the plan takes against the best other one, without what less recomputation alone brings."""
    predicted = situation.seen.prediction
    if predicted is None:
        return None
    lean = leaner(predicted)
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
