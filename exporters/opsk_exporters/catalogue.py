"""Lists the collectors and how to create each; a missing package disables only its collector.

Each entry imports its module when it is called: a collector that is switched off costs neither memory nor time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from opsk.errors import ConfigError, UnavailableError
from opsk.text import escape
from opsk_exporters.core.collector import Collector
from opsk_exporters.core.settings import Settings
from opsk_exporters.sources import Sources

LOG = logging.getLogger("opsk.exporter")
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
        deadline_s=settings.deadline_of("power"),
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
        deadline_s=settings.deadline_of("reports"),
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
        deadline_s=settings.deadline_of("slurm"),
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
