"""Reads the power of the node together with that of its processors and GPUs at the same moment.

The node's controller takes a second to answer; the energy that processors used during that time, and the last reading
of the GPUs, are combined with its answer. It runs in a thread of its own (`opsk.telemetry.background_reader`).
Processors and the sensors have their own threads: the wait for a file that hangs there is bounded, and never delays the
controller.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from opsk.telemetry.background_reader import Background
from opsk.telemetry.power.balance import Balance, GpuPowerTotal, find_node_watts, sum_cpu_joules, sum_cpu_watts
from opsk.telemetry.power.hwmon import HwmonPower, HwmonReading
from opsk.telemetry.power.ipmi import DcmiPower, NoControllerError
from opsk.telemetry.power.rapl import RaplZone

FRESH_S = 30.0
_PATIENCE_S = 0.5
_MIN_SPAN_S = 0.2
"""RAPL counts every millisecond: over this span its power is good to one part in a hundred."""


class DcmiSource(Protocol):
    """A source of the power that the node's controller measures."""

    def read(self) -> tuple[DcmiPower, float]:
        """Return the power, and how old it is [s]; raises as `opsk.telemetry.power.ipmi.DcmiTool.read` does."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePower:
    """The power of a node at one moment.

    Parameters
    ----------
    dcmi
        Reading of the controller; ``None`` where there is none.
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
    """Reads the controller, and combines its answer with processors and GPUs.

    Parameters
    ----------
    dcmi
        Reader of the controller.
    rapl, hwmon
        The processors' energy and the board's sensors, each read by its own thread.
    gpu_power
        Returns the power of all GPUs without reading them; ``None`` where no GPUs are read.
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
            Neither the controller nor the board's sensors report it.
        TelemetryError
            There is a controller, and it does not answer.
        """
        before = self._energy()
        sensors = self._sensors()
        node_w = find_node_watts(sensors)
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
        """Return the power balance; ``None`` unless all parts are known."""
        gpus = self._gpu_power() if self._gpu_power else None
        if node_w is None or gpus is None or gpus.age_s > FRESH_S:
            return None
        cpu_w = sum_cpu_watts(sensors) if before is None else self._cpu_watts(before)
        return None if cpu_w is None else Balance(node_w=node_w, cpu_w=cpu_w, gpu_w=gpus.watts)

    def _cpu_watts(self, before: _Energy) -> float | None:
        """Return the mean power of the processors since then, over a span that their counters resolve."""
        short_s = _MIN_SPAN_S - (self._clock() - before.at)
        if short_s > 0:
            self._sleep(short_s)
        after = self._energy()
        if after is None or after.at <= before.at:
            return None
        return (after.joules - before.joules) / (after.at - before.at)

    def _energy(self) -> _Energy | None:
        """Return the processors' energy so far; ``None`` where it is not available in time."""
        latest = self._rapl.refresh(self._patience_s)
        joules = sum_cpu_joules(latest.fresh_value or ())
        return None if joules is None else _Energy(joules=joules, at=self._clock() - (latest.age_s or 0.0))

    def _sensors(self) -> tuple[HwmonPower, ...]:
        """Return the board's sensors of power; empty where they are not available in time."""
        reading = self._hwmon.refresh(self._patience_s).fresh_value
        return () if reading is None else reading.powers
