"""Which values are numbers at all? Sources that write NaN for "not known" are taken to mean just that."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import TypeVar

from opsk.planner.losses.observation import GpuActivity, HostActivity, Observation, PortActivity, Prediction

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
