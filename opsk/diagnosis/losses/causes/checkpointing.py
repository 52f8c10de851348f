"""Measures the time that checkpoints take: long steps at regular intervals, and pauses that the log reports."""

from __future__ import annotations

from opsk.diagnosis.losses.situation import Situation, Suspicion
from opsk.diagnosis.losses.values import Cause

_SURE = 5
"""From this many regular long steps on, they are hardly chance."""


def find_checkpointing(situation: Situation) -> Suspicion | None:
    """Return the share of the mean step that checkpoints take: measured, not estimated."""
    steps = situation.steps
    if steps.checkpoint_s <= 0:
        return None
    each_s = steps.checkpoint_s * steps.period if steps.period else 0.0
    confidence = 0.95 if steps.are_reported else 0.8 if steps.checkpoints >= _SURE else 0.65
    what = "checkpoints" if steps.are_reported else "long steps at regular intervals, as checkpoints make them,"
    every = f" every {steps.period:.0f} steps" if steps.period else ""
    return Suspicion(
        cause=Cause.CHECKPOINTING,
        seconds=steps.checkpoint_s,
        confidence=confidence,
        text=f"{steps.checkpoints} {what}{every} take {steps.checkpoint_s / steps.mean_s:.1%} of the time",
        numbers={"checkpoints": float(steps.checkpoints), "period_steps": steps.period, "each_s": each_s},
    )
