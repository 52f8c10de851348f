"""Estimates the time that needless recomputation costs, from the prediction of plans that recompute less and fit."""

from __future__ import annotations

from opsk.diagnosis.losses.observation import OtherPlan, Prediction
from opsk.diagnosis.losses.situation import Situation, Suspicion
from opsk.diagnosis.losses.values import Cause

SURE_TO_FIT = 0.9
_NOTICED = 0.03


def find_recompute(situation: Situation) -> Suspicion | None:
    """Return the time lost to needless recomputation."""
    predicted = situation.seen.prediction
    other = None if predicted is None else find_leaner_plan(predicted)
    if predicted is None or other is None:
        return None
    saved = predicted.step_s - other.step_s
    return Suspicion(
        cause=Cause.RECOMPUTE,
        seconds=saved,
        confidence=0.8 * other.fit_probability,
        text=f"{other.what}: predicted {saved / predicted.step_s:.0%} faster, fits with {other.fit_probability:.0%}",
        numbers={
            "predicted_step_s": other.step_s,
            "fit_probability": other.fit_probability,
            "recompute_s": predicted.components.get("recompute", 0.0),
        },
        is_predicted=True,
    )


def find_leaner_plan(predicted: Prediction) -> OtherPlan | None:
    """Return the job's own plan with the least recomputation that surely fits, where that is clearly faster."""
    fitting = [
        other
        for other in predicted.others
        if other.only_recomputes_less
        and other.fit_probability >= SURE_TO_FIT
        and other.step_s < (1.0 - _NOTICED) * predicted.step_s
    ]
    return min(fitting, key=lambda other: (other.step_s, other.what), default=None)
