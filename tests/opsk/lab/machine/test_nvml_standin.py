"""Does the real nvidia-ml-py see in the stand-in what the state file says?"""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk.lab.machine.gpus import gpu_uuid, make_h100
from opsk.lab.machine.nvml_standin import (
    LIBRARY,
    STATE_VARIABLE,
    StandInProcess,
    StandInState,
    build_environment,
)
from tests.fakes.nvml import Nvml
from tests.fakes.nvml_gpus import make_a100, make_h100_node, with_gpu

GIB = 1 << 30


def test_gpus_are_counted_named_and_found_by_index_uuid_and_bus_address(tmp_path: Path) -> None:
    nvml = Nvml(tmp_path, make_h100_node(3))
    found = nvml.ask(
        "[pynvml.nvmlDeviceGetCount(), pynvml.nvmlSystemGetDriverVersion(), pynvml.nvmlSystemGetNVMLVersion(),"
        " pynvml.nvmlSystemGetCudaDriverVersion_v2()]"
        " + [[pynvml.nvmlDeviceGetName(each), pynvml.nvmlDeviceGetUUID(each), pynvml.nvmlDeviceGetIndex(each)]"
        f" for each in (gpu(1), pynvml.nvmlDeviceGetHandleByUUID({gpu_uuid(1)!r}),"
        " pynvml.nvmlDeviceGetHandleByPciBusId('0000:43:00.0'), pynvml.nvmlDeviceGetHandleByPciBusId('43:00.0'))]"
    )
    assert found == [3, "570.124.06", "12.570.124.06", 12080, *[["NVIDIA H100 80GB HBM3", gpu_uuid(1), 1]] * 4]


def test_readings_are_those_of_the_file(tmp_path: Path) -> None:
    readings = {
        "nvmlDeviceGetUtilizationRates": {"gpu": 30, "memory": 15},
        "nvmlDeviceGetPowerUsage": 120_000,
        "nvmlDeviceGetEnforcedPowerLimit": 700_000,
        "nvmlDeviceGetPowerManagementLimitConstraints": [200_000, 700_000],
        "nvmlDeviceGetTotalEnergyConsumption": 3_000_000,
        "nvmlDeviceGetMemoryInfo": {"total": 80 * GIB, "used": 3 * GIB + (551 << 20), "free": 77 * GIB - (551 << 20)},
        "nvmlDeviceGetBAR1MemoryInfo": {"bar1Total": 128 * GIB, "bar1Free": 128 * GIB - (4 << 20), "bar1Used": 4 << 20},
        "nvmlDeviceGetEccMode": [1, 1],
        "nvmlDeviceGetRemappedRows": [0, 0, 0, 0],
        "nvmlDeviceGetCudaComputeCapability": [9, 0],
        "nvmlDeviceGetFanSpeed": {"error": 3},
    }
    found = Nvml(tmp_path).ask(f"{{name: attempt(name, gpu(2)) for name in {list(readings)!r}}}")
    assert found == readings


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("'nvmlDeviceGetTemperature', gpu(1), 0", 41),
        ("'nvmlDeviceGetTemperatureV', gpu(1), 0", 41),
        ("'nvmlDeviceGetTemperatureThreshold', gpu(1), 1", 89),
        ("'nvmlDeviceGetClockInfo', gpu(1), 1", 1980),
        ("'nvmlDeviceGetClockInfo', gpu(1), 9", {"error": 2}),
        ("'nvmlDeviceGetMaxClockInfo', gpu(1), 2", 2619),
        ("'nvmlDeviceGetTotalEccErrors', gpu(1), 1, 1", 7),
        ("'nvmlDeviceGetMemoryErrorCounter', gpu(1), 1, 1, 2", 5),
        ("'nvmlDeviceGetMemoryErrorCounter', gpu(1), 1, 1, 7", 2),
        ("'nvmlDeviceGetMemoryErrorCounter', gpu(1), 1, 1, 0", {"error": 3}),
    ],
)
def test_values_that_have_a_kind_are_told_by_kind(tmp_path: Path, call: str, expected: object) -> None:
    state = make_h100_node(2)
    errors = {"ecc.aggregate.uncorrected.dram": 5, "ecc.aggregate.uncorrected.sram": 2}
    nvml = Nvml(tmp_path, with_gpu(state, 1, state.gpus[1].with_keys(errors)))
    assert nvml.ask(f"attempt({call})") == expected


def test_processes_are_listed_by_kind(tmp_path: Path) -> None:
    processes = (
        StandInProcess(pid=4242, memory_used_bytes=3 * GIB),
        StandInProcess(pid=4243, kind="graphics", memory_used_bytes=GIB),
        StandInProcess(pid=4244),
    )
    gpu = make_h100(0)
    state = StandInState(gpus=(type(gpu)(uuid=gpu.uuid, keys=gpu.keys, processes=processes),))
    found = Nvml(tmp_path, state).ask(
        "[[(each.pid, each.usedGpuMemory) for each in listed(gpu(0))]"
        " for listed in (pynvml.nvmlDeviceGetComputeRunningProcesses, pynvml.nvmlDeviceGetGraphicsRunningProcesses)]"
    )
    assert found == [[[4242, 3 * GIB], [4244, None]], [[4243, GIB]]]


def test_a_gpu_does_not_support_what_the_file_does_not_name(tmp_path: Path) -> None:
    nvml = Nvml(tmp_path, StandInState(gpus=(make_a100(0).without("energy_mj"),)))
    assert nvml.ask("attempt('nvmlDeviceGetTotalEnergyConsumption', gpu(0))") == {"error": 3}


def test_without_a_state_file_no_driver_is_loaded(tmp_path: Path) -> None:
    nvml = Nvml(tmp_path)
    nvml.path.unlink()
    assert nvml.ask("1") == {"error": 9}


def test_a_program_finds_the_library_before_others_and_keeps_its_own_variables() -> None:
    variables = build_environment(
        Path("/lab/nvml") / LIBRARY, Path("/lab/state"), {"LD_LIBRARY_PATH": "/opt", "HOME": "/x"}
    )
    assert variables == {"LD_LIBRARY_PATH": "/lab/nvml:/opt", "HOME": "/x", STATE_VARIABLE: "/lab/state"}
