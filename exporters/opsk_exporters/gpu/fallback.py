"""Reads NVIDIA's GPUs through nvidia-smi where NVML's library cannot be loaded.

The program is asked seldom, since it costs a process and some seconds, and only where NVML never answered: a driver
that went away is a fault to be shown. It reports less than NVML: no activity, energy, NVLinks, MIG devices or events.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable

from opsk.telemetry.background_reader import close
from opsk.telemetry.gpu.samples import GpuDriverMissingError, GpuReading, GpuSource

LOG = logging.getLogger("opsk.exporter")
PROGRAM = "nvidia-smi"
_EVERY_S = 14.0
"""A scrape every 15 s has a reading of its own."""
_ABSENT_FOR_S = 300.0


def nvidia_smi() -> GpuSource | None:
    """Return the program as a source; ``None`` where it is not installed."""
    if shutil.which(PROGRAM) is None:
        return None
    from opsk.telemetry.gpu.nvidia_smi import NvidiaSmi

    return NvidiaSmi(PROGRAM)


class NvmlOrProgram:
    """A ``GpuSource`` that asks NVML, and a program where NVML was never there.

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
