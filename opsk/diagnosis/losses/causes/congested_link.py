"""Estimates what a port that waits for credit, or runs below its rate, adds to exposed communication."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from opsk.diagnosis.losses.observation import PortActivity
from opsk.diagnosis.losses.robust import MIN_PEERS, compute_limit, compute_sigma
from opsk.diagnosis.losses.situation import Situation, Suspicion
from opsk.diagnosis.losses.values import Cause

_USUAL_CONGESTION = 0.1
"""Congestion of ports in a busy and healthy fabric [ratio]."""
_NOTICED_CONGESTION = 0.15
_SLOW_RATE = 0.97
_MIN_SPREAD = 0.01
_NETWORK_SHARE = 0.15
"""Part of a step in which the network is exposed, without a prediction [ratio]."""


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
