"""Reads and balances the power of the node, its processors and its GPUs, and shares its energy among jobs.

The node's controller takes a second to answer; the energy that processors used during that time, and the last reading
of the GPUs, are combined with its answer. It runs in a thread of its own (`opsk.telemetry.background_reader`).
Processors and the sensors have their own threads: the wait for a file that hangs there is bounded, and never delays the
controller.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from opsk.telemetry.background_reader import Background, close
from opsk.telemetry.gpu.samples import GpuReading, GpuSource
from opsk.telemetry.power.hwmon import HwmonPower, HwmonReading
from opsk.telemetry.power.ipmi import DcmiPower, NoControllerError
from opsk.telemetry.power.rapl import RaplZone

FRESH_S = 30.0
_PATIENCE_S = 0.5
_MIN_SPAN_S = 0.2
"""RAPL counts every millisecond: over this span its power is good to one part in a hundred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPowerTotal:
    """Power of all GPUs together [W], and how long ago it was read [s]."""

    watts: float
    gpus: int
    age_s: float


class GpuPowerWatch:
    """Keeps the power of the last readings of the GPUs, so that they need not be read twice.

    Parameters
    ----------
    clock
        Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[str, tuple[float | None, int, float]] = {}

    def note(self, kind: str, watts: float | None, gpus: int) -> None:
        """Remember what the GPUs of one kind drew together [W]; ``None`` when a part of it is not known."""
        with self._lock:
            self._last[kind] = (watts, gpus, self._clock())

    def power(self) -> GpuPowerTotal | None:
        """Return the power at the last readings, as old as the oldest of them; ``None`` when a part is missing."""
        with self._lock:
            last = list(self._last.values())
        known = [watts for watts, _, _ in last if watts is not None]
        if not last or len(known) < len(last):
            return None
        age_s = self._clock() - min(at for _, _, at in last)
        return GpuPowerTotal(watts=sum(known), gpus=sum(gpus for _, gpus, _ in last), age_s=age_s)


class WatchedGpus:
    """A GPU source that passes the power of its readings to a `GpuPowerWatch`.

    Parameters
    ----------
    source
        Where the readings come from.
    watch
        The receiver.
    kind
        Word for these GPUs; each source has its own.
    """

    def __init__(self, source: GpuSource, watch: GpuPowerWatch, kind: str = "nvidia") -> None:
        self._source = source
        self._watch = watch
        self._kind = kind

    def gpus(self) -> GpuReading:
        """Return the reading of the source; raises what it raises."""
        reading = self._source.gpus()
        self._watch.note(self._kind, sum_gpu_watts(reading), len(reading.gpus))
        return reading

    def close(self) -> None:
        """Close the source."""
        close(self._source)


def sum_gpu_watts(reading: GpuReading) -> float | None:
    """Return the power of all GPUs together [W]; ``None`` when one is lost or does not report it: a part is no sum."""
    if reading.lost or not reading.gpus:
        return None
    total = 0.0
    for gpu in reading.gpus:
        watts = gpu.power.instant_w if gpu.power.instant_w is not None else gpu.power.average_w
        if watts is None:
            return None
        total += watts
    return total


def sum_cpu_joules(zones: Iterable[RaplZone]) -> float | None:
    """Return the energy of processors and their memory [J]: packages, and memory, which packages do not include.

    ``None`` where there are no packages, or where one of these zones cannot be read.
    """
    counted = [zone for zone in zones if (zone.domain == "package" and zone.top) or zone.domain == "dram"]
    if not any(zone.domain == "package" for zone in counted):
        return None
    total = 0.0
    for zone in counted:
        if zone.energy_j is None:
            return None
        total += zone.energy_j
    return total


def sum_cpu_watts(sensors: Iterable[HwmonPower]) -> float | None:
    """Return the power of processors by the board's sensors [W]: sockets of Grace; ``None`` where there are none."""
    values = [sensor.watts for sensor in sensors if sensor.part == "grace"]
    return sum(value for value in values if value is not None) if values and None not in values else None


def find_node_watts(sensors: Iterable[HwmonPower]) -> float | None:
    """Return the power of the node by the board's sensors [W]: its meter, else what its power supplies take in."""
    all_sensors = list(sensors)
    for part in ("node", "psu_input"):
        values = [sensor.watts for sensor in all_sensors if sensor.part == part and sensor.watts]
        if values:
            return sum(value for value in values if value is not None)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """Power of a node, of its processors with their memory, and of its GPUs, of about one moment [W].

    The node's own meter measures everything; GPUs and processors report their own power. The rest is fans, disks,
    network cards and the losses of power supplies, and it is reported only where all three were measured at about the
    same moment.
    """

    node_w: float
    cpu_w: float
    gpu_w: float

    @property
    def unaccounted_w(self) -> float:
        """Return what is neither processor nor GPU [W]; below zero where the meters disagree."""
        return self.node_w - self.cpu_w - self.gpu_w


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUse:
    """What one job used of a node between two moments.

    Parameters
    ----------
    job
        Job id.
    gpu_energy_j
        Energy of the GPUs that it has to itself; its part of a shared GPU [J].
    cpu_share
        Its allocated CPUs over the CPUs of the node, 0 to 1.
    whole_node
        Whether it has the node to itself (``--exclusive``, or all CPUs).
    """

    job: str
    gpu_energy_j: float
    cpu_share: float
    whole_node: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyShares:
    """Energy by job [J], and what no job is charged with; together the energy of the node."""

    by_job: Mapping[str, float]
    idle_j: float


def share_energy(node_energy_j: float, gpu_energy_j: float, uses: Iterable[JobUse]) -> EnergyShares:
    """Return how the energy of a node between two moments divides among the jobs that ran on it.

    The rule:

    1. A job that has the node to itself is charged with all of it, fans and idle GPUs too: nobody else could use them.
    2. Otherwise each job is charged with the energy of its own GPUs, as the GPUs counted it,
    3. and with its share of the rest (the node less **all** its GPUs) by CPUs allocated over CPUs of the node: it kept
       them from others whether it used them or not. Shares that add up to more than one (CPUs given out twice) are
       scaled to one.
    4. What is left (GPUs of nobody, the rest of idle CPUs) is idle and charged to no job.

    Two meters may disagree: where GPUs counted more than the node's meter did, the rest is zero, and jobs are charged
    with what their GPUs counted.

    Parameters
    ----------
    node_energy_j
        Energy of the node, by its own meter; or of processors and GPUs where it has none [J].
    gpu_energy_j
        Energy of all GPUs of the node, owned or not [J].
    uses
        Jobs that ran, each once; one that ran only part of the time with what it used in that part, and a CPU share
        scaled by that part.

    Examples
    --------
    A node of 1,000 J, GPUs of 600 J, of which 400 are job 1's, who has half the CPUs: 400 + 200 = 600 J, and 400 idle.
    """
    jobs = list(uses)
    alone = [use for use in jobs if use.whole_node]
    if len(jobs) == 1 and alone:
        return EnergyShares(by_job={jobs[0].job: max(node_energy_j, gpu_energy_j)}, idle_j=0.0)
    rest_j = max(0.0, node_energy_j - gpu_energy_j)
    scale = max(1.0, sum(use.cpu_share for use in jobs))
    by_job = {use.job: use.gpu_energy_j + rest_j * use.cpu_share / scale for use in jobs}
    return EnergyShares(by_job=by_job, idle_j=max(0.0, max(node_energy_j, gpu_energy_j) - sum(by_job.values())))


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
