"""How much power does the node draw, and where does it go, of one and the same moment?

The node's controller takes a second to answer; the energy that processors used while it was asked, and the last reading
of the GPUs, stand beside its answer. Meant for a thread of its own (`opsk.telemetry.background`). Processors and the
sensors have theirs: a file that hangs there is waited for only so long, and never keeps the controller unasked.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from opsk.telemetry.background import Background
from opsk.telemetry.power.balance import Balance, GpuPowerTotal, cpu_joules, cpu_watts, node_watts
from opsk.telemetry.power.hwmon import HwmonPower, HwmonReading
from opsk.telemetry.power.ipmi import DcmiPower, NoControllerError
from opsk.telemetry.power.rapl import RaplZone

FRESH_S = 30.0
_PATIENCE_S = 0.5
_LEAST_SPAN_S = 0.2
"""RAPL counts every millisecond: over this span its power is good to one part in a hundred."""


class DcmiSource(Protocol):
    """Whatever can tell the power that the node's controller measures."""

    def read(self) -> tuple[DcmiPower, float]:
        """Return the power, and how old it is [s]; raises as `opsk.telemetry.power.ipmi.DcmiTool.read` does."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePower:
    """What was found out about a node at one moment.

    Parameters
    ----------
    dcmi
        What the controller says; ``None`` where there is none.
    dcmi_age_s
        How old that was when it was read [s].
    balance
        Node, processors and GPUs; ``None`` where one of the three is not known, or older than 30 s.
    """

    dcmi: DcmiPower | None = None
    dcmi_age_s: float = 0.0
    balance: Balance | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Energy:
    """Energy of the processors so far [J], and when it was read."""

    joules: float
    at: float


class NodePowerReader:
    """Asks the controller, and sets processors and GPUs beside its answer.

    Parameters
    ----------
    dcmi
        Reader of the controller.
    rapl, hwmon
        The processors' energy and the board's sensors, each read by its own thread.
    gpu_power
        Tells the power of all GPUs without asking them; ``None`` where nobody reads GPUs.
    patience_s
        How long each of the two is waited for [s].
    clock, sleep
        Monotonic seconds, the same as those of ``rapl``, and how to wait.
    """

    def __init__(
        self,
        dcmi: DcmiSource,
        rapl: Background[tuple[RaplZone, ...]],
        hwmon: Background[HwmonReading],
        gpu_power: Callable[[], GpuPowerTotal | None] | None = None,
        patience_s: float = _PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._dcmi = dcmi
        self._rapl = rapl
        self._hwmon = hwmon
        self._gpu_power = gpu_power
        self._patience_s = patience_s
        self._clock = clock
        self._sleep = sleep

    def read(self) -> NodePower:
        """Return the node's power.

        Raises
        ------
        NoControllerError
            Neither the controller nor the board's sensors tell it.
        TelemetryError
            There is a controller, and it does not answer.
        """
        before = self._energy()
        sensors = self._sensors()
        node_w = node_watts(sensors)
        try:
            dcmi, age_s = self._dcmi.read()
        except NoControllerError:
            if node_w is None:
                raise
            dcmi, age_s = None, 0.0
        if dcmi is not None:
            node_w = dcmi.watts if age_s <= FRESH_S else None
        return NodePower(dcmi=dcmi, dcmi_age_s=age_s, balance=self._balance(node_w, before, sensors))

    def _balance(self, node_w: float | None, before: _Energy | None, sensors: tuple[HwmonPower, ...]) -> Balance | None:
        """Return where the power goes, as far as all of it is known."""
        gpus = self._gpu_power() if self._gpu_power else None
        if node_w is None or gpus is None or gpus.age_s > FRESH_S:
            return None
        cpu_w = cpu_watts(sensors) if before is None else self._cpu_watts(before)
        return None if cpu_w is None else Balance(node_w=node_w, cpu_w=cpu_w, gpu_w=gpus.watts)

    def _cpu_watts(self, before: _Energy) -> float | None:
        """Return the mean power of the processors since then, over a span that their counters resolve."""
        short_s = _LEAST_SPAN_S - (self._clock() - before.at)
        if short_s > 0:
            self._sleep(short_s)
        after = self._energy()
        if after is None or after.at <= before.at:
            return None
        return (after.joules - before.joules) / (after.at - before.at)

    def _energy(self) -> _Energy | None:
        """Return the processors' energy so far; ``None`` where they do not tell, or not in time."""
        found = self._rapl.fresh(self._patience_s)
        joules = cpu_joules(found.in_time or ())
        return None if joules is None else _Energy(joules=joules, at=self._clock() - (found.age_s or 0.0))

    def _sensors(self) -> tuple[HwmonPower, ...]:
        """Return the board's sensors of power; none where they do not tell in time."""
        found = self._hwmon.fresh(self._patience_s).in_time
        return () if found is None else found.powers
