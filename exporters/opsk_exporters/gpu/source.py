"""Provides what the GPU collector reads besides samples: nvidia-smi without NVML, events, Slurm's order, services."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from opsk.telemetry.background_reader import close
from opsk.telemetry.gpu import job_gpus
from opsk.telemetry.gpu.nvidia_pci import GpusOnBus
from opsk.telemetry.gpu.nvml.source import NvmlEvents, NvmlGpus, XidEvent
from opsk.telemetry.gpu.samples import GpuDriverMissingError, GpuReading, GpuSource
from opsk.telemetry.gpu.services import ImexReader, ServiceSample, read_service
from opsk.units import MIB
from opsk_exporters.gpu.collector import GpuCollector

LOG = logging.getLogger("opsk.exporter")
PROGRAM = "nvidia-smi"
_EVERY_S = 14.0
"""A scrape every 15 s has a reading of its own."""
_ABSENT_FOR_S = 300.0
SERVICES = ("nvidia-fabricmanager", "nvidia-imex", "nvidia-persistenced")
GRES_CONF = (Path("/etc/slurm/gres.conf"), Path("/run/slurm/conf/gres.conf"), Path("/usr/local/etc/gres.conf"))
"""Where gres.conf is by default; the second is the copy of a node without configuration files."""
_MIG_MINORS = Path("proc/driver/nvidia-caps/mig-minors")
_LONGEST_FILE_BYTES = MIB


def nvidia_smi() -> GpuSource | None:
    """Return the program as a source; ``None`` where it is not installed."""
    if shutil.which(PROGRAM) is None:
        return None
    from opsk.telemetry.gpu.nvidia_smi import NvidiaSmi

    return NvidiaSmi(PROGRAM)


class NvmlOrProgram:
    """A ``GpuSource`` that asks NVML, and a program where NVML was never there.

    The program runs seldom, since it costs a process and some seconds, and only where NVML never answered: a driver
    that went away is a fault to be shown. It reports less than NVML: no activity, energy, NVLinks, MIG devices or
    events.

    Parameters
    ----------
    nvml
        NVML.
    program
        Returns the program as a source; ``None`` where there is none.
    clock
        Monotonic seconds.
    """

    def __init__(
        self,
        nvml: GpuSource,
        program: Callable[[], GpuSource | None] = nvidia_smi,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._nvml = nvml
        self._find = program
        self._clock = clock
        self._nvml_answered = False
        self._program: GpuSource | None = None
        self._absent_until_s: float | None = None
        self._last: tuple[float, GpuReading] | None = None

    def gpus(self) -> GpuReading:
        """Return all GPUs; raises what NVML raises where nobody else can tell."""
        try:
            reading = self._nvml.gpus()
        except GpuDriverMissingError:
            other = None if self._nvml_answered else self._from_program()
            if other is None:
                raise
            return other
        self._nvml_answered = True
        return reading

    def close(self) -> None:
        """Let NVML go."""
        close(self._nvml)

    def _from_program(self) -> GpuReading | None:
        """Return what the program says; ``None`` where there is none, or no driver for it either."""
        now_s = self._clock()
        if self._last is not None and now_s - self._last[0] < _EVERY_S:
            return self._last[1]
        if self._absent_until_s is not None and now_s < self._absent_until_s:
            return None
        if self._program is None:
            self._program = self._find()
        try:
            reading = self._program.gpus() if self._program is not None else None
        except GpuDriverMissingError:
            reading = None
        if reading is None:
            again_s = _ABSENT_FOR_S if self._last is None else _EVERY_S
            self._program, self._absent_until_s = None, now_s + again_s
            return None
        if self._last is None:
            LOG.info("gpu: NVML's library is not here, GPUs are read through %s", PROGRAM)
        self._last = (now_s, reading)
        return reading


class XidSink(Protocol):
    """A receiver of XIDs."""

    def record(self, gpu_uuid: str | None, pci: str | None, code: int, at_unix_s: float, source: str, /) -> object:
        """Record one XID that a source has reported."""
        ...


class NvidiaDriver:
    """NVML of this node: its GPUs, and its events, which must release it together when the driver went away.

    Parameters
    ----------
    nvml
        The ``pynvml`` module; loaded when it is first needed if it is not given.
    """

    def __init__(self, nvml: Any = None) -> None:
        self._sinks: tuple[XidSink, ...] = ()
        self._events = NvmlEvents(self._forward, nvml)
        self.gpus = NvmlGpus(nvml, events=self._events)
        """One thread may call it: ``SharedGpus`` sees to that."""

    def listen(self, sink: XidSink) -> None:
        """Pass XIDs to a sink from now on, and begin to listen for them."""
        self._sinks = (*self._sinks, sink)
        self._events.start()

    def close(self) -> None:
        """Stop listening; the thread that reads the GPUs releases them."""
        self._events.close()

    def _forward(self, event: XidEvent) -> None:
        """Pass an event to the sinks."""
        for sink in self._sinks:
            sink.record(event.gpu, event.pci, event.code, event.at_unix_s, "nvml")


class SlurmOrderReader:
    """Slurm's index of each GPU, from gres.conf.

    Parameters
    ----------
    files
        Where gres.conf may be; the first that can be read counts.
    node
        Slurm's name of this node.
    procfs
        Where procfs is mounted.
    """

    def __init__(
        self, files: tuple[Path, ...] = GRES_CONF, node: str | None = None, procfs: Path = Path("/proc")
    ) -> None:
        self._files = files
        self._node = node or socket.gethostname().partition(".")[0]
        self._mig_minors = procfs / _MIG_MINORS.relative_to("proc")
        self._parsed: tuple[tuple[Path, int, int], job_gpus.GresConf] | None = None

    def __call__(self, reading: GpuReading) -> Mapping[str, int]:
        """Return Slurm's index by UUID, of GPUs or MIG devices; nothing where there is no gres.conf to read."""
        conf = self._conf()
        if conf is None:
            return {}
        order = job_gpus.list_uuids_in_slurm_order(conf, reading)
        return {uuid: index for index, uuid in enumerate(order) if uuid is not None}

    def _conf(self) -> job_gpus.GresConf | None:
        """Return the parsed gres.conf, read again when the file has changed."""
        for path in self._files:
            try:
                status = path.stat()
                key = (path, status.st_mtime_ns, status.st_size)
                if self._parsed is None or self._parsed[0] != key:
                    text = _text(path)
                    self._parsed = (key, job_gpus.parse_gres_conf(text, self._node, self._minors()))
            except OSError:
                continue
            return self._parsed[1]
        return None

    def _minors(self) -> str:
        """Return the driver's list of minors of MIG devices, if it has one."""
        try:
            return _text(self._mig_minors)
        except OSError:
            return ""


