"""Exports the metrics of a node's NVIDIA GPUs.

Series are keyed by UUID alone; what else identifies a GPU (index, minor, PCI address, Slurm's index) is in
``opsk_gpu_info``. A GPU that was there once and no longer answers has ``opsk_gpu_up`` 0 and no other series. Names and
help texts of plain values are in the tables of ``names``; health is in ``health``.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client import Metric

from opsk.errors import OpskError, TelemetryError
from opsk.metrics import names as metric_names
from opsk.telemetry.background_reader import Latest
from opsk.telemetry.gpu.samples import (
    GpuActivity,
    GpuDriverMissingError,
    GpuMemory,
    GpuReading,
    GpuSample,
    GpuSource,
    LostGpu,
    MigSample,
    NvLinkSample,
)
from opsk.telemetry.gpu.services import ImexSample, ServiceSample
from opsk.text import escape
from opsk_exporters.core.collector import NoDataError
from opsk_exporters.core.exposition import Families
from opsk_exporters.gpu import names
from opsk_exporters.gpu.health import ThrottleTimes, add_fabric, add_health, add_imex, add_services

_STATES = ("active", "inactive", "sleep", "traffic_disabled")
_UP = "active"
_DIRECTIONS = ("received", "transmitted")
LOG = logging.getLogger("opsk.exporter")
SlurmOrder = Callable[[GpuReading], Mapping[str, int]]
"""Slurm's index of each GPU by UUID, as far as it is known."""
Services = Callable[[], Iterable[ServiceSample]]
Imex = Callable[[], "Latest[ImexSample] | None"]


