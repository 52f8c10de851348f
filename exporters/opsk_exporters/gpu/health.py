"""Exports the health of a GPU and of its place in an NVLink fabric."""

from __future__ import annotations

from collections.abc import Iterable

from opsk.metrics import names as metric_names
from opsk.telemetry.background_reader import Latest
from opsk.telemetry.gpu.nvml.fields import RECOVERY_ACTIONS
from opsk.telemetry.gpu.samples import EccCount, GpuReading, GpuSample
from opsk.telemetry.gpu.services import DAEMON_STATES, DOMAIN_STATES, ImexSample, ServiceSample
from opsk_exporters.core.exposition import Families
from opsk_exporters.gpu import names

LONGEST_S = 120.0
_OTHER_COUNTERS = frozenset({"below_application_clocks", "below_base_clocks"})
_PARTS_OF_THERMAL = frozenset({"sw_thermal_slowdown", "hw_thermal_slowdown"})
_IMEX_STALE_S = 300.0
_SRAM = ("sram", "sram_parity", "sram_secded")


class ThrottleTimes:
    """Time by GPU and reason, over all readings of this process."""

    def __init__(self) -> None:
        self._summed_s: dict[str, dict[str, float]] = {}
        self._counted: dict[str, set[str]] = {}
        self._read_at_s: float | None = None

    def note(self, reading: GpuReading) -> dict[str, dict[str, float]]:
        """Take a reading into account; return the seconds by GPU and reason.

        A reason that NVML counted from the first has NVML's number; the others have what was summed. The same reading
        twice adds nothing.
        """
        before, self._read_at_s = self._read_at_s, reading.read_at_s
        elapsed_s = 0.0 if before is None else max(0.0, reading.read_at_s - before)
        if elapsed_s > LONGEST_S:
            elapsed_s = 0.0
        return {gpu.uuid: self._times(gpu, elapsed_s) for gpu in reading.gpus}

    def _times(self, gpu: GpuSample, elapsed_s: float) -> dict[str, float]:
        """Return the seconds of one GPU by reason."""
        summed = self._summed_s.setdefault(gpu.uuid, {})
        other = _OTHER_COUNTERS | summed.keys()
        counted = {reason: time_s for reason, time_s in gpu.violation_s.items() if reason not in other}
        ever_counted = self._counted.setdefault(gpu.uuid, set())
        ever_counted.update(counted)
        if ever_counted & _PARTS_OF_THERMAL:
            counted.pop("thermal", None)
        if gpu.throttle_reasons is None:
            return counted
        for reason in sorted(((gpu.throttle_reasons_known or frozenset()) | gpu.throttle_reasons) - ever_counted):
            summed[reason] = summed.get(reason, 0.0) + (elapsed_s if reason in gpu.throttle_reasons else 0.0)
        return {**summed, **counted}


def add_health(families: Families, gpu: GpuSample) -> None:
    """Add memory errors, PCIe and the recovery action that the driver requests."""
    for field, metric in names.SWITCHES.items():
        families.gauge(f"opsk_gpu_{metric.what}", metric.help_text, _number(getattr(gpu, field)), gpu=gpu.uuid)
    for span, since in (("volatile", "since the last reset or driver load"), ("aggregate", "in the GPU's life")):
        for (kind, location), count in _group_ecc_counts(gpu.ecc, span).items():
            families.counter(
                f"opsk_gpu_ecc_{span}_errors_total",
                f"Memory errors that ECC found {since}, corrected or not, in device memory (dram) or in the chip's own "
                "memories (sram, or each of them on older GPUs).",
                count,
                gpu=gpu.uuid,
                error=kind,
                location=location,
            )
    _add_remap(families, gpu)
    _add_pcie(families, gpu)
    if gpu.recovery_action is not None:
        for action in dict.fromkeys((*RECOVERY_ACTIONS, gpu.recovery_action)):
            families.gauge(
                metric_names.GPU_RECOVERY_ACTION,
                "1 for the action that the driver requires to recover the GPU, 0 for the others.",
                float(action == gpu.recovery_action),
                gpu=gpu.uuid,
                action=action,
            )


def _group_ecc_counts(counts: Iterable[EccCount], span: str) -> dict[tuple[str, str], int]:
    """Return counts that can be added up, by kind and location.

    The driver's total includes the locations, and SRAM the units of the chip: of two that overlap the finer one that
    newer GPUs have is shown, and the total only where there is nothing finer.
    """
    errors: dict[tuple[str, str], int] = {}
    for count in counts:
        if count.span == span:
            place = "sram" if count.location in _SRAM else count.location
            errors[count.kind, place] = errors.get((count.kind, place), 0) + count.count
    for kind in {kind for kind, _ in errors}:
        places = {place for other, place in errors if other == kind}
        drop = places - {"dram", "sram"} if "sram" in places else (places & {"total"} if len(places) > 1 else set())
        for place in drop:
            del errors[kind, place]
    return errors


