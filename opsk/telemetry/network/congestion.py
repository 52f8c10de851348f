"""How much of the time that a port had data to send was it not allowed to? From ``port_xmit_wait``, between two looks.

``port_xmit_wait`` counts ticks in which a port had data to send and sent none: no credit from the other end, or another
lane's turn (IBA 16.1.3.5). A tick is as long as the link takes for so many bytes; how many is the device's choice.
ibdiagnet multiplies ticks by that number and calls them lost bytes; here the share of lost bytes in all bytes that the
port could have moved while it had any to move is the congestion:

    lost / (lost + sent),  lost = ticks x bytes a tick

NVIDIA states 8 bytes a tick for Quantum switches, 32 bytes a tick and lane for Switch-IB, and nothing for HCAs
("Congestion Assessment on InfiniBand Links", ibdiagnet user manual 2.13, read 2026-11). IBA's own tick is one byte a
lane: on a link of 4 lanes one data word, 4 bytes, and that is what is taken here unless the site knows better
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
_SHORTEST_INTERVAL_S = 1.0

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """The two counters of a port at one moment, and the ratio over the interval that ended then."""

    at: float
    wait_ticks: int
    sent_bytes: int
    ratio: float | None = None


class CongestionMeter:
    """Remembers the last look at each port.

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
        self._last: dict[tuple[str, int], _Look] = {}

    def ratio(self, port: PortSample) -> float | None:
        """Return the congestion of a port since the look before, from 0 to 1.

        ``None`` at the first look, after a counter was reset, where a counter is missing or stands at its largest
        value, and on Ethernet, which has no credits. A port that had nothing to send was not congested: 0. Two looks
        within a second, of two scrapers, are one: the second is told what the first was.
        """
        key = (port.device, port.port)
        look = self._look(port)
        if look is None:
            self._last.pop(key, None)
            return None
        last = self._last.get(key)
        if last is not None and look.at - last.at < _SHORTEST_INTERVAL_S:
            return last.ratio
        ratio = None if last is None else self._between(last, look)
        self._last[key] = _Look(at=look.at, wait_ticks=look.wait_ticks, sent_bytes=look.sent_bytes, ratio=ratio)
        return ratio

    def forget_others(self, seen: set[tuple[str, int]]) -> None:
        """Drop what is remembered of ports that are gone: one that comes back begins anew."""
        for key in self._last.keys() - seen:
            del self._last[key]

    def _look(self, port: PortSample) -> _Look | None:
        """Return the counters of a port that say something; ``None`` where they cannot."""
        wait, sent = port.counters.get("port_xmit_wait"), port.counters.get("port_xmit_data")
        stuck = "counters/port_xmit_wait" in port.saturated or "counters/port_xmit_data" in port.saturated
        if wait is None or sent is None or stuck or port.link_layer == "Ethernet":
            return None
        return _Look(at=self._clock(), wait_ticks=wait, sent_bytes=sent)

    def _between(self, last: _Look, look: _Look) -> float | None:
        """Return the ratio of an interval; ``None`` when a counter went back."""
        lost = (look.wait_ticks - last.wait_ticks) * self._tick_bytes
        sent = look.sent_bytes - last.sent_bytes
        if lost < 0 or sent < 0:
            return None
        return lost / (lost + sent) if lost else 0.0
