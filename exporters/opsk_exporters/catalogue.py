"""Lists the collectors, how to create each, and the data sources that they share.

Modules are imported only when they are needed: a collector that is switched off, or a node without a driver, costs
neither memory nor time. A missing package disables only its collector.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from opsk.errors import ConfigError, TelemetryError, UnavailableError
from opsk.telemetry.background_reader import Background, close
from opsk.telemetry.gpu.samples import GpuDriverMissingError, GpuReading, GpuSource
from opsk.telemetry.gpu.shared_source import SharedGpus
from opsk.telemetry.power.node_power import GpuPowerWatch, WatchedGpus, sum_cpu_joules
from opsk.telemetry.power.rapl import RaplReader
from opsk.text import escape
from opsk_exporters.core.collector import Collector
from opsk_exporters.core.settings import Settings

if TYPE_CHECKING:
    from opsk_exporters.gpu.source import NvidiaDriver

_SHARE_OF_DEADLINE = 0.6
"""Of a collector's deadline, how long it waits for a driver: it must still be able to report that the driver hangs."""
_SHARE_FOR_ENERGY = 0.1
LOG = logging.getLogger("opsk.exporter")


@dataclass(slots=True)
class AllGpus:
    """The GPUs of several makers as one source, for callers that need only the allocation of GPUs.

    Parameters
    ----------
    sources
        One a maker.
    """

    sources: tuple[GpuSource, ...]
    _seen: set[int] = field(default_factory=set)

    def gpus(self) -> GpuReading:
        """Return all GPUs.

        Raises
        ------
        GpuDriverMissingError
            No maker's driver is here.
        TelemetryError
            One of the drivers that were here does not answer: a part would pass for the whole.
        """
        readings = []
        for number, source in enumerate(self.sources):
            try:
                readings.append(source.gpus())
                self._seen.add(number)
            except GpuDriverMissingError as error:
                if number in self._seen:
                    raise TelemetryError(f"there were GPUs, and now their driver is gone: {error}") from error
                error.__traceback__ = None  # it is stored and raised again: frames would accumulate in it
        if not readings:
            raise GpuDriverMissingError("no GPU driver is here")
        return replace(
            readings[0],
            gpus=tuple(gpu for reading in readings for gpu in reading.gpus),
            lost=tuple(gpu for reading in readings for gpu in reading.lost),
            unreadable=tuple(fault for reading in readings for fault in reading.unreadable),
        )


class Sources:
    """What the collectors of one node read from.

    Each is created when the first collector needs it. GPUs are read once a scrape however many collectors need them,
    and power that one collector has read is passed to the next.

    Parameters
    ----------
    settings
        How the exporter works.
    nvidia
        NVIDIA's GPUs, for tests; read through NVML when it is not given.
    """

    def __init__(self, settings: Settings | None = None, nvidia: GpuSource | None = None) -> None:
        self.settings = settings or Settings()
        self.power_watch = GpuPowerWatch()
        self._given_nvidia = nvidia

    @cached_property
    def nvidia(self) -> GpuSource:
        """NVIDIA's GPUs, read once for all concurrent callers."""
        from opsk_exporters.gpu.source import NvmlOrProgram

        watched = WatchedGpus(self._given_nvidia or NvmlOrProgram(self.driver.gpus), self.power_watch)
        return SharedGpus(watched, patience_s=_SHARE_OF_DEADLINE * self.settings.get_deadline_s("gpu"))

    @cached_property
    def amd(self) -> Any:
        """AMD's GPUs: an ``AmdGpuSource`` and a ``GpuSource`` in one."""
        from opsk.telemetry.gpu.amd.source import SysfsAmdGpus

        return SysfsAmdGpus(self.settings.sysfs)

    @cached_property
    def gpus(self) -> GpuSource:
        """All GPUs of the node."""
        return AllGpus((self.nvidia, self._shared_amd))

    @cached_property
    def _shared_amd(self) -> SharedGpus:
        """AMD's GPUs, read once for all concurrent callers."""
        return SharedGpus(self.amd, patience_s=_SHARE_OF_DEADLINE * self.settings.get_deadline_s("amdgpu"))

    @cached_property
    def processors(self) -> RaplReader:
        """The processors' energy."""
        return RaplReader(self.settings.sysfs)

    @cached_property
    def _processors_j(self) -> Background[float | None]:
        """The same for callers that must not hang with a faulty file."""
        return Background("processors", lambda: sum_cpu_joules(self.processors.zones()))

    def close(self) -> None:
        """Close all created sources: their threads end as soon as their reads return."""
        for name in ("nvidia", "_shared_amd", "_processors_j", "driver"):
            close(self.__dict__.get(name))

    def processors_j(self) -> float | None:
        """Return the energy of all processors so far [J]; ``None`` where it cannot be read in time."""
        return self._processors_j.refresh(_SHARE_FOR_ENERGY * self.settings.get_deadline_s("jobs")).fresh_value

    @cached_property
    def driver(self) -> NvidiaDriver:
        """NVIDIA's driver: GPUs and events."""
        from opsk_exporters.gpu.source import NvidiaDriver

        return NvidiaDriver()


Factory = Callable[[Sources], Collector]


def _gpu(sources: Sources) -> Collector:
    """Return the collector of NVIDIA's GPUs."""
    from opsk_exporters.gpu.source import make

    settings = sources.settings
    return make(sources.nvidia, sysfs=settings.sysfs, procfs=settings.procfs, gres_conf=settings.gres_conf)