class LinkTotals:
    """Sums over the links of each GPU that only grow.

    A link that goes down may stop reporting its counters, and one that is trained again may reset them. What it had
    counted stays in the sum: a sum that falls would look as if all of it had been counted once more. Only where every
    link is reset has the driver been loaded again, and the sum is reset with it.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str, int], dict[str, int]] = {}
        self._before: dict[tuple[str, int], Counter[str]] = {}
        """Counts of links from before their resets."""

    def accumulate(self, gpu: GpuSample) -> dict[str, int]:
        """Return the sums by ``received``, ``transmitted`` and kind of error, with this sample taken in."""
        sums: Counter[str] = Counter()
        reported = {(gpu.uuid, link.link): _list_counters(link) for link in gpu.nvlinks}
        fell = {key: self._list_fallen(key, counters) for key, counters in reported.items()}
        counting = [key for key, counters in reported.items() if any(self._last.get(key, {}).values()) and counters]
        is_new_driver = bool(counting) and all(fell[key] for key in counting)
        for key, counters in reported.items():
            last, before = self._last.setdefault(key, {}), self._before.setdefault(key, Counter())
            if is_new_driver:
                before.clear()
            else:
                before.update({name: last[name] for name in fell[key]})
            last.update(counters)
            # The plain addition of two Counters would leave out what is 0.
            for name, value in last.items():
                sums[name] += value + before[name]
        return dict(sums)

    def _list_fallen(self, key: tuple[str, int], counters: dict[str, int]) -> list[str]:
        """Return the counters of a link that are less than they were."""
        last = self._last.get(key, {})
        return [name for name, value in counters.items() if value < last.get(name, 0)]


def add_links(families: Families, gpu: GpuSample, totals: LinkTotals) -> None:
    """Add the NVLinks of a GPU.

    A GPU has up to 18 links, and most of them never differ: series are for the GPU, with sums over its links, and for a
    single link only when it is down or has seen errors.
    """
    if not gpu.nvlinks:
        return
    states = Counter(link.state for link in gpu.nvlinks if link.state is not None)
    for state in dict.fromkeys((*_STATES, *sorted(states))):
        families.gauge(
            metric_names.GPU_NVLINKS, "NVLinks of the GPU by their state.", states[state], gpu=gpu.uuid, state=state
        )
    speeds = [link.bytes_per_s for link in gpu.nvlinks if link.state == _UP and link.bytes_per_s is not None]
    families.gauge(
        "opsk_gpu_nvlink_speed_bytes_per_second",
        "Speed of all active NVLinks together, in one direction.",
        sum(speeds) if speeds else None,
        gpu=gpu.uuid,
    )
    for name, total in totals.accumulate(gpu).items():
        if name in _DIRECTIONS:
            families.counter(
                f"opsk_gpu_nvlink_{name}_bytes_total",
                f"Bytes {name} over all NVLinks since driver load, without protocol.",
                total,
                gpu=gpu.uuid,
            )
        else:
            families.counter(
                "opsk_gpu_nvlink_errors_total",
                "Errors of all NVLinks of the GPU together since driver load, by kind.",
                total,
                gpu=gpu.uuid,
                kind=name,
            )
    for link in gpu.nvlinks:
        _add_unhealthy_link(families, gpu.uuid, link)


def _list_counters(link: NvLinkSample) -> dict[str, int]:
    """Return the counters of one link."""
    counters = dict(link.errors)
    if link.received_bytes is not None:
        counters["received"] = link.received_bytes
    if link.transmitted_bytes is not None:
        counters["transmitted"] = link.transmitted_bytes
    return counters


def _add_unhealthy_link(families: Families, uuid: str, link: NvLinkSample) -> None:
    """Add a link that is down or has errors."""
    if link.state is not None and link.state != _UP:
        families.gauge(
            "opsk_gpu_nvlink_link_down",
            "1 for an NVLink that is not active; there is no series for the others.",
            1.0,
            gpu=uuid,
            link=str(link.link),
        )
    for kind, count in link.errors.items():
        if count:
            families.counter(
                "opsk_gpu_nvlink_link_errors_total",
                "Errors of one NVLink since driver load, by kind; there is no series until there is an error.",
                count,
                gpu=uuid,
                link=str(link.link),
                kind=kind,
            )


def _no_order(_reading: GpuReading) -> Mapping[str, int]:
    """Return no order."""
    return {}


class GpuCollector:
    """GPUs: their utilisation, their health, and which of them are lost.

    Parameters
    ----------
    source
        Where the samples come from.
    services
        Services that the GPUs' fabric needs.
    slurm_order
        Slurm's index of each GPU.
    imex
        Last answer of the IMEX daemon; ``None`` where there is none.
    on_bus
        PCI addresses of the GPUs that should have a driver: without one the collector fails.
    on_close
        Closes the sources of the other parameters.
    """

    name = "gpu"

    def __init__(
        self,
        source: GpuSource,
        services: Services = tuple,
        slurm_order: SlurmOrder = _no_order,
        imex: Imex = lambda: None,
        on_bus: Callable[[], Sequence[str]] = tuple,
        on_close: Callable[[], object] = tuple,
    ) -> None:
        self.close = on_close
        self._source = source
        self._services = services
        self._slurm_order = slurm_order
        self._imex = imex
        self._on_bus = on_bus
        self._throttle = ThrottleTimes()
        self._links = LinkTotals()
        self._seen = False
        self._logged: frozenset[str] = frozenset()

    def collect(self) -> Iterable[Metric]:
        """Read all GPUs once.

        Raises
        ------
        NoDataError
            The node has no NVIDIA GPU, or no driver, and never had one since the exporter started.
        TelemetryError
            The GPUs cannot be read, or there are GPUs and no driver for them.
        """
        reading = self._read()
        families = Families()
        _add_node(families, reading)
        order = self._slurm_order(reading)
        times = self._throttle.note(reading)
        for gpu in reading.gpus:
            add_gpu(families, gpu, order.get(gpu.uuid), times[gpu.uuid])
            add_links(families, gpu, self._links)
        for gpu in reading.gpus:
            for mig in gpu.mig:
                _add_mig(families, gpu, mig, order.get(mig.uuid))
        add_services(families, self._services())
        add_imex(families, self._imex())
        self._log_changes(reading)
        return families.all()

    def _read(self) -> GpuReading:
        """Return a reading of a node that has GPUs."""
        try:
            reading = self._source.gpus()
        except GpuDriverMissingError as error:
            if self._seen:
                raise TelemetryError(f"there were GPUs, and now their driver is gone: {error}") from error
            raise self._build_silence_error(str(error)) from error
        if not reading.gpus and not reading.lost:
            raise self._build_silence_error("the NVIDIA driver lists no GPU")
        self._seen = True
        return reading

    def _build_silence_error(self, why: str) -> OpskError:
        """Build the error when no GPU can be read: no data on a node without GPUs, else a failure."""
        on_bus = self._on_bus()
        if not on_bus:
            return NoDataError(why)
        return TelemetryError(f"{len(on_bus)} NVIDIA GPUs are on the PCI bus ({', '.join(on_bus[:8])}), and {why}")

    def _log_changes(self, reading: GpuReading) -> None:
        """Log what is lost and what cannot be read, once for each change."""
        problems = frozenset(
            [f"{_label(lost)} (index {lost.index}, {lost.pci}) is lost: {lost.why}" for lost in reading.lost]
            + [f"{fault.gpu or 'node'}: {fault.what}: {fault.error}" for fault in reading.unreadable]
        )
        for what in sorted(problems - self._logged):
            LOG.warning("gpu: %s", escape(what))
        for what in sorted(self._logged - problems):
            LOG.info("gpu: no longer so: %s", escape(what))
        self._logged = problems


def _label(lost: LostGpu) -> str:
    """Return the label of a lost GPU: its UUID, or its index when it never reported one."""
    return lost.uuid or f"index-{lost.index}"


def _add_node(families: Families, reading: GpuReading) -> None:
    """Add the metrics of all GPUs together: versions, which are up, what could not be read."""
    families.info(
        metric_names.GPU_DRIVER_INFO,
        "NVIDIA driver, NVML and the newest CUDA that the driver can run.",
        driver=reading.driver,
        nvml=reading.nvml,
        cuda=reading.cuda,
    )
    add_up(families, reading)


def add_up(families: Families, reading: GpuReading) -> None:
    """Add which GPUs of any maker answer, and how many values of each are unreadable."""
    up = (metric_names.GPU_UP, names.UP_HELP)
    for gpu in reading.gpus:
        families.gauge(*up, 1.0, gpu=gpu.uuid)
    for lost in reading.lost:
        families.gauge(*up, 0.0, gpu=_label(lost))
    counts: dict[str, int] = {gpu.uuid: 0 for gpu in reading.gpus}
    for fault in reading.unreadable:
        if fault.gpu in counts:
            counts[fault.gpu] += 1
    for uuid, count in counts.items():
        families.gauge("opsk_gpu_unreadable_values", names.UNREADABLE_HELP, count, gpu=uuid)


def add_gpu(families: Families, gpu: GpuSample, slurm_index: int | None, throttled_s: Mapping[str, float]) -> None:
    """Add one GPU that answers; for any source of GPU samples."""
    uuid = gpu.uuid
    families.info(
        metric_names.GPU_INFO,
        "GPU: the driver's index (NVML: PCI order), minor number of its device file, Slurm's index where it is known, "
        "PCI address and what it is.",
        gpu=uuid,
        index=str(gpu.index),
        minor="" if gpu.minor is None else str(gpu.minor),
        slurm_index="" if slurm_index is None else str(slurm_index),
        pci=gpu.pci,
        model=gpu.model,
        architecture=gpu.architecture,
        serial=gpu.serial,
        vbios=gpu.vbios,
        compute_mode=gpu.compute_mode,
    )
    for name, metric in names.UTILISATION.items():
        families.gauge(f"opsk_gpu_{metric.what}", metric.help_text, gpu.utilisation.get(name), gpu=uuid)
    _add_memory(families, names.MEMORY, gpu.memory, gpu=uuid)
    _add_activity(families, names.ACTIVITY, gpu.activity, gpu=uuid)
    if gpu.activity is not None:
        for name, metric in names.RATES.items():
            families.gauge(f"opsk_gpu_{metric.what}", metric.help_text, gpu.activity.bytes_per_s.get(name), gpu=uuid)
        for name, pipe in names.PIPES.items():
            families.gauge(
                f"opsk_gpu_{names.PIPE.what}",
                names.PIPE.help_text,
                gpu.activity.ratios.get(name),
                gpu=uuid,
                pipe=pipe,
            )
    _add_clocks(families, gpu, throttled_s)
    _add_power(families, gpu)
    families.gauge(
        "opsk_gpu_processes",
        "Processes with a compute context on the GPU; absent with MIG on, and where the driver does not report them.",
        None if gpu.processes is None else len(gpu.processes),
        gpu=uuid,
    )
    add_health(families, gpu)
    add_fabric(families, gpu)


def _add_memory(
    families: Families, table: Mapping[str, names.MetricName], memory: GpuMemory | None, **labels: str
) -> None:
    """Add the device memory of a GPU or MIG device."""
    if memory is not None:
        for field, metric in table.items():
            families.gauge(f"opsk_gpu_{metric.what}", metric.help_text, getattr(memory, field), **labels)


def _add_activity(
    families: Families, table: Mapping[str, names.MetricName], activity: GpuActivity | None, **labels: str
) -> None:
    """Add the hardware's activity counters of a GPU or GPU instance."""
    if activity is not None:
        for name, metric in table.items():
            families.gauge(f"opsk_gpu_{metric.what}", metric.help_text, activity.ratios.get(name), **labels)


