"""Reads many NVML fields of a GPU in one call and converts them to SI units.

``nvmlDeviceGetFieldValues`` takes any list of (field, scope): one call a GPU and scrape gives energy, power, ECC,
remapped rows, violation times, PCIe and NVLink counters. Field numbers are those of nvml.h, which never change. Fields
that a GPU does not support are found at the first call and not requested again.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Iterable, Mapping

from opsk import units
from opsk.telemetry.gpu.nvml.caller import BLANKS, NvmlCaller, drop_blank
from opsk.telemetry.gpu.samples import EccCount, GpuPower, RetiredPages, RowRemap

Field = tuple[int, int]
"""Number of a field, and its scope: the link for NVLink fields, 0 else (for power: the GPU, not its module)."""

_RECORD = struct.Struct("=IIqqiIQ")
"""nvmlFieldValue_t: field, scope, timestamp, latency, value type, return code, value."""
_READERS = {0: struct.Struct("=d"), 4: struct.Struct("=q"), 5: struct.Struct("=i4x"), 6: struct.Struct("=H6x")}
"""Layout of values in the union (nvmlValueType_t): double, signed long, signed int, unsigned short."""
_PLAIN, _UINT = (2, 3), 1
"""Value types that fill the union (unsigned long, unsigned long long), and unsigned int, which fills half of it."""

_UNSUPPORTED = frozenset({2, 3, 13})
"""A field that an older NVML does not know is an invalid argument to it."""
_NO_VALUE_NOW = frozenset({6, 21})
_MAX_PER_CALL = 256
"""nvml.h states no limit; more than this is requested only once, before unsupported fields are known."""

ECC_MODE, RETIRED_SINGLE, RETIRED_DOUBLE, RETIRED_PENDING = 1, 29, 30, 31
MEMORY_TEMPERATURE, ENERGY = 82, 83
LINK_COUNT = 91
PCIE_REPLAYS = 94
REMAP_CORRECTED, REMAP_UNCORRECTED, REMAP_PENDING, REMAP_FAILURE = 142, 143, 144, 145
POWER_AVERAGE, POWER_INSTANT, POWER_DEFAULT_LIMIT, POWER_LIMIT = 185, 186, 189, 190
RECOVERY_ACTION = 230

_ECC = {
    number: (kind, span, location)
    for kind, span, numbers in (
        ("corrected", "volatile", {"total": 3, "l1": 7, "l2": 9, "dram": 11, "register_file": 13, "texture": 15}),
        (
            "uncorrected",
            "volatile",
            {"total": 4, "l1": 8, "l2": 10, "dram": 12, "register_file": 14, "texture": 16, "cbu": 17},
        ),
        ("corrected", "aggregate", {"total": 5, "l1": 18, "l2": 20, "dram": 22, "register_file": 24, "texture": 26}),
        (
            "uncorrected",
            "aggregate",
            {"total": 6, "l1": 19, "l2": 21, "dram": 23, "register_file": 25, "texture": 27, "cbu": 28},
        ),
    )
    for location, number in numbers.items()
}
VIOLATIONS = {
    74: "sw_power_cap",
    75: "thermal",
    76: "sync_boost",
    77: "board_limit",
    78: "low_utilization",
    79: "reliability",
    80: "below_application_clocks",
    81: "below_base_clocks",
    269: "sw_thermal_slowdown",
    270: "hw_thermal_slowdown",
    271: "hw_power_brake",
}
"""Counters of time with clocks held down [ns], under the names that ``throttle_reasons`` has for the same cause."""
PCIE_COUNTERS = {
    PCIE_REPLAYS: "replays",
    95: "replay_rollovers",
    169: "recoveries",
    173: "correctable_errors",
    174: "naks_received",
    175: "receiver_errors",
    176: "bad_tlps",
    177: "naks_sent",
    178: "bad_dllps",
    179: "non_fatal_errors",
    180: "fatal_errors",
    181: "unsupported_requests",
    182: "lcrc_errors",
    183: "lane_errors",
}
RECOVERY_ACTIONS = (
    "none",
    "gpu_reset",
    "node_reboot",
    "drain_p2p",
    "drain_and_reset",
    "recover_imex_domain",
    "bus_reset",
    "system_reboot",
)
DEVICE_FIELDS: tuple[Field, ...] = tuple(
    (number, 0)
    for number in (
        ECC_MODE,
        *_ECC,
        RETIRED_SINGLE,
        RETIRED_DOUBLE,
        RETIRED_PENDING,
        MEMORY_TEMPERATURE,
        ENERGY,
        *VIOLATIONS,
        *PCIE_COUNTERS,
        REMAP_CORRECTED,
        REMAP_UNCORRECTED,
        REMAP_PENDING,
        REMAP_FAILURE,
        POWER_AVERAGE,
        POWER_INSTANT,
        POWER_DEFAULT_LIMIT,
        POWER_LIMIT,
        RECOVERY_ACTION,
    )
)


class FieldReader:
    """Reads a list of fields of one GPU in one call, and requests only those that the GPU supports.

    Parameters
    ----------
    ask
        Calls NVML for the GPU.
    fields
        The fields to read.
    """

    def __init__(self, ask: NvmlCaller, fields: Iterable[Field]) -> None:
        self._ask = ask
        self._requested = tuple(dict.fromkeys(fields))
        self.fields = self._requested
        self._request: ctypes.Array[ctypes.c_char] | None = None

    def add(self, fields: Iterable[Field]) -> None:
        """Read these too."""
        self._requested = tuple(dict.fromkeys((*self._requested, *fields)))
        self.ask_all_again()

    def ask_all_again(self) -> None:
        """Request everything next time: a mode of the GPU has changed."""
        self.fields, self._request = self._requested, None

    def read(self, handle: object) -> dict[Field, float]:
        """Return the values that the GPU reports; blanks are left out.

        Raises
        ------
        GpuLostError, SessionLostError
            As ``NvmlCaller``.
        """
        values: dict[Field, float] = {}
        supported: list[Field] = []
        for start in range(0, len(self.fields), _MAX_PER_CALL):
            part = self.fields[start : start + _MAX_PER_CALL]
            answers = self._answers(handle, part)
            supported += part if answers is None else self._take(answers, values)
        if len(supported) != len(self.fields):
            self.fields, self._request = tuple(supported), None
        return values

    def _answers(self, handle: object, fields: tuple[Field, ...]) -> bytes | None:
        """Return the filled-in records of fields.

        ``pynvml`` builds its array again at each call, record by record, which costs more than all else of a scrape. So
        its library is called with records that were made once; where the module has none (a fake), its function.
        """
        function = getattr(getattr(self._ask.nvml, "nvmlLib", None), "nvmlDeviceGetFieldValues", None)
        if function is None:
            answers = self._ask("fields", "nvmlDeviceGetFieldValues", handle, fields)
            return None if answers is None else bytes(answers)
        buffer = self._request if len(fields) == len(self.fields) else None
        if buffer is None:
            empty = (_RECORD.pack(number, scope, 0, 0, 0, 0, 0) for number, scope in fields)
            buffer = ctypes.create_string_buffer(b"".join(empty), len(fields) * _RECORD.size)
            self._request = buffer if len(fields) == len(self.fields) else None
        code = function(handle, len(fields), buffer)
        if code:
            self._ask.note_failure("fields", code)
            return None
        return buffer.raw

    def _take(self, answers: bytes, values: dict[Field, float]) -> list[Field]:
        """Read answers into ``values``; return the fields to request next time."""
        supported = []
        for number, scope, _at, _latency, kind, code, raw in _RECORD.iter_unpack(answers):
            if code == 0:
                value = raw if kind in _PLAIN else raw & 0xFFFFFFFF if kind == _UINT else _unpack_value(kind, raw)
                if value is not None and value not in BLANKS:
                    values[number, scope] = value
            elif code in _UNSUPPORTED:
                continue
            elif code not in _NO_VALUE_NOW:
                self._ask.note_failure(f"field {number}", code)
            supported.append((number, scope))
        return supported


def _unpack_value(kind: int, raw: int) -> float | None:
    """Read the union of a field value that is neither unsigned int nor unsigned long."""
    reader = _READERS.get(kind)
    return None if reader is None else drop_blank(reader.unpack(raw.to_bytes(8, sys.byteorder))[0])


def get_count(values: Mapping[Field, float], number: int, scope: int = 0) -> int | None:
    """Return a field that counts; ``None`` where it is not there or negative."""
    value = values.get((number, scope))
    return None if value is None or value < 0 else int(value)


def get_flag(values: Mapping[Field, float], number: int) -> bool | None:
    """Return a field that is 1 for yes and 0 for no."""
    value = values.get((number, 0))
    return None if value is None else value != 0


def build_power(values: Mapping[Field, float]) -> GpuPower:
    """Return power and energy, which the fields have in mW and mJ."""
    return GpuPower(
        instant_w=_milli(get_count(values, POWER_INSTANT)),
        average_w=_milli(get_count(values, POWER_AVERAGE)),
        limit_w=_milli(get_count(values, POWER_LIMIT)),
        default_limit_w=_milli(get_count(values, POWER_DEFAULT_LIMIT)),
        energy_j=_milli(get_count(values, ENERGY)),
    )


def build_ecc(values: Mapping[Field, float]) -> tuple[EccCount, ...]:
    """Return the ECC counts by kind, span and location."""
    return tuple(
        EccCount(kind=kind, span=span, location=location, count=int(values[number, 0]))
        for number, (kind, span, location) in _ECC.items()
        if values.get((number, 0), -1) >= 0
    )


def build_violations(values: Mapping[Field, float]) -> dict[str, float]:
    """Return the time with clocks held down, by cause [s]."""
    return {
        name: units.nanoseconds(value)
        for number, name in VIOLATIONS.items()
        if (value := values.get((number, 0), -1)) >= 0
    }


def build_pcie_counters(values: Mapping[Field, float]) -> dict[str, int]:
    """Return the counters of the PCIe link."""
    return {name: value for number, name in PCIE_COUNTERS.items() if (value := get_count(values, number)) is not None}


def build_row_remap(values: Mapping[Field, float], banks: Mapping[str, int]) -> RowRemap | None:
    """Return the state of the row remapper; ``None`` for a GPU that has none (before Ampere)."""
    remap = RowRemap(
        corrected=get_count(values, REMAP_CORRECTED),
        uncorrected=get_count(values, REMAP_UNCORRECTED),
        pending=get_flag(values, REMAP_PENDING),
        failure=get_flag(values, REMAP_FAILURE),
        banks=banks,
    )
    return None if remap == RowRemap() else remap


def build_retired_pages(values: Mapping[Field, float]) -> RetiredPages | None:
    """Return the retired pages; ``None`` for a GPU that retires none (Ampere and newer)."""
    pages = RetiredPages(
        single_bit=get_count(values, RETIRED_SINGLE),
        double_bit=get_count(values, RETIRED_DOUBLE),
        pending=get_flag(values, RETIRED_PENDING),
    )
    return None if pages == RetiredPages() else pages


def get_recovery_action(values: Mapping[Field, float]) -> str | None:
    """Return the recovery action that the driver requests."""
    action = get_count(values, RECOVERY_ACTION)
    if action is None:
        return None
    return RECOVERY_ACTIONS[action] if action < len(RECOVERY_ACTIONS) else f"action_{action}"


def _milli(value: int | None) -> float | None:
    """Return thousandths as the unit itself."""
    return None if value is None else units.milli(value)
