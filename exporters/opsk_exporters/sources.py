"""Creates the data sources that several collectors of one node share, each when the first collector needs it.

GPUs are read once a scrape however many collectors need them, and power that one collector has read is passed to the
next. Modules are imported only when they are needed: a node without a driver pays nothing for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from opsk.errors import TelemetryError
from opsk.telemetry.background_reader import Background, close
from opsk.telemetry.gpu.samples import GpuDriverMissingError, GpuReading, GpuSource
from opsk.telemetry.gpu.shared_source import SharedGpus
from opsk.telemetry.power.node_power import GpuPowerWatch, WatchedGpus, sum_cpu_joules
from opsk.telemetry.power.rapl import RaplReader
from opsk_exporters.core.settings import Settings
from opsk_exporters.gpu.fallback import NvmlOrProgram

if TYPE_CHECKING:
    from opsk_exporters.gpu.source import NvidiaDriver

_SHARE_OF_DEADLINE = 0.6
"""Of a collector's deadline, how long it waits for a driver: it must still be able to report that the driver hangs."""
_SHARE_FOR_ENERGY = 0.1


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
        watched = WatchedGpus(self._given_nvidia or NvmlOrProgram(self.driver.gpus), self.power_watch)
        return SharedGpus(watched, patience_s=_SHARE_OF_DEADLINE * self.settings.deadline_of("gpu"))

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
        return SharedGpus(self.amd, patience_s=_SHARE_OF_DEADLINE * self.settings.deadline_of("amdgpu"))

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
        return self._processors_j.refresh(_SHARE_FOR_ENERGY * self.settings.deadline_of("jobs")).fresh_value

    @cached_property
    def driver(self) -> NvidiaDriver:
        """NVIDIA's driver: GPUs and events."""
        from opsk_exporters.gpu.source import NvidiaDriver

        return NvidiaDriver()
