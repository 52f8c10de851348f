"""Computes the power balance of a node, and the share of its energy that its jobs use.

The node's own meter measures everything; GPUs and processors report their own power. The rest is fans, disks, network
cards and the losses of power supplies, and it is reported only where all three were measured at about the same moment.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from opsk.telemetry.background_reader import close
from opsk.telemetry.gpu.samples import GpuReading, GpuSource
from opsk.telemetry.power.hwmon import HwmonPower
from opsk.telemetry.power.rapl import RaplZone


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
    """Power of a node, of its processors with their memory, and of its GPUs, of about one moment [W]."""

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
