"""Computes the congestion of a port from ``port_xmit_wait`` between two samples.

``port_xmit_wait`` counts ticks in which a port had data to send and sent none: no credit from the other end, or another
lane's turn (IBA 16.1.3.5). A tick is the time that the link takes for a number of bytes, which the device chooses.
ibdiagnet multiplies ticks by that number and calls the product lost bytes; the congestion here is the share of lost
bytes in all bytes that the port could have moved while it had any to move:

    lost / (lost + sent),  lost = ticks x bytes a tick

NVIDIA states 8 bytes a tick for Quantum switches, 32 bytes a tick and lane for Switch-IB, and nothing for HCAs
("Congestion Assessment on InfiniBand Links", ibdiagnet user manual 2.13, read 2026-11). IBA's own tick is one byte a
lane: on a link of 4 lanes one data word, 4 bytes, which is the default here unless the site knows better
(``perfquery -c LID PORT`` shows the tick; bytes are tick + 1). Whatever the tick is: 0 is no congestion, more is worse,
and ports of one kind compare. Between kinds of device, or as a share of time, only a known tick makes it comparable.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from opsk.telemetry.network.infiniband import PortSample

WORD_TICK_BYTES = 4
"""Bytes a tick where the site does not know it: IBA's shortest tick on a link of 4 lanes."""
_MIN_INTERVAL_S = 1.0

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """The two counters of a port at one moment, and the ratio over the interval that ended then."""

    at: float
    wait_ticks: int
    sent_bytes: int
    ratio: float | None = None


class CongestionMeter:
    """Keeps the last sample of each port.

    Parameters
    ----------
    tick_bytes
        Bytes that the link moves in one tick of ``port_xmit_wait`` [bytes].
    clock
        Monotonic seconds.
    """

    def __init__(self, tick_bytes: float = WORD_TICK_BYTES, clock: Clock = time.monotonic) -> None:
        self._tick_bytes = tick_bytes
        self._clock = clock
        self._last: dict[tuple[str, int], _Sample] = {}

    def ratio(self, port: PortSample) -> float | None:
        """Return the congestion of a port since the previous sample, from 0 to 1.

        ``None`` at the first sample, after a counter was reset, where a counter is missing or stands at its largest
        value, and on Ethernet, which has no credits. A port that had nothing to send was not congested: 0. Two samples
        within a second, of two scrapers, are one: the second gets the result of the first.
        """
        key = (port.device, port.port)
        sample = self._take_sample(port)
        if sample is None:
            self._last.pop(key, None)
            return None
        last = self._last.get(key)
        if last is not None and sample.at - last.at < _MIN_INTERVAL_S:
            return last.ratio
        ratio = None if last is None else self._compute_ratio(last, sample)
        self._last[key] = _Sample(at=sample.at, wait_ticks=sample.wait_ticks, sent_bytes=sample.sent_bytes, ratio=ratio)
        return ratio

    def forget_others(self, seen: set[tuple[str, int]]) -> None:
        """Drop the samples of ports that are gone: one that comes back starts again."""
        for key in self._last.keys() - seen:
            del self._last[key]

    def _take_sample(self, port: PortSample) -> _Sample | None:
        """Return the counters of a port; ``None`` where they are not usable."""
        wait, sent = port.counters.get("port_xmit_wait"), port.counters.get("port_xmit_data")
        stuck = "counters/port_xmit_wait" in port.saturated or "counters/port_xmit_data" in port.saturated
        if wait is None or sent is None or stuck or port.link_layer == "Ethernet":
            return None
        return _Sample(at=self._clock(), wait_ticks=wait, sent_bytes=sent)

    def _compute_ratio(self, last: _Sample, sample: _Sample) -> float | None:
        """Return the ratio of an interval; ``None`` when a counter went back."""
        lost = (sample.wait_ticks - last.wait_ticks) * self._tick_bytes
        sent = sample.sent_bytes - last.sent_bytes
        if lost < 0 or sent < 0:
            return None
        return lost / (lost + sent) if lost else 0.0
