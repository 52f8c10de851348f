"""Where does a running job lose time? Each cause's part of the measured step; parts add up to the gap.

Nothing is named below ``NAMED`` of the step, nor with less confidence than ``BELIEVED``. What no evidence explains is
``Cause.UNKNOWN``: it is not spread over what was found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import TypeVar

from opsk.diagnosis.losses.causes.checkpointing import checkpointing
from opsk.diagnosis.losses.causes.congested_link import congested_link
from opsk.diagnosis.losses.causes.data_loading import data_loading
from opsk.diagnosis.losses.causes.power_cap import power_cap
from opsk.diagnosis.losses.causes.recompute import recompute
from opsk.diagnosis.losses.causes.straggler import straggler
from opsk.diagnosis.losses.causes.thermal_cap import thermal_cap
from opsk.diagnosis.losses.causes.wrong_plan import wrong_plan
from opsk.diagnosis.losses.observation import GpuActivity, HostActivity, Observation, PortActivity, Prediction
from opsk.diagnosis.losses.situation import Situation, Suspicion, situation_of
from opsk.diagnosis.losses.step_times import StepTimes, step_times
from opsk.diagnosis.losses.values import Cause, Finding, Losses

CAUSES: tuple[Callable[[Situation], Suspicion | None], ...] = (
    straggler,
    thermal_cap,
    power_cap,
    congested_link,
    data_loading,
    checkpointing,
    recompute,
    wrong_plan,
)


Seen = TypeVar("Seen", GpuActivity, PortActivity, HostActivity)


def finite(seen: Observation) -> Observation:
    """Return an observation in which every number is finite, or missing."""
    return replace(
        seen,
        prediction=_usable(seen.prediction),
        steps=tuple(step for step in seen.steps if 0 < step.seconds < math.inf and step.steps > 0),
        gpus=tuple(_finite_gpu(gpu) for gpu in seen.gpus),
        ports=tuple(_finite(port) for port in seen.ports),
        hosts=tuple(_finite(host) for host in seen.hosts),
    )


def _usable(predicted: Prediction | None) -> Prediction | None:
    """Return a prediction that has a time to compare with, and a range around it."""
    if predicted is None or not 0 < predicted.step_s < math.inf:
        return None
    low_s = predicted.low_s if 0 < predicted.low_s <= predicted.step_s else predicted.step_s
    high_s = predicted.high_s if predicted.high_s >= predicted.step_s else predicted.step_s
    return replace(predicted, low_s=low_s, high_s=high_s)


def _finite(seen: Seen) -> Seen:
    """Return one device without values that are no numbers; itself where there are none."""
    wrong = {
        name: None
        for name in _NAMES[type(seen)]
        if isinstance(value := getattr(seen, name), float) and not math.isfinite(value)
    }
    return replace(seen, **wrong) if wrong else seen  # type: ignore[arg-type]


def _finite_gpu(gpu: GpuActivity) -> GpuActivity:
    """Return a GPU likewise, and without shares of time that are no numbers."""
    if any(not math.isfinite(share) for share in gpu.throttled.values()):
        known = {reason: share for reason, share in gpu.throttled.items() if math.isfinite(share)}
        gpu = replace(gpu, throttled=known)
    return _finite(gpu)


_NAMES = {kind: tuple(item.name for item in fields(kind)) for kind in (GpuActivity, PortActivity, HostActivity)}


NAMED = 0.02
"""Least part of the measured step that a cause must take to be named [ratio]."""
BELIEVED = 0.4
_MOST = 0.9
_ROUNDING = 1e-9


def losses_of(seen: Observation) -> Losses:
    """Return measured against predicted, and where the difference goes.

    With too few steps there is no gap and nothing is found; without a prediction the gap is what evidence explains.
    """
    seen = finite(seen)
    predicted, steps = seen.prediction, step_times(seen)
    if steps is None:
        return Losses(
            expected_mfu=None if predicted is None else predicted.mfu,
            measured_mfu=seen.mfu,
            expected_step_s=None if predicted is None else predicted.step_s,
        )
    situation = situation_of(seen, steps)
    found = [suspicion for cause in CAUSES if (suspicion := cause(situation)) is not None]
    believed = [each for each in _only_the_slowest(found) if _is_worth_naming(each, steps.mean_s)]
    return _split(predicted, steps, believed, seen.mfu)


def _is_worth_naming(suspicion: Suspicion, mean_s: float) -> bool:
    return suspicion.seconds >= NAMED * mean_s and suspicion.confidence >= BELIEVED


def _only_the_slowest(found: Sequence[Suspicion]) -> list[Suspicion]:
    """Return the same with fair parts of the one wait for those causes that all slow the slowest GPU.

    Together they take what the worst takes. Shapley's values of that maximum: the part up to the least is shared by
    all, the next part by the others, and so on (Littlechild and Owen 1973, the airport game).
    """
    waits = sorted((each for each in found if each.is_slowest), key=lambda each: each.seconds)
    shared: list[Suspicion] = []
    paid = before = 0.0
    for number, each in enumerate(waits):
        paid += (each.seconds - before) / (len(waits) - number)
        before = each.seconds
        shared.append(replace(each, seconds=paid))
    return [*(each for each in found if not each.is_slowest), *shared]


def _split(predicted: Prediction | None, steps: StepTimes, found: Sequence[Suspicion], mfu: float | None) -> Losses:
    """Return the parts of the gap: what was measured, what another plan would save, and the rest."""
    mean_s = steps.mean_s
    measured = [each for each in found if not each.is_predicted]
    told_s = sum(each.seconds for each in measured)
    if told_s > _MOST * mean_s:
        measured = [replace(each, seconds=each.seconds * _MOST * mean_s / told_s) for each in measured]
        told_s = _MOST * mean_s
    beyond_s = max(mean_s - predicted.step_s, 0.0) if predicted is not None else 0.0
    lost_s = max(told_s, beyond_s)
    planned: list[Suspicion] = []
    if predicted is not None:
        pace = (mean_s - lost_s) / predicted.step_s
        planned = [replace(each, seconds=each.seconds * pace) for each in found if each.is_predicted]
    reachable_s = mean_s - lost_s - sum(each.seconds for each in planned)
    is_within_error = predicted is None or mean_s <= predicted.high_s
    parts = [_finding(each, mean_s) for each in (*measured, *planned)]
    rest = lost_s - told_s
    if rest > _ROUNDING * mean_s:
        parts.append(_unknown(rest / mean_s, is_within_error=is_within_error))
    expected_mfu = None if predicted is None else predicted.mfu
    if mfu is None and predicted is not None and expected_mfu is not None:
        mfu = expected_mfu * predicted.step_s / mean_s
    return Losses(
        expected_mfu=expected_mfu,
        measured_mfu=mfu,
        expected_step_s=None if predicted is None else predicted.step_s,
        measured_step_s=steps.typical_s,
        mean_step_s=mean_s,
        reachable_step_s=reachable_s,
        gap=max(1.0 - reachable_s / mean_s, 0.0),
        is_within_error=is_within_error,
        findings=tuple(sorted(parts, key=lambda part: (part.cause is Cause.UNKNOWN, -part.share, part.cause))),
    )


def _finding(suspicion: Suspicion, mean_s: float) -> Finding:
    return Finding(
        cause=suspicion.cause,
        share=suspicion.seconds / mean_s,
        confidence=suspicion.confidence,
        where=suspicion.where,
        text=suspicion.text,
        numbers={**suspicion.numbers, "lost_s": suspicion.seconds},
    )


def _unknown(share: float, *, is_within_error: bool) -> Finding:
    """Return the rest; within the prediction's own error it is nobody's fault."""
    text = (
        "within the error of the prediction: nothing to blame"
        if is_within_error
        else "beyond the error of the prediction, and nothing that is observed explains it"
    )
    return Finding(cause=Cause.UNKNOWN, share=share, confidence=0.0, text=text)
