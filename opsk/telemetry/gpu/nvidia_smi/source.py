"""What do the GPUs of this node say through the program nvidia-smi? For nodes whose NVML library cannot be loaded.

The program is asked in a child with a deadline; a child that hangs in the driver is left alone and no second one is
started beside it.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from opsk.errors import TelemetryError
from opsk.telemetry.gpu.nvidia_smi.reading import SmiProblem, SmiText, read_nvidia_smi
from opsk.telemetry.gpu.samples import GpuDriverMissingError, GpuReading

DEFAULT_DEADLINE_S = 10.0
_MISSING = {SmiProblem.NO_DRIVER, SmiProblem.NO_LIBRARY, SmiProblem.NO_PROGRAM}

Run = Callable[[Sequence[str], float], str]


class NvidiaSmi:
    """A `GpuSource` that asks ``nvidia-smi -q``.

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

    def gpus(self) -> GpuReading:
        """Return all GPUs.

        Raises
        ------
        GpuDriverMissingError
            There is no nvidia-smi, or no driver for it.
        TelemetryError
            nvidia-smi hangs, or prints something else.
        """
        text = self._ask()
        if text.reports:
            return _named(text.reports[-1].reading)
        if text.lost:
            return GpuReading(read_at_s=self._clock(), lost=text.lost)
        if text.problem is SmiProblem.NO_DEVICES:
            return GpuReading(read_at_s=self._clock())
        if text.problem in _MISSING:
            raise GpuDriverMissingError(f"nvidia-smi: {text.said}")
        raise TelemetryError(f"nvidia-smi: {text.said or 'it printed nothing that could be read'}")

    def _ask(self) -> SmiText:
        """Ask the program; the names of MIG devices are in its list alone."""
        text = read_nvidia_smi(printed := self._printed("-q"), read_at_s=self._clock())
        if any(gpu.mig for report in text.reports for gpu in report.reading.gpus):
            return read_nvidia_smi(f"{self._printed('-L')}\n{printed}", read_at_s=self._clock())
        return text

    def _printed(self, option: str) -> str:
        """Return what the program prints."""
        try:
            return self._run((self._program, option), self._deadline_s)
        except FileNotFoundError as error:
            raise GpuDriverMissingError(f"{self._program}: not installed") from error
        except TimeoutError as error:
            raise TelemetryError(
                f"nvidia-smi has not answered within {self._deadline_s:g} s", hint="see the kernel log for Xid lines"
            ) from error
        except OSError as error:
            raise TelemetryError(f"{self._program}: {error.strerror}") from error


def _named(reading: GpuReading) -> GpuReading:
    """Return a reading without the MIG devices that have no name: nobody could tell one from another."""
    gpus = (replace(gpu, mig=tuple(device for device in gpu.mig if device.uuid)) for gpu in reading.gpus)
    return replace(reading, gpus=tuple(gpus))


class _Child:
    """Runs one child at a time; one that cannot be ended is waited for by nobody."""

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