def _add_clocks(families: Families, gpu: GpuSample, throttled_s: Mapping[str, float]) -> None:
    """Add clocks, and throttle times by reason."""
    for clock, hertz in gpu.clocks_hz.items():
        families.gauge(
            metric_names.GPU_CLOCK_HERTZ, "Clock of a part of the GPU now.", hertz, gpu=gpu.uuid, clock=clock
        )
    for clock, hertz in gpu.clocks_max_hz.items():
        families.gauge(
            metric_names.GPU_CLOCK_MAX_HERTZ, "Highest clock that the part can do.", hertz, gpu=gpu.uuid, clock=clock
        )
    for reason, time_s in throttled_s.items():
        families.counter(
            metric_names.GPU_THROTTLE_SECONDS_TOTAL,
            "Time with clocks reduced for a reason: the driver's own counter (since driver load) where it has one, "
            "else summed between readings since the exporter started; idling is a reason too.",
            time_s,
            gpu=gpu.uuid,
            reason=reason,
        )
    for clocks in ("application", "base"):
        families.counter(
            "opsk_gpu_below_clocks_seconds_total",
            "Time since driver load with clocks below the application or base clocks, whatever the reason.",
            gpu.violation_s.get(f"below_{clocks}_clocks"),
            gpu=gpu.uuid,
            clocks=clocks,
        )


