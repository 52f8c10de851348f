"""Reads GPUs through ``nvidia-smi --query-gpu``, for nodes whose NVML library cannot be loaded.

The fields are those of ``nvidia-smi --help-query-gpu``; a driver that does not know one is not asked for it. Left out,
since no column has it: NVLinks, MIG devices, processes and energy.
"""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from opsk import units
from opsk.errors import TelemetryError
from opsk.telemetry.gpu.samples import (
    EccCount,
    FabricSample,
    GpuDriverMissingError,
    GpuMemory,
    GpuPower,
    GpuReading,
    GpuSample,
    LostGpu,
    PcieSample,
    RetiredPages,
    RowRemap,
    Unreadable,
    normalise_pci,
)
from opsk.text import blank_controls

DEFAULT_DEADLINE_S = 10.0
_MAX_ROWS = 4096
_REASONS = {
    "gpu_idle": "gpu_idle",
    "applications_clocks_setting": "application_clocks",
    "sw_power_cap": "sw_power_cap",
    "hw_slowdown": "hw_slowdown",
    "hw_thermal_slowdown": "hw_thermal_slowdown",
    "hw_power_brake_slowdown": "hw_power_brake",
    "sw_thermal_slowdown": "sw_thermal_slowdown",
    "sync_boost": "sync_boost",
}
"""Columns ``clocks_event_reasons.*`` and the name of the reason in a sample."""
_TIMED_REASONS = ("sw_power_cap", "sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
_ECC_LOCATIONS = {
    "total": "total",
    "dram": "dram",
    "device_memory": "dram",
    "sram": "sram",
    "sram.parity": "sram_parity",
    "sram.secded": "sram_secded",
    "register_file": "register_file",
    "l1_cache": "l1",
    "l2_cache": "l2",
    "texture_memory": "texture",
    "cbu": "cbu",
}
_CLOCKS = ("graphics", "sm", "memory", "video")
_UTILISATIONS = ("gpu", "memory", "encoder", "decoder")
_TEMPERATURES = {"gpu": "temperature.gpu", "memory": "temperature.memory", "margin": "temperature.gpu.tlimit"}
_BANKS = ("max", "high", "partial", "low", "none")
_HEALTH = {
    "route_recovery": "fabric.health.route_recovery_in_progress",
    "route_unhealthy": "fabric.health.route_unhealthy",
    "access_timeout_recovery": "fabric.health.access_timeout_recovery",
}
_RECOVERY = {"reset": "gpu_reset", "gpu_reset_required": "gpu_reset", "reboot": "node_reboot"}
"""Actions whose names differ between releases of the driver; the others are taken as they are."""
FIELDS = (
    *("index", "uuid", "pci.bus_id", "name", "serial", "vbios_version", "driver_version"),
    *("persistence_mode", "compute_mode", "mig.mode.current", "ecc.mode.current", "gpu_recovery_action"),
    *("memory.total", "memory.used", "memory.free", "memory.reserved"),
    *(f"utilization.{engine}" for engine in _UTILISATIONS),
    *(f"clocks.current.{clock}" for clock in _CLOCKS),
    *(f"clocks.max.{clock}" for clock in _CLOCKS[:3]),
    *("power.draw", "power.draw.average", "power.draw.instant", "enforced.power.limit", "power.default_limit"),
    *_TEMPERATURES.values(),
    *("pcie.link.gen.current", "pcie.link.gen.max", "pcie.link.width.current", "pcie.link.width.max"),
    *(f"clocks_event_reasons.{reason}" for reason in _REASONS),
    *(f"clocks_event_reasons_counters.{reason}" for reason in _TIMED_REASONS),
    *(
        f"ecc.errors.{kind}.{span}.{location}"
        for kind in ("corrected", "uncorrected")
        for span in ("volatile", "aggregate")
        for location in _ECC_LOCATIONS
    ),
    "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded",
    *(f"remapped_rows.{part}" for part in ("correctable", "uncorrectable", "pending", "failure")),
    *(f"remapped_rows.histogram.{bank}" for bank in _BANKS),
    *("retired_pages.single_bit_ecc.count", "retired_pages.double_bit.count", "retired_pages.pending"),
    *("fabric.state", "fabric.status", "fabric.cliqueId", "fabric.clusterUuid", "fabric.health.summary"),
    *("fabric.health.bandwidth", "fabric.health.incorrect_configuration", *_HEALTH.values()),
)
"""Columns that are asked for, in the order of ``--query-gpu``."""
_LISTED = re.compile(r'"([A-Za-z][\w.]{1,80})"')
_NOTHING = frozenset({"", "n/a", "not supported", "not available", "unknown", "insufficient permissions", "deprecated"})
_ERROR = re.compile(r"gpu is lost|gpu requires (?:reset|restart)|unknown error|error|err!", re.IGNORECASE)
_NUMBER = re.compile(r"-?\d{1,18}(?:\.\d{1,9})?")
_NO_HANDLE = re.compile(
    r"Unable to determine the device handle for gpu\s{0,2}(?:(?P<index>\d{1,3}):?\s{1,2})?"
    r"(?P<pci>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])?\s{0,2}:\s{0,2}(?P<why>[^\n]{0,200})",
    re.IGNORECASE,
)
_NO_DRIVER = re.compile(r"couldn't communicate with the NVIDIA driver|couldn't find libnvidia-ml", re.IGNORECASE)
_NO_DEVICES = re.compile(r"^No devices were found", re.IGNORECASE | re.MULTILINE)
_AVERAGE_POWER = re.compile(r"\b(?!A100|A800|A30\b)(?:A\d|H\d|L\d|GH\d|B\d|GB\d|RTX [A46])")
"""GPUs whose single ``power.draw`` is a mean over 1 s: Ampere and newer but GA100 (``nvidia-smi --help-query-gpu``)."""

Run = Callable[[Sequence[str], float], str]


class NvidiaSmi:
    """A `GpuSource` that asks ``nvidia-smi``.

    Parameters
    ----------
    program
        Name or path of the program.
    deadline_s
        How long it may take [s].
    run
        Runs a command and returns what it printed; raises ``TimeoutError``.
    clock
        Monotonic seconds.
    """

    def __init__(
        self,
        program: str = "nvidia-smi",
        deadline_s: float = DEFAULT_DEADLINE_S,
        run: Run | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._program = program
        self._deadline_s = deadline_s
        self._run = run or _Child().run
        self._clock = clock
        self._fields: tuple[str, ...] = ()

    def gpus(self) -> GpuReading:
        """Return all GPUs.

        Raises
        ------
        GpuDriverMissingError
            There is no nvidia-smi, or no driver for it.
        TelemetryError
            nvidia-smi hangs, or prints something else.
        """
        if not self._fields:
            known = set(_LISTED.findall(self._ask("--help-query-gpu")))
            self._fields = tuple(field for field in FIELDS if field in known)
        text = self._ask(f"--query-gpu={','.join(self._fields or FIELDS)}", "--format=csv,noheader,nounits")
        reading = parse_rows(text, self._fields or FIELDS, self._clock())
        if reading.gpus or reading.lost or _NO_DEVICES.search(text):
            return reading
        first_line = blank_controls(text.strip().partition("\n")[0])[:200]
        if _NO_DRIVER.search(text):
            raise GpuDriverMissingError(f"nvidia-smi: {first_line}")
        raise TelemetryError(f"nvidia-smi: {first_line or 'it printed nothing that could be read'}")

    def _ask(self, *options: str) -> str:
        """Return what the program prints."""
        try:
            return self._run((self._program, *options), self._deadline_s)
        except FileNotFoundError as error:
            raise GpuDriverMissingError(f"{self._program}: not installed") from error
        except TimeoutError as error:
            raise TelemetryError(
                f"nvidia-smi has not answered within {self._deadline_s:g} s", hint="see the kernel log for Xid lines"
            ) from error
        except OSError as error:
            raise TelemetryError(f"{self._program}: {error.strerror}") from error


def parse_rows(text: str, fields: Sequence[str], read_at_s: float = 0.0) -> GpuReading:
    """Parse rows of ``--query-gpu=FIELDS --format=csv,noheader,nounits``; lines of other shapes are skipped.

    A GPU without a UUID is lost, and so is one that the program has no handle for. An error in place of a value is
    listed as unreadable.
    """
    gpus: list[GpuSample] = []
    lost: list[LostGpu] = []
    unreadable: list[Unreadable] = []
    driver: str | None = None
    for cells in csv.reader(text.splitlines()[:_MAX_ROWS], skipinitialspace=True):
        if len(cells) != len(fields):
            continue
        row = _Row(dict(zip(fields, (cell.strip() for cell in cells), strict=True)))
        sample = _build_sample(row, len(gpus) + len(lost))
        driver = driver or row.text("driver_version")
        errors = row.errors()
        if sample.uuid:
            gpus.append(sample)
            unreadable += [Unreadable(gpu=sample.uuid, what=field, error=error) for field, error in errors.items()]
        elif errors:
            why = next(iter(errors.values()))
            lost.append(LostGpu(uuid=None, index=sample.index, pci=sample.pci, model=sample.model, why=why))
    lost += [gpu for gpu in _find_lost(text) if gpu.pci is None or gpu.pci not in {other.pci for other in lost}]
    return GpuReading(
        read_at_s=read_at_s, driver=driver, gpus=tuple(gpus), lost=tuple(lost), unreadable=tuple(unreadable)
    )


def _find_lost(text: str) -> list[LostGpu]:
    """Return the GPUs that nvidia-smi has no handle for, each once; the index is -1 where it is not printed."""
    lost = {
        match[0]: LostGpu(
            uuid=None,
            index=int(match["index"]) if match["index"] else -1,
            pci=normalise_pci(match["pci"] or ""),
            why=blank_controls(match["why"]).strip()[:120] or "unknown error",
        )
        for match in _NO_HANDLE.finditer(text)
    }
    return list(lost.values())


class _Row:
    """One row: cells by field, with the ways in which nvidia-smi writes that there is no value."""

    def __init__(self, cells: Mapping[str, str]) -> None:
        self._cells = cells

    def errors(self) -> dict[str, str]:
        """Return the fields that hold an error instead of a value."""
        plain = {field: cell.strip("[]").casefold() for field, cell in self._cells.items()}
        return {field: cell for field, cell in plain.items() if _ERROR.fullmatch(cell)}

    def text(self, field: str) -> str | None:
        """Return a value as printable text; ``None`` where there is none."""
        cell = self._cells.get(field, "").strip("[]")
        if cell.casefold() in _NOTHING or _ERROR.fullmatch(cell) or cell.casefold().startswith("requested func"):
            return None
        return blank_controls(cell).strip() or None

    def word(self, field: str) -> str | None:
        """Return a value in lower case with underscores: ``In Progress`` is ``in_progress``."""
        text = self.text(field)
        return None if text is None else re.sub(r"[^a-z0-9]+", "_", text.casefold()).strip("_") or None

    def number(self, field: str) -> float | None:
        """Return a number in the unit of the column."""
        text = self.text(field)
        return float(text) if text is not None and _NUMBER.fullmatch(text) else None

    def count(self, field: str) -> int | None:
        """Return a number that counts something."""
        number = self.number(field)
        return int(number) if number is not None and number >= 0 else None

    def flag(self, field: str) -> bool | None:
        """Return what ``Yes``, ``Enabled``, ``Active`` and their opposites mean."""
        return {
            **dict.fromkeys(("yes", "enabled", "active", "true"), True),
            **dict.fromkeys(("no", "disabled", "not_active", "inactive", "false"), False),
        }.get(self.word(field) or "")

    def numbers(self, fields: Mapping[str, str], convert: Callable[[float], float] = float) -> dict[str, float]:
        """Return the numbers of several fields by the names given to them, in SI units."""
        values = {name: self.number(field) for name, field in fields.items()}
        return {name: convert(value) for name, value in values.items() if value is not None}


def _build_sample(row: _Row, position: int) -> GpuSample:
    """Build the sample of one GPU; ``position`` is its index where none is printed."""
    index, recovery = row.count("index"), row.word("gpu_recovery_action")
    flags = {name: row.flag(f"clocks_event_reasons.{reason}") for reason, name in _REASONS.items()}
    known = frozenset(name for name, flag in flags.items() if flag is not None)
    return GpuSample(
        uuid=row.text("uuid") or "",
        index=position if index is None else index,
        pci=normalise_pci(row.text("pci.bus_id") or ""),
        model=row.text("name"),
        serial=row.text("serial"),
        vbios=row.text("vbios_version"),
        memory=_build_memory(row),
        utilisation=row.numbers({name: f"utilization.{name}" for name in _UTILISATIONS}, units.percent),
        clocks_hz=row.numbers({name: f"clocks.current.{name}" for name in _CLOCKS}, units.megahertz),
        clocks_max_hz=row.numbers({name: f"clocks.max.{name}" for name in _CLOCKS[:3]}, units.megahertz),
        power=_build_power(row),
        temperatures_c=row.numbers(_TEMPERATURES),
        throttle_reasons=frozenset(name for name in known if flags[name]) if known else None,
        throttle_reasons_known=known or None,
        violation_s=row.numbers(
            {_REASONS[reason]: f"clocks_event_reasons_counters.{reason}" for reason in _TIMED_REASONS}, units.micro
        ),
        ecc_enabled=row.flag("ecc.mode.current"),
        ecc=_build_ecc(row),
        sram_threshold_exceeded=row.flag("ecc.errors.uncorrected.aggregate.sram.thresholdExceeded"),
        row_remap=_build_row_remap(row),
        retired_pages=_build_retired_pages(row),
        pcie=PcieSample(
            generation=row.count("pcie.link.gen.current"),
            generation_max=row.count("pcie.link.gen.max"),
            width=row.count("pcie.link.width.current"),
            width_max=row.count("pcie.link.width.max"),
        ),
        mig_mode=row.flag("mig.mode.current"),
        recovery_action=_RECOVERY.get(recovery or "", recovery),
        fabric=_build_fabric(row),
        persistence=row.flag("persistence_mode"),
        compute_mode=row.word("compute_mode"),
    )


def _build_memory(row: _Row) -> GpuMemory | None:
    """Return memory use; ``None`` where any part of it is missing."""
    parts = row.numbers({name: f"memory.{name}" for name in ("total", "used", "free", "reserved")})
    if not {"total", "used", "free"} <= parts.keys():
        return None
    return GpuMemory(**{f"{name}_bytes": int(value * units.MIB) for name, value in parts.items()})


def _build_power(row: _Row) -> GpuPower:
    """Return power; where the driver prints one value only, the chip decides whether that is a mean."""
    single, average, instant = (row.number(f"power.draw{kind}") for kind in ("", ".average", ".instant"))
    is_mean = _AVERAGE_POWER.search(row.text("name") or "") is not None
    return GpuPower(
        instant_w=single if instant is None and average is None and not is_mean else instant,
        average_w=single if instant is None and average is None and is_mean else average,
        limit_w=row.number("enforced.power.limit"),
        default_limit_w=row.number("power.default_limit"),
    )


def _build_ecc(row: _Row) -> tuple[EccCount, ...]:
    """Return counts of memory errors."""
    counts = {
        (kind, span, location): count
        for kind in ("corrected", "uncorrected")
        for span in ("volatile", "aggregate")
        for column, location in _ECC_LOCATIONS.items()
        if (count := row.count(f"ecc.errors.{kind}.{span}.{column}")) is not None
    }
    return tuple(
        EccCount(kind=kind, span=span, location=location, count=count)
        for (kind, span, location), count in counts.items()
    )


def _build_row_remap(row: _Row) -> RowRemap | None:
    """Return remapped rows; ``None`` where the GPU has no such thing."""
    banks = row.numbers({bank: f"remapped_rows.histogram.{bank}" for bank in _BANKS})
    remap = RowRemap(
        corrected=row.count("remapped_rows.correctable"),
        uncorrected=row.count("remapped_rows.uncorrectable"),
        pending=row.flag("remapped_rows.pending"),
        failure=row.flag("remapped_rows.failure"),
        banks={bank: int(count) for bank, count in banks.items()},
    )
    return None if remap == RowRemap() else remap


def _build_retired_pages(row: _Row) -> RetiredPages | None:
    """Return retired pages; ``None`` where the GPU has no such thing."""
    pages = RetiredPages(
        single_bit=row.count("retired_pages.single_bit_ecc.count"),
        double_bit=row.count("retired_pages.double_bit.count"),
        pending=row.flag("retired_pages.pending"),
    )
    return None if pages == RetiredPages() else pages


def _build_fabric(row: _Row) -> FabricSample | None:
    """Return the GPU's place in an NVLink domain; ``None`` where it has none."""
    state = row.word("fabric.state")
    if state is None:
        return None
    cluster, configuration = row.text("fabric.clusterUuid"), row.word("fabric.health.incorrect_configuration")
    health = {
        "degraded_bandwidth": {"degraded": True, "full": False}.get(row.word("fabric.health.bandwidth") or ""),
        "incorrect_configuration": None if configuration is None else configuration != "none",
        **{name: row.flag(field) for name, field in _HEALTH.items()},
    }
    return FabricSample(
        state=state,
        status=row.word("fabric.status"),
        cluster_uuid=None if cluster is None or not cluster.strip("0-") else cluster,
        clique=row.count("fabric.cliqueId"),
        health={name: is_bad for name, is_bad in health.items() if is_bad is not None},
        configuration=None if configuration == "none" else configuration,
        summary=row.word("fabric.health.summary"),
    )


class _Child:
    """Runs one child at a time; a child that hangs in the driver is left alone, and no second one is started."""

    def __init__(self) -> None:
        self._hanging: subprocess.Popen[str] | None = None

    def run(self, command: Sequence[str], deadline_s: float) -> str:
        """Return what a command printed on both its outputs."""
        if self._hanging is not None and self._hanging.poll() is None:
            raise TimeoutError
        self._hanging = None
        program = shutil.which(command[0])
        if program is None:
            raise FileNotFoundError(command[0])
        child = subprocess.Popen(
            (program, *command[1:]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        )
        try:
            printed, _ = child.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired as error:
            child.kill()
            self._hanging = child
            raise TimeoutError from error
        return printed