def _add_remap(families: Families, gpu: GpuSample) -> None:
    """Add remapped rows and retired pages of the device memory."""
    remap, pages = gpu.row_remap, gpu.retired_pages
    if remap is not None:
        for cause in ("corrected", "uncorrected"):
            families.gauge(
                "opsk_gpu_remapped_rows",
                "Rows of device memory replaced by spares, by the kind of error that was the cause.",
                getattr(remap, cause),
                gpu=gpu.uuid,
                cause=cause,
            )
        for field, metric in names.REMAP.items():
            families.gauge(f"opsk_gpu_{metric.what}", metric.help_text, _number(getattr(remap, field)), gpu=gpu.uuid)
        for spares, banks in remap.banks.items():
            families.gauge(
                "opsk_gpu_row_remap_banks",
                "Banks of device memory by how many spare rows they have left.",
                banks,
                gpu=gpu.uuid,
                spares=spares,
            )
    if pages is not None:
        for cause, value in (("single_bit", pages.single_bit), ("double_bit", pages.double_bit)):
            families.gauge(
                "opsk_gpu_retired_pages",
                "Pages of device memory taken out of use (GPUs before Ampere), by the cause.",
                value,
                gpu=gpu.uuid,
                cause=cause,
            )
        families.gauge(
            "opsk_gpu_retired_pages_pending",
            "1 when pages wait for a reset to be taken out of use.",
            _number(pages.pending),
            gpu=gpu.uuid,
        )


def _add_pcie(families: Families, gpu: GpuSample) -> None:
    """Add the PCIe link."""
    for field, metric in names.PCIE.items():
        families.gauge(f"opsk_gpu_{metric.what}", metric.help_text, getattr(gpu.pcie, field), gpu=gpu.uuid)
    for kind, count in gpu.pcie.counters.items():
        if kind == "replays":
            families.counter(
                "opsk_gpu_pcie_replays_total",
                "Packets that had to be sent again over PCIe since driver load.",
                count,
                gpu=gpu.uuid,
            )
        else:
            families.counter(
                "opsk_gpu_pcie_errors_total",
                "Events of the PCIe link since driver load that a sound link has few of, by kind.",
                count,
                gpu=gpu.uuid,
                kind=kind,
            )


def add_fabric(families: Families, gpu: GpuSample) -> None:
    """Add the GPU's place in an NVLink domain."""
    fabric = gpu.fabric
    if fabric is None or fabric.state == "not_supported":
        return
    families.info(
        metric_names.GPU_FABRIC_INFO,
        "NVLink domain of the GPU (cluster, empty within one node) and its clique in it, how joining it ended, and "
        "what is wrong with the configuration.",
        gpu=gpu.uuid,
        cluster_uuid=fabric.cluster_uuid,
        clique="" if fabric.clique is None else str(fabric.clique),
        status=fabric.status,
        configuration=fabric.configuration,
    )
    for state in dict.fromkeys((*names.STATES_OF_FABRIC[1:], fabric.state)):
        families.gauge(
            metric_names.GPU_FABRIC_STATE,
            "1 for how far the GPU has come in joining its NVLink fabric, 0 for the other states; completed is the "
            "state of a GPU that can work.",
            float(state == fabric.state),
            gpu=gpu.uuid,
            state=state,
        )
    families.gauge(
        metric_names.GPU_FABRIC_JOINED,
        "1 when the GPU has joined its NVLink fabric without error.",
        float(fabric.status == "success"),
        gpu=gpu.uuid,
    )
    families.gauge(
        metric_names.GPU_FABRIC_HEALTHY,
        "1 when the driver calls the GPU's place in the fabric healthy, 0 when unhealthy or of limited capacity.",
        None if fabric.summary is None else float(fabric.summary == "healthy"),
        gpu=gpu.uuid,
    )
    for fault, bad in fabric.health.items():
        families.gauge(
            metric_names.GPU_FABRIC_FAULT,
            "1 for a fault in the GPU's place in the fabric, 0 where the driver looked and found none.",
            float(bad),
            gpu=gpu.uuid,
            fault=fault,
        )


def add_services(families: Families, services: Iterable[ServiceSample]) -> None:
    """Add the services that the fabric of the GPUs needs."""
    for service in services:
        families.gauge(
            "opsk_gpu_service_running",
            "1 when a service of the NVLink fabric has processes (Fabric Manager, IMEX); absent when not installed.",
            float(service.running),
            service=service.name,
        )
        families.gauge(
            "opsk_gpu_service_enabled",
            "1 when the service is started at boot: then it should run.",
            float(service.enabled),
            service=service.name,
        )


def add_imex(families: Families, latest: Latest[ImexSample] | None) -> None:
    """Add the state of the IMEX daemon and its age; a stale answer has its age and no states."""
    if latest is None:
        return
    families.gauge(
        "opsk_gpu_imex_age_seconds",
        "How long ago nvidia-imex-ctl last answered; it runs once a minute.",
        latest.age_s,
    )
    sample = latest.value
    if sample is None or latest.age_s is None or latest.age_s > _IMEX_STALE_S:
        return
    states = (
        ("daemon", DAEMON_STATES, sample.daemon, "the IMEX daemon of this node is in; ready is the one to be in"),
        ("domain", DOMAIN_STATES, sample.domain, "its IMEX domain is in, all nodes together; up is the one to be in"),
    )
    for of_what, known, now, help_text in states:
        for state in known if now is not None else ():
            families.gauge(
                f"opsk_gpu_imex_{of_what}_state",
                f"1 for the state that {help_text}.",
                float(state == now),
                state=state,
            )
    families.gauge("opsk_gpu_imex_nodes", "Nodes of the IMEX domain.", sample.nodes)
    families.gauge("opsk_gpu_imex_nodes_ready", "Nodes of the IMEX domain whose daemon is ready.", sample.nodes_ready)


def _number(value: bool | None) -> float | None:
    """Return 1 for yes and 0 for no."""
    return None if value is None else float(value)
