"""Does the program as a source tell a node without a driver from a driver that fails, and survive one that hangs?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from opsk.errors import TelemetryError
from opsk.telemetry.gpu.nvidia_smi import NvidiaSmi
from opsk.telemetry.gpu.samples import GpuDriverMissingError

QUERY = """
==============NVSMI LOG==============

Attached GPUs                             : 1
GPU 00000000:1A:00.0
    GPU UUID                              : GPU-1
"""


def source(printed: str) -> NvidiaSmi:
    return NvidiaSmi(run=lambda command, deadline_s: printed, clock=lambda: 5.0)


def test_a_query_is_a_reading() -> None:
    reading = source(QUERY).gpus()
    assert [gpu.uuid for gpu in reading.gpus] == ["GPU-1"]
    assert reading.read_at_s == 5.0


MIG = """
==============NVSMI LOG==============

Attached GPUs                             : 1
GPU 00000000:1A:00.0
    GPU UUID                              : GPU-11111111-2222-3333-4444-555555555555
    MIG Mode
        Current                           : Enabled
    MIG Device
        Index                             : 0
        GPU Instance ID                   : 2
        Compute Instance ID               : 0
    MIG Device
        Index                             : 1
        GPU Instance ID                   : 3
        Compute Instance ID               : 0
"""
LIST = """GPU 0: NVIDIA H100 (UUID: GPU-11111111-2222-3333-4444-555555555555)
  MIG 1g.10gb     Device  0: (UUID: MIG-aaaaaaaa-0000-0000-0000-000000000000)
"""


def test_mig_devices_have_their_names_from_the_list_and_nameless_ones_are_left_out() -> None:
    def run(command: Sequence[str], deadline_s: float) -> str:
        return LIST if command[-1] == "-L" else MIG

    (gpu,) = NvidiaSmi(run=run).gpus().gpus
    assert [(mig.uuid, mig.profile) for mig in gpu.mig] == [("MIG-aaaaaaaa-0000-0000-0000-000000000000", "1g.10gb")]


def test_lost_gpus_alone_are_a_reading() -> None:
    (lost,) = source("Unable to determine the device handle for GPU0000:08:00.0: Unknown Error\n").gpus().lost
    assert lost.pci == "0000:08:00.0"


def test_a_node_without_gpus_is_no_failure() -> None:
    assert source("No devices were found\n").gpus().gpus == ()


@pytest.mark.parametrize("printed", ["NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."])
def test_no_driver_is_not_a_failure_of_one(printed: str) -> None:
    with pytest.raises(GpuDriverMissingError):
        source(printed).gpus()


@pytest.mark.parametrize(
    "printed", ["Failed to initialize NVML: Driver/library version mismatch", "Segmentation fault", ""]
)
def test_a_driver_that_fails_is_an_error(printed: str) -> None:
    with pytest.raises(TelemetryError) as caught:
        source(printed).gpus()
    assert not isinstance(caught.value, GpuDriverMissingError)


def test_the_program_is_run_and_a_missing_one_is_said(tmp_path: Path) -> None:
    program = tmp_path / "smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{QUERY}END\n")
    program.chmod(0o755)
    assert [gpu.uuid for gpu in NvidiaSmi(str(program)).gpus().gpus] == ["GPU-1"]
    with pytest.raises(GpuDriverMissingError, match="not installed"):
        NvidiaSmi(str(tmp_path / "none")).gpus()


def test_a_program_that_hangs_is_left_and_not_started_twice(tmp_path: Path) -> None:
    program, started = tmp_path / "smi", tmp_path / "started"
    program.write_text(f"#!/bin/sh\necho x >>{started}\nexec sleep 60\n")
    program.chmod(0o755)
    smi = NvidiaSmi(str(program), deadline_s=0.5)
    with pytest.raises(TelemetryError, match="not answered within"):
        smi.gpus()
    assert os.stat(started).st_size == 2  # noqa: PTH116