def _amdgpu(sources: Sources) -> Collector:
    """Return the collector of AMD's GPUs."""
    from opsk_exporters.gpu.amd import AmdGpuCollector

    return AmdGpuCollector(sources.amd, sources.power_watch.note)


def _host(sources: Sources) -> Collector:
    """Return the collector of CPUs, memory, network and disks."""
    from opsk.telemetry.host.usage import HostReader, PressureReader
    from opsk_exporters.host.collector import HostCollector

    settings = sources.settings
    return HostCollector(HostReader(settings.procfs), PressureReader(settings.procfs, settings.sysfs))


def _infiniband(sources: Sources) -> Collector:
    """Return the collector of RDMA ports."""
    from opsk_exporters.network.infiniband import make

    settings = sources.settings
    return make(settings.sysfs, rails_file=settings.rails_file, tick_bytes=settings.tick_bytes)


def _jobs(sources: Sources) -> Collector:
    """Return the collector of jobs."""
    from opsk_exporters.jobs.collector import make

    settings = sources.settings
    return make(
        cgroups=settings.cgroup_root,
        procfs=settings.procfs,
        folder=settings.jobs_folder,
        gres_conf=settings.gres_conf,
        gpus=sources.gpus,
        processors=sources.processors_j,
    )


def _power(sources: Sources) -> Collector:
    """Return the collector of power and energy."""
    from opsk_exporters.power.collector import make

    settings = sources.settings
    return make(
        settings.sysfs,
        sources.power_watch.power,
        rapl=sources.processors,
        deadline_s=settings.get_deadline_s("power"),
        every_s=settings.ipmi_interval_s,
    )


def _reports(sources: Sources) -> Collector:
    """Return the collector of post-mortems."""
    from opsk_exporters.jobs.reports import make

    settings = sources.settings
    return make(
        settings.reports_folder,
        settings.slurm_on,
        procfs=settings.procfs,
        cgroups=settings.cgroup_root,
        deadline_s=settings.get_deadline_s("reports"),
    )


def _slurm(sources: Sources) -> Collector:
    """Return the collector of Slurm's queue, nodes and partitions."""
    from opsk_exporters.slurm.collector import make

    settings = sources.settings
    return make(
        settings.slurm_on,
        every_s=settings.slurm_interval_s,
        users=settings.slurm_users,
        procfs=settings.procfs,
        cgroups=settings.cgroup_root,
        deadline_s=settings.get_deadline_s("slurm"),
    )


def _training(sources: Sources) -> Collector:
    """Return the collector of training progress."""
    from opsk_exporters.jobs.training import make

    settings = sources.settings
    return make(
        cgroups=settings.cgroup_root,
        procfs=settings.procfs,
        folder=settings.jobs_folder,
        enabled=settings.training_logs,
    )


def _xids(sources: Sources) -> Collector:
    """Return the collector of XIDs and other kernel events."""
    from opsk_exporters.gpu.xids import make

    return make(kernel_log=sources.settings.kernel_log, gpus=sources.nvidia, listen=sources.driver.listen)


COLLECTORS: Mapping[str, Factory] = {
    "amdgpu": _amdgpu,
    "gpu": _gpu,
    "host": _host,
    "infiniband": _infiniband,
    "jobs": _jobs,
    "power": _power,
    "reports": _reports,
    "slurm": _slurm,
    "training": _training,
    "xids": _xids,
}
"""All collectors: name to what makes one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorSet:
    """The collectors of a node, and why some that were requested are missing, by name."""

    collectors: tuple[Collector, ...]
    missing: Mapping[str, str]


def select_collectors(settings: Settings) -> tuple[str, ...]:
    """Return the names of the collectors that the settings enable.

    Raises
    ------
    ConfigError
        A name is no collector, or none is left.
    """
    named = (*(settings.collectors or ()), *settings.without, *settings.deadlines_s)
    unknown = [name for name in dict.fromkeys(named) if name not in COLLECTORS]
    if unknown:
        wrong = ", ".join(map(repr, unknown))
        raise ConfigError(f"{wrong} is no collector", hint=f"there are: {', '.join(sorted(COLLECTORS))}")
    requested = sorted(COLLECTORS) if settings.collectors is None else settings.collectors
    names = tuple(name for name in requested if name not in settings.without)
    if not names:
        raise ConfigError("an empty list is no collector", hint=f"there are: {', '.join(sorted(COLLECTORS))}")
    return names


def make_collectors(names: Iterable[str], sources: Sources, *, asked_for: bool = False) -> CollectorSet:
    """Make collectors; one whose package is not installed is left out, with a warning.

    Parameters
    ----------
    names
        Which ones.
    sources
        What they read from.
    asked_for
        They were named one by one: then a missing package is an error.

    Raises
    ------
    UnavailableError
        A collector that was requested by name cannot be created.
    """
    collectors, missing = [], {}
    for name in names:
        try:
            collectors.append(COLLECTORS[name](sources))
        except ImportError as error:
            why = f"not installed: {error.name or error}"
            if asked_for:
                raise UnavailableError(
                    f"collector {name}: {why}", hint="install opsk with the extra exporter"
                ) from error
            missing[name] = why
            LOG.warning("collector %s: left out, %s", name, escape(why))
    return CollectorSet(collectors=tuple(collectors), missing=missing)
