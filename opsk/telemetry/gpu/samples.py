"""Defines the samples of a node's GPUs at one moment, and the port that collectors share.

All values are SI: bytes, hertz, watts, joules, seconds, degrees Celsius, ratios from 0 to 1. ``None``, or a missing
key, means that the GPU or its driver does not report it; failed reads are listed in ``GpuReading.unreadable``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from opsk.errors import TelemetryError

_PCI = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-7]))?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory:
    """Device memory: total is used + reserved + free; reserved is the driver's own, where it is reported."""

    total_bytes: int
    used_bytes: int
    free_bytes: int
    reserved_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuActivity:
    """Shares of time and rates between two samples of the hardware's counters (NVML GPM; Hopper and newer).

    Parameters
    ----------
    window_s
        Time between the two samples [s].
    ratios
        By name: ``graphics`` (any engine of compute or graphics), ``sm``, ``sm_occupancy``, ``tensor`` (any),
        ``tensor_half`` (HMMA), ``tensor_double``, ``tensor_integer``, ``dram``, ``fp64``, ``fp32``, ``fp16``,
        ``integer``.
    bytes_per_s
        By name: ``pcie_received``, ``pcie_transmitted``, ``nvlink_received``, ``nvlink_transmitted``; the GPU's side.
    """

    window_s: float
    ratios: Mapping[str, float] = field(default_factory=dict)
    bytes_per_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPower:
    """Electrical power of the board [W], its limits, and the energy counter [J] that starts at each driver load."""

    instant_w: float | None = None
    average_w: float | None = None
    limit_w: float | None = None
    default_limit_w: float | None = None
    energy_j: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EccCount:
    """Memory errors of one kind: ``kind`` corrected or uncorrected, ``span`` volatile (since reset) or aggregate.

    ``location`` is ``total``, ``dram``, ``sram``, ``sram_parity``, ``sram_secded``, or a unit: ``l1``, ``l2``,
    ``register_file``, ``texture``, ``cbu``. Totals include the locations: never add them up.
    """

    kind: str
    span: str
    location: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRemap:
    """Rows of device memory replaced by spares; ``banks`` counts banks by how many spares they have left.

    ``pending``: a row is replaced at the next reset. ``failure``: a replacement failed, the GPU needs service.
    """

    corrected: int | None = None
    uncorrected: int | None = None
    pending: bool | None = None
    failure: bool | None = None
    banks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetiredPages:
    """Pages of device memory taken out of use (before Ampere), by cause, and whether some wait for a reset."""

    single_bit: int | None = None
    double_bit: int | None = None
    pending: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NvLinkSample:
    """One NVLink of a GPU.

    Parameters
    ----------
    link
        Number of the link on this GPU.
    state
        ``active``, ``inactive``, ``sleep`` or ``traffic_disabled``.
    version
        Generation (``4.0``).
    bytes_per_s
        Speed of the link in one direction, as the driver states it [bytes/s].
    remote_kind, remote_pci, remote_link
        What is at the other end (``gpu``, ``switch``, ``npu``), its PCI address, and its number of the link.
    received_bytes, transmitted_bytes
        Data moved since the driver was loaded, without protocol [bytes].
    errors
        Counters by kind: ``replay``, ``recovery``, ``crc``, ``ecc``, ``symbol``, ``effective``, ...
    """

    link: int
    state: str | None = None
    version: str | None = None
    bytes_per_s: float | None = None
    remote_kind: str | None = None
    remote_pci: str | None = None
    remote_link: int | None = None
    received_bytes: int | None = None
    transmitted_bytes: int | None = None
    errors: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PcieSample:
    """The GPU's PCIe link: generation and lanes now and at most, and counters since the driver was loaded.

    ``counters`` by name: ``replays``, ``replay_rollovers``, ``recoveries`` (L0 to recovery), ``correctable_errors``,
    ``fatal_errors``, ... and ``received_bytes`` and ``transmitted_bytes`` where the GPU counts them.
    """

    generation: int | None = None
    generation_max: int | None = None
    width: int | None = None
    width_max: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process with a context on the GPU; ``used_bytes`` is ``None`` where the driver does not report it."""

    pid: int
    used_bytes: int | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MigSample:
    """One MIG device: a compute instance ``ci`` in a GPU instance ``gi`` of a GPU.

    Parameters
    ----------
    uuid, index
        ``MIG-...``, and its number among the MIG devices of its GPU.
    gi, ci
        Ids of the GPU instance and of the compute instance.
    profile
        ``1g.10gb``, or ``1c.3g.40gb`` where several compute instances share a GPU instance.
    memory
        Of the GPU instance: compute instances in one GPU instance share it.
    multiprocessors
        Multiprocessors of the compute instance.
    """

    uuid: str
    index: int
    gi: int
    ci: int
    profile: str | None = None
    memory: GpuMemory | None = None
    multiprocessors: int | None = None
    activity: GpuActivity | None = None
    processes: tuple[GpuProcess, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricSample:
    """The GPU's membership in an NVLink domain that a fabric manager set up.

    Parameters
    ----------
    state
        ``not_supported``, ``not_started``, ``in_progress`` or ``completed``.
    status
        NVML's word for the outcome once the state is completed: ``success`` or an error; ``None`` before.
    cluster_uuid, clique
        The domain (``None`` when it is all zeroes: no multi-node NVLink), and the partition of it.
    health
        Fields that the GPU supports, by name: true is a fault (``degraded_bandwidth``, ``route_unhealthy``,
        ``route_recovery``, ``access_timeout_recovery``, ``manager_disconnected``, ``partition_missing``,
        ``incorrect_configuration``).
    configuration
        What is wrong with the configuration (``insufficient_nvlinks``); ``None`` where nothing is, or it is unknown.
    summary
        ``healthy``, ``unhealthy`` or ``limited_capacity``.
    """

    state: str
    status: str | None = None
    cluster_uuid: str | None = None
    clique: int | None = None
    health: Mapping[str, bool] = field(default_factory=dict)
    configuration: str | None = None
    summary: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One GPU that answers.

    Parameters
    ----------
    uuid, index, minor, pci
        ``GPU-...``, NVML's index (PCI order), number of the device file (``/dev/nvidia<minor>``), and the address in
        the kernel's form (``0000:1a:00.0``).
    model, architecture, serial, vbios
        As the driver reports them; architecture as a word (``hopper``).
    utilisation
        Shares of the driver's last sample period (1/6 to 1 s): ``gpu`` (any kernel ran), ``memory`` (memory was read
        or written), ``encoder``, ``decoder``.
    clocks_hz, clocks_max_hz
        By domain: ``graphics``, ``sm``, ``memory``, ``video``.
    temperatures_c, temperature_limits_c
        Now: ``gpu``, ``memory``, and ``margin`` (degrees left until the GPU slows down); limits: ``slowdown``,
        ``shutdown``, ``gpu_max``, ``memory_max``.
    throttle_reasons, throttle_reasons_known
        Why clocks are below the request now, and the reasons that the GPU can report at all; ``None`` when the
        driver does not report them.
    violation_s
        Time since driver load with clocks held down by each cause, as the driver counts it [s].
    ecc_enabled, ecc, sram_threshold_exceeded
        ECC mode, counts, and whether so many SRAM errors were seen that the GPU needs service.
    mig_mode, mig
        Whether MIG is on (``None``: the GPU has no MIG), and the MIG devices.
    processes
        Compute processes; ``None`` when the driver does not report them (without rights on the GPU, for example).
    recovery_action
        ``none``, ``gpu_reset``, ``node_reboot``, ``drain_p2p``, ``drain_and_reset``, ``recover_imex_domain``,
        ``bus_reset`` or ``system_reboot``.
    compute_mode
        ``default``, ``prohibited``, ``exclusive_process`` or ``exclusive_thread``.
    """

    uuid: str
    index: int
    minor: int | None = None
    pci: str | None = None
    model: str | None = None
    architecture: str | None = None
    serial: str | None = None
    vbios: str | None = None
    memory: GpuMemory | None = None
    utilisation: Mapping[str, float] = field(default_factory=dict)
    activity: GpuActivity | None = None
    clocks_hz: Mapping[str, float] = field(default_factory=dict)
    clocks_max_hz: Mapping[str, float] = field(default_factory=dict)
    power: GpuPower = field(default_factory=GpuPower)
    temperatures_c: Mapping[str, float] = field(default_factory=dict)
    temperature_limits_c: Mapping[str, float] = field(default_factory=dict)
    throttle_reasons: frozenset[str] | None = None
    throttle_reasons_known: frozenset[str] | None = None
    violation_s: Mapping[str, float] = field(default_factory=dict)
    ecc_enabled: bool | None = None
    ecc: tuple[EccCount, ...] = ()
    sram_threshold_exceeded: bool | None = None
    row_remap: RowRemap | None = None
    retired_pages: RetiredPages | None = None
    nvlinks: tuple[NvLinkSample, ...] = ()
    pcie: PcieSample = field(default_factory=PcieSample)
    mig_mode: bool | None = None
    mig: tuple[MigSample, ...] = ()
    processes: tuple[GpuProcess, ...] | None = None
    recovery_action: str | None = None
    fabric: FabricSample | None = None
    persistence: bool | None = None
    compute_mode: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LostGpu:
    """A GPU that was there and no longer answers, or is no longer listed; its known properties, and NVML's error.

    ``uuid`` is ``None`` for a GPU that never answered: NVML counts it, and returns only an error for its index.
    """

    uuid: str | None
    index: int
    pci: str | None = None
    minor: int | None = None
    model: str | None = None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A read that failed; ``gpu`` is a UUID, or ``None`` for the node. "Not supported" is an answer, not this."""

    gpu: str | None
    what: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """All GPUs of a node at one moment.

    Parameters
    ----------
    read_at_s
        Monotonic time of the reading [s]: differences between two readings are what counters are divided by.
    driver, nvml, cuda
        Versions; cuda is the newest that the driver can run (``12.8``).
    gpus
        Those that answer, in NVML's order.
    lost
        Those that do not answer, or that were there before and are not any more.
    """

    read_at_s: float
    driver: str | None = None
    nvml: str | None = None
    cuda: str | None = None
    gpus: tuple[GpuSample, ...] = ()
    lost: tuple[LostGpu, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()


class GpuDriverMissingError(TelemetryError):
    """The node has no driver, or none loaded, for the GPUs that a source reads."""


class GpuSource(Protocol):
    """A source of samples of the GPUs of a node."""

    def gpus(self) -> GpuReading:
        """Return all GPUs; a reading without GPUs and losses where the node has none.

        Raises
        ------
        GpuDriverMissingError
            The node has no driver for such GPUs, or none loaded: nothing is wrong on a node without GPUs.
        TelemetryError
            There is a driver, and it does not answer.
        """
        ...


def normalise_pci(text: str) -> str | None:
    """Return a PCI address in the kernel's form, whatever the width of its domain; ``None`` when it is no address.

    ``00000000:1A:00.0`` and ``0000:1a:00`` are both ``0000:1a:00.0``; ``1a:0`` is too.
    """
    match = _PCI.fullmatch(text.strip())
    if match is None:
        return None
    domain, bus, device, function = (int(part or "0", 16) for part in match.groups())
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function}" if device < 32 else None
