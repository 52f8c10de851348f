"""Finds the GPU or node that is slower than its peers, so that all wait for it.

All ranks of a synchronous job end a step together, so step times of ranks reveal nothing, and the direction of the rest
is easily reversed. A GPU that waits for others runs a collective's kernel: *busy*, but with few multiprocessors and no
tensor cores at work. So the slow one is the GPU

- whose own computation takes longer (where a framework's timers report it),
- whose clock is lower than its peers', for no reason that is reported as heat or power,
- whose multiprocessors and tensor cores are active for *more* of the time: it never waits,
- that is busier than all of its peers, where these wait for a collective without polling,
- or, where its host keeps it waiting, that is *less* busy: its peers spin in a collective, it runs no kernel at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from opsk.diagnosis.losses.clocks import find_hot, find_low_clocks, find_power_limited
from opsk.diagnosis.losses.robust import find_odd_groups, find_outliers
from opsk.diagnosis.losses.situation import Gpu, Situation, Suspicion, format_place, group_by_node
from opsk.diagnosis.losses.values import Cause

_MIN_EXCESS, _MIN_ACTIVITY = 0.03, 0.04
_MIN_CLOCK, _MIN_NODE_EXCESS = 0.03, 0.04
_HEAT = 0.03
_SIMILAR = 0.6
"""GPUs that lose at least this part of what the slowest one loses are named with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evidence:
    """One kind of evidence: how much longer than its equals' a GPU's step is by it, and how sure that is."""

    what: str
    name: str
    confidence: float
    excess: Mapping[Gpu, float]


def find_straggler(situation: Situation) -> Suspicion | None:
    """Return the time lost to the slowest GPU; GPUs that heat or power holds down belong to those causes."""
    known = {*find_hot(situation, _HEAT), *find_power_limited(situation)}
    evidence = [_exclude(item, known) for item in _collect_evidence(situation)]
    evidence = [item for item in evidence if item.excess]
    if not evidence:
        return None
    seconds = {
        key: max(situation.slowed_s(item.excess[key]) for item in evidence if key in item.excess)
        for key in {key for item in evidence for key in item.excess}
    }
    worst = max(seconds, key=lambda key: (seconds[key], key))
    similar = {key: value for key, value in seconds.items() if value >= _SIMILAR * seconds[worst]}
    supporting = [item for item in evidence if worst in item.excess]
    confidence = 1.0
    for item in supporting:
        confidence *= 1.0 - item.confidence
    strongest = max(supporting, key=lambda item: item.confidence)
    return Suspicion(
        cause=Cause.STRAGGLER,
        seconds=seconds[worst],
        confidence=min(1.0 - confidence, 0.97),
        where=format_place(situation, similar),
        text=f"all wait for it: {strongest.what.format(strongest.excess[worst])}",
        numbers={
            "gpus": float(len(similar)),
            **{f"{item.name}_excess_ratio": item.excess[worst] for item in supporting},
        },
        is_slowest=True,
    )


def _collect_evidence(situation: Situation) -> list[_Evidence]:
    """Return all evidence; timers of the ranks take precedence over activity."""
    computed = _find_outliers(situation, situation.values(lambda gpu: gpu.compute_s), high=True, minimum=_MIN_EXCESS)
    clocks = {**_find_outliers(situation, situation.values(lambda gpu: gpu.clock), high=False, minimum=_MIN_CLOCK)}
    clocks |= find_low_clocks(situation)
    idle = _compute_idle_excess(situation)
    evidence = [
        _Evidence(
            what="its own computation takes {:.0%} longer than that of its equals",
            name="compute",
            confidence=0.9,
            excess=computed,
        ),
        _Evidence(
            what="its clock is lower, for {:.0%} more time",
            name="clock",
            confidence=0.8,
            excess={key: below / (1.0 - below) for key, below in clocks.items() if below < 1.0},
        ),
        _Evidence(
            what="it stands without a kernel while others wait, for {:.0%} more time",
            name="idle",
            confidence=0.75,
            excess=idle,
        ),
    ]
    if not computed:
        evidence.append(
            _Evidence(
                what="it is busy while its equals wait, for {:.0%} more time",
                name="busy",
                confidence=0.6,
                excess={} if idle else _compute_busy_excess(situation),
            )
        )
        active = _find_outliers(
            situation, situation.values(lambda gpu: gpu.sm_active), high=True, minimum=_MIN_ACTIVITY
        )
        tensor = _find_outliers(
            situation, situation.values(lambda gpu: gpu.tensor_active), high=True, minimum=_MIN_ACTIVITY
        )
        evidence.append(
            _Evidence(
                what="it is active for {:.0%} longer than its equals, who wait",
                name="active",
                confidence=0.7,
                excess=active,
            )
        )
        evidence.append(
            _Evidence(
                what="its tensor cores are active for {:.0%} longer than its equals'",
                name="tensor",
                confidence=0.6,
                excess=tensor,
            )
        )
    return evidence


def _find_outliers(
    situation: Situation, values: Mapping[Gpu, float], *, high: bool, minimum: float
) -> dict[Gpu, float]:
    """Return the odd GPUs among those with the same work, and all GPUs of nodes that are odd as a whole."""
    groups = situation.group_peers(values)
    outliers = find_outliers(groups, high=high, minimum=minimum)
    odd = find_odd_groups([group_by_node(group) for group in groups], high=high, minimum=max(minimum, _MIN_NODE_EXCESS))
    outliers |= {key: max(odd[key[0]], outliers.get(key, 0.0)) for key in values if key[0] in odd}
    return outliers if 2 * len(outliers) <= len(values) else {}


def _compute_idle_excess(situation: Situation) -> dict[Gpu, float]:
    """Return how much longer its host makes a GPU's work: the time without a kernel that its equals do not have."""
    values = situation.values(lambda gpu: gpu.busy)
    below = _find_outliers(situation, values, high=False, minimum=_MIN_EXCESS)
    share = situation.computing_s / situation.steps.typical_s
    excess: dict[Gpu, float] = {}
    for key, part in below.items():
        lost = min(part, 0.9 * share)
        excess[key] = lost / (share - lost) if share > lost else 0.0
    return excess


def _compute_busy_excess(situation: Situation) -> dict[Gpu, float]:
    """Return how much longer a GPU works than equals that wait without a kernel.

    Collectives of GPUs poll, as a rule: where the host may as well be the reason, that takes precedence.
    """
    values = situation.values(lambda gpu: gpu.busy)
    above = _find_outliers(situation, values, high=True, minimum=_MIN_ACTIVITY)
    if not above:
        return {}
    share = situation.computing_s / situation.steps.typical_s
    usual = median(values.values())
    return {key: part * usual / share for key, part in above.items()}


def _exclude(item: _Evidence, known: set[Gpu]) -> _Evidence:
    """Return the evidence on GPUs that nothing else explains."""
    excess = {key: value for key, value in item.excess.items() if key not in known}
    return _Evidence(what=item.what, name=item.name, confidence=item.confidence, excess=excess)
