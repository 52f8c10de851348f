"""Are GPUs read through nvidia-smi where NVML's library is not there, and through nothing but NVML where it is?"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from opsk.errors import TelemetryError
from opsk.telemetry.gpu.samples import GpuDriverMissingError, GpuReading
from opsk_exporters.gpu.source import NvmlOrProgram
from tests.fakes.exporter import having, series, value
from tests.fakes.gpus import FixedGpus, h100
from tests.fakes.nvidia_smi import H100, UUID, print_rows, write_program

NO_NVML = GpuDriverMissingError("NVML is not installed")
READING = GpuReading(read_at_s=1.0, gpus=(h100(0),))
OTHER = GpuReading(read_at_s=2.0, gpus=(h100(1),))


class Counted(FixedGpus):
    """Counts how often it was asked."""

    asked = 0

    def gpus(self) -> GpuReading:
        self.asked += 1
        return super().gpus()


class Scene:
    """NVML, a program that may be installed, and a clock."""

    def __init__(self, nvml: Sequence[GpuReading | Exception], program: Sequence[GpuReading | Exception]) -> None:
        self.now_s = 1000.0
        self.installed = True
        self.program = Counted(*program)
        self.source = NvmlOrProgram(
            FixedGpus(*nvml), lambda: self.program if self.installed else None, clock=lambda: self.now_s
        )


def test_where_nvml_answers_the_program_is_not_asked() -> None:
    scene = Scene([READING], [OTHER])
    assert scene.source.gpus() is READING
    assert scene.program.asked == 0


def test_where_there_is_no_nvml_the_program_is_asked_and_seldom() -> None:
    scene = Scene([NO_NVML], [OTHER])
    assert scene.source.gpus() is OTHER
    scene.now_s += 5
    assert scene.source.gpus() is OTHER
    assert scene.program.asked == 1
    scene.now_s += 60
    scene.source.gpus()
    assert scene.program.asked == 2


def test_a_driver_that_went_away_is_not_replaced_by_a_program() -> None:
    scene = Scene([READING, NO_NVML], [OTHER])
    scene.source.gpus()
    with pytest.raises(GpuDriverMissingError, match="NVML"):
        scene.source.gpus()
    assert scene.program.asked == 0


def test_a_driver_that_fails_is_not_replaced_by_a_program() -> None:
    scene = Scene([TelemetryError("versions differ")], [OTHER])
    with pytest.raises(TelemetryError, match="versions differ"):
        scene.source.gpus()
    assert scene.program.asked == 0


def test_without_the_program_or_its_driver_nvml_says_why_and_nobody_asks_again_soon() -> None:
    scene = Scene([NO_NVML], [GpuDriverMissingError("no driver"), OTHER])
    for _ in range(3):
        with pytest.raises(GpuDriverMissingError, match="NVML"):
            scene.source.gpus()
    assert scene.program.asked == 1
    scene.now_s += 3600
    assert scene.source.gpus() is OTHER
    scene.installed = False
    assert Scene([NO_NVML], [OTHER]).source.gpus() is OTHER
    absent = Scene([NO_NVML], [OTHER])
    absent.installed = False
    with pytest.raises(GpuDriverMissingError, match="NVML"):
        absent.source.gpus()


def test_a_program_that_fails_is_a_failure() -> None:
    scene = Scene([NO_NVML], [TelemetryError("nvidia-smi has not answered within 10 s")])
    with pytest.raises(TelemetryError, match="has not answered"):
        scene.source.gpus()


def test_a_node_with_the_program_alone_has_its_gpus(tmp_path: Path) -> None:
    program = write_program(tmp_path / "bin" / "nvidia-smi", print_rows(H100))
    empty = tmp_path / "empty"
    empty.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "opsk", "exporter", "--once", "--collectors", "gpu", "--sysfs", str(empty)],
        env={**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    found = series(done.stdout)
    if having(found, "opsk_gpu_up") and UUID not in done.stdout:
        pytest.skip("this machine has an NVML of its own")
    assert done.returncode == 0, done.stderr
    assert value(found, "opsk_gpu_up", gpu=UUID) == 1.0
    assert value(found, "opsk_gpu_power_watts", gpu=UUID) == 79.5
    assert value(found, "opsk_gpu_power_limit_watts", gpu=UUID) == 700.0
