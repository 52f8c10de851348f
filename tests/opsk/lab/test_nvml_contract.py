"""Is what holds of a real NVML true of the stand-in too? The same claims run on both.

Where this machine has an NVIDIA GPU and its driver, ``OPSK_TEST_REAL_NVML=1`` runs them on its own library as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opsk.lab.machine.gpus import make_h100
from opsk.lab.machine.nvml_standin import StandInState
from tests.fakes.nvml import Nvml, real_nvml
from tests.fakes.nvml_gpus import make_a100, make_h100_node

WHOLE = """{
    "count": pynvml.nvmlDeviceGetCount(),
    "driver": pynvml.nvmlSystemGetDriverVersion(),
    "beyond": attempt("nvmlDeviceGetHandleByIndex", pynvml.nvmlDeviceGetCount()),
    "unknown": attempt("nvmlDeviceGetHandleByUUID", "GPU-00000000-0000-0000-0000-00000000dead"),
    "gpus": [{
        "index": pynvml.nvmlDeviceGetIndex(one),
        "uuid": pynvml.nvmlDeviceGetUUID(one),
        "same": pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(pynvml.nvmlDeviceGetUUID(one))),
        "by_pci": pynvml.nvmlDeviceGetIndex(
            pynvml.nvmlDeviceGetHandleByPciBusId(pynvml.nvmlDeviceGetPciInfo(one).busId)),
        "pci": pynvml.nvmlDeviceGetPciInfo(one).busId,
        "legacy_pci": pynvml.nvmlDeviceGetPciInfo(one).busIdLegacy,
        "name": pynvml.nvmlDeviceGetName(one),
        "memory": plain(pynvml.nvmlDeviceGetMemoryInfo(one)),
        "memory_v2": plain(pynvml.nvmlDeviceGetMemoryInfo(one, pynvml.nvmlMemory_v2)),
        "utilization": attempt("nvmlDeviceGetUtilizationRates", one),
        "power_mw": attempt("nvmlDeviceGetPowerUsage", one),
        "energy_mj": [attempt("nvmlDeviceGetTotalEnergyConsumption", one) for _ in range(3)],
        "temperature": attempt("nvmlDeviceGetTemperature", one, 0),
        "temperature_v": attempt("nvmlDeviceGetTemperatureV", one, 0),
        "wrong_clock": attempt("nvmlDeviceGetClockInfo", one, 77),
        "reasons": [attempt("nvmlDeviceGetCurrentClocksEventReasons", one),
                    attempt("nvmlDeviceGetCurrentClocksThrottleReasons", one)],
        "fields": [(field.fieldId, field.nvmlReturn, field.valueType, field.timestamp)
                   for field in pynvml.nvmlDeviceGetFieldValues(one, [83, 185, 186, 230, 5000])],
        "link": attempt("nvmlDeviceGetNvLinkState", one, 999),
        "mig": attempt("nvmlDeviceGetMigMode", one),
        "instance": attempt("nvmlDeviceGetGpuInstanceId", one),
        "kinds": attempt("nvmlDeviceGetSupportedEventTypes", one),
        "processes": attempt("nvmlDeviceGetComputeRunningProcesses", one),
    } for one in map(gpu, range(pynvml.nvmlDeviceGetCount()))],
}"""


@pytest.fixture(params=["H100 node", "two kinds of GPU", "this machine's own"])
def seen(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "this machine's own":
        return real_nvml().ask(WHOLE)
    state = make_h100_node(4) if request.param == "H100 node" else StandInState(gpus=(make_a100(0), make_h100(1)))
    return Nvml(tmp_path, state).ask(WHOLE)


def test_gpus_are_in_the_order_of_their_indices_and_found_again(seen: Any) -> None:
    assert [gpu["index"] for gpu in seen["gpus"]] == list(range(seen["count"]))
    assert all(gpu["same"] == gpu["by_pci"] == gpu["index"] for gpu in seen["gpus"])
    assert all(gpu["uuid"].startswith("GPU-") and gpu["name"] for gpu in seen["gpus"])
    assert len({gpu["uuid"] for gpu in seen["gpus"]}) == seen["count"] > 0


def test_a_bus_address_has_eight_digits_of_domain_and_four_in_its_old_form(seen: Any) -> None:
    for gpu in seen["gpus"]:
        assert gpu["pci"].index(":") == 8
        assert gpu["legacy_pci"].index(":") == 4
        assert gpu["pci"].endswith(gpu["legacy_pci"][4:])


def test_what_is_not_there_is_not_found_and_what_is_out_of_range_is_invalid(seen: Any) -> None:
    assert (seen["beyond"], seen["unknown"]) == ({"error": 2}, {"error": 6})
    assert all(gpu["wrong_clock"] == {"error": 2} for gpu in seen["gpus"])
    assert all(gpu["link"] in ({"error": 2}, {"error": 3}) for gpu in seen["gpus"])


def test_memory_adds_up_in_both_versions(seen: Any) -> None:
    for gpu in seen["gpus"]:
        first, second = gpu["memory"], gpu["memory_v2"]
        assert first["used"] + first["free"] == first["total"]
        assert second["used"] + second["free"] + second["reserved"] == second["total"] == first["total"]


def test_readings_are_plausible(seen: Any) -> None:
    for gpu in seen["gpus"]:
        if "error" not in gpu["utilization"]:
            assert 0 <= gpu["utilization"]["gpu"] <= 100
        assert 1000 < gpu["power_mw"] < 2_000_000
        assert gpu["energy_mj"] == sorted(gpu["energy_mj"])
        assert 0 < gpu["temperature"] < 120
        assert abs(gpu["temperature_v"] - gpu["temperature"]) <= 5
        assert all(isinstance(each, int) for each in gpu["reasons"])


def test_fields_answer_one_by_one_with_their_type_and_time(seen: Any) -> None:
    for gpu in seen["gpus"]:
        answers = {number: (answer, kind) for number, answer, kind, _ in gpu["fields"]}
        assert answers[83] == (0, 3)
        assert answers[5000][0] != 0
        assert all(time_us > 1_600_000_000_000_000 for _, answer, _, time_us in gpu["fields"] if answer == 0)


def test_a_gpu_that_is_not_cut_up_has_no_instance(seen: Any) -> None:
    for gpu in seen["gpus"]:
        if gpu["mig"] in ({"error": 3}, [0, 0]):
            assert "error" in gpu["instance"]


def test_xids_can_be_listened_for(seen: Any) -> None:
    assert all(gpu["kinds"] & 8 for gpu in seen["gpus"])
