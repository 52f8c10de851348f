"""Are the stand-in's structures, errors and functions those of NVML, as the real nvidia-ml-py declares them?"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pynvml
import pytest

from tests.fakes.nvml import library

SOURCE = Path(str(files("opsk.lab") / "nvml"))
TYPES = {
    "nvmlPciInfo_t": pynvml.nvmlPciInfo_t,
    "nvmlPciInfoExt_v1_t": pynvml.nvmlPciInfoExt_v1_t,
    "nvmlSystemDriverBranchInfo_v1_t": pynvml.c_nvmlSystemDriverBranchInfo_v1_t,
    "nvmlUUID_v1_t": pynvml.c_nvmlUUID_t,
    "nvmlUtilization_t": pynvml.c_nvmlUtilization_t,
    "nvmlMemory_t": pynvml.c_nvmlMemory_t,
    "nvmlMemory_v2_t": pynvml.c_nvmlMemory_v2_t,
    "nvmlBAR1Memory_t": pynvml.c_nvmlBAR1Memory_t,
    "nvmlTemperature_v1_t": pynvml.c_nvmlTemperature_v1_t,
    "nvmlMarginTemperature_v1_t": pynvml.c_nvmlMarginTemperature_v1_t,
    "nvmlFanSpeedInfo_v1_t": pynvml.c_nvmlFanSpeedInfo_t,
    "nvmlVersionedValue_t": pynvml.c_nvmlDeviceAddressingMode_t,
    "nvmlPdi_v1_t": pynvml.c_nvmlPdi_t,
    "nvmlRepairStatus_v1_t": pynvml.c_nvmlRepairStatus_t,
    "nvmlViolationTime_t": pynvml.c_nvmlViolationTime_t,
    "nvmlValue_t": pynvml.c_nvmlValue_t,
    "nvmlSample_t": pynvml.c_nvmlSample_t,
    "nvmlFieldValue_t": pynvml.c_nvmlFieldValue_t,
    "nvmlEccErrorCounts_t": pynvml.c_nvmlEccErrorCounts_t,
    "nvmlEccSramErrorStatus_v1_t": pynvml.c_nvmlEccSramErrorStatus_v1_t,
    "nvmlRowRemapperHistogramValues_t": pynvml.c_nvmlRowRemapperHistogramValues,
    "nvmlRemappedRowsInfo_v2_t": pynvml.c_nvmlRemappedRowsInfo_v2_t,
    "nvmlEccBankRemapperStatus_v1_t": pynvml.c_nvmlEccBankRemapperStatus_v1_t,
    "nvmlProcessInfo_v2_t": pynvml.c_nvmlProcessInfo_v2_t,
    "nvmlProcessDetail_v1_t": pynvml.c_nvmlProcessDetail_v1_t,
    "nvmlProcessDetailList_v1_t": pynvml.c_nvmlProcessDetailList_v1_t,
    "nvmlProcessUtilizationSample_t": pynvml.c_nvmlProcessUtilizationSample_t,
    "nvmlProcessUtilizationInfo_v1_t": pynvml.c_nvmlProcessUtilizationInfo_v1_t,
    "nvmlProcessesUtilizationInfo_v1_t": pynvml.c_nvmlProcessesUtilizationInfo_v1_t,
    "nvmlAccountingStats_t": pynvml.c_nvmlAccountingStats_t,
    "nvmlDeviceAttributes_t": pynvml.c_nvmlDeviceAttributes,
    "nvmlPlacement_t": pynvml.c_nvmlGpuInstancePlacement_t,
    "nvmlGpuInstanceInfo_t": pynvml.c_nvmlGpuInstanceInfo_t,
    "nvmlComputeInstanceInfo_t": pynvml.c_nvmlComputeInstanceInfo_t,
    "nvmlGpuInstanceProfileInfo_t": pynvml.c_nvmlGpuInstanceProfileInfo_t,
    "nvmlGpuInstanceProfileInfo_v2_t": pynvml.c_nvmlGpuInstanceProfileInfo_v2_t,
    "nvmlGpuFabricInfo_t": pynvml.c_nvmlGpuFabricInfo_t,
    "nvmlGpuFabricInfo_v2_t": pynvml.c_nvmlGpuFabricInfo_v2_t,
    "nvmlGpuFabricInfo_v3_t": pynvml.c_nvmlGpuFabricInfo_v3_t,
    "nvmlGpuFabricInfo_v4_t": pynvml.c_nvmlGpuFabricInfo_v4_t,
    "nvmlPlatformInfo_v2_t": pynvml.c_nvmlPlatformInfo_v2_t,
    "nvmlEventData_t": pynvml.c_nvmlEventData_t,
    "nvmlGpmMetric_t": pynvml.c_nvmlGpmMetric_t,
    "nvmlGpmMetricsGet_t": pynvml.c_nvmlGpmMetricsGet_t,
    "nvmlGpmSupport_t": pynvml.c_nvmlGpmSupport_t,
}
NOT_IN_PYNVML = {"nvmlProcessInfo_v1_t"}
"""The first layout of a process: nvidia-ml-py declares no structure for it any more."""
VERSIONS = {
    ("nvmlMemory_v2_t", 2): pynvml.nvmlMemory_v2,
    ("nvmlTemperature_v1_t", 1): pynvml.nvmlTemperature_v1,
    ("nvmlMarginTemperature_v1_t", 1): pynvml.nvmlMarginTemperature_v1,
    ("nvmlFanSpeedInfo_v1_t", 1): pynvml.nvmlFanSpeedInfo_v1,
    ("nvmlUUID_v1_t", 1): pynvml.nvmlUUID_v1,
    ("nvmlPdi_v1_t", 1): pynvml.nvmlPdi_v1,
    ("nvmlPciInfoExt_v1_t", 1): pynvml.nvmlPciInfoExt_v1,
    ("nvmlRepairStatus_v1_t", 1): pynvml.nvmlRepairStatus_v1,
    ("nvmlVersionedValue_t", 1): pynvml.nvmlDeviceAddressingMode_v1,
    ("nvmlSystemDriverBranchInfo_v1_t", 1): pynvml.SystemDriverBranchInfo_v1,
    ("nvmlEccSramErrorStatus_v1_t", 1): pynvml.nvmlEccSramErrorStatus_v1,
    ("nvmlProcessDetailList_v1_t", 1): pynvml.nvmlProcessDetailList_v1,
    ("nvmlProcessesUtilizationInfo_v1_t", 1): pynvml.ProcessesUtilizationInfo_v1,
    ("nvmlGpuInstanceProfileInfo_v2_t", 2): pynvml.nvmlGpuInstanceProfileInfo_v2,
    ("nvmlGpuFabricInfo_v2_t", 2): pynvml.nvmlGpuFabricInfo_v2,
    ("nvmlGpuFabricInfo_v3_t", 3): pynvml.nvmlGpuFabricInfo_v3,
    ("nvmlPlatformInfo_v2_t", 1): pynvml.nvmlPlatformInfo_v1,
    ("nvmlPlatformInfo_v2_t", 2): pynvml.nvmlPlatformInfo_v2,
}


@pytest.fixture(autouse=True)
def gcc() -> str:
    found = shutil.which("gcc")
    if found is None:
        pytest.skip("no gcc to make the NVML stand-in with (package gcc)")
    return found


def test_every_structure_has_the_size_and_offsets_of_the_real_one(gcc: str) -> None:
    wrong = _compile(gcc, [claim for name, real in TYPES.items() for claim in _layout(name, real)])
    assert wrong == []


def test_every_structure_of_the_header_is_compared() -> None:
    declared = set(re.findall(r"^\} (nvml\w+_t);", (SOURCE / "abi.h").read_text(), re.MULTILINE))
    assert declared == set(TYPES) | NOT_IN_PYNVML


def test_every_error_has_the_number_of_the_real_one(gcc: str) -> None:
    claims = [f"{name} == {getattr(pynvml, name)}" for name in dir(pynvml) if name.startswith("NVML_ERROR_")]
    assert len(claims) > 30
    # A count of kinds of ECC errors, no error number.
    assert _compile(gcc, [claim for claim in claims if not claim.startswith("NVML_ERROR_TYPE")]) == []


def test_version_words_are_the_real_ones(gcc: str) -> None:
    claims = [f"NVML_VERSION_OF({name}, {number}) == {word}u" for (name, number), word in VERSIONS.items()]
    assert _compile(gcc, [*claims, f"NVML_GPM_METRIC_MAX == {pynvml.NVML_GPM_METRIC_MAX}"]) == []


def test_a_wrong_layout_would_be_seen(gcc: str) -> None:
    assert _compile(gcc, ["sizeof(nvmlMemory_t) == 23"]) == ["sizeof(nvmlMemory_t) == 23"]


def test_every_function_that_nvidia_ml_py_asks_for_is_there_and_nothing_else_shows() -> None:
    asked = set(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', Path(pynvml.__file__).read_text(encoding="utf-8")))
    loaded = ctypes.CDLL(str(library()))
    assert [name for name in sorted(asked) if not hasattr(loaded, name)] == []
    assert not hasattr(loaded, "state_acquire")


def _layout(name: str, real: type[ctypes.Structure]) -> Iterator[str]:
    yield f"sizeof({name}) == {ctypes.sizeof(real)}"
    fields = re.search(rf"typedef (?:struct|union) \{{((?:(?!typedef).)*)\}} {name};", _header(), re.DOTALL)
    assert fields is not None, name
    for place, (field, *_) in enumerate(real._fields_):
        own = field if re.search(rf"\b{field}\b", fields[1]) else _nth_name(fields[1], place)
        description = getattr(real, field)
        yield f"offsetof({name}, {own}) == {description.offset}"
        yield f"sizeof((({name} *)0)->{own}) == {description.size}"


def _header() -> str:
    return re.sub(r"/\*.*?\*/", "", (SOURCE / "abi.h").read_text(), flags=re.DOTALL)


def _nth_name(fields: str, place: int) -> str:
    """Structures that differ in names alone share one of ours: the field is told by its place."""
    names = [re.sub(r"\[.*", "", each).split()[-1].lstrip("*") for each in re.split(r"[,;]", fields) if each.strip()]
    return names[place]


def _compile(gcc: str, claims: list[str]) -> list[str]:
    """Return the claims that the compiler finds false."""
    lines = ["#include <stddef.h>", '#include "abi.h"', *(f'_Static_assert({claim}, "claim");' for claim in claims)]
    done = subprocess.run(
        [gcc, "-std=gnu11", "-fsyntax-only", "-x", "c", "-I", str(SOURCE), "-"],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    broken = {int(number) for number in re.findall(r"^<stdin>:(\d+):\d+: error", done.stderr, re.MULTILINE)}
    assert broken or done.returncode == 0, done.stderr
    return [claims[number - 3] for number in sorted(broken)]
