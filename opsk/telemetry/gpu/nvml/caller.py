"""Calls NVML so that a call that fails costs only its own value.

The library is ``nvidia-ml-py`` (``pynvml``). "Not supported" is a valid answer, and is not requested again for a while;
a lost GPU and a driver that went away end the reading of that GPU, or of all; any other error is recorded and the next
call made.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

from opsk.telemetry.gpu.samples import GpuDriverMissingError, Unreadable

ERRORS = {
    1: "uninitialized",
    2: "invalid_argument",
    3: "not_supported",
    4: "no_permission",
    6: "not_found",
    7: "insufficient_size",
    8: "insufficient_power",
    9: "driver_not_loaded",
    10: "timeout",
    11: "irq_issue",
    12: "library_not_found",
    13: "function_not_found",
    14: "corrupted_inforom",
    15: "gpu_is_lost",
    16: "reset_required",
    17: "operating_system",
    18: "driver_library_mismatch",
    19: "in_use",
    20: "memory",
    21: "no_data",
    22: "vgpu_ecc_not_supported",
    23: "insufficient_resources",
    24: "freq_not_supported",
    25: "argument_version_mismatch",
    26: "deprecated",
    27: "not_ready",
    28: "gpu_not_found",
    29: "invalid_state",
    30: "reset_type_not_supported",
    999: "unknown",
}
"""NVML's return codes (nvml.h) as words."""

TIMEOUT, GPU_IS_LOST, VERSION_MISMATCH = 10, 15, 25
UNSUPPORTED = frozenset({3, 13, 22, 26})
"""The GPU, the driver or this version of NVML does not have it: a valid answer, and the same one next time."""
NO_ANSWER_NOW = frozenset({6, 21})
"""There is no value at the moment: a valid answer, to be requested again."""
_GPU_LOST = frozenset({GPU_IS_LOST, 28})
SESSION_LOST = frozenset({1, 9, 18})
"""The driver went away, or another one came: NVML must be initialised again."""

_INTEGER_BLANKS = frozenset(range(0x7FFFFFF0, 0x7FFFFFF4)) | frozenset(range(2**63 - 16, 2**63 - 12))
BLANKS = _INTEGER_BLANKS | {0xFFFFFFFF, 2**64 - 1, -1}
"""Whole numbers that NVML and DCGM write for "blank"."""
_FLOAT_BLANK = float(2**47)


class GpuLostError(Exception):
    """The GPU that was called has gone."""


class SessionLostError(Exception):
    """NVML must be initialised again before any call can succeed."""


def load() -> Any:
    """Return the ``pynvml`` module.

    Raises
    ------
    GpuDriverMissingError
        The package is not installed.
    """
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        raise GpuDriverMissingError(
            "Python package nvidia-ml-py is not installed", hint="install opsk with its extra 'exporter'"
        ) from error


def get_error_code(error: BaseException) -> int:
    """Return NVML's return code of an exception of ``pynvml``; 999 (unknown) for any other."""
    value = getattr(error, "value", None)
    if isinstance(value, int):
        return value
    # pynvml refuses an old library by an error of its own, and fails to decode a text that is no UTF-8.
    return 13 if type(error).__name__ == "NVMLLibraryMismatchError" else 999


def format_error_code(code: int) -> str:
    """Return a return code of NVML as a word."""
    return ERRORS.get(code, f"error_{code}")


def drop_blank(value: float | None) -> float | None:
    """Return a value unless it is one that NVML and DCGM write for "blank"."""
    if value is None or value in BLANKS or not math.isfinite(value):
        return None
    return None if isinstance(value, float) and _FLOAT_BLANK <= value <= _FLOAT_BLANK + 8 else value


def clean_whole(value: Any) -> int | None:
    """Return an unsigned whole number; ``None`` for a blank and for anything else."""
    if not isinstance(value, int) or value < 0 or value in BLANKS:
        return None
    return value


def clean_text(value: Any) -> str | None:
    """Return a text of NVML, stripped; ``None`` when it is empty or "not available"."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if not isinstance(value, str):
        return None
    value = value.strip()
    return None if value.upper() in ("", "N/A", "[N/A]", "UNKNOWN") else value


class NvmlCaller:
    """Calls NVML for one GPU (or the node), and records what failed.

    Parameters
    ----------
    nvml
        The ``pynvml`` module.
    gpu
        UUID for the list of failures; ``None`` for the node.
    """

    def __init__(self, nvml: Any, gpu: str | None = None) -> None:
        self.nvml = nvml
        self.gpu = gpu
        self._unsupported: set[str] = set()
        self._failed: list[Unreadable] = []

    def __call__(self, what: str, function: str, *args: Any) -> Any:
        """Return the result of NVML's ``function``; ``None`` when it is not supported, or fails.

        Raises
        ------
        GpuLostError
            The GPU is lost.
        SessionLostError
            The driver went away.
        """
        if what in self._unsupported:
            return None
        call: Callable[..., Any] | None = getattr(self.nvml, function, None)
        if call is None:
            self._unsupported.add(what)
            return None
        try:
            return call(*args)
        except Exception as error:  # noqa: BLE001 - pynvml raises NVMLError, and UnicodeDecodeError for odd texts
            self.note_failure(what, get_error_code(error))
            return None

    def note_failure(self, what: str, code: int) -> None:
        """Note an error code: as not supported, as a failure, or as the end of the GPU or of the session.

        Raises
        ------
        GpuLostError
            The GPU is lost.
        SessionLostError
            The driver went away.
        """
        if code in UNSUPPORTED:
            self._unsupported.add(what)
        elif code in _GPU_LOST:
            raise GpuLostError(format_error_code(code))
        elif code in SESSION_LOST:
            raise SessionLostError(format_error_code(code))
        elif code not in NO_ANSWER_NOW:
            self._failed.append(Unreadable(gpu=self.gpu, what=what, error=format_error_code(code)))

    def ask_all_again(self) -> None:
        """Forget what was not supported: a mode of the GPU has changed."""
        self._unsupported.clear()

    def failures(self) -> tuple[Unreadable, ...]:
        """Return what failed since the last call."""
        failed, self._failed = tuple(self._failed), []
        return failed
