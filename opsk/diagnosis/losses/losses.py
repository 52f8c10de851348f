"""Splits a running job's lost time into the parts of its causes, which add up to the gap.

No cause is named below ``MIN_SHARE`` of the step, nor with less confidence than ``MIN_CONFIDENCE``. What no evidence
explains is ``Cause.UNKNOWN``: it is not spread over the findings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TypeVar

from opsk.diagnosis.losses.causes import CAUSES
from opsk.diagnosis.losses.observation import GpuActivity, HostActivity, Observation, PortActivity, Prediction
from opsk.diagnosis.losses.situation import Suspicion, build_situation
from opsk.diagnosis.losses.step_times import StepTimes, compute_step_times
from opsk.diagnosis.losses.values import Cause, Finding, Losses

Seen = TypeVar("Seen", GpuActivity, PortActivity, HostActivity)


def drop_non_finite(seen: Observation) -> Observation:
    """Return an observation in which every number is finite, or missing."""
    return replace(
        seen,
        prediction=_clean_prediction(seen.prediction),
        steps=tuple(step for step in seen.steps if 0 < step.seconds < math.inf and step.steps > 0),
        gpus=tuple(_clean_gpu(gpu) for gpu in seen.gpus),
        ports=tuple(_clean_device(port) for port in seen.ports),
        hosts=tuple(_clean_device(host) for host in seen.hosts),
    )


def _clean_prediction(predicted: Prediction | None) -> Prediction | None:
    """Return a prediction that has a time to compare with, and a range around it."""
    if predicted is None or not 0 < predicted.step_s < math.inf:
        return None
    low_s = predicted.low_s if 0 < predicted.low_s <= predicted.step_s else predicted.step_s
    high_s = predicted.high_s if predicted.high_s >= predicted.step_s else predicted.step_s
    return replace(predicted, low_s=low_s, high_s=high_s)


def _clean_device(seen: Seen) -> Seen:
    """Return one device without values that are no numbers; itself where there are none."""
    wrong = {
        name: None
        for name in _NAMES[type(seen)]
        if isinstance(value := getattr(seen, name), float) and not math.isfinite(value)
    }
    return replace(seen, **wrong) if wrong else seen  # type: ignore[arg-type]


def _clean_gpu(gpu: GpuActivity) -> GpuActivity:
    """Return a GPU likewise, and without shares of time that are no numbers."""
    if any(not math.isfinite(share) for share in gpu.throttled.values()):
        known = {reason: share for reason, share in gpu.throttled.items() if math.isfinite(share)}
        gpu = replace(gpu, throttled=known)
    return _clean_device(gpu)


_NAMES = {kind: tuple(item.name for item in fields(kind)) for kind in (GpuActivity, PortActivity, HostActivity)}


MIN_SHARE = 0.02
"""Least part of the measured step that a cause must take to be named [ratio]."""
MIN_CONFIDENCE = 0.4
_MAX_LOST = 0.9
_ROUNDING = 1e-9


def compute_losses(seen: Observation) -> Losses:
    """Return measured against predicted, and where the difference goes.

    With too few steps there is no gap and no finding; without a prediction the gap is what evidence explains.
    """
    seen = drop_non_finite(seen)
    predicted, steps = seen.prediction, compute_step_times(seen)
    if steps is None:
        return Losses(
            expected_mfu=None if predicted is None else predicted.mfu,
            measured_mfu=seen.mfu,
            expected_step_s=None if predicted is None else predicted.step_s,
        )
    situation = build_situation(seen, steps)
    suspicions = [suspicion for cause in CAUSES if (suspicion := cause(situation)) is not None]
    credible = [each for each in _share_waits(suspicions) if _is_worth_naming(each, steps.mean_s)]
    return _split_gap(predicted, steps, credible, seen.mfu)


def _is_worth_naming(suspicion: Suspicion, mean_s: float) -> bool:
    return suspicion.seconds >= MIN_SHARE * mean_s and suspicion.confidence >= MIN_CONFIDENCE


def _share_waits(suspicions: Sequence[Suspicion]) -> list[Suspicion]:
    """Return the same with fair parts of the one wait for those causes that all slow the slowest GPU.

    Together they take what the worst takes. Shapley's values of that maximum: the part up to the least is shared by
    all, the next part by the others, and so on (Littlechild and Owen 1973, the airport game).
    """
    waits = sorted((each for each in suspicions if each.is_slowest), key=lambda each: each.seconds)
    shared: list[Suspicion] = []
    paid = before = 0.0
    for number, each in enumerate(waits):
        paid += (each.seconds - before) / (len(waits) - number)
        before = each.seconds
        shared.append(replace(each, seconds=paid))
    return [*(each for each in suspicions if not each.is_slowest), *shared]


def _split_gap(
    predicted: Prediction | None, steps: StepTimes, suspicions: Sequence[Suspicion], mfu: float | None
) -> Losses:
    """Return the parts of the gap: what was measured, what another plan would save, and the rest."""
    mean_s = steps.mean_s
    measured = [each for each in suspicions if not each.is_predicted]
    explained_s = sum(each.seconds for each in measured)
    if explained_s > _MAX_LOST * mean_s:
        measured = [replace(each, seconds=each.seconds * _MAX_LOST * mean_s / explained_s) for each in measured]
        explained_s = _MAX_LOST * mean_s
    beyond_s = max(mean_s - predicted.step_s, 0.0) if predicted is not None else 0.0
    lost_s = max(explained_s, beyond_s)
    planned: list[Suspicion] = []
    if predicted is not None:
        pace = (mean_s - lost_s) / predicted.step_s
        planned = [replace(each, seconds=each.seconds * pace) for each in suspicions if each.is_predicted]
    reachable_s = mean_s - lost_s - sum(each.seconds for each in planned)
    is_within_error = predicted is None or mean_s <= predicted.high_s
    parts = [_build_finding(each, mean_s) for each in (*measured, *planned)]
    rest = lost_s - explained_s
    if rest > _ROUNDING * mean_s:
        parts.append(_build_unknown(rest / mean_s, is_within_error=is_within_error))
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


def _build_finding(suspicion: Suspicion, mean_s: float) -> Finding:
    return Finding(
        cause=suspicion.cause,
        share=suspicion.seconds / mean_s,
        confidence=suspicion.confidence,
        where=suspicion.where,
        text=suspicion.text,
        numbers={**suspicion.numbers, "lost_s": suspicion.seconds},
    )


def _build_unknown(share: float, *, is_within_error: bool) -> Finding:
    """Return the rest; within the prediction's own error it has no cause."""
    text = (
        "within the error of the prediction: nothing to blame"
        if is_within_error
        else "beyond the error of the prediction, and nothing that is observed explains it"
    )
    return Finding(cause=Cause.UNKNOWN, share=share, confidence=0.0, text=text)
