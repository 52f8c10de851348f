"""Estimates the time that GPUs wait for input: all idle at once while their hosts lack processors or storage.

A GPU that waits for another GPU is busy with a collective; one that waits for its input runs no kernel at all. So only
the idle time that all GPUs share counts, without that of checkpoints and other pauses: where one GPU is busier than
all others, these wait for it. One starved node makes the others wait in collectives. Both cases are stragglers.
"""

from __future__ import annotations

from statistics import median

from opsk.diagnosis.losses.observation import HostActivity
from opsk.diagnosis.losses.robust import find_outliers
from opsk.diagnosis.losses.situation import Situation, Suspicion, group_by_node
from opsk.diagnosis.losses.step_times import StepTimes
from opsk.diagnosis.losses.values import Cause

_USUAL_IDLE = 0.03
"""Time without a kernel between kernels and steps of healthy jobs [ratio]."""
_NOTICED = 0.03
_FEW_STALLS = 3
_STARVED = {"cpu_busy": 0.92, "iowait": 0.08, "cpu_stalled": 0.25, "io_stalled": 0.1, "memory_stalled": 0.1}
"""From which share of time on a host is short of something."""
_NAMES = {
    "cpu_busy": "processors busy",
    "iowait": "processors wait for storage",
    "cpu_stalled": "tasks wait for a processor",
    "io_stalled": "tasks wait for storage",
    "memory_stalled": "tasks wait for memory",
}


def find_data_loading(situation: Situation) -> Suspicion | None:
    """Return the time lost to waiting for input; none without evidence on hosts that are monitored."""
    idle = _compute_idle(situation)
    what, share = _find_starved(situation.seen.hosts)
    if situation.seen.hosts and not what:
        return None
    mean_s = situation.steps.mean_s
    stalled_s = situation.steps.stalled_s if what else 0.0
    seconds = max(idle - _USUAL_IDLE, 0.0) * mean_s + stalled_s
    if idle < _USUAL_IDLE + _NOTICED and stalled_s < _NOTICED * mean_s:
        return None
    why = f"while on their hosts {_NAMES[what]} for {share:.0%} of the time" if what else "nobody watches the hosts"
    return Suspicion(
        cause=Cause.DATA_LOADING,
        seconds=seconds,
        confidence=_confidence(idle, situation.steps.stalls, is_starved=bool(what)),
        where="",
        text=_format_evidence(situation.steps, idle, stalled_s) + (" " if what else "; ") + why,
        numbers={
            "idle_ratio": idle,
            "stalled_s": stalled_s,
            "long_steps": float(situation.steps.stalls),
            **({f"{what}_ratio": share} if what else {}),
        },
    )


def _confidence(idle: float, stalls: int, *, is_starved: bool) -> float:
    """Return how sure this is [ratio]: a long step or two may have waited for anything."""
    if not is_starved:
        return 0.5
    return 0.9 if idle >= _USUAL_IDLE + _NOTICED or stalls >= _FEW_STALLS else 0.6


def _format_evidence(steps: StepTimes, idle: float, stalled_s: float) -> str:
    """Format the evidence: time without work, occasional long steps, or both."""
    parts = []
    if idle >= _USUAL_IDLE + _NOTICED:
        parts.append(f"GPUs stand without work for {idle:.0%} of the time")
    if stalled_s >= _NOTICED * steps.mean_s:
        long = "step is" if steps.stalls == 1 else "steps at no regular distance are"
        parts.append(f"{steps.stalls} {long} long, which takes {stalled_s / steps.mean_s:.0%} of the time")
    return ", ".join(parts)


def _compute_idle(situation: Situation) -> float:
    """Return the share of time in which nearly no GPU has a kernel, beyond that of pauses between steps."""
    known = situation.values(lambda gpu: gpu.busy)
    if not known:
        return 0.0
    steps = situation.steps
    busier = find_outliers(situation.group_peers(known), high=True, minimum=_NOTICED)
    usual = median(median(values) for values in group_by_node(known).values())
    idle = 1.0 - max((known[key] for key in busier), default=usual)
    paused = (steps.checkpoint_s + steps.validation_s + steps.stalled_s) / steps.mean_s
    predicted = situation.seen.prediction
    launching = predicted.components.get("overhead", 0.0) / predicted.step_s if predicted is not None else 0.0
    return max(idle - paused - launching, 0.0)


def _find_starved(hosts: tuple[HostActivity, ...]) -> tuple[str, float]:
    """Return the resource that most hosts lack most, and for which share of time; empty where there is none."""
    best, worst = "", 0.0
    value = 0.0
    for name, limit in _STARVED.items():
        known = [share for host in hosts if (share := getattr(host, name)) is not None]
        usual = median(known) if known else 0.0
        if usual >= limit and usual / limit > worst:
            best, worst, value = name, usual / limit, usual
    return best, value
