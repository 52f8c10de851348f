"""Does the reader say of this machine's own GPUs what nvidia-smi says? Only with OPSK_TEST_REAL_NVML=1."""

from __future__ import annotations

import os
import shutil
import subprocess
import time

import pytest

from opsk.telemetry.gpu.nvml.source import NvmlGpus
from opsk.telemetry.gpu.samples import GpuReading
from tests.fakes.nvml import REAL

pytestmark = pytest.mark.skipif(
    not REAL or shutil.which("nvidia-smi") is None, reason="no real NVML asked for (OPSK_TEST_REAL_NVML=1)"
)
MIB = 1 << 20


@pytest.fixture(scope="module")
def readings() -> tuple[GpuReading, GpuReading]:
    source = NvmlGpus()
    first = source.gpus()
    time.sleep(1.0)
    return first, source.gpus()


def nvidia_smi(*fields: str) -> list[list[str]]:
    """Rows of nvidia-smi, one a GPU."""
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env={**os.environ}).stdout
    return [[value.strip() for value in line.split(",")] for line in printed.splitlines()]


def test_the_same_gpus_are_read(readings: tuple[GpuReading, GpuReading]) -> None:
    last = readings[1]
    rows = nvidia_smi("uuid", "index", "name", "driver_version")
    assert [[gpu.uuid, str(gpu.index), gpu.model, last.driver] for gpu in last.gpus] == rows
    assert last.lost == ()


def test_values_are_those_of_nvidia_smi(readings: tuple[GpuReading, GpuReading]) -> None:
    for gpu, (memory, temperature, limit, clock) in zip(
        readings[1].gpus,
        nvidia_smi("memory.total", "temperature.gpu", "enforced.power.limit", "clocks.max.sm"),
        strict=True,
    ):
        assert gpu.memory is not None
        assert gpu.memory.total_bytes // MIB == int(memory)
        # A GPU that works warms up by some degrees between the two questions.
        assert gpu.temperatures_c["gpu"] == pytest.approx(float(temperature), abs=10)
        assert gpu.power.limit_w == pytest.approx(float(limit), abs=1)
        assert gpu.clocks_max_hz["sm"] == float(clock) * 1e6


def test_numbers_are_of_the_size_that_they_can_be(readings: tuple[GpuReading, GpuReading]) -> None:
    first, last = readings
    for before, gpu in zip(first.gpus, last.gpus, strict=True):
        assert gpu.power.instant_w is None or 1 < gpu.power.instant_w < 3000
        assert 0 <= gpu.temperatures_c["gpu"] < 120
        assert all(0 <= ratio <= 1 for ratio in gpu.utilisation.values())
        if gpu.power.energy_j is not None and before.power.energy_j is not None:
            elapsed_s = last.read_at_s - first.read_at_s
            assert 0 <= gpu.power.energy_j - before.power.energy_j < 3000 * (elapsed_s + 1)
        if gpu.activity is not None:
            assert all(0 <= ratio <= 1 for ratio in gpu.activity.ratios.values())
        for link in gpu.nvlinks:
            assert link.state in ("active", "inactive", "sleep", "traffic_disabled")
