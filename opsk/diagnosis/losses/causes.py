"""Detects the causes of lost time: one function each, listed in `CAUSES`.

All ranks of a synchronous job end a step together, so step times of ranks reveal nothing, and the direction of the rest
is easily reversed. A GPU that waits for others runs a collective's kernel: *busy*, but with few multiprocessors and no
tensor cores at work. So a straggler is the GPU

- whose own computation takes longer (where a framework's timers report it),
- whose clock is lower than its peers', for no reason that is reported as heat or power,
- whose multiprocessors and tensor cores are active for *more* of the time: it never waits,
- that is busier than all of its peers, where these wait for a collective without polling,
- or, where its host keeps it waiting, that is *less* busy: its peers spin in a collective, it runs no kernel at all.

A GPU that waits for its input runs no kernel at all. So only the idle time that all GPUs share counts as data loading,
without that of checkpoints and other pauses; one starved node is a straggler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from opsk.diagnosis.losses.observation import GpuActivity, HostActivity, OtherPlan, PortActivity, Prediction
from opsk.diagnosis.losses.situation import (
    CLOCK_PER_POWER,
    USUAL_CLOCK,
    Gpu,
    Situation,
    Suspicion,
    compute_slowness,
    find_hot,
    find_low_clocks,
    find_power_limited,
    format_place,
    group_by_node,
    is_brake,
    is_hot,
    median_clock,
    power_limit_ratio,
    throttled_share,
)
from opsk.diagnosis.losses.step_times import (
    MIN_PEERS,
    StepTimes,
    compute_limit,
    compute_sigma,
    find_odd_groups,
    find_outliers,
)
from opsk.diagnosis.losses.values import Cause

SURE_TO_FIT = 0.9
_NOTICED_RECOMPUTE = 0.03
_SURE = 5
"""From this many regular long steps on, they are hardly chance."""
_USUAL_IDLE = 0.03
"""Time without a kernel between kernels and steps of healthy jobs [ratio]."""
_NOTICED_IDLE = 0.03
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
_USUAL_CONGESTION = 0.1
"""Congestion of ports in a busy and healthy fabric [ratio]."""
_NOTICED_CONGESTION = 0.15
_SLOW_RATE = 0.97
_MIN_SPREAD = 0.01
_NETWORK_SHARE = 0.15
"""Part of a step in which the network is exposed, without a prediction [ratio]."""
_NOTICED_POWER_THROTTLING = 0.03
_NOTICED_THROTTLING = 0.03
_MIN_EXCESS, _MIN_ACTIVITY = 0.03, 0.04
_MIN_CLOCK, _MIN_NODE_EXCESS = 0.03, 0.04
_HEAT = 0.03
_SIMILAR = 0.6
"""GPUs that lose at least this part of what the slowest one loses are named with it."""


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
        and other.step_s < (1.0 - _NOTICED_RECOMPUTE) * predicted.step_s
    ]
    return min(fitting, key=lambda other: (other.step_s, other.what), default=None)


def find_wrong_plan(situation: Situation) -> Suspicion | None:
    """Return the time lost to the plan against the best other one, beyond the gain of less recomputation alone."""
    predicted = situation.seen.prediction
    if predicted is None:
        return None
    lean = find_leaner_plan(predicted)
    own_s = predicted.step_s if lean is None else lean.step_s
    error = predicted.step_s / predicted.low_s if 0 < predicted.low_s < predicted.step_s else 1.0
    error = min(error, 1.0 + predicted.plan_error) if predicted.plan_error > 0 else error
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


def find_data_loading(situation: Situation) -> Suspicion | None:
    """Return the time lost to waiting for input; none without evidence on hosts that are monitored."""
    idle = _compute_idle(situation)
    what, share = _find_starved(situation.seen.hosts)
    if situation.seen.hosts and not what:
        return None
    mean_s = situation.steps.mean_s
    stalled_s = situation.steps.stalled_s if what else 0.0
    seconds = max(idle - _USUAL_IDLE, 0.0) * mean_s + stalled_s
    if idle < _USUAL_IDLE + _NOTICED_IDLE and stalled_s < _NOTICED_IDLE * mean_s:
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
    return 0.9 if idle >= _USUAL_IDLE + _NOTICED_IDLE or stalls >= _FEW_STALLS else 0.6


def _format_evidence(steps: StepTimes, idle: float, stalled_s: float) -> str:
    """Format the evidence: time without work, occasional long steps, or both."""
    parts = []
    if idle >= _USUAL_IDLE + _NOTICED_IDLE:
        parts.append(f"GPUs stand without work for {idle:.0%} of the time")
    if stalled_s >= _NOTICED_IDLE * steps.mean_s:
        long = "step is" if steps.stalls == 1 else "steps at no regular distance are"
        parts.append(f"{steps.stalls} {long} long, which takes {stalled_s / steps.mean_s:.0%} of the time")
    return ", ".join(parts)


def _compute_idle(situation: Situation) -> float:
    """Return the share of time in which nearly no GPU has a kernel, beyond that of pauses between steps."""
    known = situation.values(lambda gpu: gpu.busy)
    if not known:
        return 0.0
    steps = situation.steps
    busier = find_outliers(situation.group_peers(known), high=True, minimum=_NOTICED_IDLE)
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


def find_congested_link(situation: Situation) -> Suspicion | None:
    """Return the time that the slowest port costs: collectives go at its pace, and hidden communication is exposed."""
    ports = sorted(situation.seen.ports, key=lambda port: (port.node, port.device))
    usual = _usual_congestion(ports)
    odd = [(pace, port) for port in ports if (pace := _compute_pace(port, usual)) is not None]
    if not odd:
        return None
    slowest, worst = min(odd, key=lambda entry: (entry[0], entry[1].node, entry[1].device))
    is_slow = worst.rate is not None and worst.rate < _SLOW_RATE
    seconds, is_known = _compute_added_s(situation, slowest)
    congestion = worst.congestion or 0.0
    what = (
        f"runs at {worst.rate:.0%} of its rate"
        if is_slow
        else f"waits for credit, {congestion:.0%} of what it could send"
    )
    return Suspicion(
        cause=Cause.CONGESTED_LINK,
        seconds=seconds,
        confidence=(0.9 if is_slow else 0.75) * (1.0 if is_known else 0.6),
        where=_format_where([port for _, port in odd], ports, worst),
        text=f"{what}: the network at {slowest:.0%} of its pace",
        numbers={
            "pace_ratio": slowest,
            "congestion_ratio": congestion,
            "usual_congestion_ratio": usual,
            "ports": float(len(odd)),
            **({} if worst.rate is None else {"rate_ratio": worst.rate}),
            **({} if worst.errors is None else {"errors": worst.errors}),
        },
    )


def _usual_congestion(ports: Sequence[PortActivity]) -> float:
    """Return the congestion that is nothing to speak of here [ratio]."""
    known = [port.congestion for port in ports if port.congestion is not None]
    if len(known) < MIN_PEERS:
        return _USUAL_CONGESTION
    noise = max(compute_sigma(known), _MIN_SPREAD)
    return min(median(known), _USUAL_CONGESTION) + compute_limit(len(known)) * min(noise, 2.0 * _MIN_SPREAD)


def _compute_pace(port: PortActivity, usual: float) -> float | None:
    """Return at which part of its pace a port that is odd sends; a port that is down is another matter."""
    pace = 1.0
    if port.rate is not None and 0 < port.rate < _SLOW_RATE:
        pace = port.rate
    if port.congestion is not None and port.congestion > max(usual, _NOTICED_CONGESTION):
        pace *= max((1.0 - port.congestion) / (1.0 - min(usual, _USUAL_CONGESTION)), 0.02)
    return pace if pace < 1.0 else None


def _compute_added_s(situation: Situation, pace: float) -> tuple[float, bool]:
    """Return what communication adds to a step at a part of its pace [s], and whether it comes from a prediction."""
    typical, predicted = situation.steps.typical_s, situation.seen.prediction
    if predicted is None or not predicted.network:
        return min(_NETWORK_SHARE * typical * (1.0 / pace - 1.0), 0.5 * typical), False
    added = sum(
        max(axis.total_s / pace - axis.window_s, 0.0) - max(axis.total_s - axis.window_s, 0.0)
        for axis in predicted.network.values()
    )
    return min(added, 0.9 * typical), True


def _format_where(odd: Sequence[PortActivity], ports: Sequence[PortActivity], worst: PortActivity) -> str:
    """Return where the odd ports meet: one port, one leaf, one node, or how many."""
    if len(odd) == 1:
        return f"{worst.node} {worst.device}"
    leaves, everywhere = Counter(port.leaf for port in odd), Counter(port.leaf for port in ports)
    leaf, count = leaves.most_common(1)[0]
    if leaf and 10 * count >= 9 * len(odd) and 2 * count > everywhere[leaf]:
        return f"leaf {leaf}"
    if len({port.node for port in odd}) == 1:
        return worst.node
    return f"{worst.node} {worst.device} and {len(odd) - 1} other ports"


def find_power_cap(situation: Situation) -> Suspicion | None:
    """Return the time lost to lack of power; GPUs that heat slows down belong to that cause."""
    held = find_power_limited(situation)
    for key in find_hot(situation, _NOTICED_POWER_THROTTLING):
        held.pop(key, None)
    slow = compute_slowness(situation, held, _clock_at_full_power)
    if not slow:
        return None
    worst = max(slow, key=lambda key: (slow[key], key))
    gpu, share = situation.gpus[worst], held[worst]
    limit, brakes = power_limit_ratio(gpu), throttled_share(gpu, is_brake) > 0
    why = "the power supply brakes" if brakes else "its power limit holds its clock down"
    if limit < 1.0 and not brakes:
        why = (
            f"a power limit of {gpu.power_limit_w:.0f} W instead of {gpu.power_default_limit_w:.0f} W holds clocks down"
        )
    return Suspicion(
        cause=Cause.POWER_CAP,
        seconds=situation.slowed_s(slow[worst]),
        confidence=0.9 if brakes or limit < 1.0 else 0.7,
        where=format_place(situation, slow),
        text=f"{why} for {share:.0%} of the time: {slow[worst]:.0%} more time for its work",
        numbers={
            "throttled_ratio": share,
            "clock_ratio": median_clock(situation, slow),
            "slower_ratio": slow[worst],
            "power_limit_ratio": limit,
            "gpus": float(len(slow)),
        },
        is_slowest=True,
    )


def _clock_at_full_power(gpu: GpuActivity) -> float:
    """Return the clock that a GPU would have at the limit that it starts with [ratio of the largest]."""
    clock = gpu.clock or 0.0
    return float(min(clock * power_limit_ratio(gpu) ** -CLOCK_PER_POWER, max(clock, 1.0)))


def find_thermal_cap(situation: Situation) -> Suspicion | None:
    """Return the time lost to heat, which never slows down a healthy node."""
    held = find_hot(situation, _NOTICED_THROTTLING)
    slow = compute_slowness(situation, held, lambda gpu: max(USUAL_CLOCK, gpu.clock or 0.0))
    if not slow:
        return None
    worst = max(slow, key=lambda key: (slow[key], key))
    gpu, share = situation.gpus[worst], held[worst]
    degrees = "" if gpu.temperature_c is None else f" at {gpu.temperature_c:.0f} °C"
    return Suspicion(
        cause=Cause.THERMAL_CAP,
        seconds=situation.slowed_s(slow[worst]),
        confidence=min(0.7 + 0.2 * min(2.0 * share, 1.0) + 0.05 * is_hot(gpu), 0.95),
        where=format_place(situation, slow),
        text=f"heat holds clocks down for {share:.0%} of the time{degrees}: {slow[worst]:.0%} more time for its work",
        numbers={
            "throttled_ratio": share,
            "clock_ratio": median_clock(situation, slow),
            "slower_ratio": slow[worst],
            "gpus": float(len(slow)),
            **({} if gpu.temperature_c is None else {"temperature_c": gpu.temperature_c}),
        },
        is_slowest=True,
    )


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


CAUSES: tuple[Callable[[Situation], Suspicion | None], ...] = (
    find_straggler,
    find_thermal_cap,
    find_power_cap,
    find_congested_link,
    find_data_loading,
    find_checkpointing,
    find_recompute,
    find_wrong_plan,
)