def make(
    source: GpuSource,
    *,
    root: Path = Path("/"),
    sysfs: Path = Path("/sys"),
    procfs: Path = Path("/proc"),
    gres_conf: Path | None = None,
) -> GpuCollector:
    """Return the collector of this node's GPUs.

    Parameters
    ----------
    source
        The GPUs, which the collectors of jobs and power share.
    root
        Where the files of systemd and of control groups begin.
    sysfs, procfs
        Where these are mounted.
    gres_conf
        Slurm's gres.conf, where it is in none of the usual places.
    """
    imex = ImexReader()
    return GpuCollector(
        source,
        services=lambda: services(root),
        slurm_order=SlurmOrderReader((gres_conf,) if gres_conf else GRES_CONF, procfs=procfs),
        imex=imex.latest,
        on_bus=GpusOnBus(sysfs),
        on_close=imex.close,
    )


def services(root: Path) -> tuple[ServiceSample, ...]:
    """Return the services of the GPUs' fabric that the node has."""
    return tuple(service for name in SERVICES if (service := read_service(name, root)) is not None)


def _text(path: Path) -> str:
    """Return the text of a file, of at most ``_LONGEST_FILE_BYTES``."""
    with path.open("rb") as opened:
        return os.read(opened.fileno(), _LONGEST_FILE_BYTES).decode("utf-8", "replace")
