"""Exports the metrics of a node's AMD GPUs.

Values with the same meaning as on any GPU are ``opsk_gpu_*``, keyed by ``gpu``; what only AMD's GPUs have is
``opsk_amdgpu_*``. A GPU that sleeps has its facts and its state, and no readings: reading would wake it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from prometheus_client import Metric

from opsk.errors import TelemetryError
from opsk.metrics import names as metric_names
from opsk.telemetry.gpu.amd.source import AmdGpuReading, AmdGpuSample, SysfsAmdGpus
from opsk.telemetry.gpu.samples import GpuDriverMissingError, GpuReading
from opsk.text import escape
from opsk_exporters.core.collector import NoDataError
from opsk_exporters.core.exposition import Families
from opsk_exporters.gpu.collector import add_gpu
from opsk_exporters.gpu.health import ThrottleTimes
from opsk_exporters.gpu.names import TEMPERATURE_HELP, UNREADABLE_HELP, UP_HELP

LOG = logging.getLogger("opsk.exporter")

ReportWatts = Callable[[str, float | None, int], None]
"""Called with the kind of GPUs, their total power [W], and their number: ``GpuPowerWatch.note``."""


class AmdGpuSource(Protocol):
    """A source of samples of the AMD GPUs of a node."""

    def read(self) -> AmdGpuReading:
        """Return all AMD GPUs; raises as `opsk.telemetry.gpu.amd.source.SysfsAmdGpus.read` does."""
        ...


def _ignore_watts(_kind: str, _total_w: float | None, _gpus: int) -> None:
    """Discard the power."""


class AmdGpuCollector:
    """AMD GPUs, through sysfs.

    Parameters
    ----------
    source
        Where the samples come from.
    report_watts
        Called at each reading with the total power of the GPUs.
    """

    name = "amdgpu"

    def __init__(self, source: AmdGpuSource, report_watts: ReportWatts = _ignore_watts) -> None:
        self._source = source
        self._report_watts = report_watts
        self._throttle = ThrottleTimes()
        self._logged: frozenset[str] = frozenset()

    def collect(self) -> Iterable[Metric]:
        """Read all GPUs once.

        Raises
        ------
        NoDataError
            The node has no AMD GPU, and had none since the exporter started.
        """
        try:
            reading = self._source.read()
        except GpuDriverMissingError as error:
            raise NoDataError(str(error)) from error
        except OSError as error:
            raise TelemetryError(f"AMD GPUs: {error}") from error
        families = Families()
        _add_up(families, reading.gpus)
        times = self._throttle.note(reading.gpus)
        for device in reading.devices:
            _add_state(families, device)
            add_gpu(families, device.gpu, None, times[device.gpu.uuid])
            _add_device(families, device)
        self._report_watts("amd", _sum_watts(reading), len(reading.devices))
        self._log_changes(reading.gpus)
        return families.all()

    def _log_changes(self, reading: GpuReading) -> None:
        """Log what is lost, once for each change."""
        problems = frozenset(f"{lost.uuid} (index {lost.index}, {lost.pci}) {lost.why}" for lost in reading.lost)
        for what in sorted(problems - self._logged):
            LOG.warning("amdgpu: %s", escape(what))
        for what in sorted(self._logged - problems):
            LOG.info("amdgpu: no longer so: %s", escape(what))
        self._logged = problems


def make(sysfs: Path = Path("/sys"), report_watts: ReportWatts = _ignore_watts) -> AmdGpuCollector:
    """Return the collector of a node."""
    return AmdGpuCollector(SysfsAmdGpus(sysfs), report_watts)


def _sum_watts(reading: AmdGpuReading) -> float | None:
    """Return the power of all GPUs [W]: one die of a board reports for both, and one that sleeps draws nothing."""
    powers = [power for device in reading.devices if (power := _get_power(device)) is not None]
    awake = any(not device.asleep for device in reading.devices)
    return None if reading.gpus.lost or (awake and not powers) else sum(powers)


def _get_power(device: AmdGpuSample) -> float | None:
    """Return the power of one GPU [W]."""
    power = device.gpu.power
    return power.instant_w if power.instant_w is not None else power.average_w


def _add_up(families: Families, reading: GpuReading) -> None:
    """Add which GPUs answer."""
    counts = {gpu.uuid: 0 for gpu in reading.gpus}
    for fault in reading.unreadable:
        counts[fault.gpu or ""] = counts.get(fault.gpu or "", 0) + 1
    for gpu in reading.gpus:
        families.gauge(metric_names.GPU_UP, UP_HELP, 1.0, gpu=gpu.uuid)
        families.gauge(
            "opsk_gpu_unreadable_values",
            UNREADABLE_HELP,
            counts[gpu.uuid],
            gpu=gpu.uuid,
        )
    for lost in reading.lost:
        families.gauge(metric_names.GPU_UP, UP_HELP, 0.0, gpu=str(lost.uuid))


def _add_state(families: Families, device: AmdGpuSample) -> None:
    """Add what is known without accessing the hardware."""
    uuid = device.gpu.uuid
    families.info(
        "opsk_amdgpu_info",
        "AMD GPU: DRM devices, PCI ids, PCI address, XGMI hive and id in it, partition modes, version of the "
        "firmware's table.",
        gpu=uuid,
        card=device.card,
        render=device.render,
        device_id=device.device_id,
        pci=device.gpu.pci,
        hive=device.hive,
        xgmi_node=device.xgmi_node,
        compute_partition=device.compute_partition,
        memory_partition=device.memory_partition,
        table=device.table_version,
    )
    families.gauge(
        "opsk_amdgpu_asleep",
        "1 when the GPU sleeps (runtime power management) and was not read, which would wake it.",
        float(device.asleep),
        gpu=uuid,
    )


def _add_device(families: Families, device: AmdGpuSample) -> None:
    """Add what only AMD's GPUs have."""
    uuid = device.gpu.uuid
    families.gauge(
        metric_names.GPU_TEMPERATURE_CELSIUS,
        TEMPERATURE_HELP,
        device.gpu.temperatures_c.get("junction"),
        gpu=uuid,
        sensor="junction",
    )
    families.gauge(
        "opsk_amdgpu_host_memory_size_bytes",
        "Memory of the host that the GPU can map (GTT).",
        device.host_memory_total_bytes,
        gpu=uuid,
    )
    families.gauge(
        "opsk_amdgpu_host_memory_used_bytes",
        "Memory of the host that the GPU maps now (GTT).",
        device.host_memory_used_bytes,
        gpu=uuid,
    )
    for count in device.ras:
        families.counter(
            "opsk_amdgpu_ras_errors_total",
            "Errors that a block of the chip found since the driver was loaded (RAS); umc is device memory.",
            count.count,
            gpu=uuid,
            block=count.block,
            error=count.kind,
        )
    for state, pages in device.bad_pages.items():
        families.gauge(
            "opsk_amdgpu_bad_pages",
            "Pages of device memory out of use (reserved), waiting for it (pending), or that could not be taken out of "
            "use (unreservable).",
            pages,
            gpu=uuid,
            state=state,
        )
    _add_xgmi(families, device)


def _add_xgmi(families: Families, device: AmdGpuSample) -> None:
    """Add the links to other GPUs."""
    families.counter(
        "opsk_amdgpu_xgmi_errors_total",
        "XGMI error flags found since the exporter started, for GPUs whose RAS does not count them; reading clears "
        "them, so other tools on the node see less.",
        device.xgmi_errors,
        gpu=device.gpu.uuid,
    )
    for what, verb, links in (
        ("read", "read", device.xgmi_read_bytes),
        ("written", "wrote", device.xgmi_written_bytes),
    ):
        for link, moved in links.items():
            families.counter(
                f"opsk_amdgpu_xgmi_{what}_bytes_total",
                f"Data that the GPU {verb} over an XGMI link, as its firmware counts.",
                moved,
                gpu=device.gpu.uuid,
                link=str(link),
            )