def _add_power(families: Families, gpu: GpuSample) -> None:
    """Add power, energy and temperatures."""
    for field, metric in names.POWER.items():
        families.gauge(f"opsk_gpu_{metric.what}", metric.help_text, getattr(gpu.power, field), gpu=gpu.uuid)
    families.counter(
        metric_names.GPU_ENERGY_JOULES_TOTAL,
        "Energy that the GPU used since its driver was loaded.",
        gpu.power.energy_j,
        gpu=gpu.uuid,
    )
    for sensor in ("gpu", "memory"):
        families.gauge(
            metric_names.GPU_TEMPERATURE_CELSIUS,
            names.TEMPERATURE_HELP,
            gpu.temperatures_c.get(sensor),
            gpu=gpu.uuid,
            sensor=sensor,
        )
    families.gauge(
        "opsk_gpu_temperature_margin_celsius",
        "Degrees left until the GPU slows down.",
        gpu.temperatures_c.get("margin"),
        gpu=gpu.uuid,
    )
    for limit, celsius in gpu.temperature_limits_c.items():
        families.gauge(
            metric_names.GPU_TEMPERATURE_LIMIT_CELSIUS,
            "Temperature at which something happens: slowdown, shutdown, highest for running (gpu_max, memory_max).",
            celsius,
            gpu=gpu.uuid,
            limit=limit,
        )


def _add_mig(families: Families, gpu: GpuSample, mig: MigSample, slurm_index: int | None) -> None:
    """Add one MIG device."""
    families.info(
        "opsk_gpu_mig_info",
        "MIG device: its GPU (parent), GPU instance, compute instance, index on that GPU, Slurm's index where it is "
        "known, and profile.",
        gpu=mig.uuid,
        parent=gpu.uuid,
        gi=str(mig.gi),
        ci=str(mig.ci),
        index=str(mig.index),
        slurm_index="" if slurm_index is None else str(slurm_index),
        profile=mig.profile,
    )
    labels = {"gpu": mig.uuid, "parent": gpu.uuid}
    _add_memory(families, names.MIG_MEMORY, mig.memory, **labels)
    _add_activity(families, names.MIG_ACTIVITY, mig.activity, **labels)
    families.gauge("opsk_gpu_mig_multiprocessors", "Multiprocessors of the MIG device.", mig.multiprocessors, **labels)
    families.gauge(
        "opsk_gpu_mig_processes",
        "Processes with a compute context on the MIG device; absent where the driver does not report them.",
        None if mig.processes is None else len(mig.processes),
        **labels,
    )
