"""Is one GPU or node slower than its equals, so that all wait for it?

All ranks of a synchronous job end a step together, so step times of ranks tell nothing, and the direction of the rest
is easily got wrong. Who waits for others sits in a collective's kernel: *busy*, but with few multiprocessors and no
tensor cores at work. So the slow one is the GPU

- whose own computation takes longer (where a framework's timers tell),
- whose clock is lower than its equals', for no reason that is told as heat or power,
- whose multiprocessors and tensor cores are active for *more* of the time: it never waits,
- that is busier than all of its equals, where these wait for a collective without polling,
- or, where its host keeps it waiting, that is *less* busy: its equals spin in a collective, it has no kernel at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from opsk.diagnosis.losses.clocks import hot, low_clocks, short_of_power
from opsk.diagnosis.losses.robust import odd_groups, outliers
from opsk.diagnosis.losses.situation import Gpu, Situation, Suspicion, by_node, place_of
from opsk.diagnosis.losses.values import Cause

_LEAST, _LEAST_OF_ACTIVITY = 0.03, 0.04
_LEAST_CLOCK, _LEAST_OF_NODES = 0.03, 0.04
_HEAT = 0.03
_ALIKE = 0.6
"""GPUs that lose at least this part of what the slowest one loses are named with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sign:
    """One kind of evidence: how much longer than its equals' a GPU's step is by it, and how sure that is."""

    what: str
    name: str
    confidence: float
    excess: Mapping[Gpu, float]


def straggler(situation: Situation) -> Suspicion | None:
    """Return what waiting for the slowest takes; GPUs that heat or power holds down are left to those causes."""
    known = {*hot(situation, _HEAT), *short_of_power(situation)}
    signs = [_without(sign, known) for sign in _signs(situation)]
    signs = [sign for sign in signs if sign.excess]
    if not signs:
        return None
    seconds = {
        key: max(situation.slowed_s(sign.excess[key]) for sign in signs if key in sign.excess)
        for key in {key for sign in signs for key in sign.excess}
    }
    worst = max(seconds, key=lambda key: (seconds[key], key))
    alike = {key: value for key, value in seconds.items() if value >= _ALIKE * seconds[worst]}
    telling = [sign for sign in signs if worst in sign.excess]
    confidence = 1.0
    for sign in telling:
        confidence *= 1.0 - sign.confidence
    said = max(telling, key=lambda sign: sign.confidence)
    return Suspicion(
        cause=Cause.STRAGGLER,
        seconds=seconds[worst],
        confidence=min(1.0 - confidence, 0.97),
        where=place_of(situation, alike),
        text=f"all wait for it: {said.what.format(said.excess[worst])}",
        numbers={
            "gpus": float(len(alike)),
            **{f"{sign.name}_excess_ratio": sign.excess[worst] for sign in telling},
        },
        is_slowest=True,
    )


def _signs(situation: Situation) -> list[_Sign]:
    """Return all evidence there is; timers of the ranks beat what is told from activity."""
    computed = _odd(situation, situation.values(lambda gpu: gpu.compute_s), high=True, least=_LEAST)
    clocks = {**_odd(situation, situation.values(lambda gpu: gpu.clock), high=False, least=_LEAST_CLOCK)}
    clocks |= low_clocks(situation)
    idle = _idle(situation)
    signs = [
        _Sign(
            what="its own computation takes {:.0%} longer than that of its equals",
            name="compute",
            confidence=0.9,
            excess=computed,
        ),
        _Sign(
            what="its clock is lower, for {:.0%} more time",
            name="clock",
            confidence=0.8,
            excess={key: below / (1.0 - below) for key, below in clocks.items() if below < 1.0},
        ),
        _Sign(
            what="it stands without a kernel while others wait, for {:.0%} more time",
            name="idle",
            confidence=0.75,
            excess=idle,
        ),
    ]
    if not computed:
        signs.append(
            _Sign(
                what="it is busy while its equals wait, for {:.0%} more time",
                name="busy",
                confidence=0.6,
                excess={} if idle else _busier(situation),
            )
        )
        active = _odd(situation, situation.values(lambda gpu: gpu.sm_active), high=True, least=_LEAST_OF_ACTIVITY)
        tensor = _odd(situation, situation.values(lambda gpu: gpu.tensor_active), high=True, least=_LEAST_OF_ACTIVITY)
        signs.append(
            _Sign(
                what="it is active for {:.0%} longer than its equals, who wait",
                name="active",
                confidence=0.7,
                excess=active,
            )
        )
        signs.append(
            _Sign(
                what="its tensor cores are active for {:.0%} longer than its equals'",
                name="tensor",
                confidence=0.6,
                excess=tensor,
            )
        )
    return signs


def _odd(situation: Situation, values: Mapping[Gpu, float], *, high: bool, least: float) -> dict[Gpu, float]:
    """Return the odd GPUs among those with the same work, and all GPUs of nodes that are odd as a whole."""
    groups = situation.of_equals(values)
    found = outliers(groups, high=high, least=least)
    odd = odd_groups([by_node(group) for group in groups], high=high, least=max(least, _LEAST_OF_NODES))
    found |= {key: max(odd[key[0]], found.get(key, 0.0)) for key in values if key[0] in odd}
    return found if 2 * len(found) <= len(values) else {}


def _idle(situation: Situation) -> dict[Gpu, float]:
    """Return how much longer its host makes a GPU's work: the time without a kernel that its equals do not have."""
    values = situation.values(lambda gpu: gpu.busy)
    below = _odd(situation, values, high=False, least=_LEAST)
    share = situation.computing_s / situation.steps.typical_s
    found: dict[Gpu, float] = {}
    for key, part in below.items():
        lost = min(part, 0.9 * share)
        found[key] = lost / (share - lost) if share > lost else 0.0
    return found


def _busier(situation: Situation) -> dict[Gpu, float]:
    """Return how much longer a GPU works than equals that wait without a kernel.

    Collectives of GPUs poll, as a rule: where somebody could as well be kept waiting by his host, that is taken.
    """
    values = situation.values(lambda gpu: gpu.busy)
    above = _odd(situation, values, high=True, least=_LEAST_OF_ACTIVITY)
    if not above:
        return {}
    share = situation.computing_s / situation.steps.typical_s
    usual = median(values.values())
    return {key: part * usual / share for key, part in above.items()}


def _without(sign: _Sign, known: set[Gpu]) -> _Sign:
    """Return the evidence on GPUs that nothing else explains."""
    excess = {key: value for key, value in sign.excess.items() if key not in known}
    return _Sign(what=sign.what, name=sign.name, confidence=sign.confidence, excess=excess)
